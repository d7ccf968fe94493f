"""Every example runs from nothing in seconds, is short, and does what it says."""

import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "copy_task.py": r"copied without a mistake: (100|9\d)%",
    "train_from_python.py": r"Run\(run: .*BLEU (100|9\d)(.|\n)*four zero seven",
    "experiment_tracker.py": r"10 \{.*'step/loss': \d(.|\n)*'validation/bleu': \d",
    "own_attention.py": r"sinusoidal +validation loss \d.\d+ \+- (.|\n)*ALiBi +validation loss \d.\d+ \+- ",
    "own_optimizer.py": r"Run\(run: (.|\n)*four zero seven",
    "attention_map.py": r"3 1 4 1 5  ->  three one four one five",
    "fine_tune_and_export.py": r"general +BLEU +\d(.|\n)*tuned +BLEU +\d(.|\n)*is ready; .* are the same",
}


# What the examples of the default run print after very few steps.
SHORT = {
    "experiment_tracker.py": SAYS["experiment_tracker.py"],
    "own_attention.py": SAYS["own_attention.py"],
    "attention_map.py": r"3 1 4 1 5  ->  (.|\n)*where each word was read from: ",
}


def run(name, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0"}
    arguments = [] if name == "copy_task.py" else [str(folder)]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_and_does_what_it_says(name, tmp_path):
    assert re.search(SAYS[name], run(name, tmp_path)), name


# The parts of the others are in the notebook and in the tests of training and export.
@pytest.mark.parametrize("name", SHORT)
def test_an_example_runs_with_few_steps(name, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES)
    digits = importlib.import_module("digits")
    recipe = digits.recipe

    def short_recipe(folder, steps=0, pairs=0, **model):
        return recipe(folder, steps=12, pairs=300, **model)

    monkeypatch.setattr(digits, "recipe", short_recipe)
    runpy.run_path(str(EXAMPLES / name))["main"](tmp_path)
    assert re.search(SHORT[name], capsys.readouterr().out), name
    if name in ("own_attention.py", "attention_map.py"):
        (picture,) = tmp_path.glob("*.svg")
        assert len(list(ElementTree.parse(picture).iter())) >= 8


def test_examples_are_short_and_all_of_them_run():
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert lengths.keys() - {"digits.py"} == SAYS.keys()
    assert [name for name, lines in lengths.items() if lines > 60] == []


def test_the_list_of_examples_names_each():
    listed = (EXAMPLES / "README.md").read_text()
    assert all(name in listed for name in SAYS)


STAND_INS = {
    "wandb": """
class Run:
    def log(self, numbers, step):
        print("wandb", step, sorted(numbers))
def init(project):
    return Run()
""",
    "mlflow": """
def set_experiment(name): pass
def start_run(): pass
def log_metrics(numbers, step):
    print("mlflow", step, sorted(numbers))
""",
}


@pytest.mark.parametrize("tracker", STAND_INS)
def test_a_tracker_of_experiments_gets_the_numbers_of_a_record(
    tracker, tmp_path, monkeypatch, capsys
):
    (tmp_path / f"{tracker}.py").write_text(STAND_INS[tracker])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, tracker, raising=False)
    example = runpy.run_path(str(EXAMPLES / "experiment_tracker.py"))
    send = example[f"to_{tracker}"]("project")
    record = {"kind": "validation", "step": 50, "bleu": 9.5, "samples": ["text"], "done": True}
    assert not send(record)  # a true value would end the run
    assert capsys.readouterr().out == f"{tracker} 50 ['validation/bleu']\n"
    sys.modules.pop(tracker)
