"""An attention of your own: ALiBi (Press et al., 2022) beside the paper's sinusoids, over three seeds, with a plot.

python examples/own_attention.py [FOLDER]
"""

import statistics
import sys
from pathlib import Path

import digits
import torch

import transduce
from transduce.model import attention
from transduce.model.multi_head import MultiHeadAttention


class AlibiAttention(MultiHeadAttention):
    """Scores fall with the distance of query and key, in every head at a rate of its own."""

    def attend(self, q, k, v, mask):
        slopes = 2.0 ** -torch.arange(1, self.h + 1, device=q.device, dtype=q.dtype)  # (h,)
        distance = (mask.queries.positions[:, :, None] - mask.keys.positions[:, None, :]).abs()  # (B, Q, K)
        bias = -slopes[:, None, None] * distance[:, None].to(q.dtype)  # (B, h, Q, K)
        if mask.allowed is not None:
            bias = bias.masked_fill(~mask.allowed, -torch.inf)
        return attention(q, k, v, bias)


class AlibiTransformer(transduce.Transformer):
    """The Transformer with that attention inside each side; nothing is added to the embeddings."""

    def __init__(self, config):
        super().__init__(config)
        for layer in (*self.encoder, *self.decoder):
            layer.self_attention = AlibiAttention(config)


def main(folder: Path = Path("runs/examples/alibi")) -> None:
    kinds = {"sinusoidal": (None, "sinusoidal", "#888"), "ALiBi": (AlibiTransformer, "none", "#d33")}
    drawn = ['<path d="M40,10V300H400" fill="none" stroke="#000"/><text x="180" y="318">step (100 in all)</text>']
    for place, (name, (build, positions, color)) in enumerate(kinds.items()):
        drawn.append(f'<text x="300" y="{30 + 20 * place}" fill="{color}">{name}</text>')
        recipe = digits.recipe(folder / "text", steps=100, pairs=1000, positions=positions)
        options = {"store": folder / "store", "device": "cpu", "model": build}
        losses = []
        for seed in (1, 2, 3):
            overrides = [f"training.seed={seed}", "training.validation_sentences=0"]
            run = transduce.train(recipe, run=folder / f"{name}-{seed}", overrides=overrides, **options)
            losses.append(run.best["loss"])
            points = " ".join(f"{40 + 3.6 * row['step']:.0f},{300 - 75 * row['loss']:.0f}" for row in run.metrics())
            drawn.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
        print(f"{name:<12} validation loss {statistics.mean(losses):.3f} +- {statistics.stdev(losses):.3f}")
    plot = folder / "losses.svg"
    plot.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 325">{"".join(drawn)}</svg>')
    print(f"the training losses of all runs: {plot}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
