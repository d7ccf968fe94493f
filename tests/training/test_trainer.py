"""`transduce train`: never lose a step, stop when told, keep what is best."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from transduce.bundle import load_bundle
from transduce.checkpoint import checkpoints, load_newest
from transduce.data.phrases import write_phrases
from transduce.data.prepare import prepare
from transduce.errors import CheckpointError, ConfigError
from transduce.recipe import load_recipe
from transduce.training.metrics import read_metrics
from transduce.training.parallel import World
from transduce.training.trainer import Trainer, train

_NAN = torch.full((2,), torch.nan)
ALONE = World(0, 1, torch.device("cpu"))
SMALL = [
    "model.N=1", "model.d_model=32", "model.d_ff=64", "model.h=2", "model.d_k=16", "model.d_v=16", "model.p_drop=0.1",
    "data.tokenizer.vocab_size=500", "training.steps=12", "training.tokens_per_step=600", "training.report_every=1",
    "training.validate_every=6", "training.validation_sentences=3", "training.save_every=4",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A recipe file and its store."""
    folder = tmp_path_factory.mktemp("phrases")
    path = write_phrases(folder, "en", "de", 1_500, 1)
    recipe = load_recipe(str(path), SMALL)
    return path, recipe, prepare(recipe, folder, folder / "recipe.store")


@pytest.fixture(scope="module")
def whole(made, tmp_path_factory):
    """A run that nobody disturbs."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    train(made[1], made[2], run, ALONE)
    return run


def losses(run):
    return [(step, loss) for step, loss, *_ in read_metrics(run).curve("step", "loss")]


def reached(run):
    try:
        return max([0, *dict(losses(run))])
    except CheckpointError:  # nothing is written yet
        return 0


def weights(run):
    return load_newest(run / "checkpoints").tensors("model")


def assert_same_run(run, other):
    assert losses(run) == losses(other)
    mine, theirs = weights(run), weights(other)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert load_bundle(run / "last").fingerprint == load_bundle(other / "last").fingerprint


def change(recipe, **training):
    return replace(recipe, training=replace(recipe.training, **training))


def test_a_run_leaves_checkpoints_bundles_metrics_and_a_report(whole):
    assert [path.name for path in checkpoints(whole / "checkpoints")] == ["step-000004", "step-000008", "step-000012"]
    assert (whole / "report.html").is_file()
    assert load_bundle(whole / "best").scores.keys() >= {"loss", "perplexity", "bleu", "chrf"}
    assert len(losses(whole)) == 12


def test_a_run_that_was_stopped_and_goes_on_is_bit_identical(made, whole, tmp_path, monkeypatch):
    step = Trainer._step

    def stopped(self, micro_batches, target_tokens, number):
        if number == 5:
            signal.raise_signal(signal.SIGTERM)
        return step(self, micro_batches, target_tokens, number)

    monkeypatch.setattr(Trainer, "_step", stopped)
    assert train(made[1], made[2], tmp_path / "run", ALONE).step == 5
    monkeypatch.undo()
    assert train(made[1], made[2], tmp_path / "run", ALONE).step == 12
    assert_same_run(tmp_path / "run", whole)


def test_a_finished_run_stays_as_it_is_and_more_steps_go_on(made, whole, tmp_path, capsys):
    before = (whole / "metrics.jsonl").read_bytes()
    train(made[1], made[2], whole, ALONE)
    assert "is finished" in capsys.readouterr().out
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_another_recipe_in_the_same_folder_is_refused(made, whole):
    other = replace(made[1], model=replace(made[1].model, d_ff=128))
    with pytest.raises(ConfigError, match=r"was begun with model.d_ff = 64, not 128; choose another folder with --run"):
        train(other, made[2], whole, ALONE)


def test_a_run_stops_at_its_goal_and_when_nothing_gets_better(made, tmp_path):
    goal = change(made[1], until="loss=1000", validate_every=2)
    assert train(goal, made[2], tmp_path / "goal", ALONE).step == 2
    patient = change(made[1], patience=1, validate_every=1, learning_rate=1e-12, validation_sentences=0)
    assert train(patient, made[2], tmp_path / "patience", ALONE).step < 12


def test_steps_that_are_not_finite_are_skipped_counted_and_end_the_run(made, tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.training.step.projected_loss", lambda _, hidden, *__: hidden.sum() * _NAN)
    with pytest.raises(CheckpointError, match="10 steps in a row were not finite"):
        train(change(made[1], validate_every=100), made[2], tmp_path / "run", ALONE)
    events = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert any(event.get("event") == "skipped" for event in events)


def test_fine_tuning_starts_from_a_bundle_and_refuses_another_model(made, whole, tmp_path):
    short = change(made[1], steps=1, learning_rate=1e-12, average_checkpoints=1)
    train(short, made[2], tmp_path / "tuned", ALONE, start_from=whole / "last")
    tuned, start = weights(tmp_path / "tuned"), load_bundle(whole / "last").weights()
    assert all(torch.allclose(tuned[name], start[name], atol=1e-6) for name in start)
    other = replace(made[1], model=replace(made[1].model, N=2))
    with pytest.raises(ConfigError, match=r"has another model.N; fine-tuning needs the same model"):
        train(other, made[2], tmp_path / "other", ALONE, start_from=whole / "last")


@pytest.mark.parametrize("settings", [{"ema": 0.5}, {"recompute": True}, {"micro_batches": 3}, {"optimiser": "muon"}])
def test_what_users_expect_today_trains(made, tmp_path, settings):
    recipe = change(made[1], steps=3, validation_sentences=0, **settings)
    assert train(recipe, made[2], tmp_path / "run", ALONE).step == 3
    assert Path(tmp_path / "run/last/model.safetensors").is_file()
