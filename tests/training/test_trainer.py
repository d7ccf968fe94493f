"""`transduce train`: no step is lost, signals stop it, and the best model is kept."""

import json
import math
import re
import shutil
import signal
import time
from dataclasses import replace
from functools import partial
from importlib import metadata
from itertools import count
from pathlib import Path

import pytest
import torch

from transduce.config import CorpusConfig, DataConfig, Recipe
from transduce.corpora.phrases import write_phrases
from transduce.data.prepare import prepare
from transduce.data.store import Store
from transduce.describe import training_memory
from transduce.errors import BundleError, CheckpointError, ConfigError, DataError
from transduce.evaluation.scores import score
from transduce.model import Transformer
from transduce.monitoring.metrics import read_metrics
from transduce.presets import TINY
from transduce.recipe import load_recipe
from transduce.storage.bundle import load_bundle
from transduce.storage.checkpoint import (
    CHECKPOINT,
    average,
    checkpoints,
    load_newest,
    save_checkpoint,
    step_of,
)
from transduce.storage.lock import lock_run
from transduce.storage.sealed_folder import seal_folder
from transduce.training.distributed import World
from transduce.training.fine_tuning import describe_change, other_languages
from transduce.training.hooks import Hooks
from transduce.training.memory import (
    _estimate,
    _machine_memory,
    choose_micro_batches,
    out_of_memory_note,
)
from transduce.training.plan import plan
from transduce.training.run_folder import FINISHED, read_finished, started_from
from transduce.training.run_state import RunState
from transduce.training.scoring import Scorer
from transduce.training.signals import catch_signals
from transduce.training.step import Learner
from transduce.training.train import train as train_from_recipe
from transduce.training.trainer import Trainer
from transduce.training.trainer import run_training as train
from transduce.training.validation import Validation, validate
from transduce.translation.translator import Translator

_NAN = torch.full((2,), torch.nan)
ALONE = World(0, 1, torch.device("cpu"))
SMALL = [
    "model.N=1", "model.d_model=32", "model.d_ff=64", "model.h=2", "model.d_k=16", "model.d_v=16", "model.p_drop=0.1",
    "data.tokenizer.vocab_size=500", "training.steps=12", "training.tokens_per_step=600", "training.report_every=1",
    "training.validate_every=6", "training.validation_sentences=3", "training.save_every=4",
    "data.test=[]",  # its score would take time
]  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A recipe file, its recipe and its store."""
    folder = tmp_path_factory.mktemp("phrases")
    path = write_phrases(folder, "en", "de", 1_500, 1)
    recipe = load_recipe(str(path), SMALL)
    return path, recipe, prepare(recipe, folder, folder / "recipe.store")


@pytest.fixture(scope="module")
def whole(prepared, tmp_path_factory):
    """An undisturbed run."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    train(prepared[1], prepared[2], run, ALONE)
    return run


def losses(run, kind="step"):
    return [(step, loss) for step, loss, *_ in read_metrics(run).curve(kind, "loss")]


def reached(run):
    try:
        return max([0, *dict(losses(run))])
    except CheckpointError:  # nothing is written yet
        return 0


def weights(run):
    return load_newest(run / "checkpoints").tensors("model")


def assert_same_steps(run, other):
    assert losses(run) == losses(other)
    mine, theirs = weights(run), weights(other)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def assert_same_run(run, other):
    assert_same_steps(run, other)
    assert load_bundle(run / "last").fingerprint == load_bundle(other / "last").fingerprint


def change(recipe, **training):
    return replace(recipe, training=replace(recipe.training, **training))


def signalled(at, step):
    """Return a `_step` that gets SIGTERM at step `at`."""

    def stopped(self, micro_batches, target_tokens, number):
        if number == at:
            signal.raise_signal(signal.SIGTERM)
        return step(self, micro_batches, target_tokens, number)

    return stopped


def test_a_run_leaves_checkpoints_bundles_metrics_and_a_report(whole):
    assert [path.name for path in checkpoints(whole / "checkpoints")] == [
        "step-000004",
        "step-000008",
        "step-000012",
    ]
    assert (whole / "report.html").is_file()
    assert load_bundle(whole / "best").scores.keys() >= {"loss", "perplexity", "bleu", "chrf"}
    assert len(losses(whole)) == 12


def test_training_and_validation_show_the_same_kind_of_loss(prepared, tmp_path):
    recipe = change(prepared[1], eps_ls=0.3, steps=6)
    train(recipe, prepared[2], tmp_path / "run", ALONE)
    history = read_metrics(tmp_path / "run")
    for record in (*history.of("step"), *history.of("validation")):
        assert record["loss"] == pytest.approx(math.log(record["perplexity"]))
    # With label smoothing, training minimizes something else.
    assert all(record["objective"] != record["loss"] for record in history.of("step"))


def test_a_resumed_run_is_bit_identical(prepared, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "_step", signalled(5, Trainer._step))
    stopped = train(prepared[1], prepared[2], tmp_path / "run", ALONE)
    assert (stopped.step, stopped.stopped_by) == (5, "SIGTERM")
    monkeypatch.undo()
    whole_again = train(prepared[1], prepared[2], tmp_path / "run", ALONE)
    assert (whole_again.step, whole_again.stopped_by) == (12, "")
    assert_same_run(tmp_path / "run", whole)


def test_a_stopped_run_has_reported_every_step(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "_step", signalled(5, Trainer._step))
    train(change(prepared[1], report_every=4), prepared[2], tmp_path / "run", ALONE)
    records = read_metrics(tmp_path / "run")
    assert [(record["step"], record["steps"]) for record in records.of("step")] == [(4, 4), (5, 1)]
    assert records.last["event"] == "stop"


def test_validation_does_not_count_as_step_time(prepared, tmp_path, monkeypatch):
    score = Scorer.score
    monkeypatch.setattr(
        Scorer, "score", lambda self, weights: time.sleep(2) or score(self, weights)
    )
    recipe = change(prepared[1], report_every=5, validate_every=6, save_every=6, steps=12)
    train(recipe, prepared[2], tmp_path / "run", ALONE)
    records = read_metrics(tmp_path / "run").of("step")
    assert [record["step"] for record in records] == [5, 6, 10, 12]
    assert max(record["step_seconds"] for record in records) < 2


def test_checkpoints_that_only_serve_to_resume_can_be_few(prepared, tmp_path):
    recipe = change(
        prepared[1], steps=12, save_every=2, early_save_every=3, average_checkpoints=2,
        keep_checkpoints=9, validate_every=12, validation_sentences=0,
    )  # fmt: skip
    train(recipe, prepared[2], tmp_path / "run", ALONE)
    saved = [step_of(path) for path in checkpoints(tmp_path / "run/checkpoints")]
    assert saved == [3, 6, 10, 12]
    assert read_metrics(tmp_path / "run").of("average")[0]["checkpoints"] == 2


@pytest.mark.parametrize("which", ["last", "best"])
def test_a_damaged_checkpoint_is_left_out_of_the_average(prepared, tmp_path, capsys, which):
    recipe = change(
        prepared[1], average=which, average_checkpoints=3, save_every=2, validate_every=2, steps=8
    )
    recipe = change(recipe, validation_sentences=0)
    train(recipe, prepared[2], tmp_path / "run", ALONE)
    damaged = tmp_path / "run/checkpoints/step-000006"
    file = damaged / ("model.safetensors" if which == "last" else "progress.json")
    file.write_bytes(file.read_bytes()[:-1])
    train(change(recipe, steps=10), prepared[2], tmp_path / "run", ALONE)
    assert read_finished(tmp_path / "run").step == 10


def test_a_bleu_and_a_loss_are_not_compared(prepared, tmp_path):
    recipe = change(prepared[1], validate_every=6, patience=1)
    train(change(recipe, steps=6), prepared[2], tmp_path / "run", ALONE)
    state = train(
        change(recipe, steps=12, validation_sentences=0), prepared[2], tmp_path / "run", ALONE
    )
    assert (state.judged_by, state.best_step, state.stale) == ("loss", 12, 0)


def test_of_equal_scores_the_lower_loss_is_better(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(Validation, "value", lambda self, name: 0.0)
    state = train(
        change(prepared[1], validate_every=4, patience=1), prepared[2], tmp_path / "run", ALONE
    )
    assert (state.best_step, state.step) == (12, 12)


def test_a_failed_save_is_reported_at_once(prepared, tmp_path, monkeypatch):
    def full(*_):
        raise CheckpointError("no room")

    monkeypatch.setattr("transduce.storage.background_saver.save_checkpoint", full)
    monkeypatch.setattr(
        Trainer,
        "_step",
        lambda self, *given, step=Trainer._step: (time.sleep(0.05), step(self, *given))[1],
    )
    with pytest.raises(CheckpointError, match="no room"):
        train(
            change(prepared[1], save_every=4, validate_every=99, steps=100),
            prepared[2],
            tmp_path / "run",
            ALONE,
        )
    assert read_metrics(tmp_path / "run").of("step")[-1]["step"] < 8


def test_a_finished_run_is_unchanged(prepared, whole, tmp_path, capsys):
    before = (whole / "metrics.jsonl").read_bytes()
    train(prepared[1], prepared[2], whole, ALONE)
    assert "is finished" in capsys.readouterr().out
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_training_stops_when_its_folder_is_removed(prepared, tmp_path, monkeypatch):
    run, step = tmp_path / "run", Trainer._step
    monkeypatch.setattr(
        Trainer,
        "_step",
        lambda self, *given: (given[2] == 3 and shutil.rmtree(run), step(self, *given))[1],
    )
    with pytest.raises(
        CheckpointError,
        match=r"run was removed during training, so training stops; restore it, or",
    ):
        train(prepared[1], prepared[2], run, ALONE)
    assert not run.exists()


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    run = tmp_path / "run"
    with (
        lock_run(run),
        pytest.raises(ConfigError, match="another process trains in"),
        lock_run(run),
    ):
        pass
    with lock_run(run):  # the lock is released
        pass


def test_another_recipe_in_the_same_folder_is_refused(prepared, whole, tmp_path):
    other = replace(prepared[1], model=replace(prepared[1].model, d_ff=128))
    with pytest.raises(
        ConfigError,
        match=r"was started with model.d_ff = 64, not 128; choose another folder for the run",
    ):
        train(other, prepared[2], whole, ALONE)
    other = replace(prepared[1], data=replace(prepared[1].data, corpora=()))
    with pytest.raises(ConfigError, match=r"was started with other data.corpora; choose another"):
        train(other, prepared[2], whole, ALONE)
    store = tmp_path / "untouched.store"  # another tokenizer is refused before its store is made
    with pytest.raises(ConfigError, match=r"was started with data.tokenizer.split_digits"):
        train_from_recipe(
            str(prepared[0]),
            overrides=[*SMALL, "data.tokenizer.split_digits=false"],
            run=whole,
            store=store,
        )
    assert not store.exists()


def test_a_store_made_with_other_settings_is_left_unchanged(prepared, tmp_path):
    before = prepared[2].fingerprint
    with pytest.raises(
        DataError,
        match=r"made with other settings or text \(data.tokenizer\) and is left unchanged",
    ):
        train_from_recipe(
            str(prepared[0]),
            overrides=[*SMALL, "data.tokenizer.split_digits=false"],
            run=tmp_path / "run",
        )
    assert Store(prepared[2].path).fingerprint == before
    assert not (tmp_path / "run").exists()


def test_a_store_of_another_tokenizer_is_refused(prepared, whole, tmp_path):
    other = load_recipe(str(prepared[0]), [*SMALL, "data.tokenizer.split_digits=false"])
    store = prepare(other, prepared[0].parent, tmp_path / "other.store")
    with pytest.raises(
        ConfigError, match=r"was started with another tokenizer than that of .*other.store"
    ):
        train(prepared[1], store, whole, ALONE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_an_error(prepared):
    with pytest.raises(
        ConfigError, match="device is cuda, but PyTorch finds no GPU here; use --device cpu"
    ):
        train_from_recipe(str(prepared[0]), overrides=SMALL, device="cuda")


def test_a_run_stops_at_its_goal_and_when_nothing_gets_better(prepared, tmp_path):
    goal = change(prepared[1], until="loss=1000", validate_every=2)
    assert train(goal, prepared[2], tmp_path / "goal", ALONE).step == 2
    patient = change(
        prepared[1], patience=1, validate_every=1, learning_rate=1e-12, validation_sentences=0
    )
    assert train(patient, prepared[2], tmp_path / "patience", ALONE).step < 12


def test_a_run_that_was_killed_while_it_finished_only_finishes(prepared, tmp_path, monkeypatch):
    goal = change(prepared[1], until="loss=1000", validate_every=2)
    with monkeypatch.context() as killed:
        killed.setattr(
            "transduce.training.selection.ModelSelector.finish", None
        )  # not to be called
        with pytest.raises(TypeError):
            train(goal, prepared[2], tmp_path / "run", ALONE)
    assert train(goal, prepared[2], tmp_path / "run", ALONE).step == 2
    assert (tmp_path / "run/finished.json").exists()


def test_a_run_continues_from_its_goal_to_another(prepared, whole, tmp_path, capsys):
    run, goal = tmp_path / "run", change(prepared[1], until="loss=1000")
    assert train(goal, prepared[2], run, ALONE).step == 6
    capsys.readouterr()
    assert train(change(goal, steps=14), prepared[2], run, ALONE).step == 6  # the goal is the same
    assert (
        "reached loss=1000 at step 6; to train further, set another training.until"
        in capsys.readouterr().out
    )
    train(change(prepared[1], until="loss=1e-9"), prepared[2], run, ALONE)
    assert_same_steps(run, whole)


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({"until": "loss=2"}, "reached loss=2 at step 8"),
        ({"until": "loss=1.4"}, None),
        ({"until": "bleu=20"}, "reached bleu=20 at step 8"),
        ({"until": "bleu=20.1"}, None),
        ({"until": "chrf=1"}, None),  # not known
        ({"patience": 1}, "no better score since step 4 (training.patience)"),
        ({"patience": 2}, "no better score since step 4 (training.patience)"),
        ({"patience": 3}, None),
        ({}, None),
        ({"steps": 8}, "8 steps done"),
        ({"steps": 7}, "8 steps done"),
    ],
)
def test_the_current_settings_decide_whether_a_run_is_complete(settings, end):
    training = replace(TINY.training, **({"steps": 9} | settings))
    state = RunState(step=8, validated=8, best_step=4, stale=2, latest={"loss": -1.5, "bleu": 20.0})
    restored = RunState.from_json(json.loads(json.dumps(state.to_json())))
    reason = restored.stop_reason(training)
    assert (reason and reason.message) == end
    assert state.stop_by_score(training) == (None if "steps" in settings else reason)
    assert replace(state, step=6).stop_by_score(training) is None  # the scores are of another step


def test_a_run_without_its_checkpoints_says_that_it_starts_again(prepared, whole, tmp_path, capsys):
    run = tmp_path / "run"
    train(change(prepared[1], steps=6), prepared[2], run, ALONE)
    assert "again from step 0" not in capsys.readouterr().err
    shutil.rmtree(run / "checkpoints")
    (run / "finished.json").unlink()
    train(prepared[1], prepared[2], run, ALONE)
    assert "was started before, but has no checkpoint" in capsys.readouterr().err
    assert_same_steps(run, whole)


def test_a_recipe_beside_its_text_is_not_overwritten(prepared, tmp_path):
    path = write_phrases(tmp_path, "en", "de", 600, 2)
    before = path.rename(path.with_name("recipe.toml")).read_bytes()
    with pytest.raises(
        ConfigError,
        match=r"recipe\.toml does not belong to a run and would be overwritten; choose another folder",
    ):
        train_from_recipe(str(tmp_path / "recipe.toml"), overrides=SMALL, run=tmp_path)
    assert (tmp_path / "recipe.toml").read_bytes() == before


def test_the_signal_that_ended_an_attempt_is_not_saved():
    assert "stopped_by" not in RunState(stopped_by="SIGTERM").to_json()


def test_a_finished_run_without_checkpoints_is_not_started_again(prepared, whole, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert train(prepared[1], prepared[2], run, ALONE).step == 12
    with pytest.raises(
        CheckpointError, match=r"its checkpoints are gone, .* restore them, or start a new run from"
    ):
        train(change(prepared[1], steps=14), prepared[2], run, ALONE)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_steps_that_are_not_finite_are_skipped_counted_and_end_the_run(
    prepared, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "transduce.training.step.projected_loss", lambda hidden, *_: hidden.sum() * _NAN
    )
    with pytest.raises(CheckpointError, match="the gradients of 10 steps in a row were not finite"):
        train(
            change(prepared[1], validate_every=100, precision="float32"),
            prepared[2],
            tmp_path / "run",
            ALONE,
        )
    events = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    skipped = next(event for event in events if event.get("event") == "skipped")
    assert "training.learning_rate" in skipped["message"]
    assert "training.precision=float32" not in skipped["message"]  # as it is already


def test_fine_tuning_takes_the_model_and_the_tokenizer_of_the_bundle(
    prepared, whole, tmp_path, capsys
):
    # A recipe with a larger model and another vocabulary.
    other = write_phrases(tmp_path, "en", "de", 600, 2)
    overrides = [
        "steps=1",
        "learning_rate=1e-12",
        "validation_sentences=3",
        "warmup_steps=1",
        "tokens_per_step=600",
    ]
    overrides = [
        "model.d_ff=64",
        "data.test=[]",
        *(f"training.{override}" for override in overrides),
    ]  # d_ff as the bundle has it
    start = shutil.copytree(whole / "best", tmp_path / "bundle")  # without the rest of its run
    assert (
        train_from_recipe(
            str(other), overrides=overrides, run=tmp_path / "tuned", start_from=start
        ).state.step
        == 1
    )
    shown = capsys.readouterr().err
    assert f"started: from {start}, with its model and its tokenizer" in shown
    assert f"old-text: the text that {start} was trained on is not here, so what fine-" in shown
    unused = re.search("^fine-tuning keeps .* recipe are not used: (.*)$", shown, re.MULTILINE)
    preset_size = load_recipe(str(other)).model.d_model
    assert f"model.d_model = {preset_size}," in unused[1]
    assert "d_ff" not in unused[1]  # as the bundle has it
    assert "p_drop" not in unused[1]  # it is used
    assert "forget the other" not in shown  # the languages are the same
    english = replace(
        load_bundle(start).recipe, data=DataConfig(source_language="de", target_language="en")
    )
    assert f"the recipe translates from de to en, but {start} from en to de: the model will" in str(
        other_languages(english, load_bundle(start))
    )
    tuned, start = load_bundle(tmp_path / "tuned/last"), load_bundle(whole / "best")
    assert tuned.tokenizer_files == start.tokenizer_files
    ours, theirs = tuned.weights(), start.weights()
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in theirs)


def test_a_fine_tuned_run_resumes_without_start_from(prepared, whole, tmp_path, monkeypatch):
    tune = partial(train_from_recipe, str(write_phrases(tmp_path, "en", "de", 600, 2)))
    tune = partial(
        tune,
        overrides=[
            each
            for each in [*SMALL, "training.steps=2"]
            if "model" not in each and "vocab" not in each
        ],
    )
    tune(run=tmp_path / "at once", start_from=whole)
    with monkeypatch.context() as stopped:
        stopped.setattr(Trainer, "_step", signalled(1, Trainer._step))
        assert tune(run=tmp_path / "run", start_from=whole).state.step == 1
    assert tune(run=tmp_path / "run").state.step == 2
    assert_same_steps(tmp_path / "run", tmp_path / "at once")
    for run in ("at once", "run"):
        card = (tmp_path / run / "best/README.md").read_text()
        assert (
            f"| started_from | {whole.name} ({load_bundle(whole / 'best').fingerprint[:12]}); its licence"
            in card
        )
    assert tune(run=tmp_path / "run", start_from=whole).state.step == 2  # it may be named
    with pytest.raises(
        ConfigError, match=r"run was started from .*, not from .*last; choose another folder"
    ):
        tune(run=tmp_path / "run", start_from=tmp_path / "run/last")
    with pytest.raises(ConfigError, match="was started without --start-from, not from"):
        tune(run=whole, start_from=tmp_path / "run/last")
    (tmp_path / "run/started-from.txt").write_text(f"0 {tmp_path / 'gone'}")
    with pytest.raises(
        BundleError,
        match=r"run was fine-tuned from .*gone; pass where that bundle is now with --start-from: ",
    ):
        tune(run=tmp_path / "run")


def test_bundles_with_the_same_tokenizer_share_the_store_of_new_text(whole, tmp_path):
    recipe = write_phrases(tmp_path, "en", "de", 600, 2)
    few = [each for each in SMALL if "model." not in each and "vocab" not in each]
    few.append("training.steps=1")
    for name, start in (("first", whole), ("second", tmp_path / "first")):
        train_from_recipe(str(recipe), overrides=few, run=tmp_path / name, start_from=start)
    assert len(list(tmp_path.glob("recipe.*.store"))) == 1


@pytest.mark.parametrize(
    ("override", "name", "value"),
    [
        ("model.d_ff=128", "model.d_ff", 128),
        ("model.vocab_size=600", "model.vocab_size", 600),
        ("model.r=3", "model.r", 3),
        ("data.tokenizer.vocab_size=600", "data.tokenizer.vocab_size", 600),
        ("model={r=3}", "model.r", 3),
    ],
)
def test_fine_tuning_refuses_settings_that_contradict_the_bundle(
    prepared, whole, tmp_path, override, name, value
):
    with pytest.raises(
        ConfigError, match=f"{name} is {value}, but .* in .*best; fine-tuning keeps the model"
    ):
        train_from_recipe(
            str(prepared[0]), overrides=[override], run=tmp_path / "run", start_from=whole
        )
    assert not (tmp_path / "run").exists()


def test_a_signal_interrupts_validation_at_once_and_it_is_repeated(prepared, tmp_path, monkeypatch):
    recipe, translate = (
        change(prepared[1], average="best", average_checkpoints=2),
        Translator.translate,
    )
    train(recipe, prepared[2], tmp_path / "whole", ALONE)
    # For each attempt: the validation that gets a signal, and its step. The last one validates the
    # average of checkpoints.
    for number, step in [(1, 6), (1, 6), (2, 12), (1, 12), (2, 12)]:
        validations = count(1)

        def stopped(self, texts, number=number, validations=validations):
            if next(validations) == number:
                signal.raise_signal(signal.SIGTERM)
                pytest.fail("validation went on")
            return translate(self, texts)

        monkeypatch.setattr(Translator, "translate", stopped)
        assert train(recipe, prepared[2], tmp_path / "run", ALONE).step == step
        assert not (tmp_path / "run/finished.json").exists()
    monkeypatch.undo()
    assert train(recipe, prepared[2], tmp_path / "run", ALONE).step == 12
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert losses(tmp_path / "run", "validation") == losses(tmp_path / "whole", "validation")


def test_a_checkpoint_that_a_signal_caused_is_not_averaged(prepared, tmp_path):
    """It neither takes part in the average nor displaces one that does."""
    recipe = change(
        prepared[1], average_checkpoints=3, keep_checkpoints=3, save_every=3, validate_every=12
    )
    train(recipe, prepared[2], tmp_path / "whole", ALONE)

    def stop(record):
        return record["kind"] == "step" and record["step"] in (7, 8, 11)

    recipe = change(recipe, report_every=1)
    for step in (7, 8, 11, 12):
        state = train(recipe, prepared[2], tmp_path / "run", ALONE, hooks=Hooks(callbacks=(stop,)))
        assert state.step == step
    expected = load_bundle(tmp_path / "whole/last").weights()
    found = load_bundle(tmp_path / "run/last").weights()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_checkpoints_with_the_best_scores_are_kept_and_averaged(
    prepared, tmp_path, monkeypatch
):
    scores = iter([4.0, 1.0, 3.0, 2.0, 5.0])
    monkeypatch.setattr(
        "transduce.training.scoring.validate",
        lambda *_, **__: Validation(-next(scores), 1, *[math.nan] * 2, [], [], []),
    )
    best = change(
        prepared[1],
        average="best",
        average_checkpoints=2,
        keep_checkpoints=2,
        validate_every=3,
        save_every=100,
    )
    train(best, prepared[2], tmp_path / "run", ALONE)
    folder = tmp_path / "run/checkpoints"
    assert [path.name for path in checkpoints(folder)] == [
        "step-000003",
        "step-000009",
        "step-000012",
    ]
    expected = average([folder / "step-000003", folder / "step-000009"])
    last = load_bundle(tmp_path / "run/last").weights()
    assert all(torch.equal(last[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("no room"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 byte"),
    ],
)
def test_out_of_memory_halves_the_micro_batches_and_changes_nothing_else(
    prepared, tmp_path, monkeypatch, capsys, error
):
    # No dropout, no rounding to bf16: the same numbers however a step is divided.
    still = replace(prepared[1], model=replace(prepared[1].model, p_drop=0.0))
    still = change(still, precision="float32")
    train(still, prepared[2], tmp_path / "roomy", ALONE)
    compute, seen = Learner._sums, []

    def cramped(self, source, target):
        seen.append(source.ids.numel())
        # The first half of the step has already left its gradient.
        if seen[-1] > max(seen) / 3 and len(seen) > 5 and len(seen) % 2:
            raise error
        return compute(self, source, target)

    monkeypatch.setattr(Learner, "_sums", cramped)
    train(still, prepared[2], tmp_path / "cramped", ALONE)
    assert (
        "out-of-memory: each step now uses 4 micro-batches, with the same gradient"
        in capsys.readouterr().err
    )
    for (step_a, a), (step_b, b) in zip(
        losses(tmp_path / "roomy"), losses(tmp_path / "cramped"), strict=True
    ):
        assert step_a == step_b
        assert a == pytest.approx(b, rel=1e-5)


def test_micro_batches_that_were_too_few_for_these_ranks_are_not_tried_again(prepared, tmp_path):
    recipe = change(prepared[1], micro_batches=2)
    out_of_memory_note(tmp_path, World(0, 2, torch.device("cpu")), 2).touch()
    assert choose_micro_batches(recipe, ALONE, tmp_path) == 2
    for parts in (2, 4):
        out_of_memory_note(tmp_path, ALONE, parts).touch()
        assert choose_micro_batches(recipe, ALONE, tmp_path) == 2 * parts


def test_a_step_is_divided_until_it_fits_and_a_model_that_never_does_is_refused(
    prepared, tmp_path, monkeypatch
):
    recipe = change(prepared[1], tokens_per_step=100_000)
    assert choose_micro_batches(recipe, ALONE, tmp_path) == 1
    enough = training_memory(recipe, 25_000, width=4) / 0.8
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 1}.get(name, math.ceil(enough)))
    assert choose_micro_batches(recipe, ALONE, tmp_path) == 4
    enough = 2**29  # of which four fifths may be used
    large = [*SMALL, "model.N=1000", "model.d_ff=1000"]
    line = r"needs at least about 2\.1 GiB of memory, but may use only 0\.4 of 0\.5 GiB here; choose a smaller model"
    with pytest.raises(ConfigError, match=line):
        train_from_recipe(
            str(prepared[0]), overrides=large, run=tmp_path / "run", store=tmp_path / "none.store"
        )
    assert list(tmp_path.iterdir()) == []


def test_the_memory_limit_of_a_container_counts(tmp_path):
    whole, limit = _machine_memory(tmp_path / "none"), tmp_path / "memory.max"
    for text, expected in (("max\n", whole), ("1048576\n", 2**20), (f"{10**18}\n", whole)):
        limit.write_text(text)
        assert _machine_memory(limit) == expected


def test_a_rank_needs_memory_only_for_its_shards(prepared, monkeypatch):
    large = load_recipe(
        str(prepared[0]), [*SMALL, "model.N=1000", "model.d_ff=1000", "training.sharding=fsdp"]
    )
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 1}.get(name, 2**29))
    assert _estimate(large, World(0, 16, torch.device("cpu"))) < 16
    with pytest.raises(ConfigError, match="choose a smaller model"):
        _estimate(change(large, sharding="ddp"), World(0, 16, torch.device("cpu")))


def test_a_warm_up_longer_than_the_run_gets_advice(prepared, tmp_path, capsys):
    short = change(prepared[1], steps=1, warmup_steps=2, validation_sentences=0)
    train(short, prepared[2], tmp_path / "run", ALONE)
    line = "training.warmup_steps is 2, but training.steps is only 1, so the learning rate never reaches its peak"
    output = capsys.readouterr().err
    assert output.count("advice: training.w") == output.count(line) == 1
    train(change(short, warmup_steps=1), prepared[2], tmp_path / "other", ALONE)
    assert "warmup_steps" not in capsys.readouterr().err


def test_a_validation_announces_only_what_it_does(prepared, tmp_path, capsys):
    made_up = change(prepared[1], steps=1, validation_sentences=0)
    train(made_up, prepared[2], tmp_path / "loss", ALONE)
    output = capsys.readouterr().err
    assert "validating: computing the loss of the validation set" in output
    assert "translating" not in output
    bare = replace(made_up, data=replace(made_up.data, validation=()))
    train(
        bare, prepare(bare, prepared[0].parent, tmp_path / "bare.store"), tmp_path / "bare", ALONE
    )
    assert "validating" not in capsys.readouterr().err


@pytest.mark.parametrize("stop", ["training.until=bleu=20", "training.patience=3"])
def test_a_goal_needs_a_validation_set(prepared, tmp_path, stop):
    line = f"{stop.replace('=', ' is ', 1)}, but without [[data.validation]] nothing is scored; add it to"
    with pytest.raises(ConfigError, match=re.escape(line)):
        train_from_recipe(
            str(prepared[0]), overrides=[*SMALL, "data.validation=[]", stop], run=tmp_path / "run"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_finite_logits_translates_nothing(prepared):
    model = Transformer(prepared[1].model)
    torch.nn.init.constant_(next(model.parameters()), torch.nan)
    with catch_signals() as signals:
        result = validate(model, prepared[2], prepared[1], ALONE, signals, "padded")
    assert (result.bleu, result.chrf, result.metric, result.samples) == (0.0, 0.0, "bleu", [])


def test_a_run_that_could_not_be_written_is_refused_before_the_data_is_prepared(prepared, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError,
        match=r"file/run cannot be written, because .*file is not a writable folder; choose",
    ):
        train_from_recipe(str(prepared[0]), run=tmp_path / "file/run", store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "settings", [{"ema": 0.5}, {"recompute": True}, {"micro_batches": 3}, {"optimizer": "muon"}]
)
def test_common_options_train(prepared, tmp_path, settings):
    recipe = change(prepared[1], steps=3, validation_sentences=0, **settings)
    assert train(recipe, prepared[2], tmp_path / "run", ALONE).step == 3
    assert Path(tmp_path / "run/last/model.safetensors").is_file()


def test_a_validation_without_memory_is_repeated_and_nothing_is_lost(
    prepared, whole, tmp_path, monkeypatch
):
    score, calls = Scorer.score, count(1)

    def cramped(self, weights, world=None):
        if next(calls) == 2:  # of the last step
            raise torch.OutOfMemoryError("no room")
        return score(self, weights, world)

    monkeypatch.setattr(Scorer, "score", cramped)
    train(prepared[1], prepared[2], tmp_path / "run", ALONE)
    assert_same_run(tmp_path / "run", whole)
    assert losses(tmp_path / "run", "validation") == losses(whole, "validation")


def test_the_end_of_a_run_names_the_best_score_its_folder_and_what_to_do(
    prepared, tmp_path, capsys
):
    run = tmp_path / "run"
    state = train(change(prepared[1], average_checkpoints=1), prepared[2], run, ALONE)
    shown = capsys.readouterr().err
    assert f"best: BLEU {state.best:.1f} from step {state.best_step}, in {run / 'best'}" in shown
    assert f"next: transduce translate --model {run} 'A sentence.'" in shown
    assert f"report: {run / 'report.html'}" in shown


@pytest.mark.parametrize("helps", [False, True])
def test_an_average_is_not_taken_for_the_last_validation(
    helps, prepared, tmp_path, monkeypatch, capsys
):
    """The report shows the model that `translate` uses, and says if averaging hurts."""
    scores = iter([20.0, 23.7, 30.0 if helps else 22.4])

    def scored(*_, **__):
        bleu = next(scores)
        return Validation(2.0, 7.4, bleu, 50.0, ["s"], ["r"], [f"text of {bleu}"])

    monkeypatch.setattr("transduce.training.scoring.validate", scored)
    run = tmp_path / "run"
    state = train(change(prepared[1], average_checkpoints=2), prepared[2], run, ALONE)
    shown = capsys.readouterr().err
    history = read_metrics(run)
    assert history.curve("validation", "bleu") == [(6, 20.0), (12, 23.7)]
    best = 30.0 if helps else 23.7
    assert (history.best["bleu"], load_bundle(run / "best").scores["bleu"]) == (best, best)
    assert f"text of {best}" in (run / "report.html").read_text()
    assert ("averaging did not help: BLEU 22.4 with 2 checkpoints" in shown) is not helps
    origin = "the average of 2 checkpoints" if helps else "step 12"
    assert f"best: BLEU {best} from {origin}" in shown
    assert read_finished(run).best == state.best == best


def test_the_test_set_is_scored_with_the_best_model(prepared, tmp_path, capsys):
    path, recipe, _ = prepared
    recipe = change(replace(recipe, data=load_recipe(str(path), SMALL[:-1]).data), steps=4)
    store = prepare(recipe, path.parent, tmp_path / "store")
    train(recipe, store, tmp_path / "run", ALONE)
    shown = capsys.readouterr().err
    (record,) = read_metrics(tmp_path / "run").of("test")
    assert f"test set, best model  loss {record['loss']:.3f}" in shown
    bundle = load_bundle(tmp_path / "run/best")
    test = bundle.scores["test"]
    assert test["sentences"] == store.test.pairs
    assert test["bleu"] == record["bleu"]
    assert test["signature"].startswith("nrefs:1")

    # It is what `transduce score` computes.
    (corpus,) = recipe.data.test
    texts = [
        (path.parent / name[0]).read_text().splitlines() for name in (corpus.source, corpus.target)
    ]
    found = Translator(bundle, engine="torch", device="cpu").translate(texts[0])
    expected = score([translation.text for translation in found], texts[1]).bleu.value
    assert test["bleu"] == pytest.approx(expected)


def test_all_sentences_of_test_sets_of_different_sizes_are_translated(prepared):
    path, recipe, _ = prepared
    for size, name in ((9, "long"), (2, "short")):
        for language in ("en", "de"):
            lines = (path.parent / f"test.{language}").read_text().splitlines(keepends=True)
            (path.parent / f"{name}.{language}").write_text("".join(lines[:size]))
    corpora = tuple(
        CorpusConfig(source=(f"{name}.en",), target=(f"{name}.de",)) for name in ("long", "short")
    )
    recipe = replace(recipe, data=replace(recipe.data, test=corpora))
    store = prepare(recipe, path.parent, path.parent / "uneven.store")
    model = Transformer(replace(recipe.model, vocab_size=store.target_tokenizer.vocab_size))
    with catch_signals() as signals:
        result = validate(model, store, recipe, ALONE, signals, "packed", test=True)
    assert len(result.hypotheses) == len(result.references) == 11


def test_fine_tuning_shows_its_scores_before_and_on_the_old_text(prepared, tmp_path, capsys):
    first = tmp_path / "first"
    train(prepared[1], prepared[2], first, ALONE)
    capsys.readouterr()
    other = write_phrases(tmp_path, "en", "de", 600, 2)
    few = [each for each in [*SMALL, "training.steps=2"] if "model." not in each]
    few = [each for each in few if "vocab" not in each]
    run = train_from_recipe(str(other), overrides=few, run=tmp_path / "tuned", start_from=first)
    shown = capsys.readouterr().err
    (start, *_), expected = read_metrics(run.path).of("validation"), run.state.start
    assert (start["step"], start["bleu"]) == (0, expected["bleu"])
    announced = ["the validation set", f"the validation text of {first / 'best'}"]
    before_first_step = shown[: shown.index("before fine-tuning")]
    assert re.findall(r"validating: translating (.*)", before_first_step) == announced
    old = f"on the validation text of {first / 'best'}"
    assert re.search(rf"old-text: BLEU [\d.]+ {old}, before fine-tuning", shown)
    assert re.search(rf"old-text: BLEU [\d.]+ {old} \([\d.]+ before\)", shown)
    assert re.search(r"best: BLEU .* \([\d.]+ before fine-tuning\)", shown)


def test_a_loss_of_old_knowledge_gets_advice():
    assert "forgets" not in describe_change(21.4, 21.2, "runs/general")
    assert describe_change(21.4, 17.4, "runs/general").startswith(
        "BLEU 17.4 on the validation text of runs/general (21.4 before); fine-tuning forgets it: "
    )


def test_a_run_says_at_once_how_long_it_will_take(prepared, tmp_path, capsys):
    train(change(prepared[1], steps=1), prepared[2], tmp_path / "run", ALONE)
    assert re.search(
        r"plan: 1 steps are [\d.]+ epochs of [\d,]+ pairs, and take about \w+ \w+ here; precision: (bf16|float32)\n",
        capsys.readouterr().err,
    )


def test_a_model_far_too_large_for_its_text_gets_advice():
    slow = plan(Recipe(), pairs=29_000, epochs=3_448, flops_per_second=5e10)
    assert slow.startswith("100,000 steps are 3,448 epochs of 29,000 pairs, and take about ")
    assert 'so little text suits preset = "small" (5,000 steps of 8,000 tokens, about ' in slow
    fast = plan(Recipe(), pairs=4_500_000, epochs=22, flops_per_second=4e14)
    assert "suits" not in fast
    quick = plan(Recipe(), pairs=4_500_000, epochs=22, flops_per_second=1e22)
    assert quick.endswith("and take about a second here")


def edit(checkpoint, change):
    """Change the progress of a checkpoint, and seal it again."""
    file = checkpoint / "progress.json"
    file.write_text(change(json.loads(file.read_text())))
    (checkpoint / "MANIFEST.json").unlink()
    seal_folder(checkpoint, CHECKPOINT)


def with_value(name, value):
    return lambda progress: json.dumps({**progress, name: value})


@pytest.mark.parametrize(
    "change",
    [
        lambda progress: "not JSON",
        lambda progress: "[" * 100_000,
        lambda progress: "[1]",
        lambda progress: json.dumps({"best": 1}),
        *(with_value("step", value) for value in (None, "12", 11.5, 10**30, True)),
        *(with_value(name, "text") for name in ("best", "latest", "scores", "stale", "tokenizers")),
        with_value("scores", {"12": "text"}),
        with_value("hooks", []),
    ],
)
def test_a_checkpoint_with_edited_progress_is_named_and_the_one_before_used(
    change, prepared, whole, tmp_path, capsys
):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "finished.json").unlink()
    edit(run / "checkpoints/step-000012", change)
    assert train(prepared[1], prepared[2], run, ALONE).step == 12
    shown = capsys.readouterr().err
    assert "resumed: after step 8, the newest intact checkpoint: " in shown
    assert "step-000012/progress.json" in shown


def cut(name, tensors):
    return {**tensors, name: tensors[name][:3].clone()}


def widen(name, tensors):
    return {**tensors, name: tensors[name].double()}


def add(name, tensors):
    return {**tensors, f"decoder.7.{name}": tensors[name].clone()}


def leave_out(name, tensors):
    return {other: tensor for other, tensor in tensors.items() if other != name}


@pytest.mark.parametrize(
    ("group", "change", "found"),
    [
        ("model", cut, "NAME is F32 [3, 32], but F32 ["),
        ("model", widen, "NAME is F64 ["),
        ("model", add, "it has decoder.7.NAME, which is not in the model"),
        ("model", leave_out, "it lacks NAME"),
        ("optimiser", cut, "NAME is F32 [3, 32], but the weight is F32 ["),
        ("optimiser", widen, "NAME is F64 ["),
        ("optimiser", add, "decoder.7.NAME belongs to no weight of the model"),
        ("optimiser", leave_out, "it lacks a part of the state of "),
        (
            "optimiser",
            lambda _, tensors: tensors | {"group 1/lr:int": _NAN[0]},
            "group 1/lr:int is",
        ),
    ],
)
def test_a_checkpoint_with_other_tensors_is_named_and_the_one_before_used(
    group, change, found, prepared, whole, tmp_path, capsys
):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "finished.json").unlink()
    newest = load_newest(run / "checkpoints")
    groups = {name: newest.tensors(name) for name in newest.groups}
    name = next(name for name, tensor in groups[group].items() if tensor.ndim == 2)
    groups[group] = change(name, groups[group])
    shutil.rmtree(newest.path)
    save_checkpoint(run / "checkpoints", 12, groups, newest.progress)
    assert train(prepared[1], prepared[2], run, ALONE).step == 12
    shown = capsys.readouterr().err
    assert "resumed: after step 8, the newest intact checkpoint: " in shown
    assert (
        f"step-000012/{group}.safetensors is not of this run: {found.replace('NAME', name)}"
        in shown
    )


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ({"step": None}, "it has no step"),
        ({"step": math.inf}, "step is 'inf'; expected a whole number"),
        ({"step": "12"}, "step is '12'; expected a whole number"),
        ({"step": 4}, "best_step is 12, after step 4"),
        ({"latest": {"loss": -2.5}}, "latest has the loss -2.5; expected one that is not negative"),
        ({"judged_by": "loss", "best": -3.5}, "best has the loss -3.5; expected"),
        ({"judged_by": "loss", "scores": {"6": -4.5}}, "scores has the loss -4.5; expected"),
        ({"best": 1e9}, "best has the score 1e+09; expected one from 0 to 100"),
        ({"judged_by": "luck"}, "judged_by is 'luck'; expected 'bleu' or 'loss'"),
    ],
)
def test_a_finished_file_that_was_edited_is_named_and_the_checkpoint_used(
    content, found, prepared, whole, tmp_path, capsys
):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    written = (run / FINISHED).read_bytes()
    if isinstance(content, dict):
        content = json.dumps({**json.loads(written), **content})
    (run / FINISHED).write_text(content)
    train(prepared[1], prepared[2], run, ALONE)
    shown = capsys.readouterr().err
    assert f"{run / FINISHED} was changed: {found}" in shown
    assert "; the newest checkpoint is used instead\n" in shown
    assert (run / FINISHED).read_bytes() == written


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"0" * 64, b"0" * 64 + b" a\0b"])
def test_a_note_of_the_start_that_was_edited_is_refused(content, tmp_path):
    (tmp_path / "started-from.txt").write_bytes(content)
    with pytest.raises(CheckpointError, match="does not have the fingerprint and the path"):
        started_from(tmp_path)


def test_a_finished_run_has_its_loss_as_it_is(prepared, tmp_path):
    recipe = change(prepared[1], validation_sentences=0, steps=6)
    state = train(recipe, prepared[2], tmp_path / "run", ALONE)
    written = json.loads((tmp_path / "run/finished.json").read_text())
    assert written["best"] == pytest.approx(-state.best)
    assert written["best"] > 0
    assert written["latest"]["loss"] > 0
    assert read_finished(tmp_path / "run") == state
    del written["format"]  # the first format had negated losses
    written |= {"best": state.best, "latest": state.latest, "scores": state.scores}
    assert RunState.from_json(written) == state


def test_a_bundle_says_which_version_and_which_text_made_it(prepared, whole):
    provenance = load_bundle(whole / "best").provenance
    assert provenance["transduce"] == metadata.version("transduce")
    assert provenance["corpora"] == {"train": prepared[2].train.pairs}
    assert re.fullmatch(r"[0-9a-f]{40}\+?", provenance.get("commit", "0" * 40))
