"""The commands about installed models: list them, and show or replace a model card."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from transduce.cli.arguments import Command, Help
from transduce.cli.options import DEFAULT_MODEL
from transduce.errors import InputError, TransduceError

if TYPE_CHECKING:
    from transduce.storage.bundle import Bundle
    from transduce.storage.installed import Installed


def default_model() -> Path:
    """Return the model of a command that names none. It is named to a person, but not in a log."""
    from transduce.storage.installed import PACKAGED, find_bundle

    path = find_bundle()
    if sys.stderr.isatty():
        packaged = path.parent == PACKAGED
        name = f"{path.name}, which comes with the package" if packaged else path
        print(f"transduce: the model is {name}", file=sys.stderr)
    return path


@dataclass(frozen=True)
class Facts:
    """What the list says about a model; `error` is what is wrong with its files."""

    name: str
    source_language: str = ""
    target_language: str = ""
    parameters: int = 0
    bytes: int = 0
    bleu: float | None = None
    bleu_on: str = ""  # the names of the corpora that were translated
    licence: str | None = None
    is_packaged: bool = False
    path: str = ""
    error: str = ""


def bundles(
    *,
    runs: Annotated[Path, Help("folder of your training runs", value="FOLDER")] = Path("runs"),
    json: Annotated[bool, Help("print JSON instead of a table")] = False,
) -> None:
    """List the models of the package and of your training runs.

    The first one is used by commands that name no model. The files of all are verified.

    Examples:
        transduce bundles
        transduce bundles --json
    """
    from transduce.storage.installed import installed_bundles

    found = [_read_facts(installed) for installed in installed_bundles(runs)]
    if json:
        print(json_format.dumps([vars(facts) for facts in found], indent=1, ensure_ascii=False))
        return
    if not found:
        print(f"no models found in the package nor in {runs}; next: make demo, or transduce train")
        return
    _print_table([facts for facts in found if not facts.error])
    for facts in found:
        if facts.error:
            print(f"transduce: {facts.name} cannot be used: {facts.error}", file=sys.stderr)


def _read_facts(installed: Installed) -> Facts:
    from transduce.storage.bundle import load_bundle
    from transduce.storage.model_card import licence

    known = Facts(installed.name, is_packaged=installed.is_packaged, path=str(installed.path))
    try:
        bundle = load_bundle(installed.path)
        parameters = bundle.count_parameters()
    except TransduceError as error:
        return replace(known, error=str(error))
    bleu, bleu_on = _score(bundle)
    return replace(
        known,
        source_language=bundle.recipe.data.source_language,
        target_language=bundle.recipe.data.target_language,
        parameters=parameters,
        bytes=sum(file.stat().st_size for file in bundle.path.iterdir() if file.is_file()),
        bleu=bleu,
        bleu_on=bleu_on,
        licence=licence(bundle.card),
    )


def _score(bundle: Bundle) -> tuple[float | None, str]:
    """Return the BLEU of a bundle, on its test text if there is one, and the name of the text."""
    test: Any = bundle.scores.get("test")
    if isinstance(test, Mapping) and "bleu" in test:
        return float(test["bleu"]), str(test.get("corpora", "test"))
    if "bleu" not in bundle.scores:
        return None, ""
    names = [corpus.name or corpus.source[0] for corpus in bundle.recipe.data.validation]
    return float(bundle.scores["bleu"]), ", ".join(names)


def _print_table(found: list[Facts]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("model", "languages", "parameters", "size", "BLEU", "licence", "where", box=None)
    for facts in found:
        bleu = "-" if facts.bleu is None else f"{facts.bleu:.1f} {facts.bleu_on}".strip()
        table.add_row(
            facts.name,
            f"{facts.source_language}-{facts.target_language}",
            f"{facts.parameters / 1e6:.1f} M",
            f"{facts.bytes / 1e6:.1f} MB",
            bleu,
            facts.licence or "-",
            "the package" if facts.is_packaged else facts.path,
        )
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    console.print(table, highlight=False, markup=False)


def card(
    model: Annotated[
        Path | None,
        Help(
            "a saved model (bundle), a run folder, or a name that transduce bundles lists "
            f"{DEFAULT_MODEL}"
        ),
    ] = None,
    *,
    replace: Annotated[
        Path | None,
        Help("write this text into the model as its card, in place of the one that it has"),
    ] = None,
) -> None:
    """Print a model card: training text, scores, licence, limits.

    Examples:
        transduce card
        transduce card runs/en-de --replace card.md
    """
    from transduce.storage.bundle import load_bundle, replace_card
    from transduce.storage.installed import find_bundle

    if replace is None:
        print(load_bundle(find_bundle(model)).card, end="")
        return
    if model is None:
        raise InputError("--replace is given without a model; name it before")
    try:
        text = replace.read_text(encoding="utf-8")
    except ValueError:
        raise InputError(
            f"{replace} is not UTF-8 text; expected a model card in Markdown"
        ) from None
    print(f"{replace_card(load_bundle(find_bundle(model)), text)} has the card {replace}")


COMMANDS: dict[str, Command] = {"bundles": bundles, "card": card}
