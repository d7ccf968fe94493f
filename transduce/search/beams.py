"""The searches of B sentences with K hypotheses each, as one immutable value: `Beams`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.errors import InputError
from transduce.search.candidates import EOS, NEVER

T = TypeVar("T")


@dataclass(frozen=True)
class Paths:
    """n hypotheses per sentence. A score of -inf marks an unused place.

    W is the largest length limit plus one for the end of the sentence.
    """

    tokens: Tensor  # (B, n, W)
    log_probs: Tensor  # (B, n, W)
    score: Tensor  # (B, n)

    def take(self, index: Tensor) -> Paths:
        """Return the hypotheses at index (B, m) of each sentence."""
        index_of_tokens = index[..., None].expand(-1, -1, self.tokens.size(-1))  # (B, m, W)
        return Paths(
            tokens=self.tokens.gather(1, index_of_tokens),
            log_probs=self.log_probs.gather(1, index_of_tokens),
            score=self.score.gather(1, index),
        )

    def extend(self, at: Tensor, tokens: Tensor, log_probs: Tensor, score: Tensor) -> Paths:
        """Return the hypotheses with a token (B, n) at position `at` (B,) and with new scores."""
        positions = torch.arange(self.tokens.size(-1), device=at.device)
        is_new = positions == at[:, None, None]
        return Paths(
            tokens=tokens[..., None].where(is_new, self.tokens),
            log_probs=log_probs[..., None].where(is_new, self.log_probs),
            score=score,
        )

    def join(self, others: Paths) -> Paths:
        """Return these hypotheses and m others of the same sentences:  (B, n + m)."""
        return _map_tensors(lambda *both: torch.cat(both, dim=1), self, others)


@dataclass(frozen=True)
class Beams:
    """The searches of B sentences. The first dimension of every tensor is the sentence."""

    live: Paths  # (B, K) unfinished hypotheses; their score is the log-probability so far
    ended: Paths  # (B, n_best) finished hypotheses, best first; their score is the final one
    endings: Tensor  # (B,) how many hypotheses have ended
    length: Tensor  # (B,) tokens of each live hypothesis
    limit: Tensor  # (B,) the largest number of tokens before the end
    prefix: Tensor  # (B, W) forced tokens, then -1
    # (B, W + 1) the length penalty ((5 + length) / 6)^alpha. It is a table because pow may round
    # differently in a larger batch.
    penalty: Tensor
    chance: Tensor  # (B, W, K) uniform random numbers in [0, 1) for sampling
    # (B,) the smallest score difference that decided anything so far. Rounding errors smaller than
    # this cannot change the result.
    margin: Tensor

    def alive(self) -> Tensor:
        """Return (B,) whether the search of each sentence goes on."""
        return (self.live.score > NEVER).any(1)

    def select(self, sentences: Tensor) -> Beams:
        """Return the searches of these sentences (n,)."""
        return _map_tensors(lambda tensor: tensor[sentences], self)

    def repeat(self, n: int) -> Beams:
        """Return the search of one sentence n times, without copying memory."""
        return _map_tensors(lambda tensor: tensor.expand(n, *tensor.shape[1:]), self)

    def put(self, sentences: Tensor, fresh: Beams) -> None:
        """Replace the searches of these sentences (n,) in place by the n of `fresh`.

        `fresh` must have been started with the same capacity.
        """
        _map_tensors(lambda old, new: old.index_copy_(0, sentences, new), self, fresh)

    def assign(self, other: Beams) -> None:
        """Overwrite every tensor in place, as a captured graph needs it."""
        _map_tensors(lambda old, new: old.copy_(new), self, other)

    def over(self) -> Beams:
        """Return the same searches marked as finished."""
        no_score = torch.full_like(self.live.score, NEVER)
        return replace(self, live=replace(self.live, score=no_score))


def _map_tensors(function: Callable[..., Tensor], *values: T) -> T:
    """Apply a function to each tensor of a dataclass, or to the same tensor of several."""
    first = values[0]
    if isinstance(first, Tensor):
        return function(*values)  # type: ignore[return-value]
    mapped = []
    for field in fields(first):  # type: ignore[arg-type]
        members = [getattr(value, field.name) for value in values]
        mapped.append(_map_tensors(function, *members))
    return type(first)(*mapped)


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
    """Return searches in which no token has been generated yet.

    `capacity` is the largest limit of sentences that `Beams.put` may bring later. `seeds` has one
    seed per sentence for sampling; `sentence_seed` makes one that is independent of the batch.
    """
    B = len(limits)
    K = config.width
    W = max([capacity, *limits]) + 1

    live = _empty_paths(B, K, W)
    # All hypotheses of a beam would be equal at first, so it starts from one. Samples start from K.
    starts = K if config.temperature > 0 else 1
    live.score[:, :starts] = 0.0

    no_tokens = torch.zeros(B, dtype=torch.long)
    penalties = torch.tensor([((5 + length) / 6) ** config.alpha for length in range(W + 1)])
    beams = Beams(
        live=live,
        ended=_empty_paths(B, config.n_best, W),
        endings=no_tokens,
        length=no_tokens,
        limit=torch.tensor(limits, dtype=torch.long),
        prefix=_prefix_table(prefixes, limits, W, pad),
        penalty=penalties.repeat(B, 1),
        chance=draws(seeds or [config.seed] * B, limits, W, config),
        margin=torch.full((B,), torch.inf),
    )
    return _map_tensors(lambda tensor: tensor.to(device), beams)


def _empty_paths(B: int, n: int, W: int) -> Paths:
    return Paths(
        tokens=torch.zeros(B, n, W, dtype=torch.long),
        log_probs=torch.zeros(B, n, W),
        score=torch.full((B, n), NEVER),
    )


def _prefix_table(
    prefixes: Sequence[Sequence[int]], limits: Sequence[int], W: int, pad: int
) -> Tensor:
    """Return the forced tokens of each sentence, then -1:  (B, W)."""
    table = torch.full((len(limits), W), -1)
    for row, tokens in enumerate(prefixes):
        check_prefix(tokens, limits[row], pad)
        table[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    return table


def draws(seeds: Sequence[int], limits: Sequence[int], W: int, config: SearchConfig) -> Tensor:
    """Return uniform random numbers (B, W, K) for sampling, or zeros for a beam search."""
    K = config.width
    chance = torch.zeros(len(limits), W, K, dtype=torch.float64)
    if config.temperature > 0:
        for row, (seed, limit) in enumerate(zip(seeds, limits, strict=True)):
            generator = torch.Generator().manual_seed(seed)
            numbers = torch.rand(limit + 1, K, generator=generator, dtype=torch.float64)
            chance[row, : limit + 1] = numbers
    return chance


def check_prefix(tokens: Sequence[int], limit: int, pad: int) -> None:
    """Raise an InputError if the forced prefix is too long or contains a special token."""
    if len(tokens) > limit:
        raise InputError(
            f"the forced prefix has {len(tokens)} tokens, but the output may have at most {limit}; "
            "shorten the prefix or raise max_extra"
        )
    if not all(EOS < token < pad for token in tokens):
        raise InputError(
            f"the forced prefix contains the token ids {list(tokens)}; expected ids above {EOS} "
            f"(end of sentence) and below {pad} (padding)"
        )
