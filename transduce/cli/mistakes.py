"""What a user may have meant: the error messages for unknown words and wrong options."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transduce.cli.arguments import Argument


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


def describe_unknown_option(
    command: str, word: str, options: Sequence[Argument], takes_settings: bool
) -> str:
    """Return the error message for an option that the command does not have."""
    option_name = word.partition("=")[0].replace("_", "-")
    shown_name = option_name if option_name.isprintable() else repr(option_name)
    message = f"{shown_name} is not an option of transduce {command}"
    setting = _find_setting(option_name.lstrip("-")) if takes_settings else ""
    if setting:
        return f"{message}; a setting is written {setting}=value"
    ours = _find_foreign(option_name.lstrip("-")) if takes_settings else ""
    if ours:
        return f"{message}; here it is the setting {ours}"
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


def _find_foreign(option_name: str) -> str:
    """Return our setting for the name that another library has for it (--lr), or ""."""
    from transduce.setting_names import FOREIGN

    return FOREIGN.get(option_name.replace("-", "_"), "")


def describe_wrong_use(option_name: str, options: Sequence[Argument], words: Sequence[str]) -> str:
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
