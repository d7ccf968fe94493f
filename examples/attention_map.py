"""Look inside: where the decoder looks while it writes, as a heat map, by a hook that changes nothing.

python examples/attention_map.py [FOLDER]
"""

import sys
from html import escape
from pathlib import Path

import digits
import torch

import transduce
from transduce.engines.torch import load_model
from transduce.storage.bundle import load_bundle


def heat_map(rows: list[str], columns: list[str], weights: torch.Tensor) -> str:
    """An SVG with a square for every pair; the darker, the more attention."""
    parts = []
    for y, (row, line) in enumerate(zip(rows, weights.tolist(), strict=True)):
        parts.append(f'<text x="95" y="{y * 24 + 56}" text-anchor="end">{escape(row)}</text>')
        for x, weight in enumerate(line):
            square = f'x="{x * 24 + 100}" y="{y * 24 + 40}" width="22" height="22"'
            parts.append(f'<rect {square} fill="#36c" fill-opacity="{weight:.3f}"><title>{weight:.2f}</title></rect>')
    parts += [f'<text x="{x * 24 + 106}" y="32">{escape(column)}</text>' for x, column in enumerate(columns)]
    size = f"{len(columns) * 24 + 110} {len(rows) * 24 + 50}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-size="13">{"".join(parts)}</svg>'


def main(folder: Path = Path("runs/examples/attention")) -> None:
    run = transduce.train(digits.recipe(folder / "text"), run=folder / "run", device="cpu")
    translator = run.translator(device="cpu", engine="torch")
    text = "3 1 4 1 5"
    translation = translator.translate(text).text
    read, write = translator.tokenizers
    source, target = read.encode(text), write.encode(translation)

    # A hook on any attention gets what it gets: queries from here, keys from there, and a mask.
    maps = []
    model = load_model(load_bundle(run.bundle))
    for layer in model.decoder:
        hook = lambda attention, inputs: maps.append(attention.weights(*inputs[:3]))  # noqa: E731
        layer.cross_attention.register_forward_pre_hook(hook)
    with torch.no_grad():
        model(torch.tensor([source]), torch.tensor([[model.config.pad, *target[:-1]]]))

    # One map for each layer: (rows of the batch, heads, target, source). Here the heads of the last layer, on average.
    weights = maps[-1][0].mean(0)
    picture = folder / "attention.svg"
    picture.write_text(heat_map(write.pieces(target), read.pieces(source), weights), encoding="utf-8")
    print(f"{text}  ->  {translation}\nwhere each word was read from: {picture}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
