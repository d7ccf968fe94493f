"""The best next tokens of every hypothesis on a GPU, in Triton.

It equals `search.candidates.candidates` on the log-softmax of the logits, but reads the logits only
once and writes no log-probabilities except those of the few best tokens. Two kernels:

- `_scan` finds the largest logit of each block of 64 tokens, and the sum of the block's
  exponentials.
- `_pick` takes the blocks with the largest maxima: the n best tokens are in the n best blocks. It
  looks into these alone, and gets the denominator of the softmax from the sums of all blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.config import SearchConfig

BLOCK = 64  # tokens of a block
BLOCKS = 64  # blocks that one program of `_scan` handles
NEVER: tl.constexpr = tl.constexpr(float("-inf"))  # the log-probability of what cannot be
LARGE: tl.constexpr = tl.constexpr(2**31 - 1)
LOWEST: tl.constexpr = tl.constexpr(-(2**63))  # below every key


@triton.jit
def _sayable(ids, V: tl.constexpr, FORBID_UNK: tl.constexpr):
    """Whether a token may be picked: not padding, the end (handled apart) or a forbidden <unk>."""
    return (ids > FORBID_UNK) & (ids < V - 1)


@triton.jit
def _key(values, ids):
    """Return one integer per token that orders by value, then by smaller id: no two are equal.

    The upper 32 bits are the value, the lower ones the id.
    """
    bits = (values + 0.0).to(tl.int32, bitcast=True)  # adding 0.0 turns -0.0 into 0.0
    # The bits of positive floats, read as integers, are in the right order; those of negative
    # floats are reversed, so all but their sign is flipped.
    ascending = bits ^ ((bits >> 31) & LARGE)
    # The smaller id becomes the larger number.
    return (ascending.to(tl.int64) << 32) | (ids ^ LARGE).to(tl.int64)


@triton.jit
def _value(keys):
    """Return the values in the upper bits of keys."""
    ascending = (keys >> 32).to(tl.int32)
    return (ascending ^ ((ascending >> 31) & LARGE)).to(tl.float32, bitcast=True)


@triton.jit
def _scan(
    logits, maxima, sums,
    V: tl.constexpr, FORBID_UNK: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Find the largest logit of each block of tokens, and the sum of exponentials relative to it.

    logits is (R, V); maxima and sums are (R, blocks). Program (i, r) handles BLOCKS blocks of row
    r. Only tokens that may be picked count.
    """
    part = tl.program_id(0)
    row = tl.program_id(1)
    blocks = part * BLOCKS + tl.arange(0, BLOCKS)
    ids = blocks[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    here = logits + row.to(tl.int64) * V + ids

    # Only the first and the last part have special tokens or end before their last block.
    if (part == 0) | (part == tl.num_programs(0) - 1):
        # The mask is by V alone: if V is a multiple of 8, 16 bytes can be read at a time.
        values = tl.load(here, mask=ids < V, other=NEVER).to(tl.float32)
        values = tl.where(_sayable(ids, V, FORBID_UNK), values, NEVER)
    else:
        values = tl.load(here).to(tl.float32)

    best = tl.max(values, 1)
    total = tl.sum(tl.exp(values - tl.where(best > NEVER, best, 0.0)[:, None]), 1)
    count: tl.constexpr = (V + BLOCK - 1) // BLOCK
    tl.store(maxima + row * count + blocks, best, mask=blocks < count)
    tl.store(sums + row * count + blocks, total, mask=blocks < count)


@triton.jit
def _pick(
    logits, maxima, sums, prefix, length, values, ids, ends, forced, W,
    K: tl.constexpr, COUNT: tl.constexpr, C: tl.constexpr, V: tl.constexpr,
    FORBID_UNK: tl.constexpr, BLOCK: tl.constexpr, MAXIMA: tl.constexpr,
):  # fmt: skip
    """Find the COUNT best tokens of one row, and the log-probabilities of Picks.

    logits is (R, V), maxima and sums (R, blocks) come from `_scan`; prefix (B, W) and length (B,)
    are those of `Beams`, with K rows per sentence; values, ids, ends and forced are those of
    `Picks`. A program handles one row. C and MAXIMA are powers of two from COUNT and the number of
    blocks on.
    """
    row = tl.program_id(0)
    row_logits = logits + row.to(tl.int64) * V
    block = tl.arange(0, MAXIMA)
    slot = tl.arange(0, C)

    # The denominator of the softmax. The end and a forbidden <unk> are in no block's sum, but they
    # have their probability; padding has none.
    count: tl.constexpr = (V + BLOCK - 1) // BLOCK
    best_of = tl.load(maxima + row * count + block, mask=block < count, other=NEVER)
    summed = tl.load(sums + row * count + block, mask=block < count, other=0.0)
    end = tl.load(row_logits).to(tl.float32)
    unk = tl.load(row_logits + 1).to(tl.float32) if FORBID_UNK else NEVER
    top = tl.maximum(tl.max(best_of, 0), tl.maximum(end, unk))
    log_total = tl.log(
        tl.sum(summed * tl.exp(best_of - top), 0) + tl.exp(end - top) + tl.exp(unk - top)
    )

    # The COUNT best blocks, by their maxima.
    keys = tl.where(block < count, _key(best_of, block), LOWEST)
    picked = tl.full((C,), LOWEST, tl.int64)
    for place in range(COUNT):
        best = tl.max(keys, 0)
        picked = tl.where(slot == place, best, picked)
        keys = tl.where(keys == best, LOWEST, keys)

    # The COUNT best tokens of these blocks.
    exists = picked > LOWEST
    chosen = tl.where(exists, (picked & LARGE) ^ LARGE, 0).to(tl.int32)
    tokens = chosen[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    allowed = exists[:, None] & _sayable(tokens, V, FORBID_UNK)
    keys_of_tokens = _key(
        tl.load(row_logits + tokens, mask=allowed, other=NEVER).to(tl.float32), tokens
    )
    keys_of_tokens = tl.where(allowed, keys_of_tokens, LOWEST)  # (C, BLOCK)
    picked = tl.full((C,), LOWEST, tl.int64)
    for place in range(COUNT):
        best = tl.max(tl.max(keys_of_tokens, 1), 0)
        picked = tl.where(slot == place, best, picked)
        keys_of_tokens = tl.where(keys_of_tokens == best, LOWEST, keys_of_tokens)

    # Store ids and log-probabilities of these, of the end and of a forced token.
    exists = picked > LOWEST
    token = tl.where(exists, (picked & LARGE) ^ LARGE, V - 1)
    tl.store(ids + row * C + slot, token.to(tl.int32))
    tl.store(
        values + row * C + slot,
        tl.where(exists, _log_probability(_value(picked) - top - log_total), NEVER),
    )
    tl.store(ends + row, _log_probability(end - top - log_total))
    wanted = tl.maximum(tl.load(prefix + (row // K) * W + tl.load(length + row // K)), 0)
    tl.store(
        forced + row,
        _log_probability(tl.load(row_logits + wanted).to(tl.float32) - top - log_total),
    )


@triton.jit
def _log_probability(value):
    """Limit a log-probability to at most 0; NaN becomes -inf."""
    return tl.where(value == value, tl.minimum(value, 0.0), NEVER)


class Picks(NamedTuple):
    """Log-probabilities of the next tokens of each row, in float32; C is a power of two."""

    # (R, C) of the best tokens except the end, best first, ties to the smaller id, then -inf.
    values: Tensor
    ids: Tensor  # (R, C) of these tokens
    ends: Tensor  # (R,) of the end
    forced: Tensor  # (R,) of the next token of the sentence's prefix, where there is one


def pick(logits: Tensor, beams: Any, config: SearchConfig) -> Picks:
    """Find the K + 1 best next tokens of each row.

    Args:
        logits: (R, V), of any precision.
        beams: The hypotheses, a `search.beams.Beams` of K rows per sentence.
        config: The settings of the search.
    """
    R, V = logits.shape
    _, K, W = beams.live.tokens.shape
    blocks = -(-V // BLOCK)
    C = triton.next_power_of_2(K + 1)

    # One allocation for all results in float32.
    sizes = [R * n for n in (blocks, blocks, C, 1, 1)]
    memory = torch.empty(sum(sizes), device=logits.device, dtype=torch.float32)
    maxima, sums, values, ends, forced = memory.split(sizes)
    ids = torch.empty(R, C, device=logits.device, dtype=torch.int32)
    shared = {"V": V, "FORBID_UNK": int(config.forbid_unk), "BLOCK": BLOCK}
    _scan[(-(-blocks // BLOCKS), R)](logits, maxima, sums, **shared, BLOCKS=BLOCKS)
    _pick[(R,)](
        logits, maxima, sums, beams.prefix, beams.length, values, ids, ends, forced, W,
        K=K, COUNT=K + 1, C=C, **shared, MAXIMA=triton.next_power_of_2(blocks), num_warps=1,
    )  # fmt: skip
    return Picks(values.view(R, C), ids, ends, forced)
