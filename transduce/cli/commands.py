"""The command line: all commands by group, how one is run, and the exit status.

A command is a function in the module of its group. It imports what it needs when it runs, so that
`--help` and mistakes need no torch.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from collections.abc import Sequence

from transduce.cli import (
    data,
    distillation,
    inspection,
    models,
    paper,
    runtimes,
    scoring,
    serving,
    shell,
    training,
    translation,
)
from transduce.cli.arguments import Command, parse
from transduce.cli.help import Groups, command_help, overview
from transduce.cli.mistakes import suggest
from transduce.errors import InputError, TransduceError, lacks_memory
from transduce.storage.disk import describe_failure

GROUPS: dict[str, dict[str, Command]] = {
    "data": data.COMMANDS,
    "training": training.COMMANDS,
    "better and smaller models": distillation.COMMANDS,
    "translation": translation.COMMANDS | scoring.COMMANDS | inspection.COMMANDS,
    "installed models": models.COMMANDS,
    "research": paper.COMMANDS,
    "serving": serving.COMMANDS,
    "other runtimes": runtimes.COMMANDS,
    "editor and shell": shell.COMMANDS,
}

COMMANDS: dict[str, Command] = {
    name: command for commands in GROUPS.values() for name, command in commands.items()
}

HELP_OPTIONS = ("-h", "--help")


def run(words: Sequence[str], groups: Groups = GROUPS) -> int:
    """Run one command line and return its exit status.

    An error that the user can correct is one line on standard error and status 2.
    """
    _accept_every_character()
    try:
        _dispatch(words, groups)
    except TransduceError as error:
        if not _is_said_by_another_rank(error):
            _print_error(str(error))
        return 2
    except SystemExit as stop:
        return int(stop.code or 0)
    except BrokenPipeError:
        # The program that reads our output has ended, as in `transduce ... | head`.
        sys.stderr.close()
        return 0
    except (MemoryError, RuntimeError, ImportError, OSError, SystemError) as error:
        if lacks_memory(error):
            _print_error(_describe_missing_memory(error))
            return 2
        if not isinstance(error, OSError):
            raise
        # A folder in place of a file, no permission, a full disk.
        _print_error(f"{error.filename or 'a file'}: {describe_failure(error)}")
        return 2
    except KeyboardInterrupt as stop:
        # Work that can be continued says how.
        _print_error(str(stop) or "interrupted")
        return 130
    return 0


def _is_said_by_another_rank(error: TransduceError) -> bool:
    if error.met_by_rank is not None:
        return error.is_printed_elsewhere
    # With torchrun, all processes of a machine find the same mistake in the command line. It sets
    # more than two variables; where some are missing, there is no other rank.
    texts = [os.environ.get(name, "") for name in ("LOCAL_RANK", "WORLD_SIZE", "RANK")]
    is_number = [bool(re.fullmatch("[0-9]{1,9}", text)) for text in texts]
    if not all(is_number) or "MASTER_ADDR" not in os.environ:
        return False
    local_rank, size, _ = map(int, texts)
    return 0 < local_rank < size


def _accept_every_character() -> None:
    """Let the output have any character, whatever the locale says.

    A terminal of the C locale gets UTF-8, as all others do; one with an older encoding gets a
    question mark for what it cannot show. File names that are not UTF-8 are written as their bytes,
    so that a suggested command can be pasted.
    """
    codecs.register_error("file-names", _encode_file_name)
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if codecs.lookup(stream.encoding).name == "ascii":
            stream.reconfigure(encoding="utf-8")
        is_utf8 = codecs.lookup(stream.encoding).name == "utf-8"
        if is_utf8 or stream.errors == "strict":
            stream.reconfigure(errors="file-names" if is_utf8 else "replace")


def _encode_file_name(error: UnicodeError) -> tuple[bytes, int]:
    """Return the bytes of what Python could not decode in a file name, or else a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    code = ord(error.object[error.start])
    is_byte = 0xDC80 <= code <= 0xDCFF  # PEP 383
    return bytes([code - 0xDC00]) if is_byte else b"?", error.start + 1


def _dispatch(words: Sequence[str], groups: Groups) -> None:
    """Print a help text or the version, or run the command that the first word names."""
    if not words or words[0] in HELP_OPTIONS:
        print(overview(groups))
        return
    if words[0] == "--version":
        from transduce.monitoring.software import version

        print(f"transduce {version()}")
        return

    name, *command_words = words
    command = _find_command(name, groups)
    if _asks_for_help(command_words):
        print(command_help(name, command))
    else:
        parse(name, command, command_words)()


def _find_command(name: str, groups: Groups) -> Command:
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
