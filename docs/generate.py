"""Pages that are generated from the code: commands, settings, public names, and the notebook.

MkDocs loads this file as a hook (see mkdocs.yml). Tests call the functions directly.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import os
import re
import tokenize
import typing
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

DOCS = Path(__file__).parent
ROOT = DOCS.parent
NOTEBOOK = DOCS / "tutorials" / "transformer.py"
# Files outside docs/ that are part of the site.
PATTERNS = (
    *("*.md", "examples/*.md", "examples/*.py", "recipes/*.md", "recipes/*.toml"),
    *("recipes/*/*.md", "recipes/*/*.toml", "transduce/bundles/*/README.md"),
)
MOUNTED = [
    path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern)) if path.name != "ruff.toml"
]
NOTE = "*This page is generated from the code.*"
# Where each settings class appears in a recipe.
SECTIONS = {
    "model": "ModelConfig",
    "data": "DataConfig",
    "data.corpora": "CorpusConfig",
    "data.clean": "CleanConfig",
    "data.tokenizer": "TokenizerConfig",
    "training": "TrainingConfig",
    "search": "SearchConfig",
}
# Sections that are written as [[...]] and share the settings of data.corpora.
SAME_AS_CORPORA = ("data.validation", "data.test")


# --- Commands ---------------------------------------------------------------------------------


def command_help(command: str) -> str:
    """Return what `transduce COMMAND --help` prints, 90 columns wide and without colours."""
    from transduce.cli.commands import run

    output = io.StringIO()
    environment = {"COLUMNS": "90", "NO_COLOR": "1", "TERM": "xterm"}
    arguments = [command, "--help"] if command else ["--help"]
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(output),
        contextlib.suppress(SystemExit),
    ):
        run(arguments)
    return output.getvalue().rstrip()


def commands_page() -> str:
    """Write one section for each command, with its help text."""
    from transduce.cli.commands import COMMANDS

    parts = ["# Commands", NOTE, f"```text\n{command_help('')}\n```"]
    for command in COMMANDS:
        parts += [f"## transduce {command}", f"```text\n{command_help(command)}\n```"]
    return "\n\n".join(parts) + "\n"


# --- Settings ---------------------------------------------------------------------------------


class Setting(NamedTuple):
    """One setting of a recipe."""

    name: str
    kind: str
    default: str
    text: str


def _comments(source: str) -> dict[int, tuple[str, bool]]:
    """Find the comment of each line, and whether it is alone on its line."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            found[token.start[0]] = token.string.lstrip("# ").strip(), alone
    return found


def _described(node: ast.AnnAssign, comments: dict[int, tuple[str, bool]]) -> str:
    """Join the comment lines above a field and the comment at its end."""
    lines: list[str] = []
    above = node.lineno - 1
    while above in comments and comments[above][1]:
        lines.insert(0, comments[above][0])
        above -= 1
    text, alone = comments.get(node.end_lineno or node.lineno, ("", True))
    if not alone:
        lines.append(text)
    return " ".join(lines)


def _kind_name(hint: Any) -> str:
    """Write a type as a user of a recipe reads it."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{option}`" for option in options)
    if typing.get_origin(hint) is tuple:
        return f"list of {_kind_name(options[0])}"
    if options:
        return " or ".join(_kind_name(option) for option in options)
    if hint is type(None):
        return "none"
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    return str(names.get(hint, hint.__name__))


def _default(field: Any) -> str:
    """Write a default value as TOML does."""
    if field.default is not MISSING:
        value = field.default
    elif field.default_factory is not MISSING:
        value = field.default_factory()
    else:
        return "required"
    if is_dataclass(value):
        return "see below"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{value}`"


def settings() -> dict[str, list[Setting]]:
    """Read every setting by section, with its type, default and comment, from config.py."""
    from transduce import config

    source = inspect.getsource(config)
    comments = _comments(source)
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}

    sections: dict[str, list[Setting]] = {}
    for section, class_name in SECTIONS.items():
        kind = getattr(config, class_name)
        hints = typing.get_type_hints(kind)
        nodes = {
            node.target.id: node
            for node in classes[class_name].body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        sections[section] = [
            Setting(
                field.name,
                _kind_name(hints[field.name]),
                _default(field),
                _described(nodes[field.name], comments),
            )
            for field in fields(kind)
        ]
    return sections


def settings_page() -> str:
    """Write one table for each section of a recipe."""
    from transduce import config

    parts = [
        "# Settings",
        NOTE,
        'A recipe is a TOML file. Its first line may name a preset, `preset = "base"`; every '
        "setting below then changes that preset. The command line takes the same names: "
        "`training.steps=50000`. The defaults are those of the paper's base model, and § names a "
        "section of the paper.",
    ]
    for section, class_name in SECTIONS.items():
        title = f"[[{section}]]" if section == "data.corpora" else f"[{section}]"
        docstring = inspect.getdoc(getattr(config, class_name)) or ""
        parts += [f"## {title}", docstring]
        if section == "data.corpora":
            others = " and ".join(f"`[[{name}]]`" for name in SAME_AS_CORPORA)
            parts.append(f"{others} take the same settings.")
        rows = ["| setting | type | default | description |", "| --- | --- | --- | --- |"]
        for setting in settings()[section]:
            text = setting.text.replace("|", "\\|")
            name = f"`{section}.{setting.name}`"
            rows.append(f"| {name} | {setting.kind} | {setting.default} | {text} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def presets_page() -> str:
    """Write a table of all presets, with what each changes and how large its model is."""
    import torch

    from transduce.model import Transformer
    from transduce.presets import PRESETS

    rows = ["| preset | parameters | changes of base |", "| --- | --- | --- |"]
    for name, recipe in PRESETS.items():
        with torch.device("meta"):
            model = Transformer(recipe.model)
        count = sum(weight.numel() for weight in model.parameters())
        changes = repr(recipe).removeprefix("Recipe(").removesuffix(")")
        text = f"`{changes}`" if changes else "none: the defaults are base"
        rows.append(f"| `{name}` | {count / 1e6:.1f}M | {text} |")
    intro = (
        'A recipe starts from a preset (`preset = "base"`), and `transduce describe NAME` shows '
        "one in detail. Names that begin with `table3-` are the rows of Table 3 of the paper."
    )
    return "\n\n".join(["# Presets", NOTE, intro, "\n".join(rows)]) + "\n"


def rules_page() -> str:
    """Write a table of the cleaning rules."""
    from transduce.data.cleaning.rules import RULES

    rows = ["| rule | by default | what it finds |", "| --- | --- | --- |"]
    for name, rule in RULES.items():
        action = "drops the pair" if rule.drops else "warns"
        rows.append(f"| `{name}` | {action} | {rule.why.replace('|', chr(92) + '|')} |")
    intro = (
        "`transduce doctor` counts these problems, and `transduce prepare` and `transduce train` "
        "drop the pairs that are beyond repair. `data.clean.off`, `data.clean.warn` and "
        "`data.clean.drop` change what a rule does."
    )
    return "\n\n".join(["# Cleaning rules", NOTE, intro, "\n".join(rows)]) + "\n"


# --- Public names -----------------------------------------------------------------------------


def _docstring(thing: Any) -> str:
    """Return a docstring in Markdown: `Args:` becomes a list."""
    text = inspect.getdoc(thing) or ""
    head, separator, arguments = text.partition("\nArgs:\n")
    if not separator:
        return text
    items = re.split(r"\n(?=    \w+: )", arguments.rstrip())
    lines = []
    for item in items:
        name, _, description = item.strip().partition(": ")
        lines.append(f"- `{name}`: {' '.join(description.split())}")
    return head.rstrip() + "\n\n" + "\n".join(lines)


def _parameter(parameter: inspect.Parameter) -> str:
    """Write a parameter with its annotation and default."""
    text = parameter.name
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        text = f"*{text}"
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        text = f"**{text}"
    annotated = parameter.annotation is not inspect.Parameter.empty
    if annotated:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        equals = " = " if annotated else "="
        text += f"{equals}{parameter.default!r}"
    return text


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _signature(name: str, thing: Any) -> str:
    """Write a signature, with one parameter on each line if it is long."""
    signature = inspect.signature(thing)
    parts = []
    for key, parameter in signature.parameters.items():
        if key in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(_parameter(parameter))
    result = ""
    if signature.return_annotation is not inspect.Signature.empty and not inspect.isclass(thing):
        result = f" -> {_annotation(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) <= 88:
        return line
    indented = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{indented}){result}"


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Find the public methods and properties that a class defines itself and documents."""
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if isinstance(member, property) or inspect.isfunction(member):
            yield name, member


def _entry(name: str, thing: Any, settings_of: str | None) -> list[str]:
    """Write the section of one public name."""
    parts = [f"## {name}"]
    if not callable(thing):
        return [
            *parts,
            f"```python\ntransduce.{name}\n```",
            "The version of the package, a string.",
        ]
    if settings_of:
        text = f"Its keyword arguments are the settings of [`[{settings_of}]`](settings.md)."
        return [*parts, f"```python\ntransduce.{name}(...)\n```", _docstring(thing), text]

    # Exceptions have no signature of their own to show.
    if not (inspect.isclass(thing) and issubclass(thing, Exception)):
        parts.append(f"```python\n{_signature(name, thing)}\n```")
    parts.append(_docstring(thing))
    if inspect.isclass(thing):
        if "__init__" in vars(thing) and thing.__init__.__doc__:
            parts.append(_docstring(thing.__init__))
        for method, member in _methods(thing):
            parts.append(f"### {name}.{method}")
            if not isinstance(member, property):
                parts.append(f"```python\n{_signature(method, member)}\n```")
            parts.append(_docstring(member))
    return parts


def python_page() -> str:
    """Write one section for each public name, and for the run that `transduce.train` returns."""
    import transduce
    from transduce.training.run import Run

    sections = {"ModelConfig": "model", "TrainingConfig": "training", "SearchConfig": "search"}
    parts = [
        "# Python",
        NOTE,
        "`import transduce` gives these names. Everything else is internal and may change.",
    ]
    for name in transduce.__all__:
        parts += _entry(name, getattr(transduce, name), sections.get(name))
    parts += _entry("Run", Run, None)
    return "\n\n".join(part for part in parts if part) + "\n"


# --- The notebook -----------------------------------------------------------------------------


def cells(path: Path = NOTEBOOK) -> list[tuple[str, str]]:
    """Split a script at its `# %%` lines into ("markdown", text) and ("code", text)."""
    parts = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = []
    for marker, text in zip(parts[1::2], parts[2::2], strict=True):
        if "[markdown]" in marker:
            lines = [line.removeprefix("#").removeprefix(" ") for line in text.strip().split("\n")]
            found.append(("markdown", "\n".join(lines)))
        else:
            found.append(("code", text.strip()))
    return found


def run_cells(path: Path = NOTEBOOK) -> Iterator[tuple[str, str, str]]:
    """Run the code cells in order; yield kind, text and printed output of every cell."""
    import torch

    names: dict[str, Any] = {"__name__": "notebook"}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a small model is faster so, and gives the same numbers everywhere
    try:
        for kind, text in cells(path):
            output = io.StringIO()
            if kind == "code":
                with contextlib.redirect_stdout(output):
                    exec(compile(text, str(path), "exec"), names)
            yield kind, text, output.getvalue().rstrip()
    finally:
        torch.set_num_threads(threads)


def notebook_page() -> str:
    """Write the notebook as a page, with the output of every cell."""
    parts = []
    for kind, text, output in run_cells():
        parts.append(text if kind == "markdown" else f"```python\n{text}\n```")
        if output:
            parts.append(f"```text\n{output}\n```")
        if len(parts) == 1:
            parts.append("[Download this page as a Jupyter notebook](transformer.ipynb)")
    return "\n\n".join(parts) + "\n"


def notebook_file() -> str:
    """Write the notebook in the format of Jupyter, without outputs."""
    written = []
    for number, (kind, text) in enumerate(cells()):
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": text.splitlines(keepends=True),
        }
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        written.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {
        "cells": written,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


# --- The hook ---------------------------------------------------------------------------------

PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/presets.md": presets_page,
    "reference/cleaning-rules.md": rules_page,
    "reference/python.md": python_page,
    "tutorials/transformer.md": notebook_page,
    "tutorials/transformer.ipynb": notebook_file,
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages and the mounted files to the site (called by MkDocs)."""
    from mkdocs.structure.files import File

    for uri, write in PAGES.items():
        files.append(File.generated(config, uri, content=write()))
    for path in MOUNTED:
        # The site has a front page of its own in place of README.md.
        if path != ROOT / "README.md":
            uri = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links between docs/ and the rest of the repository, which are one tree here."""
    depth = page.file.src_uri.count("/")
    names = "|".join(re.escape(path.relative_to(ROOT).as_posix()) for path in MOUNTED)
    if (DOCS / page.file.src_uri).exists() or page.file.src_uri in PAGES:
        # A page of docs/ leaves that folder by one more "../".
        outside = re.escape("../" * (depth + 1))
        markdown = re.sub(rf"\]\({outside}(?={names})", f"]({'../' * depth}", markdown)
    else:
        # A mounted page enters it.
        inside = re.escape("../" * depth) + "docs/"
        markdown = re.sub(rf"\]\({inside}", f"]({'../' * depth}", markdown)
    return (
        re.sub(r"\]\(((?:\.\./)*)README\.md", r"](\1index.md", markdown) if depth == 0 else markdown
    )
