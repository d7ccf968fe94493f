"""The commands about translation: translate text, and measure the speed of a model."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from transduce.cli.arguments import Command, Help
from transduce.cli.models import default_model
from transduce.cli.options import DEFAULT_MODEL, Alpha, Beam, Device, Engine, Precision
from transduce.errors import InputError, install_command, require


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Pause the garbage collector while a command imports libraries and loads a model.

    These objects stay until the end, so looking for garbage among them only takes time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def translate(
    text: Annotated[
        tuple[str, ...],
        Help("the text to translate, in quotes; without it, standard input is translated"),
    ] = (),
    *,
    model: Annotated[
        tuple[Path, ...],
        Help(
            "a saved model (bundle), a run folder, or a name that transduce bundles lists; several "
            f"--model options form an ensemble {DEFAULT_MODEL}",
            value="MODEL",
        ),
    ] = (),
    beam: Beam = None,
    alpha: Alpha = None,
    engine: Engine = "auto",
    device: Device = None,
    precision: Precision = "auto",
    input: Annotated[
        Path | None,
        Help(
            "translate this file: a document (.docx, .odt, .html, .srt, .vtt, .po, .tmx, .xlf) "
            "with its markup in place, any other file line by line; it may be .gz, .xz, .bz2 or "
            ".zst"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Help("write to this file when all is translated; .gz, .xz, .bz2 and .zst compress it"),
    ] = None,
    format: Annotated[
        Literal["auto", "text"],
        Help("auto: the suffix of --input tells documents from text; text: always line by line"),
    ] = "auto",
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
    on: Annotated[
        Literal["ray"] | None,
        Help("translate --input on all machines of a Ray cluster; what is done survives a stop"),
    ] = None,
    address: Annotated[
        str | None,
        Help(
            "address of the Ray cluster; local starts Ray on this machine alone (default: the "
            "cluster that this machine belongs to, or local)",
            value="HOST:PORT",
        ),
    ] = None,
) -> None:
    """Translate a text, a file, or standard input line by line.

    Examples:
        transduce translate "Good morning."
        transduce translate --model runs/demo "in 98 weeks"
        transduce translate --model runs/demo --input news.en --output news.de
        transduce translate --input report.docx --output report.de.docx
        transduce translate --on ray --input large.en.gz --output large.de.gz
    """
    from transduce.config import SearchConfig
    from transduce.recipe import adjusted
    from transduce.translation.documents import check_files, formats, translate_document
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
    if input and format == "auto":
        formats.refuse_compressed_document(input)
    document = input if input and format == "auto" and formats.is_document(input) else None
    if address and not on:
        raise InputError("--address is that of a Ray cluster; add --on ray, or leave it out")
    if on and (document or not (input and output)):
        raise InputError(
            "--on ray translates a file line by line and needs --input and --output; for a "
            "document, add --format text or leave out --on"
        )
    if document:
        if nbest != 1 or scores or alignments or column or prefix or errors != "strict":
            raise InputError(
                f"{document.name} is translated as a document, without --nbest, --scores, "
                "--alignments, --column, --prefix and --errors; leave them out, or add "
                "--format text"
            )
        if output is None:
            raise InputError(
                f"{document.name} is a document and needs --output; to print the translation of "
                "its lines, add --format text"
            )
        check_files(document, output)
    elif input:
        formats.refuse_other_file(input)
    if output and not document and format == "auto":
        formats.refuse_other_output(input, output)

    # Load the model.
    model = model or (default_model(),)
    settings = functools.partial(
        adjusted, overrides=search, beam_size=beam, alpha=alpha, n_best=nbest
    )

    def line_format(search_config: SearchConfig) -> Format:
        writes_json = scores or alignments or search_config.n_best > 1
        return Format(column, errors, writes_json, alignments, prefix)

    if on and input and output:
        from transduce.storage.bundle import load_bundle
        from transduce.storage.installed import find_bundle
        from transduce.translation import cluster

        cluster.import_ray()
        bundles = [load_bundle(find_bundle(place)) for place in model]
        search_config = settings(bundles[0].recipe.search)
        _note_whole_lines()
        cluster.translate_on_ray(
            bundles,
            input,
            output,
            search=search_config,
            form=line_format(search_config),
            engine=engine,
            device=device,
            precision=precision,
            address=address,
        )
        return
    with loading():
        translator = Translator(
            model, engine=engine, device=device, precision=precision, search=settings
        )
    _note_whole_lines()

    # Translate.
    if text:
        print_translation(translator, text[0], line_format(translator.search))
        if os.path.isfile(text[0]):  # also for texts that are too long for a name
            print(
                "transduce: the text is the name of a file; to translate what is in it: "
                f"--input {shlex.quote(text[0])}",
                file=sys.stderr,
            )
    elif document and output:
        notices = translate_document(translator, document, output, shows_progress=True)
        for notice in notices:
            print(f"transduce: {notice}", file=sys.stderr)
    else:
        translate_stream(translator, input, output, line_format(translator.search))


def _note_whole_lines() -> None:
    """Say that lines are not split into sentences, if the package for it is missing."""
    from transduce.translation.sentences import splits_sentences

    if not splits_sentences():
        print(
            "transduce: each line is translated as one sentence; "
            f"to split lines into sentences: {install_command('text')}",
            file=sys.stderr,
        )


def bench(
    what: Annotated[
        Literal["decode", "serve"],
        Help("what to measure: translation (decode), or a server and its clients (serve)"),
    ],
    model: Annotated[
        Path | None,
        Help(
            "a saved model (bundle), a run folder, or a name that transduce bundles lists "
            f"{DEFAULT_MODEL}"
        ),
    ] = None,
    *,
    input: Annotated[
        Path | None,
        Help("sentences, one per line (default: generated phrases in the model's languages)"),
    ] = None,
    beam: Annotated[int, Help("beam size; 1 is greedy search")] = 4,
    sentences: Annotated[int, Help("number of sentences to translate")] = 100,
    rounds: Annotated[int, Help("number of repetitions for each library")] = 3,
    clients: Annotated[int, Help("only for serve: number of clients at the same time")] = 32,
    texts: Annotated[int, Help("only for serve: sentences in each request")] = 1,
    device: Annotated[str, Help("only for serve: where to translate", value="DEVICE")] = "cpu",
    processes: Annotated[
        int | None,
        Help("only for serve: processes that speak HTTP (default: as transduce serve)"),
    ] = None,
    peer: Annotated[
        str | None,
        Help("only for serve: address of a server with LibreTranslate's API (default: none)"),
    ] = None,
    json: Annotated[bool, Help("print JSON instead of a table")] = False,
) -> None:
    """Measure the translation speed of a model, by default on a CPU.

    For decode, the table compares all engines of transduce with other libraries that are installed.
    For serve, it compares translation without a server, a server that forms batches and one that
    translates one sentence at a time, and shows how long short requests take beside a long
    document.

    Examples:
        transduce bench decode
        transduce bench decode runs/demo --beam 1 --sentences 200
        transduce bench serve runs/demo --clients 16
        transduce bench serve runs/demo --device cuda --clients 64 --texts 8
    """
    from transduce.translation.benchmark import benchmark, print_figures, read_sentences

    model = model or default_model()
    bundle, lines = read_sentences(model, input, sentences)
    if what == "serve":
        require("uvicorn", extra="serve")
        from transduce.serving import benchmark as serving

        setup = serving.Setup(
            model=model,
            sentences=lines,
            device=device,
            beam=beam,
            clients=clients,
            texts=texts,
            rounds=rounds,
            processes=processes,
            peer=peer,
        )
        serving.print_figures(list(serving.benchmark(setup)), as_json=json)
        return
    print_figures(list(benchmark(bundle, lines, beam, rounds)), as_json=json)


COMMANDS: dict[str, Command] = {"translate": translate, "bench": bench}
