"""The two attentions of one token further for R rows on a GPU, in Triton: to the target so far and to the memory.

K rows in a row are the hypotheses of one sentence. The keys and values of a hypothesis are never moved: position t of
row i lies in row `ancestors[i, t]` of the cache, and only that table follows the search. No number depends on how many
rows or positions there are beside it, and lengths are read on the device, so that one captured graph serves them all.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.tile_attention import LOG2_E

SOURCE_BLOCK, TARGET_BLOCK = 32, 16  # keys of one tile
# Rows of one program: a GPU begins some 1,500 programs in a microsecond, as long as a short one
# takes.
TOGETHER = 2
# Hypotheses that ask together: the fewest of a product of tiles, and a thousand would not fit on
# the chip.
ROWS = 16


@triton.jit
def _attend_self(
    joined, cache, ancestors, length, output, W, SCALE: tl.constexpr, REACH: tl.constexpr, K: tl.constexpr,
    TOGETHER: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, DK2: tl.constexpr, DV2: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    head, start = tl.program_id(0), tl.program_id(1).to(tl.int64) * TOGETHER
    row, i, j = (
        start + tl.arange(0, TOGETHER),
        tl.arange(0, DK2)[None, :],
        tl.arange(0, DV2)[None, :],
    )
    t = tl.load(length + start // K).to(tl.int32)
    new = (joined + row * (H * (2 * DK + DV)))[:, None]
    query = tl.load(new + head * DK + i, mask=i < DK, other=0.0).to(tl.float32) * (SCALE * LOG2_E)
    key = tl.load(new + (H + head) * DK + i, mask=i < DK, other=0.0)
    value = tl.load(new + 2 * H * DK + head * DV + j, mask=j < DV, other=0.0)
    k_places, v_places = head * DK + i, H * DK + head * DV + j
    size: tl.constexpr = H * (DK + DV)
    here = (cache + (row * W + t) * size)[:, None]
    tl.store(here + k_places, key, mask=i < DK)
    tl.store(here + v_places, value, mask=j < DV)
    # The new key and value are at hand, so nobody waits for them to be seen in memory.
    highest = tl.sum(query * key.to(tl.float32), 1)
    total = highest * 0.0 + 1.0
    sums = value.to(tl.float32)
    first = 0
    if REACH >= 0:  # §4: a neighbourhood
        first = tl.maximum(t - REACH, 0)
    # Ancestors are asked for ahead, before it is known how many there are: one wait less for memory.
    columns = first + tl.arange(0, BLOCK)[None, :]
    mine = ancestors + row[:, None] * W
    rows = tl.load(mine + columns, mask=columns < W, other=0)
    for _ in range(first, t, BLOCK):
        inside = columns < t
        there = (cache + (rows.to(tl.int64) * W + columns) * size)[:, :, None]
        keys = tl.load(there + k_places[None], mask=inside[:, :, None] & (i < DK)[None], other=0.0)
        values = tl.load(
            there + v_places[None], mask=inside[:, :, None] & (j < DV)[None], other=0.0
        )
        scores = tl.where(inside, tl.sum(query[:, None, :] * keys.to(tl.float32), 2), float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(weights, 1)
        sums = sums * rescale[:, None] + tl.sum(weights[:, :, None] * values.to(tl.float32), 1)
        highest = new_highest
        columns += BLOCK
        rows = tl.load(mine + columns, mask=columns < W, other=0)
    result = (sums / total[:, None]).to(output.dtype.element_ty)
    tl.store(output + (row * H + head)[:, None] * DV + j, result, mask=j < DV)


def attend_self(
    joined: Tensor,
    cache: Tensor,
    ancestors: Tensor,
    length: Tensor,
    h: int,
    d_k: int,
    r: int | None,
) -> Tensor:
    """Keep the new keys and values at each row's length, and attend to all of its own until there.

    Queries, keys and values side by side (R, h * (2 d_k + d_v)), cache (R, W, h * (d_k + d_v)), ancestors (R, W),
    lengths (B,) -> (R, h * d_v).
    """
    R, K, d_v = joined.size(0), joined.size(0) // length.size(0), cache.size(2) // h - d_k
    output, together = (
        joined.new_empty(R, h * d_v),
        math.gcd(K, TOGETHER),
    )  # of one sentence: of one length
    _attend_self[(h, R // together)](
        joined, cache, ancestors, length, output, cache.size(1), SCALE=d_k**-0.5, REACH=-1 if r is None else r // 2,
        K=K, TOGETHER=together, H=h, **_sizes(TARGET_BLOCK // together, d_k, d_v, together * joined.element_size()),
    )  # fmt: skip
    return output


@triton.jit
def _attend_memory(
    queries, memory, stride_b, stride_s, lengths, output, SCALE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, DK2: tl.constexpr, DV2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head, sentence = tl.program_id(0), tl.program_id(1)
    k, i, j = tl.program_id(2) * ROWS + tl.arange(0, ROWS), tl.arange(0, DK2), tl.arange(0, DV2)
    rows = sentence * K + k
    asked = (k < K)[:, None] & (i < DK)[None, :]
    q = tl.load(queries + (rows * H + head)[:, None] * DK + i[None, :], mask=asked, other=0.0)
    source = memory + sentence.to(tl.int64) * stride_b
    length = tl.load(lengths + sentence)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, DV2), tl.float32)
    # The next keys come while these are looked at.
    for start in tl.range(0, length, BLOCK, num_stages=2):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < length
        there = (source + columns * stride_s)[:, None]
        keys = tl.load(
            there + (head * DK + i)[None, :], mask=inside[:, None] & (i < DK)[None, :], other=0.0
        )
        values = tl.load(
            there + (H * DK + head * DV + j)[None, :],
            mask=inside[:, None] & (j < DV)[None, :],
            other=0.0,
        )
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * (SCALE * LOG2_E)
        scores = tl.where(inside[None, :], scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(weights, 1)
        sums = sums * rescale[:, None] + tl.dot(
            weights.to(values.dtype), values, input_precision="ieee"
        )
        highest = new_highest
    said = (k < K)[:, None] & (j < DV)[None, :]
    places = (rows * H + head)[:, None] * DV + j[None, :]
    tl.store(output + places, (sums / total[:, None]).to(output.dtype.element_ty), mask=said)


def attend_memory(queries: Tensor, memory: Tensor, lengths: Tensor, h: int, d_k: int) -> Tensor:
    """The hypotheses of a sentence ask its memory together, up to the source's length, which is at least 1.

    Queries (R, h * d_k), keys and values side by side (B, S, h * (d_k + d_v)), lengths (B,) int32 -> (R, h * d_v).
    """
    R, B, d_v = queries.size(0), memory.size(0), memory.size(2) // h - d_k
    output, K = queries.new_empty(R, h * d_v), R // B
    _attend_memory[(h, B, triton.cdiv(K, ROWS))](
        queries, memory, memory.stride(0), memory.stride(1), lengths, output, SCALE=d_k**-0.5, K=K,
        ROWS=ROWS, H=h, **_sizes(SOURCE_BLOCK, d_k, d_v, queries.element_size()),
    )  # fmt: skip
    return output


def _sizes(block: int, d_k: int, d_v: int, bytes_each: int) -> dict[str, int]:
    """Of heads, and of tiles that hold them: powers of two from 16 on, by one warp for each 4 KiB."""
    DK2, DV2 = (max(16, triton.next_power_of_2(size)) for size in (d_k, d_v))
    num_warps = max(1, min(8, block * max(DK2, DV2) * bytes_each // 4096))
    return {"DK": d_k, "DV": d_v, "DK2": DK2, "DV2": DV2, "BLOCK": block, "num_warps": num_warps}
