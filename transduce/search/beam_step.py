"""One step of beam search or sampling (§6.1): `advance` returns the next `Beams`.

Every function uses tensors of fixed shape and never branches on their values, so it can be captured
in a CUDA graph. No sentence affects another. Ties go to the hypothesis with the smaller index, then
to the smaller token id, on every device.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.search.beams import Beams
from transduce.search.candidates import NEVER, candidates, enforce, forbid_repetition


class Choice(NamedTuple):
    """The candidates that a step has selected."""

    ends: Tensor  # (B, K) whether the hypothesis is finished by this step
    parents: Tensor  # (B, K) the hypothesis that each new live hypothesis extends
    columns: Tensor  # (B, K) the candidate that extends it
    score: Tensor  # (B, K) log-probability of each new live hypothesis
    margin: Tensor  # (B,) smallest score difference between a selected and a rejected candidate


def advance(beams: Beams, log_probs: Tensor, config: SearchConfig) -> tuple[Beams, Tensor, Tensor]:
    """Extend every hypothesis by one token.

    log_probs (R, V) -> the new beams, and for each of their R = B K hypotheses the row (R,) that it
    extends and its new token (R,).
    """
    values, ids = continuations(beams, log_probs, config)
    return settle(beams, values, ids, config, pad=log_probs.size(-1) - 1)


def continuations(beams: Beams, log_probs: Tensor, config: SearchConfig) -> tuple[Tensor, Tensor]:
    """Return the candidates of a step, from which `settle` selects.

    log_probs (R, V) -> values and ids, each (B, K, 1 + C). The first candidate of a hypothesis is
    the end of the sentence; a candidate that is not allowed has the value -inf.
    """
    B, K = beams.live.score.shape
    V = log_probs.size(-1)
    log_probs = log_probs.float().view(B, K, V)

    # The best continuations of each hypothesis. One more than K shows how close the decision was.
    allowed = forbid_repetition(log_probs, beams.live.tokens, beams.length, config)
    count = K + 1 if config.temperature == 0 else config.top_k or V
    values, ids = candidates(allowed.flatten(0, 1), count, config)
    values = values.view(B, K, -1)
    ids = ids.view(B, K, -1)

    # A forced token replaces them; -1 where the prefix is over.
    forced = beams.prefix.gather(1, beams.length[:, None])[:, 0]  # (B,)
    forced_index = forced.clamp(min=0)[:, None, None].expand(B, K, 1)
    forced_values = log_probs.gather(-1, forced_index)[..., 0]  # (B, K)
    return enforce(values, ids, forced, forced_values, beams.length, beams.limit, config)


def settle(
    beams: Beams, values: Tensor, ids: Tensor, config: SearchConfig, *, pad: int
) -> tuple[Beams, Tensor, Tensor]:
    """Select among candidates (B, K, 1 + C), the first of which is the end of the sentence.

    This decides which hypotheses end, which are extended and which sentences are finished. Returns
    what `advance` returns.
    """
    B, K = beams.live.score.shape
    length = beams.length
    values = values.clamp(max=0.0)
    select = _sample if config.temperature > 0 else _rank
    choice = select(beams, values, config)

    # Merge the hypotheses that end now into the n best finished ones.
    end_penalty = beams.penalty.gather(1, length[:, None] + 1)
    end_score = (beams.live.score + values[..., 0]) / end_penalty
    end_score = end_score.where(choice.ends, NEVER)
    ending = beams.live.extend(length, ids[..., 0], values[..., 0], end_score)
    pool = beams.ended.join(ending)
    ranked, order = pool.score.sort(dim=1, descending=True, stable=True)
    ended = pool.take(order[:, : config.n_best])
    endings = beams.endings + choice.ends.sum(1)

    # Stop early where that cannot change the result. Log-probabilities only fall, and dividing a
    # negative number by the largest penalty, that of the longest output, gives the best score that
    # a live hypothesis can reach. Rounding is monotone, so this holds for floats too.
    largest_penalty = beams.penalty.gather(1, beams.limit[:, None] + 1)[:, 0]
    attainable = choice.score.amax(1) / largest_penalty
    worst_ended = ended.score[:, -1]
    over = (attainable <= worst_ended) | (endings >= config.patience * config.width)
    score = choice.score.masked_fill(over[:, None], NEVER)

    # Record the closest decision of this step and of those before.
    gaps = [_gap(ranked, n) for n in range(1, config.n_best + 1)]
    margin = torch.stack([beams.margin, choice.margin, *gaps]).amin(0)
    margin = torch.minimum(margin, _finite((attainable - worst_ended).abs()))

    # Extend the selected hypotheses; those of a finished sentence get padding.
    chosen = choice.parents * ids.size(-1) + choice.columns  # (B, K) index into K (1 + C)
    tokens = ids.flatten(1).gather(1, chosen).where(score > NEVER, pad)
    token_log_probs = values.flatten(1).gather(1, chosen)
    live = beams.live.take(choice.parents).extend(length, tokens, token_log_probs, score)
    length = torch.minimum(length + 1, beams.limit)
    beams = replace(beams, live=live, ended=ended, endings=endings, length=length, margin=margin)

    first_rows = torch.arange(B, device=tokens.device)[:, None] * K
    rows = choice.parents + first_rows
    return beams, rows.flatten(), tokens.flatten()


def _rank(beams: Beams, values: Tensor, config: SearchConfig) -> Choice:
    """Select for beam search, from values (B, K, 1 + C).

    A hypothesis ends if its end of sentence is among the K best candidates. The K best other
    candidates become the new live hypotheses.
    """
    K = values.size(1)
    C = values.size(2) - 1
    totals = beams.live.score[..., None] + values  # (B, K, 1 + C)

    # Which ends of sentences are among the K best of all candidates.
    ranked, order = totals.flatten(1).sort(dim=1, descending=True, stable=True)
    none = torch.zeros_like(totals, dtype=torch.bool).flatten(1)
    among_best = none.scatter(1, order[:, :K], True).view_as(totals)
    ends = among_best[..., 0] & (totals[..., 0] > NEVER)

    # The K best candidates that are no end.
    score, others = totals[..., 1:].flatten(1).sort(dim=1, descending=True, stable=True)
    margin = torch.minimum(_gap(ranked, K), _gap(score, K))
    others = others[:, :K]
    return Choice(
        ends=ends,
        parents=others // C,
        columns=others % C + 1,
        score=score[:, :K],
        margin=margin,
    )


def _gap(ranked: Tensor, n: int) -> Tensor:
    """Return the difference between the nth and the next value of each row:  (B, m) -> (B,)."""
    if n >= ranked.size(1):
        return torch.full_like(ranked[:, 0], torch.inf)
    return _finite(ranked[:, n - 1] - ranked[:, n])


def _finite(difference: Tensor) -> Tensor:
    """Return score differences, with infinity where one or both of the scores are -inf."""
    return difference.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)


def _sample(beams: Beams, values: Tensor, config: SearchConfig) -> Choice:
    """Sample each hypothesis's next token, which may be the end, from values (B, K, 1 + C)."""
    K = values.size(1)

    # Probabilities, largest first, cut to the top k and to the smallest set with mass top_p.
    scaled, order = (values / config.temperature).sort(dim=-1, descending=True, stable=True)
    mass = scaled[..., : config.top_k or None].softmax(-1, dtype=torch.float64)
    kept = mass.cumsum(-1) - mass < config.top_p
    cumulative = (mass * kept).cumsum(-1)

    # Invert the cumulative distribution at one random number per hypothesis.
    step_index = beams.length[:, None, None].expand(-1, 1, K)
    chance = beams.chance.gather(1, step_index)[:, 0]  # (B, K)
    threshold = chance * cumulative[..., -1]
    drawn = torch.searchsorted(cumulative, threshold[..., None], right=True)
    columns = order.gather(-1, drawn.clamp(max=mass.size(-1) - 1))[..., 0]

    score = beams.live.score + values.gather(-1, columns[..., None])[..., 0]
    ends = (columns == 0) & (score > NEVER)
    return Choice(
        ends=ends,
        parents=torch.arange(K, device=values.device).expand_as(columns),
        columns=columns,
        score=score.masked_fill(ends, NEVER),
        # In the tail of a distribution a random number is always close to the next token.
        margin=torch.zeros_like(beams.margin),
    )
