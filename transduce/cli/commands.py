"""The commands of the command line, one function each.

A function imports what it needs when it runs, so that `--help` and mistakes need no torch.
"""

from __future__ import annotations

import functools
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from transduce.cli import program
from transduce.cli.arguments import Command, Help
from transduce.errors import DataError, InputError

# Arguments that several commands have.
Overrides: TypeAlias = Annotated[
    tuple[str, ...], Help("settings to change, such as model.N=2", value="SETTING=VALUE")
]
Model: TypeAlias = Annotated[
    Path, Help("a saved model (bundle), or the run folder that contains one")
]
Beam: TypeAlias = Annotated[
    int | None, Help("beam size; 1 is greedy search (default: the setting of the model)")
]
Alpha: TypeAlias = Annotated[
    float | None,
    Help("length penalty, section 6.1 of the paper (default: the setting of the model)"),
]
Engine: TypeAlias = Annotated[
    Literal["auto", "torch", "ctranslate2"],
    Help("library that runs the model; auto uses the fastest one that is installed and suitable"),
]
Device: TypeAlias = Annotated[
    str | None, Help("cpu or cuda (default: a GPU if there is one)", value="DEVICE")
]
Precision: TypeAlias = Annotated[
    Literal["auto", "float32", "bf16", "fp16", "int8"],
    Help("numeric precision; auto uses int8 with CTranslate2, bf16 on a GPU and float32 otherwise"),
]

# ------------------------------------------------------------------------------------------ Data


def new(
    folder: Annotated[Path, Help("the new folder")],
    *,
    source: Annotated[
        Path,
        Help("training text; or one file with both languages (.tsv, .jsonl, .tmx, .parquet)"),
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
            ".parquet), or a recipe; then settings such as data.clean.max_words=100",
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
        transduce doctor train.en train.de --test test.en test.de --out cleaned
    """
    from rich.console import Console

    from transduce.data.cleaning.cleaned_corpus import try_writing, write_whole
    from transduce.data.cleaning.doctor import examine, from_arguments
    from transduce.data.cleaning.report import print_report, shown_progress

    if json:
        try_writing(json)  # a report that cannot be written is an error before the work
    corpus_settings, base = from_arguments(corpus, test, source_language, target_language)
    workers = processes or min(os.cpu_count() or 1, 8)
    with shown_progress(Console(stderr=True)) as progress:
        report = examine(corpus_settings, base, out=out, processes=workers, progress=progress)
    print_report(report, Console())
    if json:
        write_whole(json, report.to_json())
    if report.errors:
        raise DataError("; ".join(report.errors))


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


# -------------------------------------------------------------------------------------- Training


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
        Path | None, Help("run folder (default: runs/ and the recipe's name)", value="FOLDER")
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
    stopped_by = finished_run.state.stopped_by if finished_run.state else ""
    if stopped_by:
        # The exit status that a shell gives: a script sees that the training is not finished.
        sys.exit(128 + signal.Signals[stopped_by])


def watch(
    run: Annotated[Path, Help("the run folder that transduce train writes")],
    *,
    once: Annotated[bool, Help("print the current state once and exit")] = False,
) -> None:
    """Show the progress of a training run: loss, BLEU, speed, time left.

    Examples:
        transduce watch runs/en-de
        transduce watch runs/en-de --once
    """
    from transduce.monitoring.watch import watch as watch_run

    watch_run(run, once=once)


# ----------------------------------------------------------------------------------- Translation


def translate(
    text: Annotated[
        tuple[str, ...],
        Help("the text to translate, in quotes; without it, standard input is translated"),
    ] = (),
    *,
    model: Annotated[
        tuple[Path, ...],
        Help(
            "a saved model (bundle) or a run folder; several --model options form an ensemble "
            "(default: the newest model in ./runs, or the model of the package)",
            value="FOLDER",
        ),
    ] = (),
    beam: Beam = None,
    alpha: Alpha = None,
    engine: Engine = "auto",
    device: Device = None,
    precision: Precision = "auto",
    input: Annotated[
        Path | None, Help("translate this file line by line; it may be .gz, .xz, .bz2 or .zst")
    ] = None,
    output: Annotated[
        Path | None,
        Help("write to this file when all is translated; .gz, .xz, .bz2 and .zst compress it"),
    ] = None,
    nbest: Annotated[int, Help("number of translations for each line; JSON if more than 1")] = 1,
    scores: Annotated[bool, Help("write scores and token probabilities, as JSON")] = False,
    alignments: Annotated[
        bool, Help("write which target word belongs to which source word, as JSON")
    ] = False,
    errors: Annotated[
        Literal["strict", "replace"],
        Help("for bytes that are not UTF-8: stop and name the line, or replace them"),
    ] = "strict",
    column: Annotated[
        int | None, Help("translate column N (from 1) of tab-separated lines and keep the others")
    ] = None,
    prefix: Annotated[str, Help("text that each translation must begin with")] = "",
    search: Annotated[
        tuple[str, ...],
        Help(
            "another search setting, such as temperature=0.8, no_repeat_ngram=3 or "
            "max_length=100; can be repeated",
            value="SETTING=VALUE",
        ),
    ] = (),
) -> None:
    """Translate a text, a file, or standard input line by line.

    Examples:
        transduce translate "Good morning."
        transduce translate --model runs/demo "in 98 weeks"
        transduce translate --model runs/demo --input news.en --output news.de
    """
    from transduce.recipe import adjusted
    from transduce.storage.bundle import find_bundle
    from transduce.translation.sentences import splits_sentences
    from transduce.translation.streams import Format, print_translation, translate_stream
    from transduce.translation.translator import Translator

    # Check how the arguments go together.
    if text and (input or output or column):
        raise InputError(
            "a text is given together with --input, --output or --column; "
            "give either the text or these options"
        )
    if len(text) > 1:
        raise InputError(
            f'the text is {len(text)} separate words; put it in quotes: "{" ".join(text)}"'
        )

    # Load the model. The one that was found is named to a person, but not in a log.
    if not model:
        model = (find_bundle(),)
        if sys.stderr.isatty():
            print(f"transduce: the model is {model[0]}", file=sys.stderr)
    settings = functools.partial(
        adjusted, overrides=search, beam_size=beam, alpha=alpha, n_best=nbest
    )
    with program.loading():
        translator = Translator(
            model, engine=engine, device=device, precision=precision, search=settings
        )
    if not splits_sentences():
        print(
            "transduce: each line is translated as one sentence; "
            "to split lines into sentences, pip install 'transduce[text]'",
            file=sys.stderr,
        )

    # Translate.
    writes_json = scores or alignments or translator.search.n_best > 1
    line_format = Format(column, errors, writes_json, alignments, prefix)
    if text:
        print_translation(translator, text[0], line_format)
    else:
        translate_stream(translator, input, output, line_format)


def score(
    model: Model,
    source: Annotated[Path, Help("the sentences to translate, one per line")],
    reference: Annotated[Path, Help("their human translations, one per line")],
    *,
    beam: Beam = None,
    alpha: Alpha = None,
    engine: Engine = "auto",
    device: Device = None,
    precision: Precision = "auto",
    ter: Annotated[bool, Help("also compute the translation edit rate")] = False,
    json: Annotated[bool, Help("print JSON instead of a table")] = False,
) -> None:
    """Translate a test set and compute BLEU and chrF.

    Examples:
        transduce score runs/demo test.en test.de
        transduce score runs/demo test.en test.de --beam 4 --json
    """
    from transduce.evaluation.test_set import print_scores, score_files
    from transduce.recipe import adjusted
    from transduce.translation.translator import Translator

    settings = functools.partial(adjusted, beam_size=beam, alpha=alpha)
    with program.loading():
        translator = Translator(
            model, engine=engine, device=device, precision=precision, search=settings
        )
    print_scores(score_files(translator, source, reference, ter=ter), as_json=json)


def bench(
    what: Annotated[Literal["decode"], Help("what to measure: translation (decode)")],
    model: Model,
    *,
    input: Annotated[
        Path | None,
        Help("sentences, one per line (default: generated phrases in the model's languages)"),
    ] = None,
    beam: Annotated[int, Help("beam size; 1 is greedy search")] = 4,
    sentences: Annotated[int, Help("number of sentences to translate")] = 100,
    rounds: Annotated[int, Help("number of repetitions for each library")] = 3,
    json: Annotated[bool, Help("print JSON instead of a table")] = False,
) -> None:
    """Measure the translation speed of a model on this CPU.

    The table compares all engines of transduce with other libraries that are installed.

    Examples:
        transduce bench decode runs/demo
        transduce bench decode runs/demo --beam 1 --sentences 200
    """
    from transduce.translation.benchmark import benchmark, print_figures, read_sentences

    bundle, texts = read_sentences(model, input, sentences)
    print_figures(list(benchmark(bundle, texts, beam, rounds)), as_json=json)


# -------------------------------------------------------------------------------- Other runtimes


def export(
    bundle: Annotated[
        Path, Help("a saved model (bundle), or the run folder that contains one", value="MODEL")
    ],
    out: Annotated[Path, Help("the new folder; for argos, a new file named *.argosmodel")],
    *,
    to: Annotated[
        Literal["ctranslate2", "huggingface", "onnx", "argos"],
        Help("the runtime; huggingface is a MarianMT model, argos is for Argos Translate"),
    ],
    quantization: Annotated[
        Literal["int8", "float32"] | None,
        Help("for ctranslate2 and argos (default: int8); the others use float32"),
    ] = None,
) -> None:
    """Convert a model for another runtime and compare results.

    Examples:
        transduce export runs/demo --to ctranslate2 demo-ctranslate2
        transduce export runs/demo --to argos demo.argosmodel
    """
    from transduce.exporters.command import export as export_model

    print(export_model(bundle, out, to, quantization))


def import_model(
    layout: Annotated[Literal["huggingface"], Help("format of the model: MarianMT")],
    folder: Annotated[Path, Help("folder of the model on this machine")],
    *,
    out: Annotated[
        Path | None,
        Help(
            "folder of the new model (default: runs/NAME/best, where translate finds it)",
            value="FOLDER",
        ),
    ] = None,
) -> None:
    """Convert a MarianMT model (such as OPUS-MT) and compare results.

    If the model has several target languages, write the language code before each text:
    ">>deu<< Good morning."

    Examples:
        transduce import huggingface opus-mt-en-de --out opus
    """
    from transduce.exporters.command import import_folder

    print(import_folder(folder, out))


# ---------------------------------------------------------------------------------------- Editor


def schema() -> None:
    """Print the JSON schema of recipe files, for your editor.

    Examples:
        transduce schema > recipe.schema.json
    """
    import json

    from transduce.recipe_schema import recipe_schema

    print(json.dumps(recipe_schema(), indent=2))


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Help("the shell that you use")],
) -> None:
    """Print a script that completes commands and options in your shell.

    Examples:
        eval "$(transduce completion bash)"
        transduce completion fish > ~/.config/fish/completions/transduce.fish
    """
    from transduce.cli.completion import completion_script

    print(completion_script(shell, COMMANDS))


GROUPS: dict[str, dict[str, Command]] = {
    "data": {"new": new, "data": data, "doctor": doctor, "prepare": prepare},
    "training": {"describe": describe, "train": train, "watch": watch},
    "translation": {"translate": translate, "score": score, "bench": bench},
    "other runtimes": {"export": export, "import": import_model},
    "editor and shell": {"schema": schema, "completion": completion},
}

COMMANDS: dict[str, Command] = {
    name: command for commands in GROUPS.values() for name, command in commands.items()
}


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    return program.run(GROUPS, words)
