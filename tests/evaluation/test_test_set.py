"""Test sets: parallel files are read and translated, and everything else is refused."""

import lzma
from types import SimpleNamespace

import pytest

from transduce.config import Recipe
from transduce.errors import DataError
from transduce.evaluation.test_set import read_parallel, read_test_set, translate_test_set


def write(folder, **files):
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def test_lines_end_at_line_feeds_only(tmp_path):
    paths = write(tmp_path, en="it is\nall\u2028we know\n", de="es ist\nalles\n")
    assert read_parallel(paths) == [["it is", "all\u2028we know"], ["es ist", "alles"]]


def test_compressed_files_are_read(tmp_path):
    (tmp_path / "a.xz").write_bytes(lzma.compress(b"one\ntwo\n"))
    assert read_parallel([tmp_path / "a.xz", tmp_path / "a.xz"]) == [["one", "two"]] * 2


def test_files_with_different_numbers_of_lines_are_refused(tmp_path):
    en, de, out = write(tmp_path, en="a\nb\n", de="A\nB\n", out="A\nB\nC\n")
    with pytest.raises(DataError, match=r"out has 3 lines but .*de has 2; they must be parallel"):
        read_parallel([en, de, out])
    translator = SimpleNamespace(recipe=Recipe())
    with pytest.raises(DataError, match=r"en has 2 lines but .*out has 3; they must be parallel"):
        read_test_set(translator, en, out)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_reference_is_refused(tmp_path, text):
    en, de = write(tmp_path, en="a\nb\n", de=text)
    with pytest.raises(DataError, match=r"de has no text; expected one sentence per line"):
        read_parallel([en, de])


def test_empty_translations_are_accepted(tmp_path):
    paths = write(tmp_path, en="a\n", de="A\n", out="\n")
    assert read_parallel(paths)[2] == [""]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.en does not exist"):
        read_parallel([tmp_path / "none.en", tmp_path / "none.de"])


def test_it_is_said_how_many_lines_were_split_or_cut(capsys):
    translator = SimpleNamespace(
        translate=lambda texts: [
            SimpleNamespace(text=text.upper(), notices=["cut"] * ("know" in text)) for text in texts
        ]
    )
    sources = ["it is a small house", "that is all we know"]
    assert translate_test_set(translator, sources) == ["IT IS A SMALL HOUSE", "THAT IS ALL WE KNOW"]
    assert (
        capsys.readouterr().err
        == "transduce: 1 of 2 lines were split or cut; transduce translate says which\n"
    )
