"""The arguments of a command: declared by the signature of its function, given as words.

A parameter before the `*` is a positional argument, and one after it is an option. The type gives
the values that are allowed, and `Annotated[..., Help("...")]` gives the text of the help:

    def watch(
        run: Annotated[Path, Help("the run folder that `transduce train` writes")],
        *,
        once: Annotated[bool, Help("print the current state once and exit")] = False,
    ) -> None:

`argparse` reads the options. Each mistake becomes an `InputError` with a message of one line.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

from transduce.cli.mistakes import describe_unknown_option, describe_wrong_use, suggest
from transduce.errors import InputError

Command: TypeAlias = Callable[..., None]

# The parameter that takes settings of the recipe, such as model.N=2.
SETTINGS = "overrides"

# What the help shows for the value of an option, unless `Help.value` names something better.
PLACEHOLDERS = {int: "N", float: "NUMBER", str: "TEXT", Path: "FILE", bool: ""}


@dataclass(frozen=True)
class Help:
    """The help text of an argument."""

    text: str
    value: str = ""  # what the help shows for the value, such as FOLDER
    several: bool = False  # for an option: one use takes several values, as in --test FILE FILE
    bare: str = ""  # for an option: the value of --json alone; without it, a value is required


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
        if self.help.bare:
            value = f"[{value}]"
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
        elif argument.is_list and any(mark in argument.placeholder for mark in ("...", "[")):
            words.append(argument.placeholder)
        elif argument.is_list:
            words.append(f"[{argument.placeholder} ...]")
        elif argument.is_required:
            words.append(argument.placeholder)
        else:
            words.append(f"[{argument.placeholder}]")
    if has_other_options:
        words.append("[options]")
    return " ".join(words)


class OptionParser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises its errors: it neither prints a usage text nor exits."""

    def __init__(self, options: Sequence[Argument]) -> None:
        super().__init__(
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
            argument_default=argparse.SUPPRESS,  # the function has the defaults
        )
        for option in options:
            self._add(option)

    def _add(self, option: Argument) -> None:
        # --batch_tokens is accepted as another spelling of --batch-tokens.
        names = dict.fromkeys((option.option, f"--{option.name}"))
        if option.kind is bool:
            self.add_argument(*names, dest=option.name, action="store_true")
            negative_names = [name.replace("--", "--no-", 1) for name in names]
            self.add_argument(*negative_names, dest=option.name, action="store_false")
        elif option.help.several:
            self.add_argument(
                *names, dest=option.name, action="extend", nargs="+", type=option.convert
            )
        elif option.help.bare:
            bare = option.convert(option.help.bare)
            self.add_argument(*names, dest=option.name, nargs="?", const=bare, type=option.convert)
        else:
            action = "append" if option.is_list else "store"
            self.add_argument(*names, dest=option.name, action=action, type=option.convert)

    def error(self, message: str) -> NoReturn:
        """Raise an error where `argparse` would print its usage text and exit."""
        raise InputError(message)


def parse(name: str, command: Command, words: Sequence[str]) -> Callable[[], None]:
    """Return the command with the arguments that the words give to it."""
    arguments = read_arguments(command)
    options = [argument for argument in arguments if argument.is_option]
    positionals = [argument for argument in arguments if not argument.is_option]
    takes_settings = any(argument.name == SETTINGS for argument in positionals)

    # After a bare --, a word is never an option.
    end = words.index("--") if "--" in words else len(words)
    literal_words = words[end + 1 :]

    # Read the options. All other words are left.
    values, other_words = _parse_options(options, words[:end])
    for word in other_words:
        if _looks_like_an_option(word):
            raise InputError(describe_unknown_option(name, word, options, takes_settings))

    # Settings may be written anywhere; the function takes them after the recipe.
    positional_words = [*other_words, *literal_words]
    if takes_settings:
        positional_words.sort(key=_is_setting)
    values |= _assign(positionals, positional_words, usage(name, arguments))

    for option in options:
        if option.is_required and option.name not in values:
            raise InputError(f"{option.label} is missing; write {usage(name, arguments)}")
    return functools.partial(command, **values)


def _parse_options(
    options: Sequence[Argument], words: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of the options that are given, and the words that belong to no option."""
    try:
        namespace, other_words = OptionParser(options).parse_known_args(words)
    except argparse.ArgumentError as error:
        # `Argument.convert` raises an error of our own for a wrong value, so what is left is
        # a value that is missing, or the value of an option that takes none.
        option_name = (error.argument_name or "").partition("/")[0]
        raise InputError(describe_wrong_use(option_name, options, words)) from None
    values = vars(namespace)
    for option in options:
        if option.is_list and option.name in values:
            values[option.name] = tuple(values[option.name])
    return values, other_words


def _assign(
    positionals: Sequence[Argument], words: Sequence[str], usage_line: str
) -> dict[str, Any]:
    """Return the values of the positional arguments: one word each, or all words for a list."""
    values: dict[str, Any] = {}
    words = list(words)
    for argument in positionals:
        if argument.is_list:
            values[argument.name] = tuple(argument.convert(word) for word in words)
            words = []
        elif words:
            values[argument.name] = argument.convert(words.pop(0))
        elif argument.is_required:
            raise InputError(f"{argument.label} is missing; write {usage_line}")
    if words:
        raise InputError(f"unexpected argument {words[0]!r}; write {usage_line}")
    return values


def _looks_like_an_option(word: str) -> bool:
    """Return whether `argparse` takes a word that it does not know for an option.

    A negative number, a single dash and a text with spaces are not options.
    """
    is_number = re.fullmatch(r"-\d+|-\d*\.\d+", word)
    return word.startswith("-") and word != "-" and " " not in word and not is_number


def _is_setting(word: str) -> bool:
    """Return whether a word is a setting of the recipe, such as model.N=2."""
    from transduce.config import Recipe

    sections = "|".join(section.name for section in fields(Recipe))
    return re.match(rf"({sections})(\.\w.*)?=", word) is not None
