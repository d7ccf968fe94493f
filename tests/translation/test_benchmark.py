"""`transduce bench decode`: every contender is measured, and the figures mean what they say."""

import json

import pytest
import torch

from transduce.cli.commands import run
from transduce.errors import MissingExtra
from transduce.translation import benchmark as benchmarks
from transduce.translation.benchmark import MARIAN, TORCH, contender

COMMAND = ["bench", "decode", "--sentences", "3", "--rounds", "1", "--beam", "1"]


def test_engines_take_turns_and_figures_come_as_a_table_or_json(bundle, monkeypatch, capsys):
    pytest.importorskip("ctranslate2")
    names = [TORCH, "transduce ctranslate2 int8", "ctranslate2 direct int8"]
    calls = []

    def recorded(name, *arguments):
        translate = contender(name, *arguments)
        torch.set_num_threads(1)  # which CTranslate2 has changed
        return lambda which: calls.append((name, len(which))) or translate(which)

    monkeypatch.setattr(benchmarks, "_names", lambda _: names)
    monkeypatch.setattr(benchmarks, "contender", recorded)
    monkeypatch.setattr(benchmarks, "_cold_start", lambda *_: (1.5, 200.0))
    assert run([*COMMAND, "--json", str(bundle.path)]) == 0
    one_round = [(name, 3) for name in names] + [(name, 1) for name in names] * 3
    assert calls == one_round * 2  # once to warm up
    figures = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in figures] == names
    for one in figures:
        assert one["tokens_per_second"] > one["sentences_per_second"] > 0
        assert one["milliseconds"] == sorted(one["milliseconds"])
        assert (one["cold_seconds"], one["memory_mib"]) == (1.5, 200.0)
    assert run([*COMMAND, str(bundle.path)]) == 0
    assert "p95" in capsys.readouterr().out


def test_sentences_come_from_a_file(bundle, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("\n")
    assert run([*COMMAND, "--input", str(tmp_path / "empty.txt"), str(bundle.path)]) == 2
    assert "empty.txt contains no sentence; expected one on each line" in capsys.readouterr().err
    (tmp_path / "some.txt").write_text("one\n\ntwo\nthree\n")
    assert benchmarks.read_sentences(bundle.path, tmp_path / "some.txt", 2)[1] == ["one", "two"]


def test_without_phrases_a_file_is_asked_for(bundle, monkeypatch, capsys):
    def missing(*_):
        raise MissingExtra("babel is not installed")

    monkeypatch.setattr("transduce.corpora.phrases.phrases", missing)
    assert run([*COMMAND, str(bundle.path)]) == 2
    message = "babel is not installed; or name a file of sentences: --input FILE\n"
    assert capsys.readouterr().err == f"transduce: {message}"


@pytest.mark.parametrize("option", ["rounds", "sentences", "beam"])
def test_nothing_cannot_be_measured(bundle, option, capsys):
    for number in ("0", "-1"):
        assert run(["bench", "decode", str(bundle.path), f"--{option}", number]) == 2
        captured = capsys.readouterr()
        assert (
            f"{option.replace('beam', 'search.beam_size')} is {number}; it must be at least 1\n"
            in captured.err
        )
        assert (captured.out, captured.err.count("\n")) == ("", 1)


@pytest.mark.slow
def test_all_that_is_there_is_measured_and_starts_cold(bundle, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for module in ("ctranslate2", "transformers"):
        pytest.importorskip(module)
    assert run([*COMMAND, "--json", str(bundle.path)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in figures][::5] == [TORCH, MARIAN]
    assert all(one["cold_seconds"] > 0 and 10 < one["memory_mib"] < 4000 for one in figures)
    memory = {one["name"]: one["memory_mib"] for one in figures}
    assert memory["ctranslate2 direct int8"] < memory[TORCH]  # of its own process, not of this one
