"""A task that a small Transformer learns in minutes: write the source backwards."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.config import ModelConfig
from transduce.model import Transformer

V = 24
EOS = 0
PAD = V - 1
ROWS = 64  # sequences of a batch


def small_config(**changes: object) -> ModelConfig:
    """Return the shape of a small Transformer, with changes."""
    sizes = {"vocab_size": V, "N": 2, "d_model": 64, "d_ff": 128, "h": 4, "d_k": 16, "d_v": 16}
    return ModelConfig(**{**sizes, "p_drop": 0.0, **changes})  # type: ignore[arg-type]


def batch(rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return source, decoder input and labels, each (rows, length + 1)."""
    ids = torch.randint(2, PAD, (rows, length), generator=generator)
    end = torch.full((rows, 1), EOS)
    start = torch.full((rows, 1), PAD)
    answer = ids.flip(1)
    return torch.cat([ids, end], 1), torch.cat([start, answer], 1), torch.cat([answer, end], 1)


def train(
    config: ModelConfig,
    steps: int,
    rate: Callable[[int], float],
    lengths: range,
    device: torch.device,
) -> tuple[Transformer, list[tuple[float, float]]]:
    """Train on sequences of these lengths; return the model and its loss over the steps."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = Transformer(config).to(device)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step in range(1, steps + 1):
        length = int(torch.randint(lengths.start, lengths.stop, (), generator=generator))
        source, inputs, labels = (x.to(device) for x in batch(ROWS, length, generator))
        loss = F.cross_entropy(model(source, inputs).flatten(0, 1), labels.flatten())
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 30) == 0:
            losses.append((float(step), loss.item()))
    return model, losses


@torch.no_grad()
def accuracy(model: Transformer, length: int, device: torch.device) -> float:
    """Return the share of tokens that the model writes correctly, given those before."""
    generator = torch.Generator().manual_seed(2)
    source, inputs, labels = (x.to(device) for x in batch(ROWS, length, generator))
    return float((model.eval()(source, inputs).argmax(-1) == labels).float().mean())
