"""What a hypothesis may say next: the best tokens of a vocabulary, the same ones on every device and in every batch.

A token that is forbidden has the log-probability -inf; the others keep theirs. Tensors of fixed shape alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.config import SearchConfig

EOS, UNK = 0, 1  # and padding is the last of the vocabulary
NEVER = -torch.inf
BLOCK = 64  # tokens looked at together when the best are picked
_LARGE = 2**31 - 1


def best_tokens(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, largest first, ties to the smaller id:  (R, V) -> values, ids (R, count).

    A token among the `count` best stands in one of the `count` blocks of largest maximum, as each block before its own
    holds a better token: one pass over V for the maxima, and then only these blocks are looked into.
    """
    R, V = log_probs.shape
    blockwise = 2 * count * BLOCK < V
    ids = torch.arange(-(-V // BLOCK) if blockwise else V, device=log_probs.device).expand(R, -1)
    if blockwise:
        whole, rest = log_probs[:, : V - V % BLOCK], log_probs[:, V - V % BLOCK :]
        maxima = whole.reshape(R, -1, BLOCK).amax(-1)
        if rest.size(1):
            maxima = torch.cat([maxima, rest.amax(1, keepdim=True)], dim=1)
        blocks = _largest(maxima, ids, count)
        # (R, count * BLOCK).
        ids = (blocks[..., None] * BLOCK + torch.arange(BLOCK, device=ids.device)).flatten(1)
    values = log_probs.gather(1, ids.clamp(max=V - 1)).masked_fill(ids >= V, NEVER)
    chosen = _largest(values, ids, count).clamp(max=V - 1)
    return log_probs.gather(1, chosen), chosen


def _largest(values: Tensor, ids: Tensor, count: int) -> Tensor:
    """The ids (R, count) of the largest values (R, n). One integer orders by value, then by smaller id: no two tie."""
    bits = (values + 0.0).view(torch.int32)  # the sum is no -0.0
    # Read as integers, negative floats go down: turn them round.
    ascending = bits ^ ((bits >> 31) & _LARGE)
    keys = (ascending.long() << 32) | (_LARGE - ids)
    return _LARGE - (keys.topk(count, dim=-1).values & _LARGE)


def candidates(log_probs: Tensor, count: int, config: SearchConfig) -> tuple[Tensor, Tensor]:
    """The end, then the `count` best tokens that may be said, best first:  (R, V) -> values, ids (R, 1 + count)."""
    R, V = log_probs.shape
    if count + 3 < V:
        values, ids = best_tokens(log_probs, count + 3)  # three more, for those that are dropped
    else:
        values, ids = log_probs, torch.arange(V, device=log_probs.device).expand(R, V)
    dropped = (ids == EOS) | (ids == V - 1) | ((ids == UNK) & config.forbid_unk)
    values, order = values.masked_fill(dropped, NEVER).sort(dim=1, descending=True, stable=True)
    values, ids = values[:, :count], ids.gather(1, order)[:, :count]
    return torch.cat([log_probs[:, :1], values], dim=1), torch.cat(
        [torch.full_like(ids[:, :1], EOS), ids], dim=1
    )


def enforce(
    values: Tensor,
    ids: Tensor,
    forced: Tensor,
    forced_values: Tensor,
    length: Tensor,
    limit: Tensor,
    config: SearchConfig,
) -> tuple[Tensor, Tensor]:
    """Hold the lengths and the forced prefix, for candidates (B, K, 1 + C) of which the first is the end.

    `forced` (B,) is the next token of each prefix, -1 where there is none; `forced_values` (B, K) its log-probability.
    """
    end, others = values[..., :1], values[..., 1:]
    stuck = (others == NEVER).all(-1, keepdim=True)  # everything else is forbidden: ending is not
    must_end = (length >= limit)[:, None, None]
    may_end = (length >= config.min_length)[:, None, None] | must_end | stuck
    values = torch.cat([end.where(may_end, NEVER), others.where(~must_end, NEVER)], dim=-1)
    is_forced = (forced >= 0)[:, None, None]
    second = torch.arange(values.size(-1), device=values.device) == 1
    only = forced_values[..., None].where(second, NEVER)  # (B, K, 1 + C)
    return only.where(is_forced, values), forced[:, None, None].where(is_forced & second, ids)


def forbid_repetition(
    log_probs: Tensor, tokens: Tensor, length: Tensor, config: SearchConfig
) -> Tensor:
    """Take out the tokens that would repeat:  (B, K, V), hypotheses (B, K, W) of length (B,) -> (B, K, V)."""
    if not (config.no_repeat_ngram or config.max_repeats):
        return log_probs
    newest_first = (
        length[:, None, None] - 1 - torch.arange(tokens.size(-1), device=tokens.device)
    ).clamp(min=0)
    recent = tokens.gather(-1, newest_first.expand_as(tokens))
    nothing = log_probs.size(-1) - 1  # padding, which is never said anyway
    if config.no_repeat_ngram:
        log_probs = log_probs.scatter(
            -1, _repeated_ngrams(recent, length, config.no_repeat_ngram, nothing), NEVER
        )
    if config.max_repeats:
        log_probs = log_probs.scatter(
            -1, _loops(recent, length, config.max_repeats, nothing), NEVER
        )
    return log_probs


def _repeated_ngrams(recent: Tensor, length: Tensor, n: int, nothing: int) -> Tensor:
    """The tokens that once followed the n-1 newest:  (B, K, W) newest first -> (B, K, W - n + 1)."""
    if n > recent.size(-1):
        return recent[..., :0]
    ngrams = recent.unfold(-1, n, 1)  # (B, K, W - n + 1, n), each newest first
    ends_inside = (
        torch.arange(n, recent.size(-1) + 1, device=recent.device) <= length[:, None, None]
    )
    again = (ngrams[..., 1:] == recent[..., None, : n - 1]).all(-1) & ends_inside
    return ngrams[..., 0].where(again, nothing)


def _loops(recent: Tensor, length: Tensor, repeats: int, nothing: int) -> Tensor:
    """The tokens that would end a block for the (repeats + 1)th time in a row:  (B, K, W) -> (B, K, block sizes).

    A block of p tokens stands there so often if the last (repeats + 1) p tokens, with the next one, have period p.
    """
    banned = [torch.full_like(recent[..., 0], nothing)]
    for p in range(1, (recent.size(-1) + 1) // (repeats + 1) + 1):
        same = (recent[..., : repeats * p - 1] == recent[..., p : p + repeats * p - 1]).all(-1)
        long_enough = length[:, None] >= (repeats + 1) * p - 1
        banned.append(recent[..., p - 1].where(same & long_enough, nothing))
    return torch.stack(banned, dim=-1)
