"""Table 1: what layer types cost as sequences grow, and how far apart they keep positions."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from transduce.errors import lacks_memory
from transduce.monitoring.hardware import hardware
from transduce.paper.chart import line_chart
from transduce.paper.experiment import choose_rows
from transduce.paper.layer_measures import (
    activation_bytes,
    batch_size,
    build_layer,
    exponent,
    layer_flops,
    layer_time_and_memory,
    maximum_path,
    sequential_operations,
)
from transduce.paper.page import Figure, Section, Table
from transduce.paper.reference import TABLE_1
from transduce.paper.results import Result, current_commit, load_results, remarks

PART = "table1"
K = 3  # width of the convolution
R = 64  # neighbourhood of restricted self-attention
D = 64  # width of the layers in the measurements of structure, which does not depend on it
FITTED = 4  # the largest sizes, from which exponents are found
CURVES = {
    "seconds": "Time of one pass (s)",
    "flops": "FLOPs of one pass",
    "bytes": "Memory of one pass (bytes)",
    "sequential": "Longest chain of products",
    "path": "Longest path between positions",
}


@dataclass(frozen=True)
class Sizes:
    """The lengths n and widths d to measure at."""

    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    length: int = 1024  # while the width varies
    width: int = 512  # while the length varies
    longest_graph: int = 512  # for paths and chains, which are found by gradients


def measure(names: Sequence[str], device: torch.device, sizes: Sizes) -> list[Result]:
    """Return one result for each layer type, by default all."""
    return [_measure(kind, device, sizes) for kind in choose_rows(list(TABLE_1), names)]


def _measure(kind: str, device: torch.device, sizes: Sizes) -> Result:
    start = time.perf_counter()
    curves: dict[str, list[list[float]]] = {}

    # Cost over the length and over the width.
    for n in sizes.lengths:
        for name, value in _cost(kind, n, sizes.width, device).items():
            curves.setdefault(f"{name} over n", []).append([n, value])
    for d in sizes.widths:
        for name, value in _cost(kind, sizes.length, d, device).items():
            curves.setdefault(f"{name} over d", []).append([d, value])

    # Structure, which torch's graph and gradients show.
    for n in sizes.lengths:
        if n <= sizes.longest_graph:
            chain = sequential_operations(build_layer(kind, D, K, R), n, D)
            curves.setdefault("sequential over n", []).append([n, chain])
            path = maximum_path(kind, n, 4, K, R)
            curves.setdefault("path over n", []).append([n, path])

    # O() is about large n: short sequences only show what a call costs.
    numbers = {name: exponent(_points(points[-FITTED:])) for name, points in curves.items()}
    return Result(
        part=PART,
        row=kind,
        numbers={
            "exponents": {name: None if math.isnan(x) else x for name, x in numbers.items()},
            "k": K,
            "r": R,
            "device": str(device),
            "sequences": batch_size(device),
        },
        seconds=time.perf_counter() - start,
        commit=current_commit(),
        hardware=hardware(),
        curves=curves,
    )


def _cost(kind: str, n: int, d: int, device: torch.device) -> dict[str, float]:
    """Return FLOPs, seconds and bytes; those for which memory is too small are left out."""
    layer = build_layer(kind, d, K, R)
    costs = {"flops": layer_flops(kind, n, d, K, R)}
    try:
        seconds, size = layer_time_and_memory(layer, n, d, device)
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        return costs
    if size is None:
        size = activation_bytes(layer, n, d)
    return {**costs, "seconds": seconds, "bytes": size}


def _points(points: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points]


def section(out: Path, commit: str) -> Section:
    """Return what is known so far of Table 1."""
    results = load_results(out, PART)
    lines = [_line(kind, results.get(kind), commit) for kind in TABLE_1]
    head = ("layer", "paper: complexity", "FLOPs ~ n^", "d^", "time ~ n^", "memory ~ n^",
            "paper: sequential", "chain ~ n^", "paper: path", "path ~ n^", "note")  # fmt: skip
    paragraphs = [
        f"Exponents of n and d, fitted to the {FITTED} largest sizes; without projections, which "
        "cost n d² in all of them. A chain is the longest row of products that wait for each "
        "other. A path is the number of layers, or in a recurrent layer of steps, after which "
        "every position depends on every other, with its length at the smallest and the largest "
        f"n that was tried; convolutions (k={K}) are dilated, restricted attention has r={R}. A "
        "path that grows with the logarithm of n has an exponent that falls to 0. Memory is what "
        "one pass needs on a GPU, and what it keeps for the backward pass on a CPU. Where the time "
        "grows more slowly than the FLOPs, a pass is too short to fill the device: most of it is "
        f"the time that it takes to start. {_sequences(results)}"
    ]
    figures = []
    if results:
        for name, label in CURVES.items():
            figures.append(Figure(f"table1-{name}.svg", label, _chart(name, label, results)))
    return Section("Table 1: layer types", paragraphs, [Table(head, lines)], figures)


def _sequences(results: Mapping[str, Result]) -> str:
    """Return of how many sequences the times are; older results do not say it."""
    counts = {result.numbers.get("sequences", 1) for result in results.values()} or {1}
    numbers = " or ".join(str(count) for count in sorted(counts))
    return f"A pass is over {numbers} sequence{'s' if counts - {1} else ''} of n vectors."


def _line(kind: str, result: Result | None, commit: str) -> list[str]:
    paper = TABLE_1[kind]
    names = ("flops over n", "flops over d", "seconds over n", "bytes over n", "sequential over n",
             "path over n")  # fmt: skip
    found = dict.fromkeys(names, "")
    note = "missing"
    if result is not None:
        note = remarks(result, commit)
        for name, value in result.numbers["exponents"].items():
            if name in found and value is not None:
                found[name] = f"{value + 0.0:.2f}"
        paths = result.curves.get("path over n", [])
        if paths:
            (first, shortest), (last, longest) = paths[0], paths[-1]
            found["path over n"] += f" ({shortest:g} at {first:g}, {longest:g} at {last:g})"
    flops_n, flops_d, seconds, size, chain, path = found.values()
    return [paper.name, paper.complexity, flops_n, flops_d, seconds, size,
            paper.sequential_operations, chain, paper.maximum_path, path, note]  # fmt: skip


def _chart(name: str, label: str, results: Mapping[str, Result]) -> str:
    curves = {}
    for kind, result in results.items():
        curves[kind] = _points(result.curves.get(f"{name} over n", []))
    return line_chart(label, curves, x_label="length n", y_label="", log_x=True, log_y=True)
