"""Named tensors as the bytes of a safetensors file, in chunks, from any device.

The writer of the safetensors library needs a second copy of all tensors, or it leaves no way to
hash while writing. The format is simple: a length, a JSON header and the raw tensors. Reading is
left to the library, which maps files into memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # importing torch takes seconds, and not every reader of a bundle needs it
    import torch
    from torch import Tensor

Precision = Literal["float32", "bf16", "float16", "int8"]

CHUNK = 16 << 20  # bytes


@dataclass(frozen=True)
class TensorType:
    """The data type of a tensor, as safetensors calls it, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @staticmethod
    def of(tensor: Tensor) -> TensorType:
        """Return the type of a tensor; of a sharded one, that of the whole."""
        return TensorType(_type_name(tensor), tuple(tensor.shape))

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def file_size(tensors: Mapping[str, Tensor]) -> int:
    """Return how many bytes `file_chunks` yields."""
    return len(_header(tensors)) + sum(tensor.nbytes for tensor in tensors.values())


def file_chunks(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the file; each chunk is valid until the next one.

    Tensors on a GPU pass through one small pinned buffer.
    """
    import torch

    yield _header(tensors)
    on_cuda = any(tensor.is_cuda for tensor in tensors.values())
    staging = torch.empty(CHUNK if on_cuda else 0, dtype=torch.uint8, pin_memory=on_cuda)
    for _, tensor in _in_file_order(tensors):
        flat = tensor.contiguous().reshape(-1).view(torch.uint8)
        for start in range(0, len(flat), CHUNK):
            part = flat[start : start + CHUNK]
            if part.is_cuda:
                part = staging[: len(part)].copy_(part)
            yield part.cpu().numpy().data


def pack(weights: Mapping[str, Tensor], precision: Precision) -> dict[str, Tensor]:
    """Return the weights in the precision in which they are stored.

    In int8, each row of a matrix has a scale `NAME.scale`, and vectors stay float32.
    """
    import torch

    dtype = {"bf16": torch.bfloat16, "float16": torch.float16}.get(precision, torch.float32)
    packed = {}
    for name, tensor in weights.items():
        packed[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor

    if precision == "int8":
        smallest = torch.finfo(torch.float32).tiny
        for name, tensor in weights.items():
            if tensor.is_floating_point() and tensor.dim() == 2:
                matrix = tensor.detach().float()
                largest = matrix.abs().amax(dim=1, keepdim=True)  # (rows, 1)
                scale = (largest / 127).clamp_min(smallest)
                packed[name] = (matrix / scale).round().to(torch.int8)
                packed[f"{name}.scale"] = scale
    return packed


def unpack(stored: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Return stored weights of any precision as floats of this type."""
    scales = {name: stored[f"{name}.scale"] for name in stored if f"{name}.scale" in stored}
    for name, scale in scales.items():
        if scale.shape != (*stored[name].shape[:1], 1):
            raise ValueError(
                f"{name} has the shape {list(stored[name].shape)}, but its scale has "
                f"{list(scale.shape)}; expected one number for each row"
            )

    weights = {}
    for name, tensor in stored.items():
        if name.removesuffix(".scale") not in scales:
            weights[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    for name, scale in scales.items():
        weights[name] = (stored[name] * scale).to(dtype)
    return weights


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries = {}
    start = 0
    for name, tensor in _in_file_order(tensors):
        end = start + tensor.nbytes
        entries[name] = {
            "dtype": _type_name(tensor),
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text


def _in_file_order(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    # With the widest types first, all tensors are aligned.
    return sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))


def _type_name(tensor: Tensor) -> str:
    """Return the name of the type in safetensors: F32 for torch.float32, U8 for torch.uint8."""
    name = str(tensor.dtype).removeprefix("torch.")
    kind = name.rstrip("0123456789")
    letters = {"float": "F", "bfloat": "BF", "int": "I", "uint": "U", "bool": "BOOL"}[kind]
    bits = name[len(kind) :]
    return letters + bits
