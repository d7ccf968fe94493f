"""A model's matrices laid out once as oneDNN wants them, for products with few rows on a CPU.

A step of a search is bound by reading the weights. The product that torch takes by default reads them at a third of
the memory's speed, whichever way they lie; oneDNN reads packed ones at nearly all of it, from four rows on, and a
quarter faster still where they lie in large pages of memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.model import Transformer
from transduce.model.multi_head import MultiHeadAttention

ROWS = 4  # of a step come together: three more cost nothing
LEAST = 2**17  # numbers: a smaller matrix is read faster than oneDNN is called; in half precision it is the same bits
LARGE_PAGE, MADV_COLLAPSE = 2**21, 25  # of Linux
Product = Callable[[Tensor], Tensor]


def pack(model: Transformer) -> Transformer:
    """The same model, its products replaced; its parameters stay, but a change of them would no longer be seen."""
    if not _can_pack(model.output_weight):
        return model
    matrices: list[Tensor] = []

    def product(weight: Tensor, bias: Tensor | None) -> Product:
        if weight.numel() < LEAST and weight.dtype == torch.float32:
            return partial(F.linear, weight=weight.detach(), bias=bias)
        matrices.append(torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS))
        return partial(_product, matrices[-1], bias)

    replaced: list[tuple[Any, str, Callable[..., Any]]] = []
    for name, module in model.named_modules():
        if name.endswith("self_attention"):
            replaced.append((module, "_together", _joined(module, product)))
        elif isinstance(module, nn.Linear) and not name.endswith(
            ("self_attention.w_q", "self_attention.w_k", "self_attention.w_v")
        ):
            replaced.append((module, "forward", product(module.weight, module.bias)))
    replaced.append((model, "logits", product(model.output_weight, model.output_bias)))
    for module, method, function in replaced:
        setattr(module, method, function)
    Thread(target=_lay_in_large_pages, args=(matrices,), daemon=True).start()  # the first sentence need not wait
    return model


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    half = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return half or weight.dtype == torch.float32


def _joined(attention: MultiHeadAttention, product: Callable[..., Product]) -> Callable[..., list[Tensor]]:
    """Queries, keys and values as one product."""
    projections = attention.w_q, attention.w_k, attention.w_v
    biases: list[Tensor] = [projection.bias for projection in projections if projection.bias is not None]
    weight = torch.cat(tuple(projection.weight for projection in projections))
    joined = product(weight, torch.cat(biases) if biases else None)
    sizes = [projection.out_features for projection in projections]
    return lambda x, *_: [attention._heads(part) for part in joined(x).split(sizes, dim=-1)]


def _product(packed: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """x W^T + b:  (B, T, d_in) -> (B, T, d_out)."""
    multiply = torch.ops.mkldnn._linear_pointwise.default
    B, T, _ = x.shape
    if T > 1 or B % ROWS == 0:
        return multiply(x, packed, bias, "none", [], "")  # type: ignore[no-any-return]
    filled = torch.cat([x, *[x[:1] if B > 1 else x] * (-B % ROWS)])
    return multiply(filled, packed, bias, "none", [], "")[:B]  # type: ignore[no-any-return]


def _lay_in_large_pages(matrices: list[Tensor]) -> None:
    """Ask the system to, where they are. It may refuse, as one before Linux 6.1 does: nothing but time is lost."""
    if sys.platform == "linux":
        madvise = ctypes.CDLL(None).madvise
        for matrix in matrices:
            start, size = torch.ops.mkldnn.data_ptr(matrix), torch.ops.mkldnn._nbytes(matrix)
            for page in range(start // LARGE_PAGE * LARGE_PAGE, start + size, LARGE_PAGE):  # its first and last shared
                madvise(ctypes.c_void_p(page), ctypes.c_size_t(LARGE_PAGE), MADV_COLLAPSE)
