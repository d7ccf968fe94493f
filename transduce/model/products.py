"""Products with weights on a GPU: several as one, with bias and ReLU, and gradients that need no pass of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16  # rows of one program at a time
PROGRAMS = 264  # each of which sums its share of rows


@triton.jit
def _bias_backward(
    dy, y, dz, partial, count, RELU: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr
):
    """The sums of a gradient over this program's rows, for the bias; with a ReLU, the gradient before it, too."""
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        places = rows[:, None].to(tl.int64) * D + columns[None, :]  # more than 2^31 in a large batch
        gradient = tl.load(dy + places, mask=inside, other=0.0)
        if RELU:
            gradient = tl.where(tl.load(y + places, mask=inside, other=0.0) > 0, gradient, 0.0)
            tl.store(dz + places, gradient, mask=inside)
        sums += gradient.to(tl.float32)
    tl.store(partial + tl.program_id(0) * D + columns, tl.sum(sums, 0), mask=columns < D)


@triton.jit
def _sum_rows(partial, sums, count, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    columns = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, count, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        places = (tl.program_id(1) * count + rows)[:, None] * D + columns[None, :]
        total += tl.load(partial + places, mask=inside, other=0.0)
    tl.store(sums + tl.program_id(1) * D + columns, tl.sum(total, 0).to(sums.dtype.element_ty), mask=columns < D)


def sum_rows(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sums over the second dimension, as programs left their shares:  (n, programs, D) in float32 -> (n, D)."""
    n, count, D = partial.shape
    sums = torch.empty(n, D, device=partial.device, dtype=dtype)
    _sum_rows[(-(-D // 32), n)](partial, sums, count, D=D, ROWS=128, WIDTH=32)
    return sums


class Product(torch.autograd.Function):
    """x (..., d_in) times weights (d_i, d_in) as one product, with bias and ReLU where asked for -> (..., d_i) each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, relu: bool, *weights: Tensor) -> tuple[Tensor, ...]:
        flat = x.flatten(0, -2)
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        # The product, the bias and the ReLU are one kernel of the vendor's library.
        y = torch._addmm_activation(bias, flat, weight.t()) if relu else F.linear(flat, weight, bias)  # type: ignore[arg-type]
        ctx.save_for_backward(flat, weight, *([y] if relu else []))
        ctx.sizes, ctx.has_bias = [each.size(0) for each in weights], bias is not None
        return tuple(y.view(*x.shape[:-1], -1).split(ctx.sizes, dim=-1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *after_relu = ctx.saved_tensors
        dy, d_bias = _joined(gradients), None
        if ctx.has_bias:
            dy, d_bias = _through_bias(dy, *after_relu)
        dx = (dy @ weight).view(*gradients[0].shape[:-1], -1)
        return dx, d_bias, None, *(dy.t() @ x).split(ctx.sizes)


def _through_bias(dy: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The gradient before the ReLU whose result was y, if there was one, and that of the bias."""
    count, D = dy.shape
    dz = dy if y is None else torch.empty_like(dy)
    width = min(512, triton.next_power_of_2(D))
    partial = torch.empty(1, min(PROGRAMS, -(-count // ROWS)), D, device=dy.device, dtype=torch.float32)
    _bias_backward[(partial.size(1), -(-D // width))](
        dy, dy if y is None else y, dz, partial, count, RELU=y is not None, D=D, WIDTH=width, ROWS=ROWS
    )
    return dz, sum_rows(partial, dy.dtype)[0]


def lying_alike(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Empty tensors for their gradients. The parts of one product get the parts of one tensor, for `_joined`."""
    memory: dict[int, Tensor] = {}
    empty = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        sharing = [each for each in tensors if each.untyped_storage().data_ptr() == storage.data_ptr()]
        apart = len({each.storage_offset() for each in sharing}) == len(sharing)
        if apart and sum(each.numel() for each in sharing) * tensor.element_size() == storage.nbytes():
            base = memory.setdefault(storage.data_ptr(), tensor.new_empty(storage.nbytes() // tensor.element_size()))
            empty.append(base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()))
        else:
            empty.append(torch.empty_like(tensor))
    return tuple(empty)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Parts (..., d_i) side by side:  (n, sum of d_i). Nothing is copied where they lie so already."""
    flat = [part.flatten(0, -2) for part in parts]
    width, place = sum(part.size(1) for part in flat), flat[0].storage_offset()
    for part in flat:
        same = part.untyped_storage().data_ptr() == flat[0].untyped_storage().data_ptr()
        if not same or part.storage_offset() != place or part.stride() != (width, 1):
            return torch.cat(flat, dim=1)
        place += part.size(1)
    return flat[0].as_strided((flat[0].size(0), width), (width, 1), flat[0].storage_offset())
