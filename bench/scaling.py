"""Estimate how training scales to several GPUs, from bytes and bandwidth: python -m bench.scaling.

It prints the table of docs/scaling.md. Only the step time of one GPU is measured: it comes from
docs/figures.json. Everything else is calculated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.figures import read_figures
from transduce.config import ModelConfig
from transduce.describe import count_parameters
from transduce.presets import PRESETS

MODELS = ("base", "big")
STEP_TOKENS = 25_000  # `training.tokens_per_step` of the measured step on one GPU
VOCABULARY = 32_000  # of the measured models
GRADIENT_BYTES = 4  # DDP sends float32 gradients even if the model computes in bf16
NVLINK = 450e9  # bytes/s of one GPU in each direction: fourth generation, 900 GB/s in total
INFINIBAND = 400e9 / 8  # bytes/s of one machine in each direction: one link of 400 Gb/s
REACHED = 0.8  # share of the nominal bandwidth that a ring of large messages reaches
GPUS_PER_MACHINE = 8

# GPUs, and by how much each GPU's share of tokens is smaller than STEP_TOKENS.
CASES = ((1, 1), (8, 8), (8, 1), (32, 8), (32, 1))


def measured(model: str, value: str) -> float:
    """Return a value that was measured on one H200, as docs/results.md states it."""
    figure = read_figures()[f"train-{model}-cuda"]
    return float(figure["values"]["transduce"][value])


@dataclass(frozen=True)
class Scaling:
    """One training step on `gpus` devices.

    The exchange of gradients starts after the backward pass, so no computation hides it.
    """

    name: str
    gpus: int
    tokens_per_gpu: int

    @property
    def config(self) -> ModelConfig:
        """Return the configuration of the measured model."""
        return replace(PRESETS[self.name].model, vocab_size=VOCABULARY)

    @property
    def gradient_bytes(self) -> int:
        """Return the size of the gradients that each rank sends."""
        return GRADIENT_BYTES * count_parameters(self.config)

    @property
    def compute_ms(self) -> float:
        """Return the compute time, in proportion to the tokens of one GPU.

        This is too optimistic for small shares: a GPU needs thousands of tokens to be busy.
        """
        return measured(self.name, "step_ms") * self.tokens_per_gpu / STEP_TOKENS

    @property
    def exchange_ms(self) -> float:
        """Return the time of a ring all-reduce: each byte passes each link 2 (n - 1) / n times."""
        one_machine = self.gpus <= GPUS_PER_MACHINE
        bandwidth = REACHED * (NVLINK if one_machine else INFINIBAND)
        passes = 2 * (self.gpus - 1) / self.gpus
        return 1000 * passes * self.gradient_bytes / bandwidth

    @property
    def efficiency(self) -> float:
        """Return the share of the step that is not spent on the exchange of gradients."""
        return self.compute_ms / (self.compute_ms + self.exchange_ms)

    @property
    def tokens_per_second(self) -> float:
        """Return the target tokens per second of all GPUs together."""
        one_gpu = measured(self.name, "target_tokens_per_second")
        return self.gpus * one_gpu * self.efficiency


def table() -> str:
    """Return the table of docs/scaling.md.

    For each model, the GPUs either share the paper's step or take one such step each.
    """
    header = (
        "| model | GPUs | `tokens_per_step` | compute ms | exchange ms | efficiency "
        "| target tokens/s |"
    )
    lines = [header, "| --- | --- | --- | --- | --- | --- | --- |"]
    for name in MODELS:
        for gpus, divisor in CASES:
            case = Scaling(name, gpus, STEP_TOKENS // divisor)
            tokens_per_step = gpus * case.tokens_per_gpu
            lines.append(
                f"| {name} | {gpus} | {tokens_per_step:,} "
                f"| {case.compute_ms:.1f} | {case.exchange_ms:.1f} "
                f"| {case.efficiency:.0%} | {case.tokens_per_second / 1e6:.2f}M |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
