"""Read Parquet files. A null is read as an empty side, which the doctor reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transduce.data.pairs import Chunk
from transduce.data.readers.columns import as_text, require_columns
from transduce.errors import DataError, require

_ROWS = 4096  # read at a time


def read_parquet(path: Path, languages: tuple[str, str], strict: bool) -> Iterator[Chunk]:
    """Read columns named by language, or `source` and `target`; lines are rows.

    They may also be the fields of a column `translation`.
    """
    parquet = require("pyarrow.parquet", extra="data")
    try:
        with parquet.ParquetFile(path) as file:
            yield from _read(file, path, languages)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; expected a Parquet file") from None
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read as Parquet: {reason}") from None


def _read(file: Any, path: Path, languages: tuple[str, str]) -> Iterator[Chunk]:
    schema = file.schema_arrow
    names = list(schema.names)
    prefix = ""
    if "translation" in names and hasattr(schema.field("translation").type, "names"):
        names = list(schema.field("translation").type.names)
        prefix = "translation."
    source, target = require_columns(names, languages, str(path))

    first = 1
    wanted = [prefix + source, prefix + target]
    for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
        columns = _columns(batch, nested=bool(prefix))
        rows = range(first, first + len(batch))
        sources = _texts(columns[source], source, path, rows)
        targets = _texts(columns[target], target, path, rows)
        yield Chunk(sources, targets, rows, str(path), str(path))
        first += len(batch)


def _columns(batch: Any, nested: bool) -> dict[str, Any]:
    """Return the columns of a batch by name; they are fields of its only column if nested."""
    if not nested:
        return dict(zip(batch.schema.names, batch.columns, strict=True))
    names = batch.schema.field(0).type.names
    return dict(zip(names, batch.column(0).flatten(), strict=True))


def _texts(column: Any, name: str, path: Path, rows: range) -> list[str]:
    values = zip(column.to_pylist(), rows, strict=True)
    return [as_text(value, name, f"{path}:{row}") for value, row in values]
