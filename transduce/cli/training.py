"""The commands about training: describe a model, train it, and watch a run."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from transduce.cli.arguments import Command, Help
from transduce.cli.options import Overrides

if TYPE_CHECKING:
    from transduce.training.run import Run


def describe(
    recipe: Annotated[str, Help("a recipe file, or the name of a preset such as base")],
    overrides: Overrides = (),
    *,
    batch_tokens: Annotated[
        int, Help("source and target tokens in a training batch, for the memory estimate")
    ] = 25_000,
    batch_sentences: Annotated[
        int, Help("sentences that are decoded together, for the memory estimate")
    ] = 64,
) -> None:
    """Show a model: layers, parameters, FLOPs and memory.

    Settings that differ from the base model of the paper are listed.

    Examples:
        transduce describe big
        transduce describe base model.N=2
    """
    from transduce.recipe import load_recipe

    # A mistake in the recipe is reported before torch is imported.
    settings = load_recipe(recipe, overrides)
    from transduce.describe import describe as describe_model

    print(describe_model(settings, batch_tokens=batch_tokens, batch_sentences=batch_sentences))


def train(
    recipe: Annotated[str, Help("a recipe file")],
    overrides: Annotated[
        tuple[str, ...],
        Help("settings to change, such as training.steps=50000", value="SETTING=VALUE"),
    ] = (),
    *,
    run: Annotated[
        Path | None,
        Help(
            "run folder (default: runs/ and the recipe's name; for recipe.toml, its folder's name)",
            value="FOLDER",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        Help("folder of the prepared tokens (default: next to the recipe)", value="FOLDER"),
    ] = None,
    start_from: Annotated[
        Path | None, Help("fine-tune this model instead of a new one", value="FOLDER")
    ] = None,
    until: Annotated[
        str | None,
        Help("stop at a score, such as bleu=25; '' turns training.until off", value="SCORE"),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, Help("where to train (default: a GPU if there is one)")
    ] = None,
) -> None:
    """Train a model, or continue a run.

    The text is prepared first if that is needed. If the command is interrupted, start it again:
    the run continues from its last checkpoint. With torchrun, one model is trained on several GPUs.

    Examples:
        transduce train en-de.toml
        transduce train en-de.toml training.steps=50000 --run runs/en-de
        torchrun --nproc-per-node 8 -m -- transduce train en-de.toml
    """
    from transduce.recipe import load_recipe

    if until is not None:
        overrides = (*overrides, f"training.until={until}")
    load_recipe(recipe, overrides)  # a mistake in it is reported before torch is imported
    from transduce.training import train as training

    finished_run = training.train(
        recipe, overrides=overrides, run=run, store=store, start_from=start_from, device=device
    )
    if status := stop_status(finished_run):
        sys.exit(status)


def stop_status(run: Run) -> int:
    """Return the exit status that a shell gives for the signal that stopped a run, or 0.

    By it, a script sees that the training is not finished.
    """
    stopped_by = run.state.stopped_by if run.state else ""
    return 128 + signal.Signals[stopped_by] if stopped_by else 0


def watch(
    run: Annotated[Path, Help("the run folder that transduce train writes")],
    *,
    once: Annotated[bool, Help("print the current state once and exit")] = False,
) -> None:
    """Show the progress of a run: loss, BLEU, speed, time left.

    Examples:
        transduce watch runs/en-de
        transduce watch runs/en-de --once
    """
    from transduce.monitoring.watch import watch as watch_run

    watch_run(run, once=once)


def compare(
    runs: Annotated[tuple[Path, ...], Help("the run folders", value="RUN")],
    *,
    test: Annotated[
        bool,
        Help(
            "translate the test text of the runs (or their validation text) with each best model, "
            "and compare the runs with the first one by a paired significance test"
        ),
    ] = False,
) -> None:
    """Compare training runs: scores, time and curves.

    Examples:
        transduce compare runs/small runs/base
        transduce compare runs/small runs/base --test
    """
    from rich.console import Console

    from transduce.monitoring.comparison import compare_runs

    console = Console(highlight=False)
    compare_runs(runs, console)
    if not test:
        words = ["transduce", "compare", *map(str, runs), "--test"]
        hint = f"whether a difference is more than chance: {shlex.join(words)}"
        console.print(hint, markup=False, soft_wrap=True)
        return
    from transduce.evaluation.runs import compare_translations
    from transduce.evaluation.show import print_table

    print_table(compare_translations(runs), console)


COMMANDS: dict[str, Command] = {
    "describe": describe,
    "train": train,
    "watch": watch,
    "compare": compare,
}
