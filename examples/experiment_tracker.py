"""Metrics in Weights & Biases or MLflow: a callback sends every number as it is measured.

python examples/experiment_tracker.py [FOLDER]      (pip install wandb, or mlflow; without either, it prints)
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import digits

import transduce


def numbers_of(record: dict) -> dict[str, float]:
    """The numbers of a record, named like "validation/bleu"."""
    kinds = {name: value for name, value in record.items() if name != "step" and type(value) in (int, float)}
    return {f"{record['kind']}/{name}": value for name, value in kinds.items()}


def to_wandb(project: str):
    """A callback for Weights & Biases."""
    run = import_module("wandb").init(project=project)
    return lambda record: run.log(numbers_of(record), step=record["step"])


def to_mlflow(experiment: str):
    """A callback for MLflow."""
    mlflow = import_module("mlflow")
    mlflow.set_experiment(experiment)
    mlflow.start_run()
    return lambda record: mlflow.log_metrics(numbers_of(record), step=record["step"])


def to_the_terminal(record: dict) -> None:
    print(record["step"], numbers_of(record))


def main(folder: Path = Path("runs/examples/tracked")) -> None:
    # A callback gets every record of metrics.jsonl; only steps and validations have numbers to plot.
    send = to_the_terminal
    if find_spec("wandb"):
        send = to_wandb("transduce")
    elif find_spec("mlflow"):
        send = to_mlflow("transduce")

    def track(record: dict) -> None:
        if record["kind"] in ("step", "validation"):
            send(record)

    recipe = digits.recipe(folder / "text", steps=50)
    transduce.train(recipe, run=folder / "run", device="cpu", callbacks=[track])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
