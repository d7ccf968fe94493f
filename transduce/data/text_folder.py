"""A folder of parallel text: one file per language, and the recipe that trains on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from transduce.errors import DataError
from transduce.recipe import toml_value
from transduce.storage import disk

RECIPE = "recipe.toml"
# The section of a recipe for each split.
SECTIONS = {"train": "corpora", "valid": "validation", "test": "test"}


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears only when it is complete, and create its folder.

    An error of the disk becomes a DataError that names the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.whole_file(path) as file:
            yield file
    except OSError as error:
        reason = disk.describe_failure(error)
        raise DataError(
            f"{path} cannot be written: {reason}; free some space, or choose another folder"
        ) from None


def write_recipe(
    folder: Path,
    languages: tuple[str, str],
    corpora: Mapping[str, Iterable[str]],
    *,
    preset: str,
    settings: str = "",
) -> Path:
    """Write a recipe that trains on the files NAME.LANGUAGE of each split, and return its path.

    Write it last, so that a folder with a recipe has every file that the recipe names.
    """
    lines = [
        f'preset = "{preset}"',
        "",
        "[data]",
        f"source_language = {toml_value(languages[0])}",
        f"target_language = {toml_value(languages[1])}",
    ]
    for split, names in corpora.items():
        for name in names:
            lines += [
                "",
                f"[[data.{SECTIONS[split]}]]",
                f"name = {toml_value(name)}",
                f"source = {toml_value((f'{name}.{languages[0]}',))}",
                f"target = {toml_value((f'{name}.{languages[1]}',))}",
            ]
    with whole_file(folder / RECIPE) as file:
        file.write("\n".join([*lines, settings]).encode())
    return folder / RECIPE
