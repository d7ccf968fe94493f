"""A student learns from its teacher; a compressed model stays the same model."""

import json
from dataclasses import replace

import pytest
import torch

from tests import trained
from tests.training.test_trainer import signalled
from transduce.config import CorpusConfig, DataConfig, ModelConfig, Recipe, TokenizerConfig
from transduce.describe import count_parameters
from transduce.distillation import comparison, distil, synthesis
from transduce.distillation.comparison import compare, print_comparison
from transduce.distillation.compress import compress
from transduce.errors import BundleError, CheckpointError, ConfigError, DataError
from transduce.evaluation.scores import score
from transduce.presets import PRESETS, preset
from transduce.recipe import load_recipe, to_toml
from transduce.storage.bundle import load_bundle, save_bundle
from transduce.training.run_folder import read_teacher
from transduce.training.trainer import Trainer
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A recipe of phrases in a folder of its own."""
    folder = tmp_path_factory.mktemp("data")
    pairs = trained.splits()
    for name, part in (("train", pairs["train"][:80]), ("valid", pairs["valid"][:4])):
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in part)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    data = DataConfig(
        corpora=(CorpusConfig(source="train.en", target="train.de"),),
        validation=(CorpusConfig(source="valid.en", target="valid.de"),),
        tokenizer=TokenizerConfig(normalize_punctuation=True),
    )
    path = folder / "recipe.toml"
    path.write_text(to_toml(Recipe(data=data)), encoding="utf-8")
    return path


SMALL = (
    "model.N=1",
    "model.d_model=16",
    "model.d_ff=16",
    "data.tokenizer.vocab_size=380",
    "training.steps=2",
    "training.warmup_steps=1",
    "training.tokens_per_step=300",
    "training.validate_every=2",
    "training.save_every=2",
    "search.max_extra=2",  # an untrained model does not stop
)


def test_a_student_is_trained_on_what_its_teacher_writes(bundle, recipe, tmp_path, monkeypatch):
    options = {}

    def synthesize(*arguments, **given):
        options.update(given)
        return synthesis.synthesize(*arguments, **given)

    monkeypatch.setattr(distil, "synthesize", synthesize)
    made = distil.distil(
        bundle.path,
        recipe,
        tmp_path / "small",
        student="tiny",
        overrides=SMALL,
        beam_size=1,
        device="cpu",
        processes=2,
    )
    assert options == {"processes": 2, "device": "cpu"}
    made_with = json.loads((tmp_path / "small" / "text" / "synthesis.json").read_bytes())
    assert made_with["search"]["beam_size"] == 1
    written = load_recipe(str(tmp_path / "small" / "recipe.toml"))
    assert written.data.corpora[0].target == ("text/distilled.de",)
    assert written.data.tokenizer.normalize_punctuation
    assert written.model.vocab_size == written.data.tokenizer.vocab_size == 380
    assert written.model.h == preset("tiny").model.h
    assert made.run.step == 2

    # The student was validated on the recipe's own text, from another folder.
    sources, references = distil.read_held_out(written, tmp_path / "small")
    assert (sources, references) == distil.read_held_out(load_recipe(str(recipe)), recipe.parent)
    assert made.run.best["step"] == 2
    unique = len(set((recipe.parent / "train.en").read_text(encoding="utf-8").splitlines()))
    assert made.text.pairs + made.text.dropped == unique


def test_two_commands_do_not_make_students_in_one_folder(bundle, recipe, tmp_path, monkeypatch):
    """The second has another student, and comes while the first one writes its text or trains."""
    options = {"student": "tiny", "overrides": SMALL, "beam_size": 1, "device": "cpu"}
    others = {**options, "overrides": (*SMALL, "model.d_ff=32")}
    small = tmp_path / "small"
    calls = []

    def meanwhile(work):
        def called(*arguments, **given):
            calls.append(work)
            with pytest.raises(DataError, match="another transduce distil is at work in"):
                distil.distil(bundle.path, recipe, small, **others)
            return work(*arguments, **given)

        return called

    monkeypatch.setattr(distil, "synthesize", meanwhile(distil.synthesize))
    monkeypatch.setattr(distil, "train", meanwhile(distil.train))
    distil.distil(bundle.path, recipe, small, **options)
    assert len(calls) == 2
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"was started with model\.d_ff = 16, not 32"):
        distil.distil(bundle.path, recipe, small, **others)
    assert load_recipe(str(small / "recipe.toml")).model.d_ff == 16


def test_all_models_of_a_student_name_its_teacher(bundle, recipe, tmp_path, monkeypatch):
    scores = {"bleu": 12.34}
    files = bundle.tokenizer_files
    save_bundle(
        tmp_path / "large/best", bundle.recipe, bundle.weights(), files, scores, {"step": 1}
    )
    teacher = load_bundle(tmp_path / "large/best")
    # An average would have the checkpoint of the interruption, too.
    overrides = [*SMALL, "training.average_checkpoints=1"]
    options = {"student": "tiny", "overrides": overrides, "beam_size": 1, "device": "cpu"}
    whole = distil.distil(tmp_path / "large", recipe, tmp_path / "whole", **options)

    # The teacher has another name when the training resumes.
    with monkeypatch.context() as stopped:
        stopped.setattr(Trainer, "_step", signalled(1, Trainer._step))
        distil.distil(tmp_path / "large", recipe, tmp_path / "small", **options)
    (tmp_path / "large").rename(tmp_path / "renamed")
    made = distil.distil(tmp_path / "renamed", recipe, tmp_path / "small", **options)

    for name in ("best", "last"):
        student = load_bundle(made.run.path / name)
        assert student.provenance["distilled_from"] == {
            "name": "large",
            "fingerprint": teacher.fingerprint,
            "scores": scores,
        }
        short = teacher.fingerprint[:12]
        assert f"| large ({short}), BLEU 12.3 on its validation text; its licence" in student.card
        assert student.fingerprint == load_bundle(whole.run.path / name).fingerprint


@pytest.mark.parametrize("content", [b"[]", b"\xff", b"[" * 10**5])
def test_a_note_of_the_teacher_that_was_edited_is_refused(content, tmp_path):
    (tmp_path / "distilled-from.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a JSON object; remove it and start"):
        read_teacher(tmp_path)


def test_a_teacher_of_other_languages_is_refused(bundle, recipe, tmp_path):
    other = recipe.parent / "other.toml"
    settings = load_recipe(str(recipe))
    data = replace(settings.data, target_language="fr")
    other.write_text(to_toml(replace(settings, data=data)), encoding="utf-8")
    with pytest.raises(ConfigError, match="is for en-fr, but the teacher translates en-de"):
        distil.distil(bundle.path, other, tmp_path / "small")
    with pytest.raises(ConfigError, match="languages of its teacher, en-de; leave out"):
        distil.distil(
            bundle.path, recipe, tmp_path / "small", overrides=["data.target_language=fr"]
        )
    assert not (tmp_path / "small").exists()
    other.write_text(to_toml(Recipe()), encoding="utf-8")
    with pytest.raises(ConfigError, match="names no training text"):
        distil.distil(bundle.path, other, tmp_path / "small")
    with pytest.raises(DataError, match=r"neither \[\[data.test\]\] nor"):
        distil.read_held_out(Recipe(), tmp_path)


def test_a_recipe_that_is_not_of_a_student_is_not_overwritten(bundle, recipe, tmp_path):
    before = recipe.read_bytes()
    with pytest.raises(ConfigError, match=r"recipe\.toml is not the recipe of a student and would"):
        distil.distil(bundle.path, recipe, recipe.parent)
    assert recipe.read_bytes() == before

    with pytest.raises(ConfigError, match=r"recipe\.toml is not a writable folder; choose another"):
        distil.distil(bundle.path, recipe, recipe)

    # The folder of a student, and the student's recipe as that of the teacher's text.
    own = tmp_path / "recipe.toml"
    own.write_bytes(before)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "synthesis.json").touch()
    with pytest.raises(ConfigError, match="would be overwritten"):
        distil.distil(bundle.path, own, tmp_path)
    assert own.read_bytes() == before


def test_a_compressed_model_has_rounded_weights_and_its_old_name(bundle, tmp_path):
    small = load_bundle(compress(bundle.path, tmp_path / "int8"))
    assert small.provenance["compressed_from"] == bundle.fingerprint
    for name, weight in bundle.weights().items():
        rounded = small.weights()[name]
        step = weight.abs().amax(-1, keepdim=True) / 127
        assert ((weight - rounded).abs() <= step / 2 + 1e-7).all(), name
        assert weight.dim() < 2 or torch.unique(rounded[0]).numel() <= 255
    size = [(folder / "model.safetensors").stat().st_size for folder in (small.path, bundle.path)]
    assert size[0] < 0.4 * size[1]
    with pytest.raises(BundleError, match="exists already"):
        compress(bundle.path, tmp_path / "int8")


def test_models_are_compared_on_the_same_sentences(bundle, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(comparison, "ROUNDS", 1)
    pairs = trained.splits()["test"][:12]
    sources = [source for source, _ in pairs]
    references = [target for _, target in pairs]
    small = compress(bundle.path, tmp_path / "int8")
    rows = compare({"large": bundle.path, "small": small}, sources, references, device="cpu")
    print_comparison(rows)
    table = capsys.readouterr().out
    assert [row.name for row in rows] == ["large", "small"]
    assert rows[0].parameters == rows[1].parameters
    assert rows[1].megabytes < rows[0].megabytes
    hypotheses = [found.text for found in Translator(bundle, device="cpu").translate(sources)]
    assert rows[0].scores == score(hypotheses, references)
    assert f"{rows[1].scores.bleu.value:.1f}" in table
    assert "(1.00 x)" in table
    assert rows[0].scores.bleu.signature in table
    print_comparison(compare({"large": bundle.path}, sources[:2], device="cpu"))
    assert "BLEU is" not in capsys.readouterr().out


def test_the_student_has_a_deep_encoder_a_shallow_decoder_and_30_megabytes():
    model: ModelConfig = PRESETS["student"].model
    assert 4 * model.decoder_layers <= model.N
    assert count_parameters(model) < 30e6
