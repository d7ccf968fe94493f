"""The tokens that may follow a hypothesis, selected identically on every device and in every batch.

A forbidden token has the log-probability -inf; all others keep theirs. Every function uses tensors
of fixed shape and never branches on their values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.config import SearchConfig

# Special tokens; padding is the last id of the vocabulary.
EOS = 0
UNK = 1
NEVER = -torch.inf
BLOCK = 64  # tokens that `best_tokens` considers together
_LARGE = 2**31 - 1


def best_tokens(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row and their ids, largest first.

    (R, V) -> values (R, count), ids (R, count). Ties go to the smaller id.
    """
    R, V = log_probs.shape
    if 2 * count * BLOCK < V:
        ids = _best_blocks(log_probs, count)  # (R, count * BLOCK)
    else:
        ids = torch.arange(V, device=log_probs.device).expand(R, -1)

    # The last block may reach beyond the vocabulary.
    values = log_probs.gather(1, ids.clamp(max=V - 1)).masked_fill(ids >= V, NEVER)
    chosen = _largest(values, ids, count).clamp(max=V - 1)
    return log_probs.gather(1, chosen), chosen


def _best_blocks(log_probs: Tensor, count: int) -> Tensor:
    """Return the ids in the `count` blocks with the largest maxima:  (R, V) -> (R, count * BLOCK).

    They contain the `count` best tokens: each block before a token's own contains a better token.
    So one pass over V computes the maxima, and only these blocks are searched further.
    """
    R, V = log_probs.shape
    full = V - V % BLOCK
    rest = log_probs[:, full:]
    maxima = log_probs[:, :full].reshape(R, -1, BLOCK).amax(-1)
    if rest.size(1):
        maxima = torch.cat([maxima, rest.amax(1, keepdim=True)], dim=1)
    block_ids = torch.arange(maxima.size(1), device=log_probs.device).expand(R, -1)
    blocks = _largest(maxima, block_ids, count)
    offsets = torch.arange(BLOCK, device=log_probs.device)
    return (blocks[..., None] * BLOCK + offsets).flatten(1)


def _largest(values: Tensor, ids: Tensor, count: int) -> Tensor:
    """Return the ids (R, count) of the largest float32 values (R, n).

    Each value and its id become one 64-bit integer, which orders by value and then by smaller id.
    No two integers are equal, so the result does not depend on how `topk` breaks ties.
    """
    bits = (values + 0.0).view(torch.int32)  # adding 0.0 turns -0.0 into 0.0
    # The bits of negative floats descend when they are read as integers: invert them.
    ascending = bits ^ ((bits >> 31) & _LARGE)
    keys = (ascending.long() << 32) | (_LARGE - ids)
    return _LARGE - (keys.topk(count, dim=-1).values & _LARGE)


def candidates(log_probs: Tensor, count: int, config: SearchConfig) -> tuple[Tensor, Tensor]:
    """Return the end of the sentence and then the `count` best other tokens, best first.

    (R, V) -> values (R, 1 + count), ids (R, 1 + count). Padding is never among them, nor is the
    unknown token with `forbid_unk`.
    """
    R, V = log_probs.shape
    if count + 3 < V:
        # Up to three of them are dropped below.
        values, ids = best_tokens(log_probs, count + 3)
    else:
        values = log_probs
        ids = torch.arange(V, device=log_probs.device).expand(R, V)

    dropped = (ids == EOS) | (ids == V - 1) | ((ids == UNK) & config.forbid_unk)
    values, order = values.masked_fill(dropped, NEVER).sort(dim=1, descending=True, stable=True)
    values = values[:, :count]
    ids = ids.gather(1, order)[:, :count]

    end_ids = torch.full_like(ids[:, :1], EOS)
    return torch.cat([log_probs[:, :1], values], dim=1), torch.cat([end_ids, ids], dim=1)


def enforce(
    values: Tensor,
    ids: Tensor,
    forced: Tensor,
    forced_values: Tensor,
    length: Tensor,
    limit: Tensor,
    config: SearchConfig,
) -> tuple[Tensor, Tensor]:
    """Apply length limits and forced prefixes to candidates (B, K, 1 + C), the first being the end.

    `forced` (B,) is the next token of each prefix, or -1; `forced_values` (B, K) is its
    log-probability.
    """
    end = values[..., :1]
    others = values[..., 1:]

    # At its limit a hypothesis must end. Before min_length it may not, unless nothing else is left.
    stuck = (others == NEVER).all(-1, keepdim=True)
    must_end = (length >= limit)[:, None, None]
    may_end = (length >= config.min_length)[:, None, None] | must_end | stuck
    values = torch.cat([end.where(may_end, NEVER), others.where(~must_end, NEVER)], dim=-1)

    # A forced token takes the second place and is the only candidate.
    is_forced = (forced >= 0)[:, None, None]
    second = torch.arange(values.size(-1), device=values.device) == 1
    only_forced = forced_values[..., None].where(second, NEVER)  # (B, K, 1 + C)
    values = only_forced.where(is_forced, values)
    ids = forced[:, None, None].where(is_forced & second, ids)
    return values, ids


def forbid_repetition(
    log_probs: Tensor, tokens: Tensor, length: Tensor, config: SearchConfig
) -> Tensor:
    """Set the tokens to -inf that `no_repeat_ngram` and `max_repeats` forbid.

    log_probs (B, K, V), hypotheses (B, K, W) of length (B,) -> (B, K, V).
    """
    if not (config.no_repeat_ngram or config.max_repeats):
        return log_probs

    # The tokens in reverse order: index 0 is the newest.
    ages = torch.arange(tokens.size(-1), device=tokens.device)
    newest_first = (length[:, None, None] - 1 - ages).clamp(min=0)
    recent = tokens.gather(-1, newest_first.expand_as(tokens))

    # Padding is never generated, so forbidding it changes nothing.
    nothing = log_probs.size(-1) - 1
    if config.no_repeat_ngram:
        banned = _repeated_ngrams(recent, length, config.no_repeat_ngram, nothing)
        log_probs = log_probs.scatter(-1, banned, NEVER)
    if config.max_repeats:
        banned = _loops(recent, length, config.max_repeats, nothing)
        log_probs = log_probs.scatter(-1, banned, NEVER)
    return log_probs


def _repeated_ngrams(recent: Tensor, length: Tensor, n: int, nothing: int) -> Tensor:
    """Return the tokens that followed earlier copies of the n - 1 newest tokens.

    (B, K, W) newest first -> (B, K, W - n + 1), with `nothing` where there is none.
    """
    W = recent.size(-1)
    if n > W:
        return recent[..., :0]
    ngrams = recent.unfold(-1, n, 1)  # (B, K, W - n + 1, n), each newest first
    is_inside = torch.arange(n, W + 1, device=recent.device) <= length[:, None, None]
    is_same = (ngrams[..., 1:] == recent[..., None, : n - 1]).all(-1)
    return ngrams[..., 0].where(is_same & is_inside, nothing)


def _loops(recent: Tensor, length: Tensor, repeats: int, nothing: int) -> Tensor:
    """Return the tokens that would complete a block for the (repeats + 1)th time in a row.

    (B, K, W) newest first -> (B, K, block sizes). A block of p tokens is repeated that often if the
    last (repeats + 1) p tokens, including the next one, have period p.
    """
    banned = [torch.full_like(recent[..., 0], nothing)]
    largest_block = (recent.size(-1) + 1) // (repeats + 1)
    for p in range(1, largest_block + 1):
        compared = repeats * p - 1
        is_periodic = (recent[..., :compared] == recent[..., p : p + compared]).all(-1)
        is_long_enough = length[:, None] >= (repeats + 1) * p - 1
        banned.append(recent[..., p - 1].where(is_periodic & is_long_enough, nothing))
    return torch.stack(banned, dim=-1)
