"""Products with weights on a GPU: xW + b, several at once, and the feed-forward networks of §3.3.

The products themselves are those of the vendor's library, which are hard to beat. What is saved are
the small kernels around them:

- `Product` projects queries, keys and values (§3.2.2) by one product and rotates them in place. In
  the backward pass their three gradients are one matrix already, because attention writes them side
  by side (`empty_gradients`), and the sum of a bias gradient takes two short kernels.
- `ReluNetwork` sets the gradient of max(0, xW_1 + b_1) to zero where its product is computed, and
  sums the gradient of b_1 there.
- `GatedNetwork` is the SwiGLU or GEGLU network: one product for both halves, one kernel for the
  gate.
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
ROWS = 16  # rows that one program handles at a time
PROGRAMS = 264  # programs that sum over rows, each over its share
TILE = 128  # rows and columns of a tile of the product in `_relu_backward`
DEPTH = 64  # terms of its sums that are multiplied at a time
GATED = 2048  # elements that one program of `_gate` handles


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
        d_bias = _bias_gradient(dy) if ctx.has_bias else None
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


def _bias_gradient(dy: Tensor) -> Tensor:
    """Sum over rows:  (n, D) -> (D,)."""
    count, D = dy.shape
    width = min(512, triton.next_power_of_2(D))
    programs = min(PROGRAMS, -(-count // ROWS))
    partial = torch.empty(1, programs, D, device=dy.device, dtype=torch.float32)
    grid = (programs, -(-D // width))
    _bias_backward[grid](dy, partial, count, D=D, WIDTH=width, ROWS=ROWS)
    return sum_rows(partial, dy.dtype)[0]


@triton.jit
def _relu_backward(
    dy, weight, y, dz, partial, count, N: tl.constexpr, K: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute dz = dy W where y > 0, else 0, and its sums over the rows of each tile.

    dy is (count, K), weight (K, N), y and dz (count, N), all as tensor descriptors, which read
    zeros outside of a tensor. partial is (tiles of rows, N). The programs take turns with the tiles
    of dz, row of tiles by row of tiles.
    """
    across: tl.constexpr = (N + COLUMNS - 1) // COLUMNS  # tiles beside each other
    for number in tl.range(
        tl.program_id(0), tl.cdiv(count, ROWS) * across, tl.num_programs(0), flatten=True
    ):
        row = number // across * ROWS
        column = number % across * COLUMNS

        # The product.
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for k in range(0, K, DEPTH):
            total = tl.dot(dy.load([row, k]), weight.load([k, column]), total)

        # The gradient of the ReLU.
        gradient = tl.where(y.load([row, column]) > 0, total, 0.0).to(dz.dtype)
        dz.store([row, column], gradient)

        # The bias learns from the sums.
        columns = column + tl.arange(0, COLUMNS)
        tl.store(
            partial + number // across * N + columns,
            tl.sum(gradient.to(tl.float32), 0),
            mask=columns < N,
        )


class ReluNetwork(torch.autograd.Function):
    """max(0, xW_1 + b_1)W_2 + b_2, §3.3, in half precision:  (..., d_model) -> (..., d_model)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        # Product, bias and ReLU are one kernel of the vendor's library.
        inner = torch._addmm_activation(b_1, flat, w_1.t())
        ctx.save_for_backward(flat, w_1, w_2, inner)
        return F.linear(inner, w_2, b_2).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor, ...]:
        x, w_1, w_2, inner = ctx.saved_tensors
        dy = d_output.flatten(0, -2).contiguous()
        count, K = dy.shape
        N = inner.size(1)
        d_inner = torch.empty_like(inner)
        partial = torch.empty(1, -(-count // TILE), N, device=dy.device, dtype=torch.float32)
        tiles_of = TensorDescriptor.from_tensor
        _relu_backward[(_processors(dy),)](
            tiles_of(dy, [TILE, DEPTH]), tiles_of(w_2.contiguous(), [DEPTH, TILE]),
            tiles_of(inner, [TILE, TILE]), tiles_of(d_inner, [TILE, TILE]), partial, count,
            N=N, K=K, ROWS=TILE, COLUMNS=TILE, DEPTH=DEPTH, num_warps=4, num_stages=4,
        )  # fmt: skip
        dx = (d_inner @ w_1).view(d_output.shape)
        d_b_1 = sum_rows(partial, dy.dtype)[0]
        d_w_1 = d_inner.t() @ x
        d_w_2 = dy.t() @ inner
        return dx, d_w_1, d_b_1, d_w_2, _bias_gradient(dy)


@triton.jit
def _gate(joined, inner, count, F: tl.constexpr, SILU: tl.constexpr, BLOCK: tl.constexpr):
    """Compute inner = activation(a) * b, where each row of joined is a and b, of F elements each.

    joined is (n, 2 F), inner (n, F) with count elements. A program handles BLOCK of these.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    here = joined + place // F * (2 * F) + place % F
    value, _ = _activation(tl.load(here, mask=inside, other=0.0).to(tl.float32), SILU)
    value *= tl.load(here + F, mask=inside, other=0.0).to(tl.float32)
    tl.store(inner + place, value.to(inner.dtype.element_ty), mask=inside)


@triton.jit
def _activation(a, SILU: tl.constexpr):
    """Return SiLU(a) or GELU(a), and its derivative."""
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
    """Compute the gradients of a and b (see `_gate`), and their sums over this program's rows.

    d_inner is (count, F), joined and d_joined (count, 2 F), partial (programs, 2 F). Program (i, j)
    handles every num_programs-th block of ROWS rows, of the WIDTH columns of number j.
    """
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    sums_a = tl.zeros((ROWS, WIDTH), tl.float32)
    sums_b = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < F)[None, :]
        place = rows[:, None].to(tl.int64) * F + columns[None, :]
        both = rows[:, None].to(tl.int64) * (2 * F) + columns[None, :]

        # Load.
        gradient = tl.load(d_inner + place, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(joined + both + F, mask=inside, other=0.0).to(tl.float32)
        a = tl.load(joined + both, mask=inside, other=0.0).to(tl.float32)

        # Compute and store.
        value, slope = _activation(a, SILU)
        d_a = gradient * b * slope
        d_b = gradient * value
        tl.store(d_joined + both, d_a.to(d_joined.dtype.element_ty), mask=inside)
        tl.store(d_joined + both + F, d_b.to(d_joined.dtype.element_ty), mask=inside)
        sums_a += d_a
        sums_b += d_b
    share = partial + tl.program_id(0) * (2 * F) + columns
    tl.store(share, tl.sum(sums_a, 0), mask=columns < F)
    tl.store(share + F, tl.sum(sums_b, 0), mask=columns < F)


class GatedNetwork(torch.autograd.Function):
    """(f(xW_1 + b_1) * (xW_gate + b_gate))W_2 + b_2, where f is SiLU or GELU."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w_1: Tensor, b_1: Tensor, w_gate: Tensor, b_gate: Tensor,
        w_2: Tensor, b_2: Tensor, silu: bool,
    ) -> Tensor:  # fmt: skip
        flat = x.flatten(0, -2)
        weight = torch.cat([w_1, w_gate])
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

        # The gradients of both halves, side by side, and of their biases.
        count, size = inner.shape
        d_joined = torch.empty_like(joined)
        width = min(64, triton.next_power_of_2(size))
        rows = 4
        programs = min(PROGRAMS // 2, -(-count // rows))
        partial = torch.empty(1, programs, 2 * size, device=dy.device, dtype=torch.float32)
        _gate_backward[(programs, -(-size // width))](
            dy @ w_2, joined, d_joined, partial, count,
            F=size, SILU=ctx.silu, WIDTH=width, ROWS=rows, num_warps=2,
        )  # fmt: skip

        # The gradients of the products.
        d_w_1, d_w_gate = (d_joined.t() @ x).split(size)
        d_b_1, d_b_gate = sum_rows(partial, dy.dtype)[0].split(size)
        dx = (d_joined @ weight).view(d_output.shape)
        d_w_2 = dy.t() @ inner
        return dx, d_w_1, d_b_1, d_w_gate, d_b_gate, d_w_2, _bias_gradient(dy), None


def _processors(x: Tensor) -> int:
    """Return how many multiprocessors the GPU of x has; in the interpreter, a small number."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2


def takes_own_product(weight: Tensor) -> bool:
    """Whether `ReluNetwork` can run with this weight and on its GPU.

    It needs half precision, rows of a multiple of 16 bytes, and a chip of Hopper's generation or
    later that has enough shared memory for the tiles.
    """
    if not weight.is_cuda or weight.element_size() != 2 or any(size % 8 for size in weight.shape):
        return False
    chip: Any = torch.cuda.get_device_properties(weight.device)
    return chip.major >= 9 and chip.shared_memory_per_block_optin >= 200_000


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
