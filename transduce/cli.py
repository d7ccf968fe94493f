"""The command line: each subcommand calls one function. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import tyro
from tyro.conf import Positional

from transduce.errors import DataError, TransduceError


def describe(
    recipe: Positional[str],
    overrides: Positional[tuple[str, ...]] = (),
    *,
    batch_tokens: int = 25_000,
    batch_sentences: int = 64,
) -> None:
    """Show a model: its layers and parameters, what differs from the paper's base, FLOPs and memory.

    Example: transduce describe base model.N=2

    Args:
        recipe: A preset (base, big, table3-A-h1, ...) or a recipe file.
        overrides: Settings to change, such as model.N=2.
        batch_tokens: Source and target tokens of a training batch, for the memory estimate.
        batch_sentences: Sentences decoded at once, for the memory estimate.
    """
    from transduce.describe import describe as text
    from transduce.recipe import load_recipe

    print(text(load_recipe(recipe, overrides), batch_tokens=batch_tokens, batch_sentences=batch_sentences))


def doctor(
    corpus: Positional[tuple[str, ...]],
    *,
    test: tuple[str, ...] = (),
    source_language: str | None = None,
    target_language: str | None = None,
    json: Path | None = None,
    out: Path | None = None,
    processes: int | None = None,
) -> None:
    """Say what is wrong with parallel text, and write a cleaned copy of it.

    Example: transduce doctor train.en train.de --test test.en test.de --out cleaned

    Args:
        corpus: Parallel files two by two, containers (.tsv, .jsonl, .tmx, .parquet) or a recipe, then overrides such
            as data.clean.max_words=100.
        test: Files of validation and test sets, whose sentences may not be in the corpus.
        source_language: Its code; by default what the files are named after.
        target_language: Its code; by default what the files are named after.
        json: A new file for the report as JSON.
        out: A new folder for the cleaned corpus, with dropped.tsv beside it.
        processes: How many work at once; by default one for each core, up to 8.
    """
    from rich.console import Console

    from transduce.data.cleaned import refuse_existing, write_whole
    from transduce.data.doctor import examine, from_arguments
    from transduce.data.report import print_report, shown_progress

    if json:
        refuse_existing(json)
    data, base = from_arguments(corpus, test, source_language, target_language)
    with shown_progress(Console(stderr=True)) as progress:
        workers = processes or min(os.cpu_count() or 1, 8)
        report = examine(data, base, out=out, processes=workers, progress=progress)
    print_report(report, Console())
    if json:
        write_whole(json, report.to_json())
    if report.errors:
        raise DataError("; ".join(report.errors))


def prepare(
    recipe: Positional[str],
    overrides: Positional[tuple[str, ...]] = (),
    *,
    out: Path | None = None,
    workers: int = 0,
) -> None:
    """Make a recipe's token store: clean, learn the tokenizer, tokenise; goes on where it stopped.

    Example: transduce prepare en-de.toml data.tokenizer.vocab_size=32000

    Args:
        recipe: A recipe file; the paths in it start from its folder.
        overrides: Settings to change, such as data.max_tokens=256.
        out: Where the store goes; en-de.toml makes en-de.store next to it.
        workers: Processes at work; 0 for one for each core.
    """
    from transduce.data.prepare import default_store
    from transduce.data.prepare import prepare as make
    from transduce.data.summary import summary
    from transduce.recipe import load_recipe

    settings, folder = load_recipe(recipe, overrides), out or default_store(recipe)
    say = functools.partial(print, file=sys.stderr, flush=True)
    store = make(settings, Path(recipe).parent, folder, workers=workers, verify=True, say=say)
    print(summary(store, settings))


COMMANDS: dict[str, Callable[..., None]] = {"describe": describe, "doctor": doctor, "prepare": prepare}


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status. An error that a user caused is one line on stderr and status 2."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"transduce {metadata.version('transduce')}")
        return 0
    try:
        command = _parse(arguments)
        command()
    except TransduceError as error:
        print(f"transduce: {error}", file=sys.stderr)
        return 2
    except SystemExit as stop:
        return int(stop.code or 0)
    except BrokenPipeError:  # the reader of our output went away: nothing to say, nobody to say it to
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("transduce: interrupted", file=sys.stderr)
        return 130
    return 0


def _overview() -> str:
    lines = ["usage: transduce COMMAND ...", "", "commands:"]
    for name, command in COMMANDS.items():
        lines.append(f"  {name:<10} {(command.__doc__ or '').partition(chr(10))[0]}")
    lines += [
        "",
        "transduce COMMAND --help shows a command's options and an example.",
        "transduce --version prints the version.",
        "transduce --tyro-print-completion bash (or zsh, tcsh) prints a shell completion script.",
    ]
    return "\n".join(lines)


def _parse(arguments: Sequence[str]) -> Callable[[], None]:
    """The command with its arguments bound. Parsing is apart from running so that its errors become one line."""

    def deferred(command: Callable[..., None]) -> Callable[..., Any]:
        @functools.wraps(command)
        def bind(*args: Any, **kwargs: Any) -> Callable[[], None]:
            return functools.partial(command, *args, **kwargs)

        return bind

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            commands = {name: deferred(command) for name, command in COMMANDS.items()}
            bound: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
                commands, prog="transduce", args=list(arguments)
            )
            return bound
    except SystemExit as stop:
        if stop.code == 2:
            raise TransduceError(_one_line(complaint.getvalue())) from None
        raise


def _one_line(box: str) -> str:
    """The first and the last section of the parser's message, which it draws in a box under a title."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    text = "\n".join("" if not line.strip("─-╰╯") else line for line in lines)
    sections = [" ".join(section.split()) for section in text.split("\n\n")]
    sections = [section for section in sections if section]
    return "; ".join(sections[:1] + sections[1:][-1:])
