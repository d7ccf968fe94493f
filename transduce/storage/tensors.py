"""Named tensors as the bytes of a safetensors file, piece by piece, from whatever device they live on.

The library's own writer either wants a second copy of all tensors or leaves nothing to hash on the way; the format is
a length, a JSON header and the raw tensors. Reading is the library's: memory-mapped, and never a pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # a bundle's config and tokenizer are read without waiting for torch
    import torch
    from torch import Tensor

Precision = Literal["float32", "bf16", "float16", "int8"]

CHUNK = 16 << 20  # bytes handed out at a time


def file_size(tensors: Mapping[str, Tensor]) -> int:
    """The bytes that `file_chunks` will yield."""
    return len(_header(tensors)) + sum(tensor.nbytes for tensor in tensors.values())


def file_chunks(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The file, each chunk valid until the next: what lives on a device comes through one small pinned buffer."""
    import torch

    yield _header(tensors)
    on_cuda = any(tensor.is_cuda for tensor in tensors.values())
    staging = torch.empty(CHUNK if on_cuda else 0, dtype=torch.uint8, pin_memory=on_cuda)
    for _, tensor in _in_file_order(tensors):
        flat = tensor.contiguous().reshape(-1).view(torch.uint8)
        for start in range(0, len(flat), CHUNK):
            part = flat[start : start + CHUNK]
            here = staging[: len(part)].copy_(part) if part.is_cuda else part.cpu()
            yield here.numpy().data


def pack(weights: Mapping[str, Tensor], precision: Precision) -> dict[str, Tensor]:
    """The weights as stored. In int8, each row of a matrix has a scale, and the few vectors stay float32."""
    import torch

    dtype = {"bf16": torch.bfloat16, "float16": torch.float16}.get(precision, torch.float32)
    packed = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }
    if precision == "int8":
        for name, tensor in weights.items():
            if tensor.is_floating_point() and tensor.dim() == 2:
                rows = tensor.detach().float()
                scale = (rows.abs().amax(dim=1, keepdim=True) / 127).clamp_min(
                    torch.finfo(torch.float32).tiny
                )
                packed |= {
                    name: (rows / scale).round().to(torch.int8),
                    f"{name}.scale": scale,
                }  # (rows, 1)
    return packed


def unpack(stored: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights as floats of that type, whatever precision they were stored in."""
    scales = {name: stored[f"{name}.scale"] for name in stored if f"{name}.scale" in stored}
    for name, scale in scales.items():
        if scale.shape != (*stored[name].shape[:1], 1):
            raise ValueError(
                f"{name} is {list(stored[name].shape)}, but its scale {list(scale.shape)}"
            )
    plain = {
        name: tensor for name, tensor in stored.items() if name.removesuffix(".scale") not in scales
    }
    floats = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in plain.items()
    }
    return floats | {name: (stored[name] * scale).to(dtype) for name, scale in scales.items()}


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries, start = {}, 0
    for name, tensor in _in_file_order(tensors):
        place = [start, start + tensor.nbytes]
        entries[name] = {
            "dtype": _type_name(tensor),
            "shape": list(tensor.shape),
            "data_offsets": place,
        }
        start += tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin aligned
    return len(text).to_bytes(8, "little") + text


def _in_file_order(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    # Wide ones first: all aligned.
    return sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))


def _type_name(tensor: Tensor) -> str:
    """torch.float32 -> F32, torch.bfloat16 -> BF16, torch.uint8 -> U8."""
    name = str(tensor.dtype).removeprefix("torch.")
    kind = name.rstrip("0123456789")
    return {"float": "F", "bfloat": "BF", "int": "I", "uint": "U", "bool": "BOOL"}[kind] + name[
        len(kind) :
    ]
