"""Michel et al. (2019): many heads can be removed before the translation suffers."""

from __future__ import annotations

import copy

from transduce.engines.torch import TorchEngine
from transduce.evaluation.scores import score
from transduce.evaluation.test_set import read_sets
from transduce.inspection.heads import Head, switched_off
from transduce.inspection.importance import head_importance
from transduce.inspection.models import torch_engine
from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.translation.translator import Translator

SENTENCES = 100
SHARES = (0.0, 0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.4, 0.6, 0.8, 1.0)  # of the heads


def experiment(context: Context) -> Finding:
    """Remove heads, the least important first, and measure BLEU on the validation set."""
    translator = context.needs_translator()
    if context.data is None:
        return Finding(None, "It needs text; give a recipe or a corpus.")
    sources, references = read_sets(context.data.validation, context.data)

    # Heads are ranked on other sentences than those that judge, if there are enough.
    others = slice(SENTENCES, 2 * SENTENCES) if len(sources) >= 2 * SENTENCES else slice(SENTENCES)
    ranked = head_importance(translator, sources[others], references[others]).ranked()
    order = [head for head, _ in reversed(ranked)]
    sources = sources[:SENTENCES]
    references = references[:SENTENCES]

    curve = []
    for share in SHARES:
        removed = order[: round(share * len(order))]
        bleu = _bleu_without(translator, removed, sources, references)
        curve.append((100.0 * len(removed) / len(order), bleu))
    full = curve[0][1]
    kept = [share for share, bleu in curve if bleu >= 0.9 * full]
    return Finding(
        max(kept) >= 20 if full > 1 else None,
        f"{max(kept):.0f} % of {len(order)} heads can be removed with at least 0.9 of the BLEU of "
        f"all heads ({full:.1f} on {len(sources)} sentences).",
        [Chart("BLEU as heads are removed", "% of heads removed", "BLEU", {"BLEU": curve})],
        {"least_important": [str(head) for head in order[:10]]},
    )


def _bleu_without(
    translator: Translator, heads: list[Head], sources: list[str], references: list[str]
) -> float:
    with torch_engine(translator).exclusive() as models:
        now = copy.copy(translator)
        now.engine = TorchEngine(*models)
        with switched_off(models[0], heads):
            translations = [translation.text for translation in now.translate(sources)]
    return score(translations, references).bleu.value


CLAIM = Claim(
    "Heads specialize, and many of them can be removed from a trained model with little loss.",
    "Michel et al., 2019; Voita et al., 2019",
    experiment,
    needs_model=True,
)
