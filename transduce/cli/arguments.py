"""The arguments of a command, read from the signature of its function.

A parameter before the `*` is a positional argument, and one after it is an option. The type gives
the values that are allowed, and `Annotated[..., Help("...")]` gives the text of the help:

    def watch(
        run: Annotated[Path, Help("the run folder that `transduce train` writes")],
        *,
        once: Annotated[bool, Help("print the current state once and exit")] = False,
    ) -> None:
"""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from transduce.errors import InputError

Command: TypeAlias = Callable[..., None]

# What the help shows for the value of an option, unless `Help.value` names something better.
PLACEHOLDERS = {int: "N", float: "NUMBER", str: "TEXT", Path: "FILE", bool: ""}


@dataclass(frozen=True)
class Help:
    """The help text of an argument."""

    text: str
    value: str = ""  # what the help shows for the value, such as FOLDER
    several: bool = False  # for an option: one use takes several values, as in --test FILE FILE


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a command."""

    name: str  # of the parameter
    is_option: bool
    kind: type  # of one value: str, int, float, Path or bool (an option without a value)
    is_list: bool  # whether the parameter is a tuple of values
    choices: tuple[str, ...]  # the allowed values, or () for any
    default: Any  # `inspect.Parameter.empty` for a required argument
    help: Help

    @property
    def option(self) -> str:
        """The name of an option as people write it: --batch-tokens."""
        return "--" + self.name.replace("_", "-")

    @property
    def label(self) -> str:
        """The name of the argument in an error message."""
        return self.option if self.is_option else self.help.value or self.name.upper()

    @property
    def placeholder(self) -> str:
        """What the usage line and the help show for the value: FOLDER, or cpu|cuda."""
        fallback = PLACEHOLDERS[self.kind] if self.is_option else self.name.upper()
        return self.help.value or "|".join(self.choices) or fallback

    @property
    def option_usage(self) -> str:
        """How people write an option with its value: --test FILE ..."""
        value = self.placeholder
        if self.help.several:
            value += " ..."
        return f"{self.option} {value}".strip()

    @property
    def is_required(self) -> bool:
        """Whether the command cannot run without the argument; a list may be empty."""
        return self.default is inspect.Parameter.empty and not self.is_list

    def convert(self, text: str) -> Any:
        """Return the value of the argument for one word of the command line."""
        if self.choices and text not in self.choices:
            raise InputError(f"{self.label} is {text!r}; {suggest(text, self.choices)}")
        try:
            return self.kind(text)
        except ValueError:
            number = "a whole number" if self.kind is int else "a number"
            raise InputError(f"{self.label} is {text!r}; expected {number}") from None


def read_arguments(command: Command) -> list[Argument]:
    """Return the arguments that a command function declares in its signature."""
    hints = typing.get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    return [_read_argument(parameter, hints[parameter.name]) for parameter in parameters]


def _read_argument(parameter: inspect.Parameter, hint: Any) -> Argument:
    # Annotated[type, Help(...)]
    help = Help("")
    if typing.get_origin(hint) is Annotated:
        hint, help = typing.get_args(hint)

    # tuple[type, ...]
    is_list = typing.get_origin(hint) is tuple
    if is_list:
        hint = typing.get_args(hint)[0]

    # type | None
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = typing.get_args(hint)[0]

    # Literal["cpu", "cuda"]
    choices: tuple[str, ...] = ()
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        hint = str

    return Argument(
        name=parameter.name,
        is_option=parameter.kind is inspect.Parameter.KEYWORD_ONLY,
        kind=hint,
        is_list=is_list,
        choices=choices,
        default=parameter.default,
        help=help,
    )


def usage(name: str, arguments: Sequence[Argument]) -> str:
    """Return one line that shows how to write a command."""
    words = ["transduce", name]
    has_other_options = False
    for argument in arguments:
        if argument.is_option and argument.is_required:
            words.append(argument.option_usage)
        elif argument.is_option:
            has_other_options = True
        elif argument.is_list:
            words.append(f"[{argument.placeholder} ...]")
        elif argument.is_required:
            words.append(argument.placeholder)
        else:
            words.append(f"[{argument.placeholder}]")
    if has_other_options:
        words.append("[options]")
    return " ".join(words)


def suggest(word: str, known: Sequence[str]) -> str:
    """Return the end of an error message about an unknown word: what the user may have meant."""
    # The dashes of options would make any two of them look alike.
    bare_word = word.lstrip("-")
    names = {name.lstrip("-"): name for name in known}
    meant = [name for name in names if bare_word and name.startswith(bare_word)]
    if not meant:
        meant = difflib.get_close_matches(bare_word, names, n=1)
    if meant:
        return f"did you mean {' or '.join(names[name] for name in meant)}?"
    return f"expected {'' if len(known) == 1 else 'one of '}{', '.join(known)}"
