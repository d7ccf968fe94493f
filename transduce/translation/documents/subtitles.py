"""Subtitles (.srt and .vtt): the text of each cue is translated and wrapped again."""

from __future__ import annotations

import re

from transduce.errors import InputError
from transduce.translation.documents.job import Job
from transduce.translation.documents.text_encoding import decode

_WIDTH = 42  # characters of a line that viewers can read in time
_NEW_LINE = r"(?:\r\n|\n|\r|\Z)"
_TIMES = rf"[ \t]*(?:\d+:)?\d+:\d+[,.]\d+[ \t]*-->[^\r\n]*{_NEW_LINE}"
_TIMING = re.compile(rf"(?<![^\r\n]){_TIMES}")  # at the start of a line
# The text of a cue ends at a blank line, or where a careless author has left it out.
_CUE_TEXT = re.compile(
    rf"(?:(?!(?:\d+[ \t]*{_NEW_LINE})?{_TIMES})[^\r\n]*[^\s][^\r\n]*{_NEW_LINE})+"
)
_LINE_END = re.compile(r"\r\n|\n|\r")
_POSITION = re.compile(r"(?:\{\\[^{}]*\})*")  # such as {\an8} at the start of a cue
_TAG = re.compile(r"<[^<>]*>")
_TAG_OR_SPACE = re.compile(rf"{_TAG.pattern}| ")
_DASHES = "-\u2013\u2014"  # at the start of a line: a speaker begins
_SPEAKER = re.compile(rf"\s*[{_DASHES}]\s*(?=\w)|")


def translate_subtitles(job: Job) -> bytes:
    """Translate the cues of a subtitle file; everything else stays as it is."""
    text, encoding = decode(job.data, job.name)
    cues = _find_cues(text)
    if not cues and text.strip().removeprefix("WEBVTT").strip():
        raise InputError(f"{job.name} has no times such as 00:00:01,000 --> 00:00:02,000")

    # What one speaker says in a cue is one text.
    speakers = [_speakers(_LINE_END.split(text[start:end])) for start, end in cues]
    texts = [" ".join(map(str.strip, lines)) for cue in speakers for lines in cue]
    # A model takes a sentence behind a dash for the rest of one.
    dashes = [_start(_SPEAKER, text) for text in texts]
    without = [text[len(dash) :] for text, dash in zip(texts, dashes, strict=True)]
    found = job.translate(without)
    translations = iter([dash + text for dash, text in zip(dashes, found, strict=True)])

    # Write what is between the cues, and the new cues.
    written = []
    done = 0
    for (start, end), cue in zip(cues, speakers, strict=True):
        new_lines: list[str] = []
        for lines in cue:
            translation = next(translations)
            # In a dialogue, a line stays one.
            is_kept = len(cue) > 1 and len(lines) == 1
            new_lines += [translation] if is_kept else _wrap(translation, lines)
        line_end = _LINE_END.search(text, start)
        written += [text[done:start], (line_end[0] if line_end else "\n").join(new_lines)]
        done = end
    return encoding.encode("".join([*written, text[done:]]))


def _find_cues(text: str) -> list[tuple[int, int]]:
    """Return the start and end of the text of each cue, without the line end behind it."""
    cues = []
    for timing in _TIMING.finditer(text):
        found = _CUE_TEXT.match(text, timing.end())
        if found:
            start = found.start() + len(_start(_POSITION, found[0]))
            cues.append((start, found.start() + len(found[0].rstrip("\r\n"))))
    return cues


def _start(pattern: re.Pattern[str], text: str) -> str:
    """Return the start of a text that matches a pattern, which may be nothing."""
    match = pattern.match(text)
    assert match is not None
    return match[0]


def _speakers(lines: list[str]) -> list[list[str]]:
    """Return the lines of each speaker: after the first, one begins with a dash."""
    starts = [_TAG.sub("", line).lstrip()[:2] for line in lines]
    dashes = tuple(_DASHES)
    speakers = [lines[:1]]
    for line, start in zip(lines[1:], starts[1:], strict=True):
        # -5 is a number, unless the first line is that of a speaker, too.
        is_number = start[1:].isdigit() and not starts[0].startswith(dashes)
        if start.startswith(dashes) and not is_number:
            speakers.append([])
        speakers[-1].append(line)
    return speakers


def _wrap(translation: str, source_lines: list[str]) -> list[str]:
    """Return the translation in about as many lines as the source, of similar lengths."""
    words = _words(translation)
    widest = max(_WIDTH, *map(_width, source_lines))
    total = _width(translation)
    count = max(len(source_lines), -(-total // widest))
    # The smallest width that needs no more lines.
    width = -(-total // count)
    while len(lines := _fill(words, width)) > count:
        width += 1
    return lines


def _words(text: str) -> list[str]:
    """Return the words of a text; spaces inside a tag do not separate words."""
    spaces = [found.start() for found in _TAG_OR_SPACE.finditer(text) if found[0] == " "]
    starts = [0, *(space + 1 for space in spaces)]
    return [text[start:end] for start, end in zip(starts, [*spaces, len(text)], strict=True)]


def _fill(words: list[str], width: int) -> list[str]:
    lines = [words[0]]
    for word in words[1:]:
        if _width(lines[-1]) + 1 + _width(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _width(text: str) -> int:
    return len(_TAG.sub("", text))
