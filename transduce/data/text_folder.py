"""A folder of parallel text: one file a side, each written whole or not at all, and the recipe that names them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from transduce.errors import DataError
from transduce.storage import disk

RECIPE = "recipe.toml"
SECTIONS = {"train": "corpora", "valid": "validation", "test": "test"}  # a split's name in a recipe


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """`disk.whole_file` in a folder that need not exist, for a user who named the file or the folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.whole_file(path) as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"{path} cannot be written: {reason}; make room, or choose another place"
        ) from None


def write_recipe(
    folder: Path,
    languages: tuple[str, str],
    corpora: Mapping[str, Iterable[str]],
    *,
    preset: str,
    settings: str = "",
) -> Path:
    """Write the recipe that trains on the files NAME.LANGUAGE of each split; its path.

    It comes last: where there is a recipe, every file that it names is complete.
    """
    source, target = map(json.dumps, languages)
    lines = [
        f'preset = "{preset}"',
        "",
        "[data]",
        f"source_language = {source}",
        f"target_language = {target}",
    ]
    for split, names in corpora.items():
        for name in names:
            sides = [json.dumps([f"{name}.{language}"]) for language in languages]
            lines += [
                "",
                f"[[data.{SECTIONS[split]}]]",
                f'name = "{name}"',
                f"source = {sides[0]}",
                f"target = {sides[1]}",
            ]
    with whole_file(folder / RECIPE) as file:
        file.write("\n".join([*lines, settings]).encode())
    return folder / RECIPE
