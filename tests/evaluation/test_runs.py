"""`transduce compare --test`: runs are compared on the text that they share."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.monitoring.conftest import Run
from transduce.cli.commands import run as run_command
from transduce.corpora.phrases import write_phrases
from transduce.data.prepare import prepare
from transduce.errors import InputError
from transduce.evaluation import runs
from transduce.recipe import load_recipe


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two stores with different text."""
    made = []
    for seed in (1, 2):
        folder = tmp_path_factory.mktemp("text")
        recipe = load_recipe(
            str(write_phrases(folder, "en", "de", 400, seed)), ["data.tokenizer.vocab_size=400"]
        )
        made.append(prepare(recipe, folder, folder / "store"))
    return made


def test_runs_are_tested_on_their_test_text(stores, monkeypatch):
    sources, references = stores[0].test.texts("test")
    right = dict(zip(sources, references, strict=True))

    class Translator:
        """Knows the references; "bad" loses their first words."""

        def __init__(self, run):
            self.start = 6 if run.name == "bad" else 0

        def translate(self, texts):
            return [SimpleNamespace(text=right[text][self.start :], notices=()) for text in texts]

    monkeypatch.setattr(runs, "_require_store", lambda run: stores[0])
    monkeypatch.setattr(runs, "Translator", Translator)
    table = runs.compare_translations([Path("bad"), Path("good")])
    assert table.title == f"test text: {len(sources)} sentences, translated with the best models"
    assert table.rows[1][1].startswith("100.00 ")
    (verdict,) = table.notes
    assert verdict.startswith("good: BLEU +")
    assert "against bad, significant (p = 9.999e-05, " in verdict
    assert verdict.endswith("approximate randomization with 10,000 trials)")


def test_runs_with_different_text_are_not_tested(stores, monkeypatch):
    found = dict(zip(("one", "two"), stores, strict=True))
    monkeypatch.setattr(runs, "_require_store", lambda run: found[run.name])
    with pytest.raises(InputError, match="one and two have different test text; compare the"):
        runs.shared_text([Path("one"), Path("two")])


def test_a_run_whose_text_is_gone_is_named(tmp_path, capsys):
    for name in ("one", "two"):
        Run(tmp_path / name).go(last=50)
    capsys.readouterr()
    assert run_command(["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--test"]) == 2
    shown = capsys.readouterr().err
    assert f"the text of {tmp_path / 'one'} is gone; compare the runs on other text: " in shown
