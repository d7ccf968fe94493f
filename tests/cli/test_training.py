"""The commands about training: their arguments reach the functions that do the work."""

from pathlib import Path

import pytest

from transduce.cli.commands import run
from transduce.recipe import load_recipe
from transduce.training import train as training
from transduce.training.run import Run
from transduce.training.run_state import RunState


def test_the_value_of_an_option_is_no_setting(monkeypatch):
    seen = []
    monkeypatch.setattr(
        training, "train", lambda *given, **named: seen.append((given, named)) or Run("r")
    )
    assert (
        run(["train", "--run", "training.steps=5", "base", "--store=data.v=2", "training.steps=7"])
        == 0
    )
    ((given, named),) = seen
    assert (given, named["overrides"]) == (("base",), ("training.steps=7",))
    assert (named["run"], named["store"]) == (Path("training.steps=5"), Path("data.v=2"))


def test_until_overrides_the_setting(tmp_path, monkeypatch):
    seen, recipe = [], tmp_path / "r.toml"
    recipe.write_text('[training]\nuntil = "bleu=10"\n')
    monkeypatch.setattr(
        training,
        "train",
        lambda name, overrides, **_: seen.append(load_recipe(name, overrides)) or Run("r"),
    )
    for arguments in (
        [],
        ["--until", "bleu=30"],
        ["--until", "bleu=30", "training.until=bleu=20"],
        ["--until", ""],
    ):
        assert run(["train", str(recipe), *arguments]) == 0
    assert [recipe.training.until for recipe in seen] == ["bleu=10", "bleu=30", "bleu=30", ""]


@pytest.mark.parametrize(("signal", "status"), [("", 0), ("SIGTERM", 143), ("SIGINT", 130)])
def test_a_training_that_a_signal_stopped_has_its_own_status(monkeypatch, signal, status):
    monkeypatch.setattr(training, "train", lambda *_, **__: Run("r", RunState(stopped_by=signal)))
    assert run(["train", "base"]) == status
