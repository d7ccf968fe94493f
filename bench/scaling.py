"""What several GPUs should bring, from bytes and bandwidth: the table of docs/scaling.md. Nothing of it is measured but
the step of one GPU.

python -m bench.scaling
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from transduce.config import ModelConfig
from transduce.describe import count_parameters
from transduce.presets import PRESETS

STEP_TOKENS = 25_000  # of the target, on one GPU
MEASURED = {"base": 28.2, "big": 70.4}  # ms a step on one H200, vocabulary 32,000: docs/results.md
VOCABULARY = 32_000
GRADIENT_BYTES = 4  # DDP sends float32, also when it computes in bf16
NVLINK = 450e9  # bytes/s of one GPU, each way: the fourth generation's 900 GB/s
INFINIBAND = 400e9 / 8  # bytes/s of one machine, each way: one link of 400 Gb/s
REACHED = 0.8  # of a link's figure, by a ring of large messages
GPUS_A_MACHINE = 8


@dataclass(frozen=True)
class Scaling:
    """One step on `gpus` devices. The exchange of gradients begins when the backward pass ends: nothing hides it."""

    name: str
    gpus: int
    tokens_per_gpu: int

    @property
    def config(self) -> ModelConfig:
        """The model that was measured."""
        return replace(PRESETS[self.name].model, vocab_size=VOCABULARY)

    @property
    def gradient_bytes(self) -> int:
        """What every rank hands in."""
        return GRADIENT_BYTES * count_parameters(self.config)

    @property
    def compute_ms(self) -> float:
        """In proportion to the tokens, which flatters small shares: a GPU needs thousands of tokens to be busy."""
        return MEASURED[self.name] * self.tokens_per_gpu / STEP_TOKENS

    @property
    def exchange_ms(self) -> float:
        """A ring all-reduce: every byte passes each link 2 (n - 1) / n times."""
        slowest = (NVLINK if self.gpus <= GPUS_A_MACHINE else INFINIBAND) * REACHED
        return 1000 * 2 * (self.gpus - 1) / self.gpus * self.gradient_bytes / slowest

    @property
    def efficiency(self) -> float:
        """The share of the time that is not spent exchanging gradients."""
        return self.compute_ms / (self.compute_ms + self.exchange_ms)

    @property
    def tokens_per_second(self) -> float:
        """Target tokens of all GPUs."""
        return 1000 * self.gpus * self.tokens_per_gpu / (self.compute_ms + self.exchange_ms)


def table() -> str:
    """Both models; a step of the paper's size shared by all, and a step that grows with the GPUs."""
    lines = [
        "| model | GPUs | `tokens_per_step` | compute ms | exchange ms | efficiency | target tokens/s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in MEASURED:
        for gpus, share in ((1, 1), (8, 8), (8, 1), (32, 8), (32, 1)):
            case = Scaling(name, gpus, STEP_TOKENS // share)
            lines.append(
                f"| {name} | {gpus} | {gpus * case.tokens_per_gpu:,} | {case.compute_ms:.1f} | {case.exchange_ms:.1f} "
                f"| {case.efficiency:.0%} | {case.tokens_per_second / 1e6:.2f}M |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
