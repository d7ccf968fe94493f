"""Files that hold both sides: TSV, JSONL and Parquet. (TMX is in `tmx.py`.)

A cell without text (JSON null, an empty column) is an empty side: the doctor reports it, so nothing vanishes unseen.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transduce.data.pairs import Chunk
from transduce.data.readers.lines import read_lines
from transduce.errors import DataError, require

_SIDES = (
    ("source", "src"),
    ("target", "tgt"),
)  # what columns are called that do not go by a language

_ROWS = 4096  # of a Parquet file at a time


def speaks(found: str, wanted: str) -> bool:
    """Whether a language code found in a file is the wanted one, or a regional kind of it: en-US is en."""
    found, wanted = found.lower().replace("_", "-"), wanted.lower().replace("_", "-")
    return found == wanted or found.split("-")[0] == wanted


@functools.lru_cache
def find_columns(names: tuple[str, ...], languages: tuple[str, str]) -> list[str | None]:
    """Which of the names holds which side: by language code, else by `source` and `target`."""
    by_language = [
        next((name for name in names if speaks(name, language)), None) for language in languages
    ]
    by_side = [next((name for name in names if name.lower() in side), None) for side in _SIDES]
    return by_side if None in by_language and None not in by_side else by_language


def _columns(names: Iterable[str], languages: tuple[str, str], where: str) -> tuple[str, str]:
    names = tuple(names)
    source, target = find_columns(names, languages)
    if source is None or target is None:
        missing = languages[0] if source is None else languages[1]
        known = ", ".join(names) or "nothing"
        raise DataError(
            f"{where} has no {missing!r}; it has {known}: expected language codes, or source and target"
        )
    return source, target


def read_tsv(path: Path, languages: tuple[str, str], strict: bool) -> Iterator[Chunk]:
    """The first two columns, or those that a first line of language codes (or source, target) names."""
    source, target, width = 0, 1, 0
    for lines in read_lines(path, languages[0], strict):
        rows = [text.split("\t") for text in lines.texts]
        first = lines.first
        if not width:
            width = len(rows[0])
            named = find_columns(tuple(rows[0]), languages)
            if width > 1 and None not in named:
                source, target = (rows[0].index(str(name)) for name in named)
                rows, first = rows[1:], first + 1
        for line, row in enumerate(rows, first):
            if len(row) != width or width < 2:
                columns = f"{len(row)} column{'s' * (len(row) > 1)}"
                expected = "two or more, split by tabs" if width < 2 else f"{width}, as in line 1"
                raise DataError(f"{path}:{line} has {columns}; expected {expected}")
        yield Chunk(
            [row[source] for row in rows],
            [row[target] for row in rows],
            range(first, first + len(rows)),
            str(path),
            str(path),
            lines.remarks,
        )


def read_jsonl(path: Path, languages: tuple[str, str], strict: bool) -> Iterator[Chunk]:
    """An object a line: {"en": ..., "de": ...}, {"source": ..., "target": ...} or {"translation": {...}}."""
    for lines in read_lines(path, languages[0], strict):
        numbers, sources, targets = [], [], []
        for number, text in enumerate(lines.texts, lines.first):
            if not text.strip():
                continue  # no object: a last empty line, mostly
            where = f"{path}:{number}"
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{where} is not JSON: {error}; expected one object a line"
                ) from None
            if isinstance(row, dict) and isinstance(row.get("translation"), dict):
                row = row["translation"]
            if not isinstance(row, dict):
                raise DataError(
                    f"{where} is a JSON {type(row).__name__}; expected an object with a text per language"
                )
            source, target = (
                _text(row[name], name, where) for name in _columns(row, languages, where)
            )
            numbers.append(number)
            sources.append(source)
            targets.append(target)
        yield Chunk(sources, targets, numbers, str(path), str(path), lines.remarks)


def read_parquet(path: Path, languages: tuple[str, str], strict: bool) -> Iterator[Chunk]:
    """Columns named by language or source and target, alone or inside a column `translation`. Lines are rows."""
    parquet = require("pyarrow.parquet", extra="data")
    try:
        with parquet.ParquetFile(path) as file:
            schema, prefix = file.schema_arrow, ""
            names = list(schema.names)
            if "translation" in names and hasattr(schema.field("translation").type, "names"):
                names, prefix = list(schema.field("translation").type.names), "translation."
            columns = _columns(names, languages, str(path))
            first = 1
            for batch in file.iter_batches(
                batch_size=_ROWS, columns=[prefix + name for name in columns]
            ):
                table = batch.column(0).flatten() if prefix else batch.columns
                order = batch.schema.field(0).type.names if prefix else batch.schema.names
                texts = {
                    name: values.to_pylist() for name, values in zip(order, table, strict=True)
                }
                sources, targets = (
                    [
                        _text(text, name, f"{path}:{row}")
                        for row, text in enumerate(texts[name], first)
                    ]
                    for name in columns
                )
                yield Chunk(
                    sources, targets, range(first, first + len(batch)), str(path), str(path)
                )
                first += len(batch)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; expected a Parquet file") from None
    except (OSError, ValueError) as error:  # pyarrow's errors are kinds of these
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read as Parquet: {reason}") from None


def _text(value: Any, name: str, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{where}: {name} is {value!r:.40}; expected text")
    return value
