"""§4: the cost of a training step against the length, for attention and for recurrence."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.model import Mask, Tokens
from transduce.model.layers import EncoderLayer
from transduce.paper.baselines.recurrent import Lstm
from transduce.paper.claims.claim import Chart, Claim, Context, Finding

D = 256
TOKENS = 4096  # of a batch, whatever the length of its sequences
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
REPEATS = 3


def experiment(context: Context) -> Finding:
    """Time forward and backward of one layer of each kind, on batches of equally many tokens."""
    device = context.device
    config = ModelConfig(d_model=D, d_ff=4 * D, h=4, d_k=D // 4, d_v=D // 4, p_drop=0.0)
    attention = EncoderLayer(config).to(device)
    recurrence = Lstm(D, D).to(device)
    tokens = max(LENGTHS[-1], round(TOKENS * min(1.0, context.effort)))
    times: dict[str, list[tuple[float, float]]] = {"attention": [], "recurrence": []}
    for n in LENGTHS:
        ids = torch.zeros(max(1, tokens // n), n, dtype=torch.int64, device=device)
        mask = Mask(Tokens.rows(ids), Tokens.rows(ids), everything=True)
        x = torch.randn(*ids.shape, D, device=device)
        times["attention"].append((n, _seconds(partial(attention, mask=mask), x)))
        times["recurrence"].append((n, _seconds(lambda y: recurrence(y)[0], x)))

    growth = {name: points[-1][1] / points[0][1] for name, points in times.items()}
    ratio = times["recurrence"][2][1] / times["attention"][2][1]
    return Finding(
        # A CPU has little that could run at the same time.
        growth["recurrence"] > growth["attention"] if device.type == "cuda" else None,
        f"On {device.type}: from length {LENGTHS[0]} to {LENGTHS[-1]}, at the same number of "
        f"tokens, a step becomes {growth['recurrence']:.1f} times as long with recurrence and "
        f"{growth['attention']:.1f} times with attention; at length {LENGTHS[2]}, recurrence "
        f"takes {ratio:.1f} times as long.",
        [Chart("Forward and backward of a layer", "length n", "seconds", times, True, True)],
        {"growth": growth, "recurrence_to_attention": ratio},
    )


def _seconds(layer: Callable[[Tensor], Tensor], x: Tensor) -> float:
    def step() -> None:
        layer(x.detach().requires_grad_()).sum().backward()
        if x.is_cuda:
            torch.cuda.synchronize(x.device)

    step()  # the first one also loads kernels
    durations = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations)


CLAIM = Claim(
    "Self-attention connects all positions with a constant number of sequential operations; a "
    "recurrent layer needs O(n), which costs time as sequences grow.",
    "§4",
    experiment,
)
