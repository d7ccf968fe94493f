"""One token further: the searches of B sentences, K hypotheses each, as one frozen value that moves forward.

Every function is made of tensors of fixed shape and never looks at their values, so it can be captured and replayed;
no sentence sees another. Ties go to the hypothesis that stands first, then to the smaller id, on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.errors import InputError
from transduce.search.candidates import EOS, NEVER, candidates, enforce, forbid_repetition

T = TypeVar("T")
# Who ends; parent, column and log-probability of those that live on; by how much this was decided (B,).
Choice = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Paths:
    """n hypotheses a sentence; W is the longest limit and one for the end. A score of -inf: no hypothesis."""

    tokens: Tensor  # (B, n, W)
    log_probs: Tensor  # (B, n, W)
    score: Tensor  # (B, n)

    def take(self, index: Tensor) -> Paths:
        """The hypotheses at index (B, m) of each sentence."""
        wide = index[..., None].expand(-1, -1, self.tokens.size(-1))
        return Paths(
            self.tokens.gather(1, wide), self.log_probs.gather(1, wide), self.score.gather(1, index)
        )

    def extend(self, at: Tensor, tokens: Tensor, log_probs: Tensor, score: Tensor) -> Paths:
        """Each hypothesis with one more token (B, n) at position `at` (B,), and its new score."""
        here = torch.arange(self.tokens.size(-1), device=at.device) == at[:, None, None]
        return Paths(
            tokens[..., None].where(here, self.tokens),
            log_probs[..., None].where(here, self.log_probs),
            score,
        )


@dataclass(frozen=True)
class Beams:
    """The search of B sentences. Every tensor has the sentence as its first dimension."""

    live: Paths  # (B, K): score is the log-probability so far
    ended: Paths  # (B, n_best), best first: score is the final one
    endings: Tensor  # (B,) hypotheses that have ended
    length: Tensor  # (B,) tokens of the live ones
    limit: Tensor  # (B,) the most tokens before the end
    prefix: Tensor  # (B, W) forced tokens, then -1
    # (B, W + 1) ((5 + length) / 6)^alpha; looked up, as pow may round differently in a larger
    # batch.
    penalty: Tensor
    chance: Tensor  # (B, W, K) uniform numbers in [0, 1) for sampling
    # (B,) by how much the closest decision so far was taken: numbers this far off change nothing.
    margin: Tensor

    def alive(self) -> Tensor:
        """(B,) whether the sentence's search goes on."""
        return (self.live.score > NEVER).any(1)

    def select(self, sentences: Tensor) -> Beams:
        """The search of these sentences (n,) alone."""
        return _each(lambda mine: mine[sentences], self)

    def repeat(self, n: int) -> Beams:
        """The search of one sentence n times; nothing is copied."""
        return _each(lambda mine: mine.expand(n, *mine.shape[1:]), self)

    def put(self, sentences: Tensor, fresh: Beams) -> None:
        """The places of these sentences (n,) taken by the n of `fresh`, begun with the same capacity; in place."""
        _each(lambda mine, new: mine.index_copy_(0, sentences, new), self, fresh)

    def assign(self, other: Beams) -> None:
        """Overwrite every tensor in its place, for a captured graph."""
        _each(lambda mine, new: mine.copy_(new), self, other)

    def over(self) -> Beams:
        """Searches that are done."""
        return replace(self, live=replace(self.live, score=torch.full_like(self.live.score, NEVER)))


def _each(function: Callable[..., Tensor], *values: T) -> T:
    """The function applied to each tensor of a value, or to those of several values together."""
    if isinstance(values[0], Tensor):
        return function(*values)  # type: ignore[return-value]
    names = [field.name for field in fields(values[0])]  # type: ignore[arg-type]
    return type(values[0])(
        *(_each(function, *(getattr(value, name) for value in values)) for name in names)
    )


def begin(
    limits: Sequence[int],
    pad: int,
    config: SearchConfig,
    *,
    prefixes: Sequence[Sequence[int]] = (),
    seeds: Sequence[int] = (),
    capacity: int = 0,
    device: torch.device | str = "cpu",
) -> Beams:
    """Searches that have said nothing yet. `capacity` is the longest limit that `refill` may bring later.

    `seeds` makes the samples of each sentence: `sentence_seed` gives one that its neighbours cannot change.
    """
    B, K, W = len(limits), config.width, max([capacity, *limits]) + 1
    prefix = torch.full((B, W), -1)
    for row, tokens in enumerate(prefixes):
        check_prefix(tokens, limits[row], pad)
        prefix[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    chance = draws(seeds or [config.seed] * B, limits, W, config)
    penalties = torch.tensor([((5 + length) / 6) ** config.alpha for length in range(W + 1)])

    def nothing(n: int) -> Paths:
        return Paths(
            torch.zeros(B, n, W, dtype=torch.long), torch.zeros(B, n, W), torch.full((B, n), NEVER)
        )

    live = nothing(K)
    # A beam opens from one empty hypothesis.
    live.score[:, : K if config.temperature > 0 else 1] = 0.0
    zero = torch.zeros(B, dtype=torch.long)
    most = torch.tensor(limits, dtype=torch.long)
    margin = torch.full((B,), torch.inf)
    beams = Beams(
        live,
        nothing(config.n_best),
        zero,
        zero,
        most,
        prefix,
        penalties.repeat(B, 1),
        chance,
        margin,
    )
    return _each(lambda tensor: tensor.to(device), beams)


def draws(seeds: Sequence[int], limits: Sequence[int], W: int, config: SearchConfig) -> Tensor:
    """Uniform numbers (B, W, K) for samples; zeros for a search without."""
    chance = torch.zeros(len(limits), W, config.width, dtype=torch.float64)
    if config.temperature > 0:
        for row, (seed, limit) in enumerate(zip(seeds, limits, strict=True)):
            draw = torch.Generator().manual_seed(seed)
            chance[row, : limit + 1] = torch.rand(
                limit + 1, config.width, generator=draw, dtype=torch.float64
            )
    return chance


def check_prefix(tokens: Sequence[int], limit: int, pad: int) -> None:
    """Refuse a forced beginning that cannot be said."""
    if len(tokens) > limit:
        raise InputError(
            f"a forced prefix has {len(tokens)} tokens, but the output may have {limit}; raise max_extra"
        )
    if not all(EOS < token < pad for token in tokens):
        raise InputError(
            f"a forced prefix holds {list(tokens)}; expected ids above {EOS}, the end, and below {pad}"
        )


def advance(beams: Beams, log_probs: Tensor, config: SearchConfig) -> tuple[Beams, Tensor, Tensor]:
    """One token further:  log_probs (R, V) -> the beams, the row (R,) each hypothesis grew from, its token (R,)."""
    (B, K), V = beams.live.score.shape, log_probs.size(-1)
    log_probs = log_probs.float().view(B, K, V)
    sayable = forbid_repetition(log_probs, beams.live.tokens, beams.length, config)
    # One more than needed, to see how close it was.
    count = K + 1 if config.temperature == 0 else config.top_k or V
    values, ids = candidates(sayable.flatten(0, 1), count, config)
    forced = beams.prefix.gather(1, beams.length[:, None])[:, 0]
    forced_values = log_probs.gather(-1, forced.clamp(min=0)[:, None, None].expand(B, K, 1))[..., 0]
    values, ids = enforce(
        values.view(B, K, -1),
        ids.view(B, K, -1),
        forced,
        forced_values,
        beams.length,
        beams.limit,
        config,
    )
    return settle(beams, values, ids, config, pad=V - 1)


def settle(
    beams: Beams, values: Tensor, ids: Tensor, config: SearchConfig, *, pad: int
) -> tuple[Beams, Tensor, Tensor]:
    """Choose among candidates (B, K, 1 + C), the end first: which hypotheses end, which grow, what is over."""
    (B, K), length = beams.live.score.shape, beams.length
    values = values.clamp(max=0.0)
    choose = _draw if config.temperature > 0 else _rank
    ends, parents, column, score, margin = choose(beams, values, config)
    end_score = (beams.live.score + values[..., 0]) / beams.penalty.gather(1, length[:, None] + 1)
    closed = beams.live.extend(length, ids[..., 0], values[..., 0], end_score.where(ends, NEVER))
    pool = _each(lambda old, new: torch.cat([old, new], dim=1), beams.ended, closed)
    ranked, order = pool.score.sort(dim=1, descending=True, stable=True)
    ended = pool.take(order[:, : config.n_best])
    endings = beams.endings + ends.sum(1)

    # Early stopping that cannot change the result: log-probabilities only fall, and dividing a negative number by the
    # largest penalty, that of the longest output, leaves the most. Rounding is monotone, so this holds for floats too.
    attainable = score.amax(1) / beams.penalty.gather(1, beams.limit[:, None] + 1)[:, 0]
    over = (attainable <= ended.score[:, -1]) | (endings >= config.patience * config.width)
    margin = torch.stack(
        [beams.margin, margin, *(_gap(ranked, n) for n in range(1, config.n_best + 1))]
    )
    margin = torch.minimum(margin.amin(0), _finite((attainable - ended.score[:, -1]).abs()))
    score = score.masked_fill(over[:, None], NEVER)
    flat = parents * ids.size(-1) + column
    tokens = ids.flatten(1).gather(1, flat).where(score > NEVER, pad)
    live = beams.live.take(parents).extend(length, tokens, values.flatten(1).gather(1, flat), score)
    length = torch.minimum(length + 1, beams.limit)
    rows = parents + torch.arange(B, device=parents.device)[:, None] * K
    beams = replace(beams, live=live, ended=ended, endings=endings, length=length, margin=margin)
    return beams, rows.flatten(), tokens.flatten()


def _rank(beams: Beams, values: Tensor, config: SearchConfig) -> Choice:
    """Beam search: a hypothesis ends if that is among the K best candidates; the K best others live on.

    Values (B, K, 1 + C) -> four times (B, K), and the margin (B,).
    """
    K, C = values.size(1), values.size(2) - 1
    totals = beams.live.score[..., None] + values
    ranked, best = totals.flatten(1).sort(dim=1, descending=True, stable=True)
    best = best[:, :K]
    among_best = (
        torch.zeros_like(totals, dtype=torch.bool).flatten(1).scatter(1, best, True).view_as(totals)
    )
    score, others = totals[..., 1:].flatten(1).sort(dim=1, descending=True, stable=True)
    margin = torch.minimum(_gap(ranked, K), _gap(score, K))
    others = others[:, :K]
    return (
        among_best[..., 0] & (totals[..., 0] > NEVER),
        others // C,
        others % C + 1,
        score[:, :K],
        margin,
    )


def _gap(ranked: Tensor, n: int) -> Tensor:
    """By how much the first n of each row lead the next:  (B, m) -> (B,)."""
    return (
        _finite(ranked[:, n - 1] - ranked[:, n])
        if n < ranked.size(1)
        else torch.full_like(ranked[:, 0], torch.inf)
    )


def _finite(difference: Tensor) -> Tensor:
    """A difference of two scores; infinite where one of them is, or both are, no score."""
    return difference.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)


def _draw(beams: Beams, values: Tensor, config: SearchConfig) -> Choice:
    """Sampling: each hypothesis draws its own next token, which may be the end. Shapes as in `_rank`."""
    scaled, order = (values / config.temperature).sort(dim=-1, descending=True, stable=True)
    mass = scaled[..., : config.top_k or None].softmax(-1, dtype=torch.float64)
    kept = mass.cumsum(-1) - mass < config.top_p
    cumulative = (mass * kept).cumsum(-1)
    # (B, K).
    chance = beams.chance.gather(1, beams.length[:, None, None].expand(-1, 1, values.size(1)))[:, 0]
    drawn = torch.searchsorted(cumulative, (chance * cumulative[..., -1])[..., None], right=True)
    column = order.gather(-1, drawn.clamp(max=mass.size(-1) - 1))[..., 0]
    score = beams.live.score + values.gather(-1, column[..., None])[..., 0]
    ends = (column == 0) & (score > NEVER)
    parents = torch.arange(values.size(1), device=values.device).expand_as(column)
    # A number drawn between two tokens of the tail always lies close.
    margin = torch.zeros_like(beams.margin)
    return ends, parents, column, score.masked_fill(ends, NEVER), margin
