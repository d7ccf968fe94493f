"""The label-smoothed cross-entropy (§5.4) together with the product before it, in Triton.

It equals `training.loss.smoothed_loss`. With p = softmax(logits) over the V - 1 classes, the true
class y and s = eps / (V - 2), the loss of one token is

    -log p(y) - s * sum over classes c of (logits(c) - logits(y)),

and its gradient by logits(c) is p(c) - s, except p(y) - (1 - eps) for the true class.

The logits are the largest tensor of a training step. Here they are written once, in the precision
of the product, and the kernel that sums the loss overwrites them by their gradient. There are no
float32 logits, and one pass over them where autograd takes four.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.tile_attention import LOG2_E

BLOCK = 4096  # logits of one row at a time


@triton.jit
def _loss_and_gradient(
    logits, labels, losses, likelihoods, EPS: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute the losses of one row, and overwrite its logits by their gradient.

    logits is (n, V), labels (n,), losses and likelihoods (n,): the smoothed loss, and -log p(y)
    alone. A program handles one row, in blocks of BLOCK logits; for the gradient it reads the row
    again, which is still in the cache. Padding, id V - 1, is no class: it has no part in the sums,
    and its gradient is zero. A row whose label is padding has no loss and no gradient.
    """
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * V
    label = tl.load(labels + row)
    counts = label != V - 1
    true = tl.load(here + label).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    whole: tl.constexpr = (V - 1) // BLOCK * BLOCK  # logits in full blocks, without padding

    # Sum over the last block, which is not full, and then over the full ones. `sums` holds the sum
    # of exponentials, relative to the highest logit so far, for each place in a block.
    inside = whole + columns < V - 1
    last = tl.load(here + whole + columns, mask=inside, other=-1e30).to(tl.float32)
    highest = tl.max(last, 0)
    sums = tl.exp2((last - highest) * LOG2_E)
    everything = tl.where(inside, last, 0.0)
    for start in range(0, whole, BLOCK):
        values = tl.load(here + start + columns).to(tl.float32)
        before = highest
        highest = tl.maximum(before, tl.max(values, 0))
        sums = sums * tl.exp2((before - highest) * LOG2_E) + tl.exp2(
            values * LOG2_E - highest * LOG2_E
        )
        everything += values

    # Store the losses.
    normalizer = highest + tl.log(tl.sum(sums, 0))
    share = EPS / (V - 2)
    others = tl.sum(everything, 0) - (V - 1) * true
    tl.store(losses + row, tl.where(counts, normalizer - true - share * others, 0.0))
    tl.store(likelihoods + row, tl.where(counts, normalizer - true, 0.0))

    # Store the gradient of every class as if it were not the true one.
    factor = tl.where(counts, 1.0, 0.0)
    for start in range(0, whole, BLOCK):
        values = tl.load(here + start + columns).to(tl.float32)
        gradient = tl.exp2(values * LOG2_E - normalizer * LOG2_E) * factor - share * factor
        tl.store(here + start + columns, gradient.to(logits.dtype.element_ty))
    probabilities = tl.exp2((last - normalizer) * LOG2_E)
    gradient = tl.where(inside, probabilities * factor - share * factor, 0.0)
    tl.store(here + whole + columns, gradient.to(logits.dtype.element_ty), mask=whole + columns < V)

    # Store that of the true class, after all other threads have written.
    tl.debug_barrier()
    gradient = tl.exp2((true - normalizer) * LOG2_E) - (1 - EPS)
    tl.store(here + label, gradient.to(logits.dtype.element_ty), mask=counts)


@triton.jit
def _scale(x, scale, y, count, BLOCK: tl.constexpr):
    """Compute y = x * scale, both of count elements. A program handles BLOCK of them."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(x + places, mask=places < count).to(tl.float32) * tl.load(scale)
    tl.store(y + places, scaled.to(y.dtype.element_ty), mask=places < count)


def _scaled(x: Tensor, scale: Tensor) -> Tensor:
    """Multiply x by a float32 scalar on the device.

    Torch takes four times as long where the two have different dtypes.
    """
    y = torch.empty_like(x)
    _scale[(-(-x.numel() // BLOCK),)](x, scale, y, x.numel(), BLOCK=BLOCK)
    return y


class ProjectedLoss(torch.autograd.Function):
    """The two sums of `smoothed_loss`, (2,), from the decoder's output.

    Hidden states (B, T, d_model), the matrix (V, d_model) and labels (B, T) -> (2,).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, eps_ls: float) -> Tensor:
        V = weight.size(0)
        flat = x.flatten(0, -2).contiguous()
        logits = F.linear(flat, weight)
        losses = torch.empty(2, flat.size(0), device=x.device, dtype=torch.float32)
        _loss_and_gradient[(flat.size(0),)](
            logits, labels.flatten(), losses[0], losses[1], EPS=eps_ls, V=V, BLOCK=BLOCK
        )
        ctx.save_for_backward(flat, weight, logits)
        ctx.shape = x.shape
        return losses.sum(1)

    @staticmethod
    def backward(ctx: Any, d_sums: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, gradient = ctx.saved_tensors
        scale = d_sums[0]  # the second sum is only reported: nothing learns from it
        dx = _scaled(gradient @ weight, scale)
        d_weight = gradient.t() @ _scaled(flat, scale)
        return dx.view(ctx.shape), d_weight, None, None
