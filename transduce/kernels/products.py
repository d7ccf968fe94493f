"""Products with weights on a GPU: several as one, and gradients that need no pass of their own.

`Product` projects queries, keys and values at once, and rotates them; `ReluNetwork` and
`GatedNetwork` are the feed-forward networks of §3.3.
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
from triton.tools.tensor_descriptor import TensorDescriptor

Rotation = tuple[Tensor, Tensor]  # cosines and sines, float32
ROWS = 16  # rows of one program at a time
PROGRAMS = 264  # each of which sums its share of rows
TILE, DEPTH = 128, 64  # of a product of our own
GATED = 2048  # numbers of one program


@triton.jit
def _bias_backward(dy, partial, count, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """The sums of a gradient over this program's rows."""
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        # More than 2^31 in a large batch.
        places = rows[:, None].to(tl.int64) * D + columns[None, :]
        sums += tl.load(dy + places, mask=inside, other=0.0).to(tl.float32)
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
    tl.store(
        sums + tl.program_id(1) * D + columns,
        tl.sum(total, 0).to(sums.dtype.element_ty),
        mask=columns < D,
    )


def sum_rows(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sums over the second dimension, as programs left their shares:  (n, programs, D) in float32 -> (n, D)."""
    n, count, D = partial.shape
    sums = torch.empty(n, D, device=partial.device, dtype=dtype)
    _sum_rows[(-(-D // 8), n)](partial, sums, count, D=D, ROWS=512, WIDTH=8)
    return sums


class Product(torch.autograd.Function):
    """x (..., d_in) times weights (d_i, d_in) as one product, with a bias -> (..., d_i) each.

    Where there is a rotation (cosines and sines, n rows of d / 2 each), the first `turned` results
    consist of heads of size d, which are turned by it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor | None,
        rotation: Rotation | None,
        turned: int,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        flat = x.flatten(0, -2)
        weight = _stacked(weights)
        ctx.save_for_backward(flat, weight)
        ctx.sizes, ctx.has_bias = [each.size(0) for each in weights], bias is not None
        ctx.rotation, ctx.turned = rotation, sum(ctx.sizes[:turned])
        y = F.linear(flat, weight, bias)
        if rotation is not None:
            turn(y, rotation, ctx.turned)
        return y.view(*x.shape[:-1], -1).split(ctx.sizes, dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dy = _joined(gradients)
        if ctx.rotation is not None:
            turn(dy, ctx.rotation, ctx.turned, back=True)
        dx = (dy @ weight).view(*gradients[0].shape[:-1], -1)
        d_bias = _bias_gradient(dy) if ctx.has_bias else None
        return dx, d_bias, None, None, *(dy.t() @ x).split(ctx.sizes)


def project(
    x: Tensor, *linears: nn.Linear, rotation: Rotation | None = None, turned: int = 0
) -> tuple[Tensor, ...]:
    """Compute what each linear layer makes of x, in one product:  (B, T, d_in) -> (B, T, d_out) each."""
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    bias = torch.cat(biases) if len(biases) > 1 else biases[0] if biases else None
    return Product.apply(x, bias, rotation, turned, *(linear.weight for linear in linears))


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
    """Turn the pairs (i, i + HALF) of the first heads of each row, in place."""
    rows, pair = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (rows < count)[:, None] & (pair < HALF)[None, :]
    angle = rows[:, None] * HALF + pair[None, :]
    cosine = tl.load(cosines + angle, mask=inside, other=1.0)
    sine = tl.load(sines + angle, mask=inside, other=0.0)
    here = x + rows[:, None].to(tl.int64) * stride + pair[None, :]
    for _ in range(HEADS):
        first = tl.load(here, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(here + HALF, mask=inside, other=0.0).to(tl.float32)
        tl.store(here, (first * cosine - second * sine).to(x.dtype.element_ty), mask=inside)
        tl.store(here + HALF, (second * cosine + first * sine).to(x.dtype.element_ty), mask=inside)
        here += 2 * HALF


def turn(x: Tensor, rotation: Rotation, columns: int, *, back: bool = False) -> None:
    """Rotate the heads in the first columns of x (n, ...), in place, by angles (n, d / 2), or back."""
    cosines, sines = rotation
    half = cosines.size(-1)
    _turn[(-(-x.size(0) // ROWS),)](
        x, cosines, -sines if back else sines, x.size(0), x.stride(0), columns // (2 * half),
        HALF=half, WIDTH=triton.next_power_of_2(half), ROWS=ROWS,
    )  # fmt: skip


def _bias_gradient(dy: Tensor) -> Tensor:
    """Sums over rows:  (n, D) -> (D,)."""
    count, D = dy.shape
    width = min(512, triton.next_power_of_2(D))
    partial = torch.empty(
        1, min(PROGRAMS, -(-count // ROWS)), D, device=dy.device, dtype=torch.float32
    )
    _bias_backward[(partial.size(1), -(-D // width))](
        dy, partial, count, D=D, WIDTH=width, ROWS=ROWS
    )
    return sum_rows(partial, dy.dtype)[0]


@triton.jit
def _relu_backward(
    dy, weight, y, dz, partial, count, N: tl.constexpr, K: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """dz = dy W where y > 0, and its sums over the rows of each tile. Tensors come as descriptors: outside is zero."""
    across: tl.constexpr = (N + COLUMNS - 1) // COLUMNS
    for number in tl.range(
        tl.program_id(0), tl.cdiv(count, ROWS) * across, tl.num_programs(0), flatten=True
    ):
        row, column = number // across * ROWS, number % across * COLUMNS
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for k in range(0, K, DEPTH):
            total = tl.dot(dy.load([row, k]), weight.load([k, column]), total)
        gradient = tl.where(y.load([row, column]) > 0, total, 0.0).to(dz.dtype)
        dz.store([row, column], gradient)
        columns = column + tl.arange(0, COLUMNS)
        tl.store(
            partial + number // across * N + columns,
            tl.sum(gradient.to(tl.float32), 0),
            mask=columns < N,
        )


class ReluNetwork(torch.autograd.Function):
    """max(0, xW_1 + b_1)W_2 + b_2, §3.3, in half precision: the ReLU's gradient is taken where its product ends."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        inner = torch._addmm_activation(b_1, flat, w_1.t())  # one kernel of the vendor's library
        ctx.save_for_backward(flat, w_1, w_2, inner)
        return F.linear(inner, w_2, b_2).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor, ...]:
        x, w_1, w_2, inner = ctx.saved_tensors
        dy = d_output.flatten(0, -2).contiguous()
        (count, K), N, d_inner = dy.shape, inner.size(1), torch.empty_like(inner)
        partial = torch.empty(1, -(-count // TILE), N, device=dy.device, dtype=torch.float32)
        tiles_of = TensorDescriptor.from_tensor
        _relu_backward[(_processors(dy),)](
            tiles_of(dy, [TILE, DEPTH]), tiles_of(w_2.contiguous(), [DEPTH, TILE]), tiles_of(inner, [TILE, TILE]),
            tiles_of(d_inner, [TILE, TILE]), partial, count, N=N, K=K, ROWS=TILE, COLUMNS=TILE, DEPTH=DEPTH,
            num_warps=4, num_stages=4,
        )  # fmt: skip
        dx, d_b_1 = (d_inner @ w_1).view(d_output.shape), sum_rows(partial, dy.dtype)[0]
        return dx, d_inner.t() @ x, d_b_1, dy.t() @ inner, _bias_gradient(dy)


@triton.jit
def _gate(joined, inner, count, F: tl.constexpr, SILU: tl.constexpr, BLOCK: tl.constexpr):
    """inner = activation(a) * b, for rows (a, b) of 2 F numbers."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    here = joined + place // F * (2 * F) + place % F
    value, _ = _activation(tl.load(here, mask=inside, other=0.0).to(tl.float32), SILU)
    value *= tl.load(here + F, mask=inside, other=0.0).to(tl.float32)
    tl.store(inner + place, value.to(inner.dtype.element_ty), mask=inside)


@triton.jit
def _activation(a, SILU: tl.constexpr):
    """SiLU or GELU, and its derivative."""
    if SILU:
        share = 1.0 / (1.0 + tl.exp(-a))
        return a * share, share * (1.0 + a * (1.0 - share))
    share = 0.5 * (1.0 + tl.erf(a * 0.7071067811865476))
    return a * share, share + a * 0.3989422804014327 * tl.exp(-0.5 * a * a)


@triton.jit
def _gate_backward(
    d_inner, joined, d_joined, partial, count, F: tl.constexpr, SILU: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of a and b, and their sums over this program's rows."""
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    sums_a = tl.zeros((ROWS, WIDTH), tl.float32)
    sums_b = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < F)[None, :]
        place = rows[:, None].to(tl.int64) * F + columns[None, :]
        both = rows[:, None].to(tl.int64) * (2 * F) + columns[None, :]
        gradient = tl.load(d_inner + place, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(joined + both + F, mask=inside, other=0.0).to(tl.float32)
        value, slope = _activation(
            tl.load(joined + both, mask=inside, other=0.0).to(tl.float32), SILU
        )
        d_a, d_b = gradient * b * slope, gradient * value
        tl.store(d_joined + both, d_a.to(d_joined.dtype.element_ty), mask=inside)
        tl.store(d_joined + both + F, d_b.to(d_joined.dtype.element_ty), mask=inside)
        sums_a += d_a
        sums_b += d_b
    share = partial + tl.program_id(0) * (2 * F) + columns
    tl.store(share, tl.sum(sums_a, 0), mask=columns < F)
    tl.store(share + F, tl.sum(sums_b, 0), mask=columns < F)


class GatedNetwork(torch.autograd.Function):
    """(activation(xW_1 + b_1) * (xW_gate + b_gate))W_2 + b_2, the activation being SiLU or GELU."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w_1: Tensor, b_1: Tensor, w_gate: Tensor, b_gate: Tensor,
        w_2: Tensor, b_2: Tensor, silu: bool,
    ) -> Tensor:  # fmt: skip
        flat, weight = x.flatten(0, -2), torch.cat([w_1, w_gate])
        joined = F.linear(flat, weight, torch.cat([b_1, b_gate]))
        inner = joined.new_empty(joined.size(0), w_1.size(0))
        _gate[(-(-inner.numel() // GATED),)](
            joined, inner, inner.numel(), F=w_1.size(0), SILU=silu, BLOCK=GATED
        )
        ctx.save_for_backward(flat, weight, w_2, joined, inner)
        ctx.silu = silu
        return F.linear(inner, w_2, b_2).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, w_2, joined, inner = ctx.saved_tensors
        dy = d_output.flatten(0, -2).contiguous()
        (count, size), d_joined = inner.shape, torch.empty_like(joined)
        width, rows = min(64, triton.next_power_of_2(size)), 4
        programs = min(PROGRAMS // 2, -(-count // rows))
        partial = torch.empty(1, programs, 2 * size, device=dy.device, dtype=torch.float32)
        _gate_backward[(programs, -(-size // width))](
            dy @ w_2,
            joined,
            d_joined,
            partial,
            count,
            F=size,
            SILU=ctx.silu,
            WIDTH=width,
            ROWS=rows,
            num_warps=2,
        )
        d_weight, d_gate = (d_joined.t() @ x).split(size)
        d_b_1, d_b_gate = sum_rows(partial, dy.dtype)[0].split(size)
        dx = (d_joined @ weight).view(d_output.shape)
        return dx, d_weight, d_b_1, d_gate, d_b_gate, dy.t() @ inner, _bias_gradient(dy), None


def _processors(x: Tensor) -> int:
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2


def takes_own_product(weight: Tensor) -> bool:
    """Half precision, rows of a multiple of 16 bytes, and a chip with room for the tiles: Hopper's and larger ones."""
    if not weight.is_cuda or weight.element_size() != 2 or any(size % 8 for size in weight.shape):
        return False
    chip: Any = torch.cuda.get_device_properties(weight.device)
    return chip.major >= 9 and chip.shared_memory_per_block_optin >= 200_000


def _stacked(weights: Sequence[Tensor]) -> Tensor:
    """Weights (d_i, d_in) one below the other. Nothing is copied where they lie so already."""
    if len(weights) == 1:
        return weights[0]
    first, rows = weights[0], sum(weight.size(0) for weight in weights)
    for before, after in itertools.pairwise(weights):
        whole = before.is_contiguous() and after.is_contiguous()
        same = before.untyped_storage().data_ptr() == after.untyped_storage().data_ptr()
        if (
            not (whole and same)
            or before.storage_offset() + before.numel() != after.storage_offset()
        ):
            return torch.cat(list(weights))
    return first.as_strided((rows, first.size(1)), (first.size(1), 1))


def lying_alike(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Empty tensors for their gradients. The parts of one product get the parts of one tensor, for `_joined`."""
    memory: dict[int, Tensor] = {}
    empty = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        sharing = [
            each for each in tensors if each.untyped_storage().data_ptr() == storage.data_ptr()
        ]
        apart = len({each.storage_offset() for each in sharing}) == len(sharing)
        if (
            apart
            and sum(each.numel() for each in sharing) * tensor.element_size() == storage.nbytes()
        ):
            base = memory.setdefault(
                storage.data_ptr(), tensor.new_empty(storage.nbytes() // tensor.element_size())
            )
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
