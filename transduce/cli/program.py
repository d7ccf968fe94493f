"""The program around the commands: find the command, run it, and return the exit status."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence

from transduce.cli.arguments import Command, suggest
from transduce.cli.help import Groups, command_help, overview
from transduce.cli.parser import parse
from transduce.errors import InputError, TransduceError, lacks_memory

HELP_OPTIONS = ("-h", "--help")


def run(groups: Groups, words: Sequence[str]) -> int:
    """Run one command line and return its exit status.

    An error that the user can correct is one line on standard error and status 2.
    """
    try:
        _dispatch(groups, words)
    except TransduceError as error:
        # With torchrun, all processes of a machine find the same mistake in the command line;
        # only the first one prints it.
        if error.met_by_rank is not None or os.environ.get("LOCAL_RANK", "0") == "0":
            _print_error(str(error))
        return 2
    except SystemExit as stop:
        return int(stop.code or 0)
    except BrokenPipeError:
        # The program that reads our output has ended, as in `transduce ... | head`.
        sys.stderr.close()
        return 0
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        _print_error(_describe_missing_memory(error))
        return 2
    except OSError as error:  # a folder in place of a file, no permission, a full disk
        _print_error(f"{error.filename or 'a file'}: {error.strerror or error}")
        return 2
    except KeyboardInterrupt:
        _print_error("interrupted")
        return 130
    return 0


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


def _dispatch(groups: Groups, words: Sequence[str]) -> None:
    """Print a help text or the version, or run the command that the first word names."""
    if not words or words[0] in HELP_OPTIONS:
        print(overview(groups))
        return
    if words[0] == "--version":
        from importlib import metadata

        print(f"transduce {metadata.version('transduce')}")
        return

    name, *command_words = words
    command = _find_command(groups, name)
    if _asks_for_help(command_words):
        print(command_help(name, command))
    else:
        parse(name, command, command_words)()


def _find_command(groups: Groups, name: str) -> Command:
    commands: dict[str, Command] = {}
    for group in groups.values():
        commands.update(group)
    if name in commands:
        return commands[name]
    if name.startswith("-"):
        known_options = ["--help", "--version"]
        raise InputError(f"{name!r} is not an option; {suggest(name, known_options)}")
    raise InputError(f"{name!r} is not a command; {suggest(name, list(commands))}")


def _asks_for_help(words: Sequence[str]) -> bool:
    for word in words:
        if word == "--":  # what follows is text
            return False
        if word in HELP_OPTIONS:
            return True
    return False


def _describe_missing_memory(error: Exception) -> str:
    # torch names its allocator before the reason, and adds lines of statistics.
    first_line = str(error).partition("\n")[0]
    reason = first_line.rpartition("Allocator: ")[2] or "Python could not allocate any more"
    return f"there is too little memory: {reason}; use a smaller model or batch"


def _print_error(message: str) -> None:
    print(f"transduce: {message}", file=sys.stderr)
