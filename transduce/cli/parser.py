"""Turn the words of a command line into a call of the command's function.

`argparse` reads the options. Each mistake becomes an `InputError` with a message of one line.
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any, NoReturn

from transduce.cli.arguments import Argument, Command, read_arguments, suggest, usage
from transduce.errors import InputError

# The parameter that takes settings of the recipe, such as model.N=2.
SETTINGS = "overrides"


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
            raise InputError(_describe_unknown_option(name, word, options, takes_settings))

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
        raise InputError(_describe_wrong_use(option_name, options, words)) from None
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


def _describe_unknown_option(
    command: str, word: str, options: Sequence[Argument], takes_settings: bool
) -> str:
    """Return the error message for an option that the command does not have."""
    option_name = word.partition("=")[0].replace("_", "-")
    shown_name = option_name if option_name.isprintable() else repr(option_name)
    message = f"{shown_name} is not an option of transduce {command}"
    setting = _find_setting(option_name.lstrip("-")) if takes_settings else ""
    if setting:
        return f"{message}; a setting is written {setting}=value"
    known_names = [option.option for option in options]
    if not known_names:
        return f"{message}; it has no options"
    return f"{message}; {suggest(option_name, known_names)}"


def _find_setting(option_name: str) -> str:
    """Return the setting that was written as an option (--training.seed or --seed), or ""."""
    from transduce.config import Recipe

    name = option_name.replace("-", "_")
    for section, settings in asdict(Recipe()).items():
        if re.fullmatch(rf"{section}\.[\w.]+", name):
            return name
        if name in settings:
            return f"{section}.{name}"
    return ""


def _describe_wrong_use(option_name: str, options: Sequence[Argument], words: Sequence[str]) -> str:
    """Return the error message for an option without its value, or for a flag with a value."""
    option = next((option for option in options if option.option == option_name), None)
    if option is None or option.kind is bool:
        return f"{option_name} takes no value; write {option_name} alone"
    message = f"{option_name} has no value; write {option_name} {option.placeholder}"

    # The next word may be meant as the value, and not as an option.
    next_word = _word_after(option_name, words)
    if next_word and next_word.isprintable():
        message += f", or {option_name}={next_word} for a value that begins with a dash"
    return message


def _word_after(word: str, words: Sequence[str]) -> str:
    """Return the word that follows another one, or "" if there is none."""
    if word not in words[:-1]:
        return ""
    return words[words.index(word) + 1]
