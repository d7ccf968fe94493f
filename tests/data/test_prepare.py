"""From a recipe to a store."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import made_up_sentences
from transduce.cli import commands
from transduce.config import CleanConfig, CorpusConfig, DataConfig, Recipe, TokenizerConfig
from transduce.data import shuffle, stages
from transduce.data.inputs import read_inputs
from transduce.data.prepare import default_store, prepare
from transduce.data.sampler import Sampler
from transduce.data.store import MANIFEST, Store
from transduce.errors import ConfigError, DataError
from transduce.recipe import load_recipe

PAIRS = 400


def write_corpus(folder, name, pairs, seed):
    (folder / f"{name}.en").write_text(
        "".join(f"{s}\n" for s in made_up_sentences(pairs, seed)), encoding="utf-8"
    )
    (folder / f"{name}.de").write_text(
        "".join(f"{s}\n" for s in made_up_sentences(pairs, seed + 99)), encoding="utf-8"
    )
    return CorpusConfig(source=(f"{name}.en",), target=(f"{name}.de",), name=name)


@pytest.fixture
def recipe(tmp_path):
    data = DataConfig(
        corpora=(write_corpus(tmp_path, "news", PAIRS, 1), write_corpus(tmp_path, "talks", 50, 2)),
        validation=(write_corpus(tmp_path, "valid", 20, 3),),
        test=(write_corpus(tmp_path, "test-a", 10, 4), write_corpus(tmp_path, "test-b", 12, 5)),
        tokenizer=TokenizerConfig(vocab_size=350),
        clean=CleanConfig(max_ratio=20),
    )
    recipe = Recipe(data=data)
    return replace(recipe, training=replace(recipe.training, tokens_per_step=1000))


def changed(recipe, **data):
    return replace(recipe, data=replace(recipe.data, **data))


def texts_of(section, tokenizer, side):
    return [tokenizer.decode(row.tolist()) for row in getattr(section, side)]


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def snapshot(folder):
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.iterdir()}


def test_every_pair_arrives_and_the_order_is_shuffled(recipe, tmp_path):
    store = prepare(recipe, tmp_path, tmp_path / "x.store")
    store.verify()
    assert store.train.corpora == {"news": range(PAIRS), "talks": range(PAIRS, PAIRS + 50)}
    tokenizer = store.target_tokenizer
    found = list(
        zip(*(texts_of(store.train, tokenizer, side) for side in ("source", "target")), strict=True)
    )
    expected = [
        pair
        for name in ("news", "talks")
        for pair in zip(lines(tmp_path / f"{name}.en"), lines(tmp_path / f"{name}.de"), strict=True)
    ]
    assert sorted(found) == sorted(expected)
    assert sorted(found[:PAIRS]) == sorted(expected[:PAIRS])
    assert found[:PAIRS] != expected[:PAIRS]
    counts = store.manifest["sections"]["train"]["corpora"]["news"]
    assert counts["read"] == counts["pairs"] == PAIRS
    assert counts["source_tokens"] == int(store.train.source.offsets[PAIRS])


def test_what_cleaning_drops_is_counted_by_corpus_and_reason(recipe, tmp_path):
    first = lines(tmp_path / "news.en")[0], lines(tmp_path / "news.de")[0]
    leaked = lines(tmp_path / "test-a.en")[0], lines(tmp_path / "test-a.de")[0]
    for side, extra in zip(("en", "de"), zip(first, leaked, ("", "x"), strict=True), strict=True):
        with (tmp_path / f"talks.{side}").open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in extra))
    store = prepare(recipe, tmp_path, tmp_path / "x.store")
    about = store.manifest["sections"]["train"]["corpora"]
    assert about["news"]["dropped"] == {}
    assert about["talks"] == about["talks"] | {"read": 53, "pairs": 50}
    assert about["talks"]["dropped"] == {"duplicate": 1, "leak": 1, "empty": 1}


def test_pairs_in_other_cases_are_added_to_the_training_text_alone(recipe, tmp_path):
    said = []
    varied = changed(recipe, case_variants=0.5)
    store = prepare(varied, tmp_path, tmp_path / "x.store", say=said.append)
    expected = set()
    for name in ("news", "talks"):
        texts = (lines(tmp_path / f"{name}.{language}") for language in ("en", "de"))
        for source, target in zip(*texts, strict=True):
            expected |= {(source, target), (source.upper(), target.upper())}
            expected.add((source.lower(), target))
    tokenizer = store.target_tokenizer
    sides = (texts_of(store.train, tokenizer, side) for side in ("source", "target"))
    found = list(zip(*sides, strict=True))
    assert set(found) <= expected
    assert len(found) > 1.5 * PAIRS
    assert sum(source.isupper() for source, _ in found) > PAIRS / 4

    corpora = store.manifest["sections"]["train"]["corpora"]
    assert sum(corpus["read"] for corpus in corpora.values()) == PAIRS + 50
    assert f"450 kept, 0 dropped, {len(found) - 450} added in other cases" in "".join(said)
    assert texts_of(store.validation, tokenizer, "source") == lines(tmp_path / "valid.en")


def test_a_store_from_before_case_variants_is_still_found(recipe, tmp_path):
    settings = read_inputs(recipe.data, tmp_path).settings
    assert "case_variants" not in settings
    varied = changed(recipe, case_variants=0.1)
    assert read_inputs(varied.data, tmp_path).settings["case_variants"] == 0.1


def test_zero_usable_pairs_are_refused_with_the_reasons(recipe, tmp_path):
    (tmp_path / "bad.en").write_text("a\n\n1\n")
    (tmp_path / "bad.de").write_text("\nb\n1\n")
    bad = CorpusConfig(source=("bad.en",), target=("bad.de",))
    with pytest.raises(
        DataError, match=r"no usable pair is left of 3 \(2 empty, 1 copy\); look at"
    ):
        prepare(changed(recipe, corpora=(bad,)), tmp_path, tmp_path / "x.store")
    assert not (tmp_path / "x.store").exists()


def test_validation_and_test_sets_keep_order_and_text(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "_BYTES_PER_FILE", 100)
    store = prepare(recipe, tmp_path, tmp_path / "x.store")
    for section, names in ((store.validation, ["valid"]), (store.test, ["test-a", "test-b"])):
        assert list(section.corpora) == names
        for name in names:
            assert section.texts(name) == (
                lines(tmp_path / f"{name}.en"),
                lines(tmp_path / f"{name}.de"),
            )
    sources = texts_of(store.test, store.target_tokenizer, "source")
    assert sources == lines(tmp_path / "test-a.en") + lines(tmp_path / "test-b.en")


def test_a_second_call_does_nothing(recipe, tmp_path):
    out = tmp_path / "x.store"
    first = prepare(recipe, tmp_path, out)
    before = snapshot(out)
    said = []
    again = prepare(recipe, tmp_path, out, verify=True, say=said.append)
    assert (snapshot(out), said, again.fingerprint) == (before, [], first.fingerprint)
    os.utime(tmp_path / "news.en")  # touched, not changed
    weighted = changed(
        recipe, corpora=tuple(replace(c, weight=2.0) for c in recipe.data.corpora), temperature=5.0
    )
    prepare(weighted, tmp_path, out, say=said.append)
    assert (snapshot(out), said) == (before, [])
    assert not out.with_name("x.store.partial").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            lambda recipe, folder: write_corpus(folder, "news", PAIRS, 77) and recipe,
            "train corpus news",
        ),
        (
            lambda recipe, folder: write_corpus(folder, "valid", 20, 78) and recipe,
            "validation corpus valid",
        ),
        (lambda recipe, folder: changed(recipe, max_tokens=40), "data.max_tokens"),
        (
            lambda recipe, folder: changed(recipe, corpora=recipe.data.corpora[:1]),
            "train corpus talks",
        ),
        (
            lambda recipe, folder: changed(recipe, tokenizer=TokenizerConfig(vocab_size=340)),
            "data.tokenizer",
        ),
    ],
)
def test_a_changed_input_is_noticed(recipe, tmp_path, change, named):
    out = tmp_path / "x.store"
    first = prepare(recipe, tmp_path, out)
    said = []
    second = prepare(change(recipe, tmp_path), tmp_path, out, say=said.append)
    assert said[0] == f"{out} is made again, since this changed: {named}"
    assert second.fingerprint != first.fingerprint
    second.verify()


def test_a_setting_that_is_gone_is_noticed(recipe, tmp_path):
    out = tmp_path / "x.store"
    prepare(changed(recipe, case_variants=0.5), tmp_path, out)
    said = []
    prepare(recipe, tmp_path, out, say=said.append)
    assert said[0] == f"{out} is made again, since this changed: data.case_variants"


def test_the_same_inputs_give_the_same_store(recipe, tmp_path):
    one, two = (prepare(recipe, tmp_path, tmp_path / name) for name in ("a.store", "b.store"))
    assert one.manifest["files"] == two.manifest["files"]


@pytest.mark.parametrize("moment", [0, 1, 2, 3, 5])
def test_an_interrupted_call_goes_on_from_what_is_finished(recipe, tmp_path, monkeypatch, moment):
    monkeypatch.setattr(shuffle, "_BYTES_PER_FILE", 4096)  # several files a corpus
    out, finished, done_again = tmp_path / "x.store", [], []
    replace_file = os.replace

    def interrupted(source, target):  # every piece of work is finished by giving it its name
        if len(finished) == moment:
            raise KeyboardInterrupt
        replace_file(source, target)
        finished.append(Path(target))

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, tmp_path, out)
    assert not out.exists()
    assert len(finished) == moment
    monkeypatch.setattr(
        os,
        "replace",
        lambda source, target: (replace_file(source, target), done_again.append(target)),
    )
    store = prepare(recipe, tmp_path, out)
    assert not set(finished) & set(map(Path, done_again))
    monkeypatch.setattr(os, "replace", replace_file)
    assert (
        store.manifest["files"]
        == prepare(recipe, tmp_path, tmp_path / "whole.store").manifest["files"]
    )


def test_unfinished_work_of_other_inputs_is_thrown_away(recipe, tmp_path, monkeypatch):
    out = tmp_path / "x.store"
    monkeypatch.setattr(stages, "_tokenize", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare(recipe, tmp_path, out)
    monkeypatch.undo()
    write_corpus(tmp_path, "news", PAIRS, 7)
    assert (
        prepare(recipe, tmp_path, out).manifest["files"]
        == prepare(recipe, tmp_path, tmp_path / "y").manifest["files"]
    )


def test_a_damaged_store_is_made_again(recipe, tmp_path):
    out = tmp_path / "x.store"
    whole = prepare(recipe, tmp_path, out).manifest["files"]
    values = out / "train.source.values"
    values.write_bytes(values.read_bytes()[:-2] + b"\7\0")
    said = []
    assert prepare(recipe, tmp_path, out, verify=True, say=said.append).manifest["files"] == whole
    assert "is damaged" in said[0]
    Store(out).verify()


def test_a_folder_that_is_no_store_is_left_alone(recipe, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    with pytest.raises(DataError, match="exists and is not a token store"):
        prepare(recipe, tmp_path, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter1.txt").exists()


def test_two_calls_at_once_do_not_meet(recipe, tmp_path, monkeypatch):
    out = tmp_path / "x.store"

    def meanwhile(*arguments):
        with pytest.raises(DataError, match="another transduce prepare is at work"):
            prepare(recipe, tmp_path, out)
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "_learn", meanwhile)
    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, tmp_path, out)


@pytest.mark.parametrize("moment", [0, 1, 2, 4, 6, 8, 12, 20, 28])
def test_a_full_disk_is_one_line_and_leaves_nothing_that_looks_whole(
    recipe, tmp_path, monkeypatch, moment
):
    out = tmp_path / "x.store"
    calls = []
    fsync = os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > moment:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    message = r"the disk is full: .* start the same command again: it goes on where it stopped"
    with pytest.raises(DataError, match=message):
        prepare(recipe, tmp_path, out)
    assert not out.exists()
    monkeypatch.undo()
    prepare(recipe, tmp_path, out).verify()


def test_separate_vocabularies_have_separate_ids(recipe, tmp_path):
    recipe = changed(recipe, tokenizer=TokenizerConfig(vocab_size=330, joint=False))
    store = prepare(recipe, tmp_path, tmp_path / "x.store")
    assert store.source_tokenizer.fingerprint != store.target_tokenizer.fingerprint
    assert sorted(texts_of(store.train, store.source_tokenizer, "source")[:PAIRS]) == sorted(
        lines(tmp_path / "news.en")
    )
    assert sorted(texts_of(store.train, store.target_tokenizer, "target")[:PAIRS]) == sorted(
        lines(tmp_path / "news.de")
    )


def test_sampling_stores_several_segmentations_of_the_same_pairs(recipe, tmp_path):
    tokenizer = TokenizerConfig(vocab_size=400, sampling=0.2, variants=3)
    store = prepare(changed(recipe, tokenizer=tokenizer), tmp_path, tmp_path / "x.store")
    train, pairs = store.train, PAIRS + 50
    assert (train.variants, train.pairs, len(train.source)) == (3, pairs, 3 * pairs)
    decoded = texts_of(train, store.target_tokenizer, "source")
    assert decoded[:pairs] == decoded[pairs : 2 * pairs] == decoded[2 * pairs :]
    ids = [[row.tolist() for row in train.source][v * pairs : (v + 1) * pairs] for v in range(3)]
    assert ids[0] != ids[1] != ids[2]
    assert store.manifest["sections"]["train"]["corpora"]["news"]["pairs"] == PAIRS
    assert len(store.validation.source) == 20  # watched as it will be used: without sampling
    again = prepare(changed(recipe, tokenizer=tokenizer), tmp_path, tmp_path / "y.store")
    assert again.manifest["files"] == store.manifest["files"]


def test_pairs_with_too_many_tokens_are_dropped_and_counted(recipe, tmp_path):
    everything = prepare(recipe, tmp_path, tmp_path / "x.store").train
    lengths = np.stack(
        [np.diff(everything.source.offsets), np.diff(everything.target.offsets)]
    ).max(0)
    limit = int(np.median(lengths))
    store = prepare(changed(recipe, max_tokens=limit), tmp_path, tmp_path / "y.store")
    assert store.train.longest <= limit
    assert store.train.pairs == (lengths <= limit).sum()
    dropped = [
        about["dropped"] for about in store.manifest["sections"]["train"]["corpora"].values()
    ]
    assert sum(reasons["too-many-tokens"] for reasons in dropped) == (lengths > limit).sum()


def test_a_limit_that_leaves_no_pair_is_refused_and_makes_no_store(recipe, tmp_path):
    with pytest.raises(
        DataError,
        match=r"no training pair is left: all 450 have more than 2 tokens on a side; raise",
    ):
        prepare(changed(recipe, max_tokens=2), tmp_path, tmp_path / "x.store")
    assert not (tmp_path / "x.store").exists()


@pytest.mark.parametrize("place", ["news.en/x.store", "y.store"])
def test_a_place_that_cannot_be_written_is_one_line(recipe, tmp_path, place):
    (tmp_path / "y.store.partial").touch()
    with pytest.raises(
        DataError, match=r"store\.partial cannot be used: (Not a directory|File exists)"
    ):
        prepare(recipe, tmp_path, tmp_path / place)


def test_no_sampled_segmentation_is_longer_than_allowed(recipe, tmp_path):
    tokenizer = TokenizerConfig(vocab_size=400, sampling=0.5, variants=2)
    store = prepare(
        changed(recipe, tokenizer=tokenizer, max_tokens=30), tmp_path, tmp_path / "x.store"
    )
    lengths = np.concatenate(
        [np.diff(store.train.source.offsets), np.diff(store.train.target.offsets)]
    )
    assert lengths.max() <= store.train.longest <= 30
    assert store.train.pairs > 100


@pytest.mark.slow
def test_processes_give_the_same_store_as_none(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "_BYTES_PER_FILE", 4096)
    monkeypatch.setattr(stages, "_FEW_PAIRS", 0)
    one, two = (prepare(recipe, tmp_path, tmp_path / f"{n}.store", workers=n) for n in (1, 2))
    assert one.manifest["files"] == two.manifest["files"]


def test_what_comes_out_can_be_trained_on(recipe, tmp_path):
    store = prepare(recipe, tmp_path, tmp_path / "x.store")
    plan = Sampler.of(recipe, store)
    seen = np.concatenate([plan.batch(step).pairs for step in range(plan.steps_per_epoch)])
    assert sorted(seen) == list(range(PAIRS + 50))


def test_the_command_line_says_what_it_made(tmp_path, capsys):
    write_corpus(tmp_path, "news", 200, 1)
    path = tmp_path / "small.toml"
    path.write_text('[[data.corpora]]\nsource = "news.en"\ntarget = "news.de"\n')
    settings = [
        "data.tokenizer.vocab_size=330",
        "data.clean.max_ratio=20",
        "training.tokens_per_step=900",
    ]
    assert commands.run(["prepare", str(path), *settings]) == 0
    printed = capsys.readouterr()
    assert "learned a tokenizer from 400 sentences" in printed.err
    assert str(default_store(str(path))) in printed.out
    row = next(line for line in printed.out.splitlines() if line.startswith("train"))
    assert row.split()[:3] == ["train", "news.en", "200"]
    assert "of them used" in printed.out
    assert commands.run(["prepare", str(path), *settings]) == 0
    assert capsys.readouterr().err == ""


def test_a_store_is_used_where_its_text_is_not(recipe, tmp_path):
    before = prepare(recipe, tmp_path, tmp_path / "x.store")
    elsewhere = tmp_path / "another machine"
    (tmp_path / "x.store").rename(elsewhere.mkdir() or elsewhere / "x.store")
    assert (
        prepare(recipe, elsewhere, elsewhere / "x.store", replace=False).fingerprint
        == before.fingerprint
    )
    other = changed(recipe, max_tokens=99)
    with pytest.raises(DataError, match=r"made with other settings or text \(data\.max_tokens\)"):
        prepare(other, elsewhere, elsewhere / "x.store", replace=False)
    misspelt = changed(
        recipe,
        corpora=(replace(recipe.data.corpora[0], source=("mews.en",)), recipe.data.corpora[1]),
    )
    with pytest.raises(DataError, match=r"mews\.en does not exist"):
        prepare(misspelt, elsewhere, elsewhere / "x.store", replace=False)


def test_mistakes_get_one_line(recipe, tmp_path):
    out = tmp_path / "x.store"
    with pytest.raises(ConfigError, match=r"data\.corpora is empty"):
        prepare(changed(recipe, corpora=()), tmp_path, out)
    with pytest.raises(ConfigError, match="two corpora are called 'news'"):
        prepare(changed(recipe, corpora=recipe.data.corpora[:1] * 2), tmp_path, out)
    with pytest.raises(ConfigError, match="this corpus supports at most"):
        prepare(changed(recipe, tokenizer=TokenizerConfig()), tmp_path, out)
    missing = CorpusConfig(source=("absent.en",), target=("news.de",))
    with pytest.raises(DataError, match=r"absent\.en does not exist"):
        prepare(changed(recipe, corpora=(missing,)), tmp_path, out)
    assert json.loads((prepare(recipe, tmp_path, out).path / MANIFEST).read_text())["joint"] is True


@pytest.mark.slow
def test_killed_at_every_stage_it_still_ends_with_the_same_store(tmp_path):
    write_corpus(tmp_path, "news", 30_000, 1)
    path = tmp_path / "small.toml"
    path.write_text('[[data.corpora]]\nsource = "news.en"\ntarget = "news.de"\n')
    command = [
        sys.executable,
        "-m",
        "transduce",
        "prepare",
        str(path),
        "data.tokenizer.vocab_size=330",
    ]
    subprocess.run(
        [*command, "--out", str(tmp_path / "whole.store")], check=True, capture_output=True
    )
    work, kills = tmp_path / "small.store.partial", 0
    for sign in (
        "fingerprint",
        "train-0-0.spool",
        "cleaned.json",
        "target.model",
        "train-0-1.npz",
        "store",
    ):
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None and not (work / sign).exists():
                time.sleep(0.001)
            kills += process.poll() is None
            process.kill()
    assert kills >= 5
    subprocess.run(command, check=True, capture_output=True)
    assert (
        Store(tmp_path / "small.store").manifest["files"]
        == Store(tmp_path / "whole.store").manifest["files"]
    )
    assert not work.exists()


def test_a_recipe_file_is_all_that_is_needed(tmp_path):
    from transduce.corpora.phrases import write_phrases

    path = write_phrases(tmp_path, "en", "de", 300, 1)
    assert prepare(path).path == tmp_path / "recipe.store"
    with pytest.raises(ConfigError, match="out is missing"):
        prepare(load_recipe(str(path)))
