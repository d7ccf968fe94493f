"""Faster forms of the model's parts for CPUs: packed weights, a cheaper dropout, bf16 in training.

A step of a search multiplies a few rows by every weight, so its time is that of reading the
weights. The product that torch uses by default reads them at a third of the memory's speed. oneDNN
reads weights in its own, packed layout at nearly full speed, if there are at least four rows, and
another quarter faster if the weights are in large pages of memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Collection, Sequence
from threading import Thread

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.model.attention import Mask
from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Rotation, rotate
from transduce.model.transformer import Transformer

ROWS = 4  # rows are filled up to a multiple of four, which costs nothing
# Elements of the smallest float32 matrix that is packed: reading a smaller one takes less time than
# calling oneDNN. In bf16 all are packed, so that a row has the same bits whatever the others are.
LEAST = 2**17
LARGE_PAGE = 2**21  # bytes, on Linux
MADV_COLLAPSE = 25  # advice to Linux to move memory into large pages


class Packed:
    """A linear map with its weight in oneDNN's layout. A small float32 weight stays as it is."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        small = weight.numel() < LEAST and weight.dtype == torch.float32
        self.weight = weight.detach()
        self.packed = None if small else torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS)
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Compute x W^T + b:  (B, T, d_in) -> (B, T, d_out)."""
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        multiply = torch.ops.mkldnn._linear_pointwise.default
        B, T, _ = x.shape
        if T > 1 or B % ROWS == 0:
            return multiply(x, self.packed, self.bias, "none", [], "")

        # Fill up a step of a search to a multiple of ROWS, by copies of its first row.
        row = x[:1] if B > 1 else x
        filled = torch.cat([x, *[row] * (-B % ROWS)])
        return multiply(filled, self.packed, self.bias, "none", [], "")[:B]


class PackedLinear(nn.Linear):
    """`nn.Linear` with a packed weight."""

    replaces = nn.Linear
    packed: Packed

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_in) -> (B, T, d_out)."""
        return self.packed(x)


class PackedAttention(MultiHeadAttention):
    """Self-attention with one product for queries, keys and values."""

    replaces = MultiHeadAttention
    packed: Packed

    def queries_keys_values(
        self, queries_from: Tensor, keys_from: Tensor, rotation: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project by one product, if queries and keys come from the same tensor."""
        if queries_from is not keys_from:
            return MultiHeadAttention.queries_keys_values(self, queries_from, keys_from, rotation)
        sizes = [self.h * self.d_k, self.h * self.d_k, self.h * self.d_v]
        q, k, v = map(self.heads, self.packed(queries_from).split(sizes, dim=-1))
        return rotate(q, rotation), rotate(k, rotation), v


class PackedTransformer(Transformer):
    """A Transformer whose shared embedding matrix (§3.4) is packed for the softmax."""

    replaces = Transformer
    packed: Packed

    def logits(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, V)."""
        return self.packed(x) if self.output is None else Transformer.logits(self, x)


def pack(model: nn.Module, exclude: Collection[str] = ()) -> None:
    """Pack the weights of a model's standard parts, except those whose names are excluded.

    The parameters stay as they are, but the model no longer reads them: a later change to one of
    them has no effect.
    """
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    if not matrices or not all(map(_can_pack, matrices)):
        return

    # Give each part its packed weights and the class that uses them.
    products: list[Packed] = []
    joined: set[nn.Module] = set()  # linear layers that are part of a larger product
    form: type[nn.Module]
    for name, module in model.named_modules():
        if name in exclude or module in joined:
            continue
        if type(module) is MultiHeadAttention and name.endswith("self_attention"):
            linears = (module.w_q, module.w_k, module.w_v)
            joined.update(linears)
            product = _join(linears)
            form = PackedAttention
        elif type(module) is nn.Linear:
            product = Packed(module.weight, module.bias)
            form = PackedLinear
        elif type(module) is Transformer and module.output is None:
            product = Packed(module.output_weight, module.output_bias)
            form = PackedTransformer
        else:
            continue
        products.append(product)
        module.packed = product
        module.__class__ = form

    # A thread moves them into large pages, so that the first sentence need not wait. It may still
    # run when Python exits, so it must not call torch, which would abort the process.
    packed = [product.packed for product in products if product.packed is not None]
    places = [_place(matrix) for matrix in packed]
    Thread(target=_move_to_large_pages, args=(places, packed), daemon=True).start()


def _join(linears: tuple[nn.Linear, ...]) -> Packed:
    """Pack linear layers as one, with their outputs side by side. All have a bias, or none has."""
    weight = torch.cat([linear.weight for linear in linears])
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    bias = torch.cat(biases) if biases else None
    return Packed(weight, bias)


def _can_pack(weight: Tensor) -> bool:
    """Whether oneDNN supports this weight here: in float32, or in bf16 on a CPU that can."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    half = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return half or weight.dtype == torch.float32


def _place(matrix: Tensor) -> tuple[int, int]:
    """Return where a packed matrix begins and ends in memory."""
    start = torch.ops.mkldnn.data_ptr(matrix)
    return start, start + torch.ops.mkldnn._nbytes(matrix)


def _move_to_large_pages(places: Sequence[tuple[int, int]], _: Sequence[Tensor]) -> None:
    """Ask Linux to move matrices at these places into large pages; the tensors keep them alive.

    It may refuse, as Linux before 6.1 does. Searches then work as well, but slower.
    """
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None).madvise
    for start, end in places:
        # The first and the last page also hold other data, which does not matter.
        first_page = start // LARGE_PAGE * LARGE_PAGE
        for page in range(first_page, end, LARGE_PAGE):
            madvise(ctypes.c_void_p(page), ctypes.c_size_t(LARGE_PAGE), MADV_COLLAPSE)


DROPOUT_LEVELS = 2**16  # different values of 16 bits


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale up the others (§5.4).

    Torch draws 64 random bits for each element, which takes a seventh of a small model's step. Here
    16 are enough: p is rounded to a multiple of 1 / 65,536, and kept elements are scaled
    accordingly.
    """
    # Four elements share a random word of 64 bits.
    words = -(-x.numel() // 4)
    bits = torch.empty(words, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    dropped = round(p * DROPOUT_LEVELS)
    kept = bits[: x.numel()].view(x.shape) >= dropped - DROPOUT_LEVELS // 2
    return x * (kept * (DROPOUT_LEVELS / (DROPOUT_LEVELS - dropped))).to(x.dtype)


def multiplies_bf16() -> bool:
    """Return whether this CPU has instructions for products in bf16, and torch uses them."""
    has_onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    if not has_onednn or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    # oneDNN also multiplies bf16 without such instructions, but slower than float32.
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in names)


class Float32Attention(MultiHeadAttention):
    """Attention that is computed in float32 when it is trained in bf16.

    Torch's gradient of attention in bf16 takes nine times as long on a CPU.
    """

    replaces = MultiHeadAttention
    label = "attention"

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """(B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""
        if q.dtype != torch.bfloat16 or not q.requires_grad:
            return super().attend(q, k, v, mask)
        return super().attend(q.float(), k.float(), v.float(), mask).to(q.dtype)


class SparingDropout(nn.Dropout):
    """`nn.Dropout` that uses `dropout` where x is on a CPU."""

    replaces = nn.Dropout
    label = "dropout"

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        if not self.training or self.p == 0:
            return x
        return dropout(x, self.p) if x.device.type == "cpu" else super().forward(x)
