"""Measurements of one layer type of Table 1: FLOPs, time, memory, sequential steps and paths."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transduce.paper.flops import counted
from transduce.paper.layers import Convolutional, Recurrent, RestrictedAttention, SelfAttention

REPEATS = 5  # of a timing; the median counts
ON_A_GPU = 16  # sequences at once: a single one does not fill a GPU
# Nodes of torch's autograd graph that are products.
PRODUCTS = ("MmBackward", "BmmBackward", "AddmmBackward", "ConvolutionBackward")


def build_layer(kind: str, d: int, k: int, r: int) -> nn.Module:
    """Return a layer of a type of Table 1."""
    if kind == "self-attention":
        return SelfAttention()
    if kind == "restricted":
        return RestrictedAttention(r)
    return Recurrent(d) if kind == "recurrent" else Convolutional(d, k)


def layer_flops(kind: str, n: int, d: int, k: int, r: int) -> float:
    """Return the FLOPs of one pass over a sequence of n vectors of d numbers.

    They are counted on torch's meta device, which computes shapes only.
    """
    with torch.device("meta"):
        layer = build_layer(kind, d, k, r)
        x = torch.zeros(1, n, d)
    return counted(partial(layer, x))


def layer_time_and_memory(
    layer: nn.Module, n: int, d: int, device: torch.device
) -> tuple[float, float | None]:
    """Return the seconds of one pass, and on a GPU the bytes that it needs at most.

    On a GPU, both are those of a batch of sequences.
    """
    layer = layer.to(device)
    x = torch.randn(batch_size(device), n, d, device=device)
    run = partial(layer.fused if isinstance(layer, Recurrent) else layer, x)
    with torch.no_grad():
        run()  # the first pass also loads and compiles
        seconds = statistics.median(_seconds(run, device) for _ in range(REPEATS))
        if device.type != "cuda":
            return seconds, None
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return seconds, torch.cuda.max_memory_allocated(device) - before


def batch_size(device: torch.device) -> int:
    """Return the number of sequences that are measured at once."""
    return ON_A_GPU if device.type == "cuda" else 1


def activation_bytes(layer: nn.Module, n: int, d: int) -> float:
    """Return the bytes of what a pass keeps for the backward pass, without weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(1, n, d, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(x)
    return float(sum(saved.values()))


def sequential_operations(layer: nn.Module, n: int, d: int) -> int:
    """Return the longest chain of products that wait for each other, in torch's own graph."""
    x = torch.randn(1, n, d, requires_grad=True)
    return _longest_chain(layer(x).grad_fn)


def maximum_path(kind: str, n: int, d: int, k: int, r: int) -> int:
    """Return how many operations lie between the most distant input and output.

    It is measured: the smallest depth at which every output that may depend on an input has a
    gradient from it. Depth counts stacked layers or, in a recurrent layer, steps.
    """
    # Double the depth until it is enough, then search between the last two.
    high = 1
    while not _reaches_all(kind, n, d, k, r, high):
        high *= 2
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        if _reaches_all(kind, n, d, k, r, middle):
            high = middle
        else:
            low = middle + 1
    return low


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of a line through points on logarithmic axes, by least squares."""
    usable = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len(usable) < 2:
        return math.nan
    mean_x = statistics.fmean(x for x, _ in usable)
    mean_y = statistics.fmean(y for _, y in usable)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in usable)
    together = math.fsum((x - mean_x) * (y - mean_y) for x, y in usable)
    return together / spread if spread else math.nan


def _seconds(run: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _longest_chain(end: Any) -> int:
    """Return the most products on any way through an autograd graph that ends here."""
    longest: dict[Any, int] = {}
    # Depth first, without recursion: a graph may be thousands of nodes deep.
    stack = [end]
    while stack:
        node = stack[-1]
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        waiting = [parent for parent in parents if parent not in longest]
        if waiting:
            stack += waiting
            continue
        own = int(node.name().startswith(PRODUCTS))
        longest[node] = own + max((longest[parent] for parent in parents), default=0)
        stack.pop()
    return longest[end]


def _reaches_all(kind: str, n: int, d: int, k: int, r: int, depth: int) -> bool:
    """Return whether the last output depends on the first input, and the first on the last."""
    torch.manual_seed(0)
    x = torch.full((1, n, d), 1e-3, dtype=torch.float64).normal_(std=1e-3).requires_grad_()
    y = _stack(kind, d, k, r, depth)(x)
    reaches = [_depends(y[0, -1], x, 0)]
    if kind not in ("recurrent", "convolutional"):  # which see only what came before
        reaches.append(_depends(y[0, 0], x, n - 1))
    return all(reaches)


def _depends(output: Tensor, x: Tensor, position: int) -> bool:
    (gradient,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
    return bool(gradient[0, position].abs().max() > 0)


def _stack(kind: str, d: int, k: int, r: int, depth: int) -> Callable[[Tensor], Tensor]:
    """Return a network of this depth; convolutions have the dilations 1, k, k², ..."""
    if kind == "recurrent":
        return partial(Recurrent(d).double(), memory=depth)
    if kind == "convolutional":
        layers = [Convolutional(d, k, k**level) for level in range(depth)]
        return nn.Sequential(*layers).double()
    return nn.Sequential(*[build_layer(kind, d, k, r) for _ in range(depth)]).double()
