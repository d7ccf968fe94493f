"""The command line: each subcommand calls one function. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tyro.conf import Positional, UseAppendAction

from transduce.cli import parser
from transduce.errors import DataError, InputError


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
    from transduce.recipe import load_recipe

    settings = load_recipe(recipe, overrides)  # a mistake in it is told without waiting for torch
    from transduce.describe import describe as text

    print(text(settings, batch_tokens=batch_tokens, batch_sentences=batch_sentences))


def train(
    recipe: Positional[str],
    overrides: Positional[tuple[str, ...]] = (),
    *,
    run: Path | None = None,
    store: Path | None = None,
    start_from: Path | None = None,
    until: str | None = None,
    device: Literal["cpu", "cuda"] | None = None,
) -> None:
    """Train a model into a run folder, preparing its data first; the same command goes on with a run.

    Example: transduce train en-de.toml training.steps=50000 --run runs/en-de

    Under torchrun it trains on all processes together: torchrun --nproc-per-node 8 -m -- transduce train en-de.toml

    Args:
        recipe: A recipe file.
        overrides: Settings to change, such as training.steps=50000.
        run: The folder of the run; by default runs/ and the recipe's name.
        store: The token store, made where it is missing; by default next to the recipe.
        start_from: A bundle whose weights to start from (fine-tuning).
        until: Stop at a score, such as bleu=25, whatever training.until says; '' for none.
        device: What to train on; by default a GPU if there is one.
    """
    from transduce.recipe import load_recipe

    if until is not None:
        overrides = (*overrides, f"training.until={until}")
    load_recipe(recipe, overrides)  # a mistake in it is told without waiting for torch
    from transduce.training import train as training

    done = training.train(
        recipe, overrides=overrides, run=run, store=store, start_from=start_from, device=device
    )
    stopped_by = done.standing.stopped_by if done.standing else ""
    if stopped_by:
        # As a shell has it: a script sees that it is not finished.
        sys.exit(128 + signal.Signals[stopped_by])


def watch(run: Positional[Path], *, once: bool = False) -> None:
    """Show a training run in the terminal while it goes on: loss, BLEU, speed, time left.

    Example: transduce watch runs/base

    Args:
        run: The folder that transduce train writes.
        once: Print one frame and leave.
    """
    from transduce.monitoring.watch import watch as show

    show(run, once=once)


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

    from transduce.data.cleaning.cleaned_corpus import try_writing, write_whole
    from transduce.data.cleaning.doctor import examine, from_arguments
    from transduce.data.cleaning.report import print_report, shown_progress

    if json:
        try_writing(json)
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
    """Make a recipe's token store: clean, learn the tokenizer, tokenize; goes on where it stopped.

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


def data(
    action: Positional[Literal["list", "get"]],
    name: Positional[str] = "",
    *,
    out: Path | None = None,
    mirror: Path | None = None,
    source: str = "",
    target: str = "",
    pairs: int = 50_000,
    seed: int = 1,
    accept_changes: bool = False,
) -> None:
    """List the corpora known by name, or fetch one as text files with a recipe that trains on them.

    Example: transduce data get multi30k-en-de --out multi30k

    Args:
        action: Show every corpus, or the parts and addresses of one (list); or fetch one (get).
        name: The corpus to show or to fetch.
        out: The folder for its files; by default data/NAME.
        mirror: A folder that already holds the downloads; nothing is fetched from the network.
        source: The language to translate from; by default en.
        target: The language to translate to; by default the corpus's other one.
        pairs: How many pairs of phrases to make.
        seed: Which phrases to make.
        accept_changes: Take a new edition of a file that differs from the one known so far.
    """
    from transduce.corpora.catalogue import details, listing
    from transduce.corpora.get import get

    if action == "list":
        print(details(name) if name else listing())
        return
    folder, languages = out or Path("data") / name, (source, target)
    recipe = get(
        name,
        folder,
        languages=languages,
        mirror=mirror,
        pairs=pairs,
        seed=seed,
        accept_changes=accept_changes,
    )
    print(f"{name} is ready; next: transduce train {recipe}")


def translate(
    text: Positional[tuple[str, ...]] = (),
    *,
    model: UseAppendAction[tuple[Path, ...]] = (),
    beam: int | None = None,
    alpha: float | None = None,
    engine: Literal["auto", "torch", "ctranslate2"] = "auto",
    device: str | None = None,
    precision: Literal["auto", "float32", "bf16", "fp16", "int8"] = "auto",
    input: Path | None = None,
    output: Path | None = None,
    nbest: int = 1,
    scores: bool = False,
    alignments: bool = False,
    errors: Literal["strict", "replace"] = "strict",
    column: int | None = None,
    prefix: str = "",
    search: UseAppendAction[tuple[str, ...]] = (),
) -> None:
    """Translate a text, or without one, standard input line for line.

    Example: transduce translate --model runs/demo "in 98 weeks"

    Args:
        text: What to translate, in quotes; it may have many sentences and markup.
        model: A bundle, or the run that made it; by default the newest of ./runs, else the one of the package, which a
            terminal is told. Given several times, the models decide together.
        beam: Hypotheses searched side by side (1: greedy); by default what the bundle says.
        alpha: Length penalty of the paper's section 6.1; by default what the bundle says.
        engine: What runs the model; auto takes the fastest that is there and does what is asked. The few sentences that
            ctranslate2 might search otherwise, such as those at a limit on their length, are searched again in torch.
        device: Such as cuda or cpu; by default a GPU where there is one.
        precision: Of the numbers; auto takes int8 in CTranslate2, bf16 on a GPU, float32 elsewhere.
        input: A file to translate line for line, in place of standard input; compressed (.gz, .xz, .bz2, .zst) or not.
        output: A file in place of standard output, there when all is translated; compressed if it is named so.
        nbest: Write so many translations of each line, as JSON.
        scores: Write scores and the confidence of every token, as JSON.
        alignments: Write the words of source and target and their links ([source, target], counted from 0), as JSON.
        errors: What to do with bytes that are not UTF-8: stop and name the line, or replace them.
        column: Translate this column (from 1) of tab-separated values and keep the others.
        prefix: How each translation has to begin.
        search: Another setting of the search, such as temperature=0.8 (sampling), no_repeat_ngram=3 or max_length=100;
            may be given several times.
    """
    from transduce.recipe import adjusted
    from transduce.storage.bundle import find_bundle
    from transduce.translation.sentences import splits_sentences
    from transduce.translation.streams import Format, print_translation, translate_stream
    from transduce.translation.translator import Translator

    if text and (input or output or column):
        raise InputError(
            "a text was given, and --input, --output or --column too; give one or the other"
        )
    if len(text) > 1:
        raise InputError(
            f'the text is {len(text)} words to the shell; put it in quotes: "{" ".join(text)}"'
        )
    if not model:
        model = (find_bundle(),)
        if sys.stderr.isatty():
            print(f"transduce: the model is {model[0]}", file=sys.stderr)
    settings = functools.partial(
        adjusted, overrides=search, beam_size=beam, alpha=alpha, n_best=nbest
    )
    with parser.loading():
        translator = Translator(
            model, engine=engine, device=device, precision=precision, search=settings
        )
    if not splits_sentences():
        told = "every line is translated as one sentence; to have sentences found, pip install 'transduce[text]'"
        print(f"transduce: {told}", file=sys.stderr)
    form = Format(
        column, errors, scores or alignments or translator.search.n_best > 1, alignments, prefix
    )
    if text:
        print_translation(translator, text[0], form)
    else:
        translate_stream(translator, input, output, form)


def score(
    model: Positional[Path],
    source: Positional[Path],
    reference: Positional[Path],
    *,
    beam: int | None = None,
    alpha: float | None = None,
    engine: Literal["auto", "torch", "ctranslate2"] = "auto",
    device: str | None = None,
    precision: Literal["auto", "float32", "bf16", "fp16", "int8"] = "auto",
    ter: bool = False,
    json: bool = False,
) -> None:
    """Translate a test set and compare with its references: BLEU and chrF, with signatures.

    Example: transduce score runs/demo test.en test.de

    Args:
        model: A bundle, or the run that made it.
        source: The sentences to translate, one a line.
        reference: Their translations by people, one a line.
        beam: Hypotheses searched side by side (1: greedy); by default what the bundle says.
        alpha: Length penalty of the paper's section 6.1; by default what the bundle says.
        engine: What runs the model; auto takes the fastest that is there.
        device: Such as cuda or cpu; by default a GPU where there is one.
        precision: Of the numbers; auto takes int8 in CTranslate2, bf16 on a GPU, float32 elsewhere.
        ter: Also the translation edit rate.
        json: Print JSON in place of a table.
    """
    from transduce.evaluation.test_set import print_scores, score_files
    from transduce.recipe import adjusted
    from transduce.translation.translator import Translator

    settings = functools.partial(adjusted, beam_size=beam, alpha=alpha)
    with parser.loading():
        translator = Translator(
            model, engine=engine, device=device, precision=precision, search=settings
        )
    print_scores(score_files(translator, source, reference, ter=ter), as_json=json)


def bench(
    what: Positional[Literal["decode"]],
    model: Positional[Path],
    *,
    input: Path | None = None,
    beam: int = 4,
    sentences: int = 100,
    rounds: int = 3,
    json: bool = False,
) -> None:
    """Measure how fast a bundle translates on this CPU, in every engine and beside the peers.

    Example: transduce bench decode runs/demo

    Args:
        what: Translation (decode).
        model: A bundle, or the run that made it.
        input: A file of sentences, one a line; by default phrases, if the bundle's languages are among theirs.
        beam: Hypotheses searched side by side (1: greedy).
        sentences: How many to translate.
        rounds: How often each contender translates them, together and one by one.
        json: Print JSON in place of a table.
    """
    from transduce.translation.benchmark import benchmark, print_figures, read_sentences

    bundle, texts = read_sentences(model, input, sentences)
    print_figures(list(benchmark(bundle, texts, beam, rounds)), as_json=json)


def export(
    bundle: Positional[Path],
    out: Positional[Path],
    *,
    to: Literal["ctranslate2", "huggingface", "onnx", "argos"],
    quantization: Literal["int8", "float32"] | None = None,
) -> None:
    """Hand a model over to another runtime, compared with ours while it is made.

    Example: transduce export runs/demo --to ctranslate2 demo-ctranslate2

    Args:
        bundle: A bundle, or the run that made it.
        out: The folder to make, or for argos the file, which ends with .argosmodel.
        to: The runtime: CTranslate2, Marian of Hugging Face, ONNX, or a package of Argos Translate.
        quantization: Of the numbers in CTranslate2 and argos, by default int8; the others have float32.
    """
    from transduce.exporters.command import export

    print(export(bundle, out, to, quantization))


def import_model(
    layout: Positional[Literal["huggingface"]],
    folder: Positional[Path],
    *,
    out: Path | None = None,
) -> None:
    """Make a bundle of somebody else's model, such as one of OPUS-MT, compared with theirs.

    Example: transduce import huggingface opus-mt-en-de --out opus

    A model of many target languages takes the language's code before each text: ">>deu<< Good morning."

    Args:
        layout: What the folder is: a MarianMT model of Hugging Face.
        folder: Where it is on this machine.
        out: The bundle to make; by default best in runs/ and the folder's name, where translate finds it.
    """
    from transduce.exporters.command import import_folder

    print(import_folder(folder, out))


COMMANDS: dict[str, Callable[..., None]] = {
    "describe": describe,
    "data": data,
    "doctor": doctor,
    "prepare": prepare,
    "train": train,
    "watch": watch,
    "translate": translate,
    "score": score,
    "bench": bench,
    "export": export,
    "import": import_model,
}


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status."""
    return parser.run(COMMANDS, arguments)
