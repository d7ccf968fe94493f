"""§4: heads differ; its readers: early layers look at neighbours, later ones at distant words."""

from __future__ import annotations

import statistics

import numpy as np

from transduce.evaluation.test_set import read_sets
from transduce.inspection.inspect import inspect
from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.paper.sentences import SENTENCES

VALIDATION_SENTENCES = 20  # besides those of the paper, if there is a text


def experiment(context: Context) -> Finding:
    """Measure how far the heads of the encoder look, over some sentences."""
    translator = context.needs_translator()
    texts = [*SENTENCES.values()]
    if context.data is not None:
        sources, _ = read_sets(context.data.validation, context.data)
        texts += sources[:VALIDATION_SENTENCES]
    distances: dict[tuple[int, int], list[float]] = {}
    for text in texts:
        for measures in inspect(translator, text).measures:
            if measures.kind == "encoder":
                place = (measures.layer, measures.index)
                distances.setdefault(place, []).append(measures.distance)

    layers = sorted({layer for layer, _ in distances})
    if len(layers) == 1:
        return Finding(None, "The encoder has one layer, so there is no later one to compare with.")
    means: dict[int, list[float]] = {layer: [] for layer in layers}
    for (layer, _), values in distances.items():
        means[layer].append(statistics.fmean(values))
    curves = {
        "nearest head": [(float(layer), min(means[layer])) for layer in layers],
        "mean of all heads": [(float(layer), statistics.fmean(means[layer])) for layer in layers],
        "farthest head": [(float(layer), max(means[layer])) for layer in layers],
    }
    every = [mean for heads in means.values() for mean in heads]
    averages = [statistics.fmean(means[layer]) for layer in layers]
    rises = float(np.polyfit(layers, averages, 1)[0]) > 0
    differ = max(every) > 2 * min(every)
    return Finding(
        differ and rises,
        f"Heads look {min(every):.1f} to {max(every):.1f} tokens far, over {len(texts)} "
        "sentences. The mean is "
        f"{averages[0]:.1f} in layer 1 and {averages[-1]:.1f} in layer {layers[-1]}: heads "
        f"{'differ' if differ else 'hardly differ'}, and later layers "
        f"{'look' if rises else 'do not look'} farther.",
        [Chart("How far the encoder's heads look", "layer", "tokens", curves)],
        {"layer_means": averages, "nearest": min(every), "farthest": max(every)},
    )


CLAIM = Claim(
    "Individual heads learn different tasks: early layers attend locally, later layers far.",
    "§4; readers of the paper",
    experiment,
    needs_model=True,
)
