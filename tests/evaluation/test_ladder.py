"""The ladder scores the models of a run step by step, and says which steps are missing."""

from dataclasses import replace

import pytest
import torch

from tests import trained
from transduce.config import SearchConfig
from transduce.errors import BundleError
from transduce.evaluation.ladder import climb
from transduce.evaluation.scores import score
from transduce.storage.bundle import save_bundle
from transduce.storage.checkpoint import save_checkpoint
from transduce.translation.translator import Translator

PAIRS = trained.splits()["test"][:25]
SOURCES = [source for source, _ in PAIRS]
REFERENCES = [target for _, target in PAIRS]


def noisy(weights, share):
    """The weights with noise in proportion to their size."""
    generator = torch.Generator().manual_seed(1)
    changed = {}
    for name, weight in weights.items():
        noise = torch.randn(weight.shape, generator=generator) * weight.std() * share
        changed[name] = weight + noise
    return changed


def make_run(folder, bundle, checkpoints, **training):
    """A run whose checkpoints have these groups of tensors, by step, and their scores."""
    recipe = replace(bundle.recipe, training=replace(bundle.recipe.training, **training))
    save_bundle(folder / "last", recipe, bundle.weights(), bundle.tokenizer_files, {}, {})
    scores = {str(step): value for step, (_, value) in checkpoints.items()}
    for step, (groups, _) in checkpoints.items():
        save_checkpoint(folder / "checkpoints", step, groups, {"scores": scores})
    return folder


def bleu(bundle, weights=None, **search):
    """The BLEU of a bundle's model, or of other weights in it."""
    settings = SearchConfig(max_extra=20, **search)
    translator = Translator(bundle, engine="torch", device="cpu", search=settings)
    if weights is not None:
        translator.engine.models[0].load_state_dict(weights)
    hypotheses = [translation.text for translation in translator.translate(SOURCES)]
    return score(hypotheses, REFERENCES)


def test_each_rung_adds_one_step_to_the_one_before(tmp_path, bundle):
    """The mean of the last two checkpoints is the model itself."""
    weights = bundle.weights()
    last = noisy(weights, 0.3)
    other = {name: 2 * weights[name] - last[name] for name in weights}
    checkpoints = {
        10: ({"model": noisy(weights, 5)}, 1.0),
        20: ({"model": other}, 2.0),
        30: ({"model": last}, 3.0),
    }
    run = make_run(tmp_path, bundle, checkpoints, average_checkpoints=2)
    ladder = climb(run, SOURCES, REFERENCES, device="cpu")
    first, averaged, beam, compounds = ladder.rungs
    assert ladder.missing == ()
    assert first.name == "last checkpoint (step 30), greedy"
    assert averaged.name == "average of 2 checkpoints"
    assert averaged.score == bleu(bundle, beam_size=1).bleu
    assert beam.score == bleu(bundle, beam_size=4, alpha=0.6).bleu
    assert compounds.score == bleu(bundle, beam_size=4, alpha=0.6).tokenized_bleu
    assert first.gain is None
    assert averaged.gain == averaged.score.value - first.score.value > 0
    assert first.score == bleu(bundle, last, beam_size=1).bleu


def test_the_best_checkpoints_are_averaged_where_training_does(tmp_path, bundle):
    weights = bundle.weights()
    broken = noisy(weights, 5)
    checkpoints = {
        10: ({"model": weights}, 9.0),
        20: ({"model": weights}, 8.0),
        30: ({"model": broken}, 1.0),
    }
    run = make_run(tmp_path, bundle, checkpoints, average_checkpoints=2, average="best")
    _, averaged, *_ = climb(run, SOURCES, REFERENCES, device="cpu").rungs
    assert averaged.score == bleu(bundle, beam_size=1).bleu


def test_a_moving_average_takes_the_place_of_the_mean(tmp_path, bundle):
    weights = bundle.weights()
    groups = {"model": noisy(weights, 5), "ema": weights}
    run = make_run(tmp_path, bundle, {10: (groups, 1.0), 20: (groups, 1.0)}, ema=0.999)
    _, averaged, *_ = climb(run, SOURCES, REFERENCES, device="cpu").rungs
    assert averaged.name == "moving average of the weights"
    assert averaged.score == bleu(bundle, beam_size=1).bleu


def test_removed_checkpoints_are_named_and_the_saved_model_is_the_first_rung(tmp_path, bundle):
    run = make_run(tmp_path, bundle, {})
    ladder = climb(run, SOURCES, REFERENCES, device="cpu")
    assert [rung.name for rung in ladder.rungs] == [
        "saved model, greedy",
        "beam 4, alpha 0.6",
        "compounds split",
    ]
    (reason,) = ladder.missing
    assert "'last checkpoint' and 'average' are missing" in reason
    assert ladder.rungs[0].score == bleu(bundle, beam_size=1).bleu


def test_a_single_checkpoint_has_no_average(tmp_path, bundle):
    run = make_run(tmp_path, bundle, {10: ({"model": bundle.weights()}, 1.0)})
    ladder = climb(run, SOURCES[:2], REFERENCES[:2], device="cpu")
    assert len(ladder.rungs) == 3
    assert ladder.missing[0].startswith("the step 'average' is missing:")


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(BundleError):
        climb(tmp_path, SOURCES, REFERENCES)
