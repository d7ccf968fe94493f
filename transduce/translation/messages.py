"""ICU messages that extend over several lines of a file: their lines are one text.

    You have {n, plural,
      one {# file}
      other {# files}
    }.

Translated line by line, the words of the format (`plural`, `one`, `other`) would be translated too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

MOST_LINES = 100  # of one message; a brace that is never closed must not hold back a whole file
_BEGINNING = re.compile(r"\{\s{0,4}\w{1,64}\s{0,4},\s{0,4}(?:plural|select|selectordinal)\b")
_BRACE = re.compile("[{}]")


def group_lines(lines: Sequence[str]) -> Iterator[range]:
    """Yield the numbers of lines that belong together; almost always, that is one line."""
    number = 0
    while number < len(lines):
        end = _end_of_message(lines, number)
        yield range(number, end)
        number = end


def whole_messages(portions: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield lines as they come, but hold them back while a message is not complete."""
    waiting: list[bytes] = []
    for lines in portions:
        waiting += lines
        last_lines = b"".join(waiting[-MOST_LINES:]).decode(errors="replace")
        if not _ends_in_message(last_lines):
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _end_of_message(lines: Sequence[str], first: int) -> int:
    """Return the number of the line after the message that begins in a line, or after the line."""
    if "{" not in lines[first] or not _ends_in_message(lines[first]):
        return first + 1
    for end in range(first + 2, min(first + MOST_LINES, len(lines)) + 1):
        if not _ends_in_message("\n".join(lines[first:end])):
            return end
    return first + 1


def _ends_in_message(text: str) -> bool:
    """Return whether a text ends before all braces of its messages are closed."""
    place = 0
    while beginning := _BEGINNING.search(text, place):
        depth = 0
        for brace in _BRACE.finditer(text, beginning.start()):
            depth += 1 if brace[0] == "{" else -1
            place = brace.end()
            if depth == 0:
                break
        if depth:
            return True
    return False
