"""The feed-forward networks of §3.3 on a GPU, with few kernels around their products.

- `ReluNetwork` sets the gradient of max(0, xW_1 + b_1) to zero where its product is computed, and
  sums the gradient of b_1 there.
- `GatedNetwork` is the SwiGLU or GEGLU network: one product for both halves, one kernel for the
  gate.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from transduce.kernels.products import PROGRAMS, bias_gradient, sum_rows

TILE = 128  # rows and columns of a tile of the product in `_relu_backward`
DEPTH = 64  # terms of its sums that are multiplied at a time
GATED = 2048  # elements that one program of `_gate` handles


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
        return dx, d_w_1, d_b_1, d_w_2, bias_gradient(dy)


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
        return dx, d_w_1, d_b_1, d_w_gate, d_b_gate, d_w_2, bias_gradient(dy), None


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
