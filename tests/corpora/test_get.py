import gzip
import io
import json
import re
import tarfile

import pytest

from tests.corpora.scripted_server import answer, scripted_server, status  # noqa: F401
from transduce.cli.commands import run
from transduce.corpora import catalogue
from transduce.corpora.catalogue import Entry, Part
from transduce.corpora.download import Patience
from transduce.corpora.get import get
from transduce.corpora.lockfile import LOCK
from transduce.errors import ConfigError, DataError
from transduce.recipe import read_recipe

QUICK = Patience(tries=2, timeout=0.5, back_off=0.01)
EN, DE = b"One.\nTwo.\nThree.\n", b"Eins.\nZwei.\nDrei.\n"
SGM = b'<seg id="1">News.</seg>\n<seg id="2">More.</seg>\n'


def tgz(members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


TRAIN = tgz({"train/t.en": EN, "train/t.de": DE})


@pytest.fixture
def small(server, monkeypatch):
    """A corpus of one archive, a compressed file a side, and a plain file a side, at the server."""
    parts = (
        Part("train", "train-v1", server.says("/train.tgz", answer(TRAIN)), "train/t.{side}", 3),
        Part(
            "valid",
            "dev",
            f"{server.address}/dev.{{side}}.gz",
            pairs=3,
            saved_as="small-dev.{side}.gz",
        ),
        Part(
            "test",
            "news",
            server.says("/news.tgz", answer(tgz({"n.en.sgm": SGM, "n.de.sgm": SGM}))),
            "n.{side}.sgm",
        ),
        Part("test", "plain", f"{server.address}/plain.{{code}}", pairs=3),
    )
    for side, code, text in (("en", "eng", EN), ("de", "deu", DE)):
        server.says(f"/dev.{side}.gz", answer(gzip.compress(text)))
        server.says(f"/plain.{code}", answer(text))
    entry = Entry("small-en-de", "de", "free", "three pairs", parts, vocab_size=50, preset="tiny")
    monkeypatch.setattr(catalogue, "ENTRIES", (entry,))
    return server


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


ALL_FILES = [
    *("dev.de", "dev.en", "downloads/news.tgz", "downloads/plain.deu", "downloads/plain.eng"),
    *(
        "downloads/small-dev.de.gz",
        "downloads/small-dev.en.gz",
        "downloads/train.tgz",
        "news.de",
        "news.en",
    ),
    *("plain.de", "plain.en", "recipe.toml", "train-v1.de", "train-v1.en", LOCK),
]


def test_a_corpus_becomes_parallel_files_and_a_recipe(small, tmp_path):
    recipe = read_recipe(get("small-en-de", tmp_path, patience=QUICK))
    assert files(tmp_path) == ALL_FILES
    assert (tmp_path / "train-v1.en").read_bytes() == (tmp_path / "dev.en").read_bytes() == EN
    assert (tmp_path / "train-v1.de").read_bytes() == (tmp_path / "plain.de").read_bytes() == DE
    assert (tmp_path / "news.de").read_bytes() == b"News.\nMore.\n"
    data = recipe.data
    assert [corpus.source for corpus in data.corpora + data.validation] == [
        ("train-v1.en",),
        ("dev.en",),
    ]
    assert [corpus.target for corpus in data.test] == [("news.de",), ("plain.de",)]
    assert (data.source_language, data.target_language) == ("en", "de")
    assert data.tokenizer.vocab_size == recipe.model.vocab_size == 50
    assert recipe.model.d_model == 128
    assert len(json.loads((tmp_path / LOCK).read_text())["files"]) == 6


def test_a_second_call_downloads_nothing_and_changes_nothing(small, tmp_path):
    get("small-en-de", tmp_path, patience=QUICK)
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    small.requests.clear()
    get("small-en-de", tmp_path, patience=QUICK)
    assert small.requests == []
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


@pytest.mark.parametrize("languages", [("de", "en"), ("de", ""), ("", "en")])
def test_the_direction_can_be_turned_round(small, tmp_path, languages):
    data = read_recipe(get("small-en-de", tmp_path, languages=languages, patience=QUICK)).data
    assert (data.source_language, data.corpora[0].source, data.corpora[0].target) == (
        *("de", ("train-v1.de",), ("train-v1.en",)),
    )


@pytest.mark.parametrize("languages", [("fr", ""), ("en", "en"), ("en", "fr")])
def test_a_language_that_is_not_there_is_refused(small, tmp_path, languages):
    with pytest.raises(ConfigError, match="small-en-de holds en and de, not"):
        get("small-en-de", tmp_path, languages=languages)
    assert small.requests == []


def damaged(content):
    return content[:60] + bytes([content[60] ^ 0xFF]) + content[61:]


@pytest.mark.parametrize(
    ("path", "reply"),
    [
        ("/train.tgz", answer(damaged(TRAIN))),
        (
            "/train.tgz",
            answer(TRAIN, declared=len(TRAIN) // 2),
        ),  # too short a length: the rest is never read
        ("/train.tgz", answer(TRAIN, declared=False, cut=len(TRAIN) - 5)),  # nobody could know
        ("/train.tgz", answer(b"<html>Please log in</html>" * 99)),
        ("/train.tgz", answer(tgz({"train/t.en": EN}))),
        ("/train.tgz", answer(tgz({"train/t.en": EN, "train/t.de": DE, "../t.en": EN}))),
        ("/train.tgz", answer(tgz({"train/t.en": EN, "train/t.de": DE[6:]}))),
        ("/dev.de.gz", answer(gzip.compress(DE)[:-3])),
        ("/plain.deu", answer(DE, declared=7)),
        ("/plain.deu", answer(b"")),
    ],
)
def test_a_bad_file_is_refused_deleted_and_fetched_anew(small, tmp_path, path, reply):
    good = small.scripts[path][0]
    small.says(path, reply)
    with pytest.raises(
        DataError, match=r"it was deleted: run the same command to download it again$"
    ) as error:
        get("small-en-de", tmp_path, patience=QUICK)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "recipe.toml").exists()
    assert not [
        name for name in files(tmp_path) if name.startswith(".") or name.endswith("unfinished")
    ]
    small.says(path, good)
    get("small-en-de", tmp_path, patience=QUICK)
    assert files(tmp_path) == ALL_FILES
    assert (tmp_path / "train-v1.de").read_bytes() == (tmp_path / "dev.de").read_bytes() == DE


def test_another_number_of_pairs_than_is_known_is_refused(small, tmp_path):
    small.says(
        "/train.tgz", answer(tgz({"train/t.en": EN + b"Four.\n", "train/t.de": DE + b"Vier.\n"}))
    )
    message = "train.tgz gave 4 pairs for train-v1, but it should have 3; delete"
    with pytest.raises(DataError, match=message):
        get("small-en-de", tmp_path, patience=QUICK)
    assert files(tmp_path) == ["downloads/train.tgz", LOCK]
    assert json.loads((tmp_path / LOCK).read_text())["files"] == {}
    get("small-en-de", tmp_path, patience=QUICK, accept_changes=True)
    assert (tmp_path / "train-v1.en").read_bytes() == EN + b"Four.\n"


def test_a_download_that_changed_since_is_refused(small, tmp_path):
    get("small-en-de", tmp_path, patience=QUICK)
    (tmp_path / "downloads" / "train.tgz").write_bytes(
        tgz({"train/t.en": EN.upper(), "train/t.de": DE})
    )
    with pytest.raises(DataError, match=f"but {LOCK} expects"):
        get("small-en-de", tmp_path, patience=QUICK)
    assert (tmp_path / "train-v1.en").read_bytes() == EN


def test_a_mirror_needs_no_network(small, tmp_path):
    get("small-en-de", tmp_path / "first", patience=QUICK)
    small.requests.clear()
    get("small-en-de", tmp_path / "second", mirror=tmp_path / "first" / "downloads")
    assert small.requests == []
    assert (tmp_path / "second" / "train-v1.de").read_bytes() == DE
    assert not (tmp_path / "second" / "downloads").exists()


def test_a_bad_file_in_a_mirror_is_left_to_its_owner(small, tmp_path):
    get("small-en-de", tmp_path / "first", patience=QUICK)
    bad = tmp_path / "first" / "downloads" / "train.tgz"
    bad.write_bytes(damaged(TRAIN))
    with pytest.raises(DataError, match=r"is damaged: .*; replace it in"):
        get("small-en-de", tmp_path / "second", mirror=bad.parent)
    assert bad.exists()


def test_a_failure_takes_away_an_older_recipe(small, tmp_path):
    get("small-en-de", tmp_path, patience=QUICK)
    (tmp_path / "downloads" / "plain.deu").unlink()
    small.says("/plain.deu", status(404))
    with pytest.raises(DataError, match="answered 404"):
        get("small-en-de", tmp_path, patience=QUICK)
    assert not (tmp_path / "recipe.toml").exists()


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        ("phrases", "recipe.toml"),
        ("phrases", "train.en"),
        ("small-en-de", "recipe.toml"),
        ("small-en-de", "dev.de"),
    ],
)
def test_text_of_somebody_else_is_never_overwritten(small, tmp_path, corpus, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(DataError, match="exists already and would be overwritten; choose another"):
        get(corpus, tmp_path, patience=QUICK, pairs=20)
    assert files(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_phrases_are_made_not_fetched(tmp_path):
    data = read_recipe(get("phrases", tmp_path, languages=("de", ""), pairs=20, seed=3)).data
    assert (data.source_language, data.target_language) == ("de", "en")
    assert len((tmp_path / "train.de").read_text(encoding="utf-8").splitlines()) == 16


def test_the_command_line_lists_gets_and_says_what_comes_next(small, tmp_path, capsys):
    assert run(["data", "list"]) == 0
    assert "small-en-de" in capsys.readouterr().out
    assert run(["data", "get", "small-en-de", "--out", str(tmp_path / "out")]) == 0
    assert (
        capsys.readouterr().out
        == f"small-en-de is ready; next: transduce train {tmp_path}/out/recipe.toml\n"
    )
    arguments = ["--mirror", str(tmp_path / "out" / "downloads"), "--source", "de"]
    assert run(["data", "get", "small-en-de", "--out", str(tmp_path / "turned"), *arguments]) == 0
    assert read_recipe(tmp_path / "turned" / "recipe.toml").data.source_language == "de"


def test_a_wrong_command_is_one_line_and_status_2(small, tmp_path, capsys):
    for arguments, message in (
        (
            ["get", "smal-en-de"],
            r"transduce: no corpus is called 'smal-en-de'; did you mean small-en-de\?",
        ),
        (
            ["get", "phrases", "--source", "xx", "--out", str(tmp_path)],
            "transduce: phrases has no language 'xx'; known: ",
        ),
        (["fetch"], r"transduce: ACTION is 'fetch'; expected one of list, get"),
    ):
        assert run(["data", *arguments]) == 2
        error = capsys.readouterr().err
        assert re.match(message, error)
        assert error.count("\n") == 1


def test_the_default_folder_is_named_after_the_corpus(small, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["data", "get", "small-en-de"]) == 0
    assert "data/small-en-de/recipe.toml" in capsys.readouterr().out
