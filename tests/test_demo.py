"""`make demo`: what it trains translates almost every phrase that it has never seen exactly."""

import re
import shlex
from pathlib import Path

import pytest

from transduce.cli.commands import run
from transduce.storage.installed import find_bundle
from transduce.translation.translator import Translator

MAKEFILE = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_demo_translates_95_of_100_new_phrases_exactly(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\t\$\(BIN\)/transduce (.*runs/demo.*)$", MAKEFILE, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["data", "train"]
    for command in commands:
        assert run(shlex.split(command)) == 0
    sources, references = (
        Path(f"runs/demo-data/test.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    )
    translations = Translator(find_bundle("runs/demo")).translate(sources)
    exact = sum(
        each.text == reference for each, reference in zip(translations, references, strict=True)
    )
    assert exact >= 0.95 * len(references)
