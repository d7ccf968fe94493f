"""The best tokens of every row on a GPU, in Triton: `candidates.candidates` from logits, which are read once.

`_scan` finds the largest logit of each block of tokens and sums the block's exponentials; `_pick` then looks into the
few blocks that can hold a best token, as `best_tokens` does. No log-probability is written that nobody asks for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.config import SearchConfig

BLOCK, BLOCKS = 64, 64  # tokens looked at together, and such blocks of one program
NEVER: tl.constexpr = tl.constexpr(float("-inf"))
LARGE: tl.constexpr = tl.constexpr(2**31 - 1)
LOWEST: tl.constexpr = tl.constexpr(-(2**63))  # below every key


@triton.jit
def _sayable(ids, V: tl.constexpr, FORBID_UNK: tl.constexpr):
    """Every token but the end, which is looked at by itself, and padding."""
    return (ids > FORBID_UNK) & (ids < V - 1)


@triton.jit
def _key(values, ids):
    """One integer that orders by value, then by smaller id: no two tie."""
    bits = (values + 0.0).to(tl.int32, bitcast=True)  # the sum is no -0.0
    # Read as integers, negative floats go down: turn them round.
    ascending = bits ^ ((bits >> 31) & LARGE)
    # The smaller id is the larger number.
    return (ascending.to(tl.int64) << 32) | (ids ^ LARGE).to(tl.int64)


@triton.jit
def _value(keys):
    ascending = (keys >> 32).to(tl.int32)
    return (ascending ^ ((ascending >> 31) & LARGE)).to(tl.float32, bitcast=True)


@triton.jit
def _scan(
    logits,
    maxima,
    sums,
    V: tl.constexpr,
    FORBID_UNK: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Of BLOCKS blocks of tokens of one row: each one's largest sayable logit, and the sum relative to it."""
    part, row = tl.program_id(0), tl.program_id(1)
    blocks = part * BLOCKS + tl.arange(0, BLOCKS)
    ids = blocks[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    here = logits + row.to(tl.int64) * V + ids
    # Where tokens stand that are special, and the last ones.
    if (part == 0) | (part == tl.num_programs(0) - 1):
        # Masked by V, not by what counts: a number of tokens that is a multiple of 8 is read 16 bytes at a time.
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
    K: tl.constexpr, COUNT: tl.constexpr, C: tl.constexpr, V: tl.constexpr, FORBID_UNK: tl.constexpr,
    BLOCK: tl.constexpr, MAXIMA: tl.constexpr,
):  # fmt: skip
    """The COUNT best sayable tokens of one row with their log-probabilities; those of the end and of a forced token."""
    row = tl.program_id(0)
    mine = logits + row.to(tl.int64) * V
    block, slot = tl.arange(0, MAXIMA), tl.arange(0, C)
    count: tl.constexpr = (V + BLOCK - 1) // BLOCK
    best_of = tl.load(maxima + row * count + block, mask=block < count, other=NEVER)
    summed = tl.load(sums + row * count + block, mask=block < count, other=0.0)
    # The end is not sayable, nor is <unk> where it is forbidden, but both have their probability; padding has none.
    end = tl.load(mine).to(tl.float32)
    unk = tl.load(mine + 1).to(tl.float32) if FORBID_UNK else NEVER
    top = tl.maximum(tl.max(best_of, 0), tl.maximum(end, unk))
    log_total = tl.log(
        tl.sum(summed * tl.exp(best_of - top), 0) + tl.exp(end - top) + tl.exp(unk - top)
    )

    keys = tl.where(block < count, _key(best_of, block), LOWEST)
    picked = tl.full((C,), LOWEST, tl.int64)
    for place in range(COUNT):
        best = tl.max(keys, 0)
        picked = tl.where(slot == place, best, picked)
        keys = tl.where(keys == best, LOWEST, keys)

    exists = picked > LOWEST
    chosen = tl.where(exists, (picked & LARGE) ^ LARGE, 0).to(tl.int32)
    tokens = chosen[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    allowed = exists[:, None] & _sayable(tokens, V, FORBID_UNK)
    found = _key(tl.load(mine + tokens, mask=allowed, other=NEVER).to(tl.float32), tokens)
    found = tl.where(allowed, found, LOWEST)  # (C, BLOCK)
    picked = tl.full((C,), LOWEST, tl.int64)
    for place in range(COUNT):
        best = tl.max(tl.max(found, 1), 0)
        picked = tl.where(slot == place, best, picked)
        found = tl.where(found == best, LOWEST, found)

    exists = picked > LOWEST
    token = tl.where(exists, (picked & LARGE) ^ LARGE, V - 1)
    tl.store(ids + row * C + slot, token.to(tl.int32))
    tl.store(
        values + row * C + slot, tl.where(exists, _number(_value(picked) - top - log_total), NEVER)
    )
    tl.store(ends + row, _number(end - top - log_total))
    wanted = tl.maximum(tl.load(prefix + (row // K) * W + tl.load(length + row // K)), 0)
    tl.store(forced + row, _number(tl.load(mine + wanted).to(tl.float32) - top - log_total))


@triton.jit
def _number(value):
    """A log-probability, at most 0; never, where it is not a number."""
    return tl.where(value == value, tl.minimum(value, 0.0), NEVER)


class Picks(NamedTuple):
    """Log-probabilities of what each row may say next, as float32; C is a power of two, filled up with -inf."""

    values: Tensor  # (R, C) of the best tokens but the end, best first, ties to the smaller id
    ids: Tensor  # (R, C)
    ends: Tensor  # (R,) of the end
    forced: Tensor  # (R,) of the next token of the sentence's prefix, where there is one


def pick(logits: Tensor, beams: Any, config: SearchConfig) -> Picks:
    """The K + 1 best tokens of each row:  logits (R, V) of any precision and `search.beams.Beams` -> picks."""
    (R, V), (_, K, W) = logits.shape, beams.live.tokens.shape
    blocks, C = -(-V // BLOCK), triton.next_power_of_2(K + 1)
    numbers = torch.empty(R * (2 * blocks + C + 2), device=logits.device, dtype=torch.float32)
    maxima, sums, values, ends, forced = numbers.split([R * n for n in (blocks, blocks, C, 1, 1)])
    ids = torch.empty(R, C, device=logits.device, dtype=torch.int32)
    shared = {"V": V, "FORBID_UNK": int(config.forbid_unk), "BLOCK": BLOCK}
    _scan[(-(-blocks // BLOCKS), R)](logits, maxima, sums, **shared, BLOCKS=BLOCKS)
    _pick[(R,)](
        logits, maxima, sums, beams.prefix, beams.length, values, ids, ends, forced, W,
        K=K, COUNT=K + 1, C=C, **shared, MAXIMA=triton.next_power_of_2(blocks), num_warps=1,
    )  # fmt: skip
    return Picks(values.view(R, C), ids, ends, forced)
