"""Functions as one program: its overview, its parser and its completion; a user's mistake is one line and status 2."""

from __future__ import annotations

import contextlib
import difflib
import functools
import gc
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias

import tyro

from transduce.config import Recipe
from transduce.errors import InputError, TransduceError, lacks_memory

Commands: TypeAlias = Mapping[str, Callable[..., None]]
# What the parser says of a value that should be a number, or nothing: the option, its type, the value.
_NOT_A_NUMBER = re.compile(r"Error parsing (\S+): .*?\b(int|float)\b.*'(.*)'", re.IGNORECASE)
_SETTING = re.compile(rf"({'|'.join(section.name for section in fields(Recipe))})(\.\w.*)?=")
SHELLS = ("bash", "zsh", "fish")  # those that the parser's completion knows by itself


def run(commands: Commands, arguments: Sequence[str]) -> int:
    """Run one command line; the exit status. An error that a user caused is one line on stderr and status 2."""
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_overview(commands))
        elif arguments[0] == "--version":
            from importlib import metadata

            print(f"transduce {metadata.version('transduce')}")
        else:
            _check_first(commands, arguments)
            _parse(commands, arguments)()
    except TransduceError as error:
        # What is wrong with the command that torchrun gave to all processes of a machine, the first of them says.
        if error.met_by_rank is not None or os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"transduce: {error}", file=sys.stderr)
        return 2
    except SystemExit as stop:
        return int(stop.code or 0)
    except BrokenPipeError:
        # The reader of our output went away: nothing to say, nobody to say it to.
        sys.stderr.close()
        return 0
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        reason = (
            str(error).partition("\n")[0].rpartition("Allocator: ")[2]
            or "Python could not allocate any more"
        )
        print(
            f"transduce: there is too little memory: {reason}; take a smaller model or batch",
            file=sys.stderr,
        )
        return 2
    except OSError as error:  # a folder in place of a file, no permission, a full disk
        print(
            f"transduce: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("transduce: interrupted", file=sys.stderr)
        return 130
    return 0


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """For what a command imports and loads at its start: it stays, so looking for garbage in it is time lost."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _overview(commands: Commands) -> str:
    lines = ["usage: transduce COMMAND ...", "", "commands:"]
    for name, command in commands.items():
        lines.append(f"  {name:<10} {(command.__doc__ or '').partition(chr(10))[0]}")
    lines += [
        "",
        "transduce COMMAND --help shows a command's options and an example.",
        "transduce --version prints the version.",
        "transduce --tyro-print-completion bash (or zsh, fish) prints a shell completion script.",
    ]
    return "\n".join(lines)


def _check_first(commands: Commands, arguments: Sequence[str]) -> None:
    """Refuse what the parser has no good words for: a command that does not exist, a shell it does not know."""
    first, *others = arguments
    if first == "--tyro-print-completion":
        if (shell := "".join(others)) not in SHELLS:
            raise InputError(
                f"there is no completion script for {shell!r}; expected one of {', '.join(SHELLS)}"
            )
    elif first not in commands and first != "--tyro-write-completion":
        raise InputError(f"{first!r} is not a command; {_hint(first, list(commands))}")


def _parse(commands: Commands, arguments: Sequence[str]) -> Callable[[], None]:
    """The command with its arguments bound. Parsing is apart from running so that its errors become one line."""

    def deferred(command: Callable[..., None]) -> Callable[..., Any]:
        @functools.wraps(command)
        def bind(*args: Any, **kwargs: Any) -> Callable[[], None]:
            return functools.partial(command, *args, **kwargs)

        return bind

    if (
        arguments[0] in commands
        and "overrides" in inspect.signature(commands[arguments[0]]).parameters
    ):
        arguments = [
            each
            for _, each in sorted(zip(["", *arguments], arguments, strict=False), key=_is_setting)
        ]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            binding = {name: deferred(command) for name, command in commands.items()}
            bound: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
                binding, prog="transduce", args=list(arguments)
            )
            return bound
    except SystemExit as stop:
        if stop.code == 2:
            text = complaint.getvalue()
            line = (
                _unknown_option(commands, arguments)
                if "Unrecognized" in text and arguments[0] in commands
                else ""
            )
            raise TransduceError(line or _one_line(text)) from None
        raise


def _is_setting(pair: tuple[str, str]) -> bool:
    """Whether an argument is a setting, and not the value of the option before it: every option has one there.

    Settings may stand anywhere; the parser wants them together, at the end.
    """
    before, argument = pair
    return bool(_SETTING.match(argument)) and not re.fullmatch("--[^=]+", before)


def _unknown_option(commands: Commands, arguments: Sequence[str]) -> str:
    """Names the option that the command does not have, and those that it has."""
    command, *others = arguments
    parameters = inspect.signature(commands[command]).parameters
    known = [
        item.name.replace("_", "-")
        for item in parameters.values()
        if item.kind is item.KEYWORD_ONLY
    ]
    sections = asdict(Recipe()).items() if "overrides" in parameters else ()
    settings = {
        name.replace("_", "-"): f"{section}.{name}" for section, names in sections for name in names
    }
    for option in (
        other[2:].partition("=")[0].replace("_", "-") for other in others if other.startswith("--")
    ):
        if option.removeprefix("no-") not in known:
            setting = settings.get(option, option if "." in option else None)
            hint = (
                f"a setting is written {setting}=value" if setting else _hint(option, known, "--")
            )
            return f"--{option} is not an option of transduce {command}; {hint}"
    return ""


def _hint(word: str, known: Sequence[str], dashes: str = "") -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return (
        f"did you mean {dashes}{close[0]}?"
        if close
        else "expected one of " + ", ".join(dashes + k for k in known)
    )


def _one_line(box: str) -> str:
    """The first and the last section of the parser's message, which it draws in a box under a title."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    text = "\n".join("" if not line.strip("─-╰╯") else line for line in lines)
    sections = [" ".join(section.split()) for section in text.split("\n\n")]
    sections = [section for section in sections if section]
    if number := _NOT_A_NUMBER.match(sections[0]):
        name, kind, found = number.groups()
        return f"{name} is {found!r}; expected a {'whole ' if kind.lower() == 'int' else ''}number"
    return "; ".join(sections[:1] + sections[1:][-1:])
