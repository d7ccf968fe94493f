"""The command that looks inside a translation."""

from __future__ import annotations

import functools
import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from transduce.cli.arguments import Command, Help
from transduce.cli.models import default_model
from transduce.cli.options import DEFAULT_MODEL, Beam
from transduce.cli.output import check_output, name_output, write_output
from transduce.errors import BundleError, InputError, TransduceError
from transduce.storage.installed import names_bundle

if TYPE_CHECKING:
    from transduce.inspection.result import Inspection
    from transduce.translation.translator import Translator


def inspect(
    words: Annotated[
        tuple[str, ...],
        Help(
            "the sentence to translate, in quotes; before it a saved model (bundle), a run folder, "
            f"or a name that transduce bundles lists {DEFAULT_MODEL}",
            value="[MODEL] TEXT",
        ),
    ] = (),
    *,
    out: Annotated[
        Path | None, Help("write a page for the browser to this file; it needs no server")
    ] = None,
    svg: Annotated[
        Path | None,
        Help("write a figure to this file: one layer, or with --heads all heads", value="FILE"),
    ] = None,
    kind: Annotated[
        Literal["encoder", "decoder", "cross"], Help("for --svg: which attention")
    ] = "cross",
    layer: Annotated[
        int | None, Help("for --svg: the layer (default: the one that aligns words best)")
    ] = None,
    head: Annotated[
        tuple[int, ...], Help("for --svg: only this head; can be repeated (default: all)")
    ] = (),
    word: Annotated[
        str | None, Help("for --svg: only the attention of this word (default: all)", value="WORD")
    ] = None,
    json: Annotated[Path | None, Help("write everything as JSON to this file")] = None,
    without: Annotated[
        tuple[str, ...],
        Help("switch this head off, such as cross.6.2; can be repeated", value="HEAD"),
    ] = (),
    sentence: Annotated[int, Help("which sentence of the text to show")] = 1,
    beam: Beam = None,
    heads: Annotated[
        tuple[Path, ...],
        Help(
            "measure the importance of every head on a test set: sources and references",
            value="FILE",
            several=True,
        ),
    ] = (),
    by: Annotated[
        Literal["loss", "bleu"],
        Help("for --heads: what changes when a head is removed; bleu is slow"),
    ] = "loss",
    limit: Annotated[int, Help("for --heads: number of sentences to use")] = 100,
) -> None:
    """Look inside a translation: attention, candidates, search.

    Heads are named KIND.LAYER.HEAD, such as cross.6.2, and counted from 1.

    Examples:
        transduce inspect "The animal was too tired to cross the street."
        transduce inspect runs/demo "in 98 weeks" --out page.html
        transduce inspect runs/demo "in 98 weeks" --svg figure.svg --layer 1
        transduce inspect runs/demo "in 98 weeks" --without cross.1.1
        transduce inspect runs/demo --heads test.en test.de --svg heads.svg
    """
    model, text = _split(words, heads)
    _check(heads, sentence, limit)
    for path in (out, svg, json):
        check_output(path, heads)
    from transduce.recipe import adjusted
    from transduce.translation.translator import Translator

    model = model or default_model()
    _refuse_ctranslate2(model)
    # The model runs in torch here, whatever is faster elsewhere.
    settings = functools.partial(adjusted, beam_size=beam)
    translator = Translator(model, engine="torch", device="cpu", search=settings)
    if heads:
        _show_importance(translator, heads, by, limit, svg, json)
        return

    from transduce.inspection.figure import attention_figure
    from transduce.inspection.inspect import inspect as inspect_sentence
    from transduce.inspection.inspect import read_sentences
    from transduce.inspection.terminal import print_inspection

    sentences, _ = read_sentences(translator, text)
    if sentence > len(sentences):
        raise InputError(
            f"--sentence is {sentence}, but the text has {len(sentences)}; expected 1 to "
            f"{len(sentences)}"
        )
    found = inspect_sentence(translator, text, sentence=sentence - 1, without=without)
    if svg:
        write_output(svg, attention_figure(found, kind, layer, head, word))
    if json:
        write_output(json, json_format.dumps(found.to_dict(), ensure_ascii=False))
    if out:
        _write_page(out, translator, found)
    if not (svg or json or out):
        print_inspection(found)


def _split(words: tuple[str, ...], heads: tuple[Path, ...]) -> tuple[Path | None, str]:
    """Return the model, None for the default one, and the sentence, "" with --heads."""
    if heads and len(words) < 2:
        return (Path(words[0]) if words else None), ""
    if heads or not words:
        raise InputError("give either a sentence in quotes, or --heads with a test set")

    # Of two words the first is the model, whatever it is: a wrong name must not become text.
    has_model = len(words) == 2 or names_bundle(words[0])
    text = words[1:] if has_model else words
    if not text:
        raise InputError(
            f"{words[0]} is a model and the sentence is missing; write it after the model, in "
            "quotes"
        )
    if len(text) > 1:
        raise InputError(
            f'the text is {len(text)} separate words; put it in quotes: "{" ".join(text)}"'
        )
    return (Path(words[0]) if has_model else None), text[0]


def _check(heads: tuple[Path, ...], sentence: int, limit: int) -> None:
    """Refuse values that cannot work."""
    if heads and len(heads) != 2:
        raise InputError(
            f"--heads has {len(heads)} files; expected two: the sources and their references"
        )
    for name, value in (("sentence", sentence), ("limit", limit)):
        if value < 1:
            raise InputError(f"--{name} is {value}; expected at least 1")


def _refuse_ctranslate2(model: Path) -> None:
    """Refuse a model that exists only in the format of CTranslate2."""
    if (model / "model.bin").is_file() and not (model / "model.safetensors").is_file():
        raise BundleError(
            f"{model} is a CTranslate2 model, which does not give its attention; inspect the "
            "bundle that it was exported from"
        )


def _show_importance(
    translator: Translator,
    files: tuple[Path, ...],
    by: Literal["loss", "bleu"],
    limit: int,
    svg: Path | None,
    json: Path | None,
) -> None:
    from transduce.data.workers import progress
    from transduce.evaluation.test_set import read_test_set
    from transduce.inspection.heat_map import heat_map
    from transduce.inspection.importance import head_importance
    from transduce.inspection.terminal import print_importance

    sources, references = read_test_set(translator, *files)
    sources = sources[:limit]
    references = references[:limit]
    model = translator.recipe.model
    heads = model.h * (model.N + 2 * model.decoder_layers)
    with progress("sentences without one head", len(sources) * (1 + heads)) as advance:
        importance = head_importance(translator, sources, references, by=by, advance=advance)
    if svg:
        unit = "rise of the loss (nats per token)" if by == "loss" else "fall of BLEU"
        title = f"{unit.capitalize()} without each head"
        note = f"{importance.sentences:,} sentences; with all heads: {importance.full:.3f}"
        write_output(svg, heat_map(title, note, importance.changes))
    if json:
        write_output(json, json_format.dumps(importance.to_dict()))
    print_importance(importance)


def _write_page(out: Path, translator: Translator, found: Inspection) -> None:
    """Write the page with the inspection and, if the model allows it, the walkthrough."""
    from transduce.inspection.walkthrough import walkthrough
    from transduce.page.standalone import write_page

    walk = None
    try:
        walk = walkthrough(translator, found.text)
    except TransduceError as error:
        print(f"transduce: the page has no walkthrough: {error}", file=sys.stderr)
    name_output(write_page(out, found, walk))


COMMANDS: dict[str, Command] = {"inspect": inspect}
