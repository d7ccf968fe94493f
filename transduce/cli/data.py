"""The commands about text: make a recipe, fetch a corpus, examine, clean and tokenize."""

from __future__ import annotations

import functools
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

from transduce.cli.arguments import Command, Help
from transduce.cli.options import Overrides
from transduce.cores import available_cores
from transduce.errors import DataError, InputError


def new(
    folder: Annotated[Path, Help("the new folder")],
    *,
    source: Annotated[
        Path,
        Help(
            "training text; or a file with both languages (.tsv, .jsonl, .tmx, .parquet), or a "
            "folder of such files"
        ),
    ],
    target: Annotated[Path | None, Help("its translation, line by line")] = None,
    valid_source: Annotated[
        Path | None, Help("validation text (default: the last pairs of the training text)")
    ] = None,
    valid_target: Annotated[Path | None, Help("its translation, line by line")] = None,
    source_language: Annotated[
        str | None, Help("language code (default: from the file names)", value="CODE")
    ] = None,
    target_language: Annotated[
        str | None, Help("language code (default: from the file names)", value="CODE")
    ] = None,
    preset: Annotated[
        str | None, Help("the model (default: chosen by the size of the text)", value="PRESET")
    ] = None,
) -> None:
    """Create a folder with a recipe for your own parallel text.

    Afterwards, transduce train FOLDER/recipe.toml trains a model.

    Examples:
        transduce new en-de --source train.en --target train.de
        transduce new en-de --source pairs.tsv --preset base
        transduce new en-de --source translation-memories
    """
    from transduce.data.starter import write_starter

    validation = None
    if valid_source and valid_target:
        validation = (valid_source, valid_target)
    elif valid_source or valid_target:
        raise InputError("only one of --valid-source and --valid-target is given; give both")

    recipe = write_starter(
        folder,
        source,
        target,
        validation=validation,
        source_language=source_language,
        target_language=target_language,
        preset=preset,
        say=functools.partial(print, file=sys.stderr, flush=True),
    )
    print(f"{recipe} is ready; next: transduce train {shlex.quote(str(recipe))}")


def data(
    action: Annotated[
        Literal["list", "get"], Help("list: show all corpora, or the parts of one; get: fetch one")
    ],
    name: Annotated[str, Help("the corpus to show or to fetch")] = "",
    *,
    out: Annotated[
        Path | None, Help("folder for the files (default: data/NAME)", value="FOLDER")
    ] = None,
    mirror: Annotated[
        Path | None,
        Help("folder with the downloaded files; nothing is downloaded", value="FOLDER"),
    ] = None,
    source: Annotated[str, Help("language to translate from (default: en)", value="LANGUAGE")] = "",
    target: Annotated[
        str, Help("language to translate to (default: the other one)", value="LANGUAGE")
    ] = "",
    pairs: Annotated[int, Help("only for phrases: number of sentence pairs to generate")] = 50_000,
    seed: Annotated[int, Help("only for phrases: seed of the random generator")] = 1,
    accept_changes: Annotated[
        bool, Help("accept a file that differs from the one that was fetched before")
    ] = False,
) -> None:
    """List the known corpora, or fetch one together with a recipe.

    Examples:
        transduce data list
        transduce data list wmt14-en-de
        transduce data get multi30k-en-de --out multi30k
    """
    from transduce.corpora.catalogue import details, listing
    from transduce.corpora.get import get

    if action == "list":
        print(details(name) if name else listing())
        return
    recipe = get(
        name,
        out or Path("data") / name,
        languages=(source, target),
        mirror=mirror,
        pairs=pairs,
        seed=seed,
        accept_changes=accept_changes,
    )
    print(f"{name} is ready; next: transduce train {shlex.quote(str(recipe))}")


def doctor(
    corpus: Annotated[
        tuple[str, ...],
        Help(
            "pairs of parallel files, files that contain both languages (.tsv, .jsonl, .tmx, "
            ".parquet), folders of such files, or a recipe; then settings such as "
            "data.clean.max_words=100",
            value="FILE",
        ),
    ],
    *,
    test: Annotated[
        tuple[str, ...],
        Help("validation and test sets, which must not overlap the corpus", "FILE", several=True),
    ] = (),
    source_language: Annotated[
        str | None, Help("language code (default: from the file names)", value="CODE")
    ] = None,
    target_language: Annotated[
        str | None, Help("language code (default: from the file names)", value="CODE")
    ] = None,
    json: Annotated[Path | None, Help("also write the report as JSON to this new file")] = None,
    out: Annotated[
        Path | None,
        Help("write the cleaned corpus and dropped.tsv to this new folder", value="FOLDER"),
    ] = None,
    processes: Annotated[
        int | None, Help("number of processes (default: one for each CPU core, at most 8)")
    ] = None,
) -> None:
    """Find the problems of parallel text, and write a cleaned copy.

    Examples:
        transduce doctor train.en train.de
        transduce doctor translation-memories
        transduce doctor train.en train.de --test test.en test.de --out cleaned
    """
    from rich.console import Console

    from transduce.data.cleaning.cleaned_corpus import try_writing, write_whole
    from transduce.data.cleaning.doctor import examine, from_arguments, next_command
    from transduce.data.cleaning.report import print_report, shown_progress

    if json:
        try_writing(json)  # a report that cannot be written is an error before the work
    corpus_settings, base = from_arguments(corpus, test, source_language, target_language)
    workers = processes or min(available_cores(), 8)
    with shown_progress(Console(stderr=True)) as progress:
        report = examine(corpus_settings, base, out=out, processes=workers, progress=progress)
    print_report(report, Console())
    if json:
        write_whole(json, report.to_json())
    if report.errors:
        raise DataError("; ".join(report.errors))
    if not report.verdict.usable:
        raise DataError(f"{' and '.join(corpus)}: {report.verdict.text}")
    print(f"next: {next_command(corpus, out)}")


def prepare(
    recipe: Annotated[str, Help("a recipe file; paths in it are relative to its folder")],
    overrides: Overrides = (),
    *,
    out: Annotated[
        Path | None,
        Help("folder for the tokens (default: en-de.store for en-de.toml)", value="FOLDER"),
    ] = None,
    workers: Annotated[int, Help("number of processes; 0 is one for each CPU core")] = 0,
) -> None:
    """Clean and tokenize the text of a recipe.

    transduce train does the same if it is needed. If the command is interrupted, start it
    again: it continues.

    Examples:
        transduce prepare en-de.toml
        transduce prepare en-de.toml data.tokenizer.vocab_size=32000
    """
    from transduce.data.prepare import default_store
    from transduce.data.prepare import prepare as prepare_store
    from transduce.data.summary import summary
    from transduce.recipe import load_recipe

    settings = load_recipe(recipe, overrides)
    store = prepare_store(
        settings,
        Path(recipe).parent,
        out or default_store(recipe),
        workers=workers,
        verify=True,
        say=functools.partial(print, file=sys.stderr, flush=True),
    )
    print(summary(store, settings))


COMMANDS: dict[str, Command] = {"new": new, "data": data, "doctor": doctor, "prepare": prepare}
