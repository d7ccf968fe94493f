"""Read files that hold both sides in lines of text: TSV and JSONL.

A cell without text (JSON null, an empty column) is read as an empty side, which the doctor reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transduce.data.pairs import Chunk
from transduce.data.readers.columns import as_text, find_columns, require_columns
from transduce.data.readers.lines import read_lines
from transduce.errors import DataError


def read_tsv(path: Path, languages: tuple[str, str], strict: bool) -> Iterator[Chunk]:
    """Read the first two columns, or those that a header names.

    A header is a first line with language codes, or with `source` and `target`.
    """
    source = 0
    target = 1
    width = 0
    for lines in read_lines(path, languages[0], strict):
        rows = [text.split("\t") for text in lines.texts]
        first = lines.first

        # The first line decides how many columns there are, and may be a header.
        if not width:
            width = len(rows[0])
            source_name, target_name = find_columns(tuple(rows[0]), languages)
            if width > 1 and source_name is not None and target_name is not None:
                source = rows[0].index(source_name)
                target = rows[0].index(target_name)
                rows = rows[1:]
                first += 1

        for line, row in enumerate(rows, first):
            if len(row) != width or width < 2:
                raise DataError(f"{path}:{line} has {_wrong_width(len(row), width)}")
        yield Chunk(
            [row[source] for row in rows],
            [row[target] for row in rows],
            range(first, first + len(rows)),
            str(path),
            str(path),
            lines.remarks,
        )


def _wrong_width(found: int, width: int) -> str:
    columns = "1 column" if found == 1 else f"{found} columns"
    expected = "two or more, split by tabs" if width < 2 else f"{width}, as in line 1"
    return f"{columns}; expected {expected}"


def read_jsonl(path: Path, languages: tuple[str, str], strict: bool) -> Iterator[Chunk]:
    """Read an object a line.

    It is {"en": ..., "de": ...}, {"source": ..., "target": ...} or {"translation": {...}}.
    """
    for lines in read_lines(path, languages[0], strict):
        numbers = []
        sources = []
        targets = []
        for number, text in enumerate(lines.texts, lines.first):
            if not text.strip():
                continue  # usually an empty last line
            where = f"{path}:{number}"
            row = _parse(text, where)
            source, target = require_columns(row, languages, where)
            numbers.append(number)
            sources.append(as_text(row[source], source, where))
            targets.append(as_text(row[target], target, where))
        yield Chunk(sources, targets, numbers, str(path), str(path), lines.remarks)


def _parse(text: str, where: str) -> dict[str, Any]:
    """Return the object with the two sides."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}; expected one object a line") from None
    if isinstance(row, dict) and isinstance(row.get("translation"), dict):
        row = row["translation"]
    if not isinstance(row, dict):
        raise DataError(
            f"{where} is a JSON {type(row).__name__}; expected an object with a text per language"
        )
    return row
