"""The help texts: the overview of all commands, and the page of one command."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from transduce.cli.arguments import Argument, Command, read_arguments, usage

# The commands by name, under the title of their group.
Groups: TypeAlias = Mapping[str, Mapping[str, Command]]

WIDTH = 80
LABEL_WIDTH = 24  # the help of an argument starts in this column


def overview(groups: Groups) -> str:
    """Return the text of `transduce --help`: one line for each command."""
    lines = ["usage: transduce COMMAND [arguments] [options]"]
    width = max(len(name) for commands in groups.values() for name in commands)
    for title, commands in groups.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<{width}}  {summary(command)}" for name, command in commands.items()]
    lines += [
        "",
        "transduce COMMAND --help shows the arguments, options and examples of a command.",
        "transduce --version prints the version.",
    ]
    return "\n".join(lines)


def command_help(name: str, command: Command) -> str:
    """Return the text of `transduce COMMAND --help`."""
    arguments = read_arguments(command)
    description, examples = _split_docstring(command)

    # How to write the command, and what it does.
    lines = [f"usage: {usage(name, arguments)}"]
    for paragraph in description.split("\n\n"):
        lines += ["", *_wrap(paragraph)]

    # The arguments and the options.
    positionals = [argument for argument in arguments if not argument.is_option]
    if positionals:
        lines += ["", "arguments:"]
    for argument in positionals:
        lines += _entry(argument.placeholder, _help_text(argument))

    lines += ["", "options:"]
    for argument in arguments:
        if argument.is_option:
            lines += _entry(argument.option_usage, _help_text(argument))
    lines += _entry("-h, --help", "show this help and exit")

    lines += ["", "examples:"]
    lines += [f"  {example}" for example in examples]
    return "\n".join(lines)


def summary(command: Command) -> str:
    """Return the first line of the docstring of a command."""
    return (inspect.getdoc(command) or "").partition("\n")[0]


def _split_docstring(command: Command) -> tuple[str, list[str]]:
    """Return the description and the examples of a command's docstring."""
    description, _, examples = (inspect.getdoc(command) or "").partition("\n\nExamples:\n")
    return description, textwrap.dedent(examples).splitlines()


def _help_text(argument: Argument) -> str:
    """Return the help of an argument with its default, unless the help already says it."""
    text = argument.help.text
    if argument.is_option and argument.is_required:
        return f"{text} (required)"
    # None and empty defaults are explained in the text; a flag is off by default.
    default = argument.default
    has_value = not isinstance(default, bool) and isinstance(default, int | float | str | Path)
    if not has_value or default == "" or "(default: " in text:
        return text
    shown = f"{default:g}" if isinstance(default, float) else default
    return f"{text} (default: {shown})"


def _entry(label: str, text: str) -> Iterator[str]:
    """Yield the lines of one argument: its label, and beside it or below it the help."""
    lines = _wrap(text, indent=" " * LABEL_WIDTH)
    # A long label has a line of its own.
    if lines and len(label) + 4 <= LABEL_WIDTH:
        lines[0] = f"  {label}".ljust(LABEL_WIDTH) + lines[0].lstrip()
    else:
        yield f"  {label}"
    yield from lines


def _wrap(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
