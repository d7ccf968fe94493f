"""Models are loaded quickly."""

import gc
import sys

import pytest

from transduce.cli.commands import run
from transduce.cli.translation import loading
from transduce.errors import DataError
from transduce.translation import translator


def test_the_garbage_collector_rests_while_a_model_is_loaded():
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(DataError), loading():
        raise DataError("x.en is empty; expected text")
    assert gc.isenabled()


@pytest.mark.parametrize(
    "arguments", [["translate", "--model", "x", "x"], ["score", "x", "x.en", "x.de"]]
)
def test_models_are_loaded_without_looking_for_garbage(arguments, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("x.en", "x.de"):
        (tmp_path / name).write_text("one\n")
    seen = []
    monkeypatch.setattr(
        translator,
        "Translator",
        lambda *bundle, **options: seen.append(gc.isenabled()) or sys.exit(7),
    )
    assert (run(arguments), seen, gc.isenabled()) == (7, [False], True)
