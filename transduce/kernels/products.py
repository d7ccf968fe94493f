"""Products with weights on a GPU: xW + b, several of them as one.

The products themselves are those of the vendor's library, which are hard to beat. What is saved are
the small kernels around them. `Product` projects queries, keys and values (§3.2.2) by one product
and rotates them in place. In the backward pass their three gradients are one matrix already,
because attention writes them side by side (`empty_gradients`), and the sum of a bias gradient takes
two short kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

Rotation = tuple[Tensor, Tensor]  # cosines and sines, float32
ROWS = 16  # rows that one program handles at a time
PROGRAMS = 264  # programs that sum over rows, each over its share


@triton.jit
def _bias_backward(dy, partial, count, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Sum a gradient (count, D) over this program's rows into partial (programs, D).

    Program (i, j) handles every num_programs-th block of ROWS rows, of the WIDTH columns of number
    j.
    """
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        # A large batch has more than 2^31 elements.
        places = rows[:, None].to(tl.int64) * D + columns[None, :]
        sums += tl.load(dy + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(partial + tl.program_id(0) * D + columns, tl.sum(sums, 0), mask=columns < D)


@triton.jit
def _sum_rows(partial, sums, count, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Sum partial (n, count, D) over its second dimension into sums (n, D).

    Program (j, i) handles the WIDTH columns of number j in matrix i.
    """
    columns = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, count, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        places = (tl.program_id(1) * count + rows)[:, None] * D + columns[None, :]
        total += tl.load(partial + places, mask=inside, other=0.0)
    result = sums + tl.program_id(1) * D + columns
    tl.store(result, tl.sum(total, 0).to(sums.dtype.element_ty), mask=columns < D)


def sum_rows(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Add up the shares of all programs:  (n, programs, D) in float32 -> (n, D)."""
    n, count, D = partial.shape
    sums = torch.empty(n, D, device=partial.device, dtype=dtype)
    _sum_rows[(-(-D // 8), n)](partial, sums, count, D=D, ROWS=512, WIDTH=8)
    return sums


class Product(torch.autograd.Function):
    """x (..., d_in) times weights (d_i, d_in) as one product, with a bias -> (..., d_i) each.

    With a rotation (cosines and sines, each (n, d / 2) for n rows of x), the heads of size d in the
    first `rotated` results are rotated by it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor | None,
        rotation: Rotation | None,
        rotated: int,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        flat = x.flatten(0, -2)
        weight = _stack(weights)
        ctx.save_for_backward(flat, weight)
        ctx.sizes = [weight.size(0) for weight in weights]
        ctx.has_bias = bias is not None
        ctx.rotation = rotation
        ctx.rotated_columns = sum(ctx.sizes[:rotated])
        y = F.linear(flat, weight, bias)
        if rotation is not None:
            turn(y, rotation, ctx.rotated_columns)
        return y.view(*x.shape[:-1], -1).split(ctx.sizes, dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dy = _join(gradients)
        if ctx.rotation is not None:
            turn(dy, ctx.rotation, ctx.rotated_columns, back=True)
        dx = (dy @ weight).view(*gradients[0].shape[:-1], -1)
        d_bias = bias_gradient(dy) if ctx.has_bias else None
        d_weights = (dy.t() @ x).split(ctx.sizes)
        return dx, d_bias, None, None, *d_weights


def project(
    x: Tensor, *linears: nn.Linear, rotation: Rotation | None = None, rotated: int = 0
) -> tuple[Tensor, ...]:
    """Apply several linear layers to x, in one product:  (B, T, d_in) -> (B, T, d_out) each."""
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    bias = None
    if biases:
        bias = torch.cat(biases) if len(biases) > 1 else biases[0]
    weights = [linear.weight for linear in linears]
    return Product.apply(x, bias, rotation, rotated, *weights)


@triton.jit
def _turn(
    x,
    cosines,
    sines,
    count,
    stride,
    HEADS,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Rotate the pairs (i, i + HALF) of the first HEADS heads of each row of x, in place.

    x has count rows, stride apart; cosines and sines are (count, HALF). A program handles ROWS
    rows.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    pair = tl.arange(0, WIDTH)
    inside = (rows < count)[:, None] & (pair < HALF)[None, :]
    angle = rows[:, None] * HALF + pair[None, :]
    cosine = tl.load(cosines + angle, mask=inside, other=1.0)
    sine = tl.load(sines + angle, mask=inside, other=0.0)
    here = x + rows[:, None].to(tl.int64) * stride + pair[None, :]
    for _ in range(HEADS):
        first = tl.load(here, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(here + HALF, mask=inside, other=0.0).to(tl.float32)
        new_first = first * cosine - second * sine
        tl.store(here, new_first.to(x.dtype.element_ty), mask=inside)
        new_second = second * cosine + first * sine
        tl.store(here + HALF, new_second.to(x.dtype.element_ty), mask=inside)
        here += 2 * HALF


def turn(x: Tensor, rotation: Rotation, columns: int, *, back: bool = False) -> None:
    """Rotate the heads in the first columns of x (n, ...) in place, by angles (n, d / 2).

    With `back`, by the opposite angles.
    """
    cosines, sines = rotation
    half = cosines.size(-1)
    _turn[(-(-x.size(0) // ROWS),)](
        x, cosines, -sines if back else sines, x.size(0), x.stride(0), columns // (2 * half),
        HALF=half, WIDTH=triton.next_power_of_2(half), ROWS=ROWS,
    )  # fmt: skip


def bias_gradient(dy: Tensor) -> Tensor:
    """Sum over rows:  (n, D) -> (D,)."""
    count, D = dy.shape
    width = min(512, triton.next_power_of_2(D))
    programs = min(PROGRAMS, -(-count // ROWS))
    partial = torch.empty(1, programs, D, device=dy.device, dtype=torch.float32)
    grid = (programs, -(-D // width))
    _bias_backward[grid](dy, partial, count, D=D, WIDTH=width, ROWS=ROWS)
    return sum_rows(partial, dy.dtype)[0]


def _stack(weights: Sequence[Tensor]) -> Tensor:
    """Put weights (d_i, d_in) one below the other:  (sum of d_i, d_in).

    Nothing is copied if they follow one another in memory already.
    """
    if len(weights) == 1:
        return weights[0]
    for upper, lower in itertools.pairwise(weights):
        contiguous = upper.is_contiguous() and lower.is_contiguous()
        same_storage = _storage(upper) == _storage(lower)
        adjacent = upper.storage_offset() + upper.numel() == lower.storage_offset()
        if not (contiguous and same_storage and adjacent):
            return torch.cat(list(weights))
    rows = sum(weight.size(0) for weight in weights)
    d_in = weights[0].size(1)
    return weights[0].as_strided((rows, d_in), (d_in, 1))


def _storage(tensor: Tensor) -> int:
    """Return the address of the memory that a tensor is part of."""
    return tensor.untyped_storage().data_ptr()


def empty_gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Make an empty gradient for each tensor, with the same strides.

    If some tensors are the parts of one product, their gradients are parts of one new tensor in the
    same way. Once they are filled, `_join` needs no copy.
    """
    memory: dict[int, Tensor] = {}
    gradients = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        sharing = [other for other in tensors if _storage(other) == storage.data_ptr()]
        offsets = {other.storage_offset() for other in sharing}
        are_different = len(offsets) == len(sharing)
        size = sum(other.numel() for other in sharing) * tensor.element_size()
        if are_different and size == storage.nbytes():
            base = memory.setdefault(
                storage.data_ptr(), tensor.new_empty(storage.nbytes() // tensor.element_size())
            )
            part = base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            gradients.append(part)
        else:
            gradients.append(torch.empty_like(tensor))
    return tuple(gradients)


def _join(parts: Sequence[Tensor]) -> Tensor:
    """Put parts (..., d_i) side by side:  (n, sum of d_i).

    Nothing is copied if they are side by side in memory already.
    """
    flat = [part.flatten(0, -2) for part in parts]
    first = flat[0]
    width = sum(part.size(1) for part in flat)
    offset = first.storage_offset()
    for part in flat:
        same = _storage(part) == _storage(first)
        if not same or part.storage_offset() != offset or part.stride() != (width, 1):
            return torch.cat(flat, dim=1)
        offset += part.size(1)
    return first.as_strided((first.size(0), width), (width, 1), first.storage_offset())
