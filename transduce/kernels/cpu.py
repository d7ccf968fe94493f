"""Faster forms for CPUs: packed weights (oneDNN) for searches, a cheaper dropout for training.

A step of a search is bound by reading the weights. The product that torch chooses by default reads
them at a third of the memory's speed. oneDNN reads packed weights at nearly full speed, from four
rows on, and a quarter faster again if they are in large pages of memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Collection
from threading import Thread

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Rotation, rotate
from transduce.model.transformer import Transformer

ROWS = 4  # of a step come together: three more cost nothing
# Numbers: a smaller matrix is read faster than oneDNN is called; in half precision the bits are
# equal.
LEAST = 2**17
LARGE_PAGE, MADV_COLLAPSE = 2**21, 25  # of Linux


class Packed:
    """A product with a matrix in oneDNN's layout, or with a small one as it is."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        small = weight.numel() < LEAST and weight.dtype == torch.float32
        self.weight = weight.detach()
        self.packed = None if small else torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS)
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """x W^T + b:  (B, T, d_in) -> (B, T, d_out)."""
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        multiply = torch.ops.mkldnn._linear_pointwise.default
        B, T, _ = x.shape
        if T > 1 or B % ROWS == 0:
            return multiply(x, self.packed, self.bias, "none", [], "")
        filled = torch.cat([x, *[x[:1] if B > 1 else x] * (-B % ROWS)])
        return multiply(filled, self.packed, self.bias, "none", [], "")[:B]


class PackedLinear(nn.Linear):
    """`nn.Linear` with a packed matrix."""

    stands_for = nn.Linear
    packed: Packed

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_in) -> (B, T, d_out)."""
        return self.packed(x)


class PackedAttention(MultiHeadAttention):
    """Self-attention whose queries, keys and values are one product."""

    stands_for = MultiHeadAttention
    packed: Packed

    def queries_keys_values(
        self, queries_from: Tensor, keys_from: Tensor, rotation: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project once, where all come from one place."""
        if queries_from is not keys_from:
            return MultiHeadAttention.queries_keys_values(self, queries_from, keys_from, rotation)
        sizes = [self.h * self.d_k, self.h * self.d_k, self.h * self.d_v]
        q, k, v = map(self.heads, self.packed(queries_from).split(sizes, dim=-1))
        return rotate(q, rotation), rotate(k, rotation), v


class PackedTransformer(Transformer):
    """A Transformer whose embedding matrix is packed for the softmax."""

    stands_for = Transformer
    packed: Packed

    def logits(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, V)."""
        return self.packed(x) if self.output is None else Transformer.logits(self, x)


def pack(model: nn.Module, leave: Collection[str] = ()) -> None:
    """Pack the standard parts of a model in place, but for those to leave as they are, by name.

    Its parameters stay, but a change of them would no longer be seen.
    """
    weights = [weight for weight in model.parameters() if weight.dim() == 2]
    if not weights or not all(map(_can_pack, weights)):
        return
    made: list[Packed] = []
    joined: set[nn.Module] = set()
    for name, module in model.named_modules():
        if name in leave or module in joined:
            continue
        if type(module) is MultiHeadAttention and name.endswith("self_attention"):
            parts = (module.w_q, module.w_k, module.w_v)
            joined.update(parts)
            biases: list[Tensor] = [part.bias for part in parts if part.bias is not None]
            bias = torch.cat(biases) if biases else None
            product = Packed(torch.cat([part.weight for part in parts]), bias)
            form: type[nn.Module] = PackedAttention
        elif type(module) is nn.Linear:
            product, form = Packed(module.weight, module.bias), PackedLinear
        elif type(module) is Transformer and module.output is None:
            product, form = Packed(module.output_weight, module.output_bias), PackedTransformer
        else:
            continue
        made.append(product)
        module.packed, module.__class__ = product, form
    matrices = [product.packed for product in made if product.packed is not None]
    # Beside the first sentence, which need not wait.
    Thread(target=_lay_in_large_pages, args=(matrices,), daemon=True).start()


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    half = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return half or weight.dtype == torch.float32


def _lay_in_large_pages(matrices: list[Tensor]) -> None:
    """Ask the system to, where they are. It may refuse, as one before Linux 6.1 does: nothing but time is lost."""
    if sys.platform == "linux":
        madvise = ctypes.CDLL(None).madvise
        for matrix in matrices:
            start, size = torch.ops.mkldnn.data_ptr(matrix), torch.ops.mkldnn._nbytes(matrix)
            first = start // LARGE_PAGE * LARGE_PAGE
            # The first and the last are shared with others.
            for page in range(first, start + size, LARGE_PAGE):
                madvise(ctypes.c_void_p(page), ctypes.c_size_t(LARGE_PAGE), MADV_COLLAPSE)


DROPOUT_LEVELS = 2**16


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale up the others.

    Torch draws 64 random bits for each element, which takes a seventh of a small model's step. 16
    are enough: p is rounded to 1 / 65,536, and what is kept is scaled by the rounded rate.
    """
    words = -(-x.numel() // 4)
    bits = torch.empty(words, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    dropped = round(p * DROPOUT_LEVELS)
    kept = bits[: x.numel()].view(x.shape) >= dropped - DROPOUT_LEVELS // 2
    return x * (kept * (DROPOUT_LEVELS / (DROPOUT_LEVELS - dropped))).to(x.dtype)


class SparingDropout(nn.Dropout):
    """`nn.Dropout` by `dropout`, where x is on a CPU."""

    stands_for = nn.Dropout
    label = "dropout"

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        if not self.training or self.p == 0:
            return x
        return dropout(x, self.p) if x.device.type == "cpu" else super().forward(x)
