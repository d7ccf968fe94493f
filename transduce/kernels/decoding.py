"""Attention of one new token per hypothesis (§3.2.1, Equation 1) for searches on a GPU, in Triton.

`attend_self` attends to the target so far, `attend_memory` to the encoder's output. Each is one
kernel for all heads and rows, where torch would first copy keys and values into the order of the
beam.

There are R rows, the hypotheses; K rows that follow one another belong to the same sentence. Keys
and values are written once and never moved: those of position t of row i are in row `ancestors[i,
t]` of the cache, and only this table follows the beam. Lengths are read on the device, so one
captured CUDA graph serves all of them. No sum depends on how many other rows or positions there
are, so a sentence gets the same result in any batch.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.tile_attention import LOG2_E

SOURCE_BLOCK = 32  # keys of the source that are read at a time
TARGET_BLOCK = 16  # keys of the target that are read at a time, by all rows of a program
# Rows of one program of `attend_self`. A GPU starts some 1,500 programs in a microsecond, and a
# short program takes no longer than that.
TOGETHER = 2
# Hypotheses of one program of `attend_memory`: the smallest tile of a product. A thousand, as in a
# large sample, would not fit on the chip.
ROWS = 16


@triton.jit
def _attend_self(
    joined, cache, ancestors, length, output, W,
    SCALE: tl.constexpr, REACH: tl.constexpr, K: tl.constexpr, TOGETHER: tl.constexpr,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, DK2: tl.constexpr, DV2: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the new keys and values of some rows, and attend to all earlier ones.

    The arguments are those of `attend_self`; W is the length of a row of the cache. Program (h, n)
    handles head h of TOGETHER rows of one sentence, which all have the same length t. DK2 and DV2
    are powers of two from DK and DV on.
    """
    head = tl.program_id(0)
    start = tl.program_id(1).to(tl.int64) * TOGETHER
    row = start + tl.arange(0, TOGETHER)
    i = tl.arange(0, DK2)[None, :]
    j = tl.arange(0, DV2)[None, :]

    # Load the new query, key and value of each row, and store key and value in the cache.
    t = tl.load(length + start // K).to(tl.int32)
    new = (joined + row * (H * (2 * DK + DV)))[:, None]
    query = tl.load(new + head * DK + i, mask=i < DK, other=0.0).to(tl.float32) * (SCALE * LOG2_E)
    key = tl.load(new + (H + head) * DK + i, mask=i < DK, other=0.0)
    value = tl.load(new + 2 * H * DK + head * DV + j, mask=j < DV, other=0.0)
    k_places = head * DK + i
    v_places = H * DK + head * DV + j
    size: tl.constexpr = H * (DK + DV)  # of one position of the cache
    here = (cache + (row * W + t) * size)[:, None]
    tl.store(here + k_places, key, mask=i < DK)
    tl.store(here + v_places, value, mask=j < DV)

    # Begin with the new key and value, which are in registers: no need to wait for the stores.
    highest = tl.sum(query * key.to(tl.float32), 1)
    total = highest * 0.0 + 1.0
    sums = value.to(tl.float32)

    # Go over the earlier positions, BLOCK at a time; with REACH, over a neighbourhood (§4). The
    # rows that hold them are loaded one block ahead, which saves a wait for memory.
    first = 0
    if REACH >= 0:
        first = tl.maximum(t - REACH, 0)
    columns = first + tl.arange(0, BLOCK)[None, :]
    table = ancestors + row[:, None] * W
    rows = tl.load(table + columns, mask=columns < W, other=0)
    for _ in range(first, t, BLOCK):
        inside = columns < t
        there = (cache + (rows.to(tl.int64) * W + columns) * size)[:, :, None]
        keys = tl.load(there + k_places[None], mask=inside[:, :, None] & (i < DK)[None], other=0.0)
        values = tl.load(
            there + v_places[None], mask=inside[:, :, None] & (j < DV)[None], other=0.0
        )
        # Sums are relative to the highest score so far, and rescaled when there is a higher one.
        scores = tl.where(inside, tl.sum(query[:, None, :] * keys.to(tl.float32), 2), float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(weights, 1)
        sums = sums * rescale[:, None] + tl.sum(weights[:, :, None] * values.to(tl.float32), 1)
        highest = new_highest
        columns += BLOCK
        rows = tl.load(table + columns, mask=columns < W, other=0)

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
    """Store the new keys and values at each row's length, and attend to all of the row up to there.

    Args:
        joined: New queries, keys and values side by side, (R, h * (2 d_k + d_v)).
        cache: Keys and values of earlier positions, (R, W, h * (d_k + d_v)); it is written to.
        ancestors: In which row of the cache each position of a row is, (R, W).
        length: How many tokens each sentence's hypotheses have, (B,).
        h: Number of heads.
        d_k: Size of a query and of a key.
        r: Size of the neighbourhood that a token attends to (§4), or None for all.

    Returns:
        The heads' outputs, (R, h * d_v).
    """
    R = joined.size(0)
    K = R // length.size(0)
    d_v = cache.size(2) // h - d_k
    output = joined.new_empty(R, h * d_v)
    together = math.gcd(K, TOGETHER)  # rows of one program are of one sentence, so of one length
    sizes = _sizes(TARGET_BLOCK // together, d_k, d_v, together * joined.element_size())
    _attend_self[(h, R // together)](
        joined, cache, ancestors, length, output, cache.size(1),
        SCALE=d_k**-0.5, REACH=-1 if r is None else r // 2, K=K, TOGETHER=together, H=h, **sizes,
    )  # fmt: skip
    return output


@triton.jit
def _attend_memory(
    queries, memory, stride_b, stride_s, lengths, output,
    SCALE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, H: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, DK2: tl.constexpr, DV2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Attend from ROWS hypotheses of one sentence to its source.

    The arguments are those of `attend_memory`; stride_b and stride_s are the strides of the memory
    by sentence and position. Program (h, b, n) handles head h and block n of the hypotheses of
    sentence b.
    """
    head = tl.program_id(0)
    sentence = tl.program_id(1)
    k = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, DK2)
    j = tl.arange(0, DV2)

    # Load the queries.
    rows = sentence * K + k
    inside_q = (k < K)[:, None] & (i < DK)[None, :]
    q = tl.load(queries + (rows * H + head)[:, None] * DK + i[None, :], mask=inside_q, other=0.0)
    source = memory + sentence.to(tl.int64) * stride_b
    length = tl.load(lengths + sentence)

    # Go over the source, BLOCK positions at a time; the next keys are loaded meanwhile. Sums are
    # relative to the highest score so far, and rescaled when there is a higher one.
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, DV2), tl.float32)
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

    inside_o = (k < K)[:, None] & (j < DV)[None, :]
    places = (rows * H + head)[:, None] * DV + j[None, :]
    tl.store(output + places, (sums / total[:, None]).to(output.dtype.element_ty), mask=inside_o)


def attend_memory(queries: Tensor, memory: Tensor, lengths: Tensor, h: int, d_k: int) -> Tensor:
    """Attend from all hypotheses of each sentence to its source.

    Args:
        queries: Queries of all hypotheses, (R, h * d_k).
        memory: Keys and values of the sources side by side, (B, S, h * (d_k + d_v)).
        lengths: Lengths of the sources, (B,) int32, each at least 1.
        h: Number of heads.
        d_k: Size of a query and of a key.

    Returns:
        The heads' outputs, (R, h * d_v).
    """
    R = queries.size(0)
    B = memory.size(0)
    K = R // B
    d_v = memory.size(2) // h - d_k
    output = queries.new_empty(R, h * d_v)
    sizes = _sizes(SOURCE_BLOCK, d_k, d_v, queries.element_size())
    _attend_memory[(h, B, triton.cdiv(K, ROWS))](
        queries, memory, memory.stride(0), memory.stride(1), lengths, output,
        SCALE=d_k**-0.5, K=K, ROWS=ROWS, H=h, **sizes,
    )  # fmt: skip
    return output


def _sizes(block: int, d_k: int, d_v: int, element_bytes: int) -> dict[str, int]:
    """Return the sizes of heads and of the tiles that hold them, and the number of warps.

    Tiles have powers of two from 16 on, and one warp for each 4 KiB.
    """
    DK2 = max(16, triton.next_power_of_2(d_k))
    DV2 = max(16, triton.next_power_of_2(d_v))
    num_warps = max(1, min(8, block * max(DK2, DV2) * element_bytes // 4096))
    return {"DK": d_k, "DV": d_v, "DK2": DK2, "DV2": DV2, "BLOCK": block, "num_warps": num_warps}
