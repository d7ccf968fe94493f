"""The ladder from the last checkpoint to the paper's BLEU: what each step of §6.1 contributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.data.tokenizer import Tokenizer
from transduce.engines.torch import resolve_device
from transduce.errors import CheckpointError
from transduce.evaluation.scores import Score, check_parallel, score
from transduce.evaluation.tables import Table
from transduce.model import Transformer
from transduce.storage.bundle import Bundle, load_bundle
from transduce.storage.checkpoint import (
    average,
    best_checkpoints,
    checkpoints,
    load_newest,
    verifies,
)
from transduce.storage.installed import find_bundle
from transduce.translation.translator import Translator

Weights = dict[str, Tensor]
# Translates the sources of a rung, whose name is given.
Translate = Callable[[Translator, str], list[str]]


@dataclass(frozen=True)
class Rung:
    """One step of the ladder. Every rung keeps what the rungs before it have added."""

    name: str
    score: Score
    gain: float | None  # against the rung before; None for the first


@dataclass(frozen=True)
class Ladder:
    """The steps from a run's last checkpoint to a number that the paper would report."""

    rungs: tuple[Rung, ...]
    missing: tuple[str, ...]  # why rungs are missing, one line each

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)

    def table(self) -> Table:
        """Return the ladder as a table."""
        rows = []
        for rung in self.rungs:
            gain = "" if rung.gain is None else f"{rung.gain:+.2f}"
            rows.append((rung.name, f"{rung.score.value:.2f}", gain, rung.score.signature))
        header = ("step", "BLEU", "gain", "signature")
        return Table("From the last checkpoint to the paper's BLEU", header, tuple(rows))


def climb(
    run: str | Path,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    device: str | None = None,
    translate: Translate | None = None,
) -> Ladder:
    """Score the models of a run step by step, as §6.1 makes its final numbers.

    The steps are: the last checkpoint with greedy search; the average of checkpoints; beam 4 with
    alpha 0.6; compounds split, as in Table 2.

    Args:
        run: The folder of a run.
        sources: The sentences to translate.
        references: Their translations.
        device: Such as "cuda" or "cpu"; by default a GPU if there is one.
        translate: Translates the sources with a translator; called with the name of the rung too.
    """
    check_parallel(sources, references)
    run = Path(run)
    bundle = load_bundle(_saved_model(run))
    bundle.refuse_own_model()
    greedy = replace(bundle.recipe.search, beam_size=1, n_best=1, temperature=0.0)
    beam = replace(greedy, beam_size=4, alpha=0.6)
    missing: list[str] = []
    measured: list[tuple[str, Score]] = []

    def translations(name: str, weights: Weights, search: SearchConfig) -> list[str]:
        translator = _translator(bundle, weights, search, device)
        if translate is not None:
            return translate(translator, name)
        return [translation.text for translation in translator.translate([*sources])]

    # The models, with greedy search.
    weights: Weights = {}
    for name, weights in _models(run, bundle, missing):
        hypotheses = translations(name, weights, greedy)
        measured.append((name, score(hypotheses, references).bleu))

    # The last of them with the paper's search, scored in two ways.
    scores = score(translations("beam 4, alpha 0.6", weights, beam), references)
    measured += [("beam 4, alpha 0.6", scores.bleu), ("compounds split", scores.tokenized_bleu)]

    rungs = []
    previous: float | None = None
    for name, found in measured:
        gain = None if previous is None else found.value - previous
        rungs.append(Rung(name, found, gain))
        previous = found.value
    return Ladder(tuple(rungs), tuple(missing))


def _saved_model(run: Path) -> Path:
    """Return the last model of a run, which is the average of checkpoints once it is finished."""
    last = run / "last"
    return last if last.exists() else find_bundle(run)


def _models(run: Path, bundle: Bundle, missing: list[str]) -> Iterator[tuple[str, Weights]]:
    """Yield the names and weights of the models on the ladder; add what is missing to the list."""
    folder = run / "checkpoints"
    newest = load_newest(folder)
    if newest is None:
        missing.append(
            f"{folder} has no checkpoints, so the steps 'last checkpoint' and 'average' are "
            f"missing, and the ladder starts at the saved model {bundle.path}"
        )
        yield "saved model, greedy", bundle.weights()
        return

    yield f"last checkpoint (step {newest.step:,}), greedy", newest.tensors("model")
    if "ema" in newest.groups:
        yield "moving average of the weights", newest.tensors("ema")
        return
    paths = [path for path in _to_average(folder, bundle, newest.progress) if verifies(path)]
    if len(paths) > 1:
        yield f"average of {len(paths)} checkpoints", average(paths)
        return
    missing.append(
        f"the step 'average' is missing: {folder} has {len(checkpoints(folder))} checkpoints, and "
        f"training.average_checkpoints is {bundle.recipe.training.average_checkpoints}"
    )


def _to_average(folder: Path, bundle: Bundle, progress: dict[str, Any]) -> list[Path]:
    """Return the checkpoints that training averages at the end: the last n, or the best n."""
    training = bundle.recipe.training
    if training.average == "last":
        return checkpoints(folder)[-training.average_checkpoints :]
    scores = progress.get("scores") or {}
    return best_checkpoints(
        folder, training.average_checkpoints, lambda saved: scores.get(str(saved["step"]))
    )


def _translator(
    bundle: Bundle, weights: Weights, search: SearchConfig, device: str | None
) -> Translator:
    """Return a translator with these weights, in the precision in which validation translates."""
    place = resolve_device(device)
    with torch.device("meta"):
        model = Transformer(bundle.recipe.model)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError:
        raise CheckpointError(
            f"the checkpoints beside {bundle.path} have other weights than its recipe; expected "
            "those of the same run"
        ) from None
    model = model.to(place).eval().requires_grad_(False)
    if place.type == "cuda":
        model = model.bfloat16()
    source, target = Tokenizer.pair(bundle.tokenizer_files)
    return Translator.from_model(model, source, target, bundle.recipe, search=search)
