"""transduce inspect: what it prints, what it writes, and what it refuses in one line."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from tests import trained
from transduce.cli.commands import run
from transduce.inspection.importance import Importance
from transduce.inspection.terminal import print_importance
from transduce.translation.translator import Translator

TEXT = "in 98 weeks"


@pytest.fixture
def folder(bundle):
    return str(bundle.path)


def mistake(capsys, *words):
    assert run(["inspect", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error.removeprefix("transduce: ").strip()


def test_without_options_it_prints_steps_hypotheses_and_telling_heads(bundle, folder, capsys):
    assert run(["inspect", folder, TEXT]) == 0
    printed = capsys.readouterr().out
    translation = Translator(bundle, engine="torch", device="cpu").translate(TEXT)
    assert printed.startswith(f"source       {TEXT}\ntranslation  {translation.text}\n")
    assert f"{translation.score:.3f}  {translation.text}" in printed
    assert "step  token" in printed
    assert "</s>" in printed
    assert "heads and their share of attention" in printed


def test_heads_that_are_off_are_named_beside_both_translations(folder, capsys):
    assert run(["inspect", folder, TEXT, "--without", "cross.1.1", "--without", "encoder.2.4"]) == 0
    printed = capsys.readouterr().out
    assert "all heads    " in printed
    assert "without      cross.1.1, encoder.2.4" in printed


def test_it_writes_a_page_a_figure_and_json(folder, tmp_path, capsys):
    page, figure, data = (tmp_path / name for name in ("page.html", "figure.svg", "data.json"))
    options = ["--kind", "encoder", "--layer", "1", "--head", "2", "--head", "4", "--word", "98"]
    words = ["--out", str(page), "--svg", str(figure), "--json", str(data), *options]
    assert run(["inspect", folder, TEXT, *words]) == 0
    assert "wrote" in capsys.readouterr().err
    found = json.loads(data.read_text(encoding="utf-8"))
    assert (found["text"], found["version"]) == (TEXT, 1)
    ElementTree.parse(figure)
    assert "layer 1 of 2" in figure.read_text(encoding="utf-8")
    written = page.read_text(encoding="utf-8")
    assert found["attention"]["cross"]["data"] in written
    assert '"walkthrough":{' in written


def test_the_importance_of_heads_is_a_table_a_heat_map_and_json(folder, tmp_path, capsys):
    files = []
    for side, name in enumerate(("test.en", "test.de")):
        lines = [pair[side] for pair in trained.splits()["test"][:6]]
        files.append(tmp_path / name)
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = ["--limit", "4", "--svg", str(tmp_path / "h.svg"), "--json", str(tmp_path / "h.json")]
    assert run(["inspect", folder, "--heads", *map(str, files), *words]) == 0
    printed = capsys.readouterr().out
    assert "nats per token, 4 sentences; rise of the loss without each head" in printed
    assert "most important: " in printed
    data = json.loads((tmp_path / "h.json").read_text(encoding="utf-8"))
    first = data["changes"]["encoder"][0][0]
    assert f"{first:+.4f}" in printed
    assert f"{first:+.3f}" in (tmp_path / "h.svg").read_text(encoding="utf-8")


def test_the_importance_by_bleu_says_so(capsys):
    changes = {kind: np.array([[1.5, -0.25]]) for kind in ("encoder", "decoder", "cross")}
    print_importance(Importance("bleu", 25.0, changes, 1000))
    printed = capsys.readouterr().out
    assert "BLEU with all heads: 25.00, 1,000 sentences; fall of BLEU without each head" in printed
    assert "most important: encoder.1.1 +1.50" in printed


def test_mistakes_are_one_line_each(folder, tmp_path, capsys):
    either = "give either a sentence in quotes, or --heads with a test set"
    assert mistake(capsys, folder).startswith(f"{folder} is a model and the sentence is missing")
    assert mistake(capsys) == either
    assert mistake(capsys, folder, TEXT, "--heads", "a", "b") == either
    assert mistake(capsys, folder, "in", "98").startswith("the text is 2 separate words; put it in")
    assert mistake(capsys, folder, "--heads", "a").startswith("--heads has 1 files; expected two")
    assert mistake(capsys, folder, "").startswith("the text has nothing to translate")
    assert "'cross.9.9' does not exist" in mistake(capsys, folder, TEXT, "--without", "cross.9.9")
    assert (
        mistake(capsys, folder, TEXT, "--sentence", "0") == "--sentence is 0; expected at least 1"
    )
    assert "--sentence is 3, but the text has 1" in mistake(capsys, folder, TEXT, "--sentence", "3")
    missing = str(tmp_path / "no" / "figure.svg")
    assert "cannot be written" in mistake(capsys, folder, TEXT, "--svg", missing)
    files = [tmp_path / "a", tmp_path / "b"]
    files[0].write_text("one\n", encoding="utf-8")
    files[1].write_text("eins\nzwei\n", encoding="utf-8")
    assert "must be parallel" in mistake(capsys, folder, "--heads", *map(str, files))


def test_a_single_word_is_text_unless_it_names_a_model(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "house").mkdir()
    monkeypatch.chdir(tmp_path)
    assert mistake(capsys, ".").startswith("the text has nothing to translate")
    for text in ("house", "in 98 weeks " * 25):
        assert run(["inspect", text, "--beam", "1"]) == 0
        assert capsys.readouterr().out.startswith(f"source       {text[:11].strip()}")
    assert "nowhere does not exist" in mistake(capsys, "nowhere", "house")
    assert "nowhere does not exist" in mistake(capsys, "nowhere", "--heads", "a", "b")
    monkeypatch.chdir(folder)
    assert mistake(capsys, ".").startswith(". is a model and the sentence is missing")


def test_a_model_of_ctranslate2_alone_is_refused(tmp_path, capsys):
    (tmp_path / "model.bin").write_bytes(b"")
    assert "is a CTranslate2 model, which does not give its attention" in mistake(
        capsys, str(tmp_path), TEXT
    )
