import itertools
import os
import re
import subprocess
import sys
import time
from datetime import date
from random import Random

import pytest

from transduce.cli.commands import run
from transduce.corpora import phrase_values
from transduce.corpora import phrases as module
from transduce.corpora.phrase_values import GOODS, MEASURES
from transduce.corpora.phrasebook import BARE, SENTENCES
from transduce.corpora.phrases import LANGUAGES, phrases, write_phrases
from transduce.errors import ConfigError, DataError, MissingExtra
from transduce.recipe import read_recipe

ORDERED_PAIRS = list(itertools.permutations(LANGUAGES, 2))


def drawn(source, target, count, seed=1):
    return list(itertools.islice(module._draw(Random(seed), source, target), count))


def in_language(language, kind, count=2_000):
    """What a kind of value reads like in a language, over many draws."""
    random = Random(1)
    return [
        module._fill(f"{{{kind}}}", {kind: phrase_values.KINDS[kind](random)}, language)
        for _ in range(count)
    ]


@pytest.mark.parametrize(("source", "target"), ORDERED_PAIRS)
def test_a_source_has_one_translation_whatever_is_drawn(source, target, monkeypatch):
    # Few days, and a month too short to be abbreviated:
    monkeypatch.setattr(phrase_values, "FIRST_DAY", date(2021, 5, 1))
    # Kinds of date would be mistaken for each other here.
    monkeypatch.setattr(phrase_values, "LAST_DAY", date(2021, 5, 31))
    translations = {}
    for seed in (1, 2):
        for text, translation in drawn(source, target, 1_500, seed):
            assert translations.setdefault(text, translation) == translation


@pytest.mark.parametrize(("source", "target"), [("fr", "it"), ("it", "fr")])
def test_no_text_of_one_split_is_in_another_on_either_side(source, target):
    splits = phrases(source, target, 4_000)
    keys = {
        split: [{re.sub(r"\W", "", pair[side].casefold()) for pair in examples} for side in (0, 1)]
        for split, examples in splits.items()
    }
    for one, other in itertools.combinations(keys, 2):
        for side in (0, 1):
            assert not keys[one][side] & keys[other][side]
    assert {split: len(examples) for split, examples in splits.items()} == {
        "train": 3_200,
        "valid": 400,
        "test": 400,
    }
    assert all(len(keys[split][side]) == len(splits[split]) for split in splits for side in (0, 1))


def test_case_spaces_and_punctuation_make_no_difference():
    assert (
        module._key("»Größe: 1,5 ﬁt!«")
        == module._key("GRÖSSE 15 fit")
        != module._key("GRÖSSE 16 fit")
    )


def test_no_pair_is_a_copy():
    assert [pair for pair in phrases("es", "it", 3_000)["train"] if pair[0] == pair[1]] == []


def test_the_other_direction_is_the_same_corpus_turned_round():
    there, back = phrases("en", "de", 500, seed=3), phrases("de", "en", 500, seed=3)
    assert back == {split: [(target, source) for source, target in there[split]] for split in there}


def test_the_corpus_depends_on_the_seed_alone():
    program = "from transduce.corpora.phrases import phrases; print(ascii(phrases('de', 'es', 300, seed=7)))"
    outputs = set()
    for settings in (
        {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C", "LANGUAGE": "en"},
        {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "fr"},
    ):
        run = [sys.executable, "-W", "ignore", "-c", program]
        outputs.add(
            subprocess.run(
                run, env={**os.environ, **settings}, capture_output=True, check=True
            ).stdout
        )
    assert len(outputs) == 1
    assert phrases("de", "es", 300, seed=7) != phrases("de", "es", 300, seed=8)


def test_every_kind_and_every_sentence_comes_up():
    sources = {source for source, _ in drawn("en", "de", 2_000)}
    for line in SENTENCES["en"].split("\n"):
        pattern = re.sub(r"\\{\w+\\}", ".+", re.escape(line.strip()))
        assert any(re.fullmatch(pattern, source) for source in sources), line
    assert set(BARE.split()) < set(phrase_values.KINDS)


def test_sentences_have_the_same_slots_in_every_language():
    slots = {
        language: [sorted(re.findall(r"{(\w+)}", line)) for line in text.split("\n")]
        for language, text in SENTENCES.items()
    }
    assert all(slots[language] == slots["en"] for language in LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_is_what_a_person_would_type(language):
    other = "en" if language != "en" else "de"
    ids = re.compile("|".join((*GOODS, *MEASURES, "duration-")))
    for text, _ in drawn(language, other, 3_000):
        assert text.isprintable()
        assert text == " ".join(text.split(" "))
        assert "  " not in text
        assert not ids.search(text), text
        assert not re.search(r"\b0 (?!\d)|None|[{}]", text), text


@pytest.mark.parametrize(
    ("language", "kind", "wrong"),
    [
        ("fr", "date", r"\b1 [a-zéû]"),
        ("fr", "ordinal", r"(cent|vingt)s"),
        ("es", "tongues", r"\by i"),
        ("es", "places", r"\by I"),
        ("es", "ordinal", r"décimo(p|s)"),
    ],
)
def test_grammar_follows_the_neighbouring_word(language, kind, wrong):
    assert [text for text in in_language(language, kind) if re.search(wrong, text)] == []


def test_elision_and_the_hour_of_one_are_right():
    def word(template, language):
        return module._fill(template, {}, language)

    assert word("La fattura del 8 maggio", "it") == "La fattura dell'8 maggio"
    assert word("La mostra inizia il 11 marzo", "it") == "La mostra inizia l'11 marzo"
    assert (
        word("La mostra inizia il 18 marzo, del 110%", "it")
        == "La mostra inizia il 18 marzo, del 110%"
    )
    assert word("a las 1:30 y a las 11:30", "es") == "a la 1:30 y a las 11:30"
    assert word("Francia y Italia, cobre y hierro", "es") == "Francia e Italia, cobre y hierro"
    assert word("le 1 mai, le 21 mai, 1 mois", "fr") == "le 1er mai, le 21 mai, 1 mois"


@pytest.mark.parametrize("language", LANGUAGES)
def test_different_numbers_are_spelt_differently(language):
    from num2words import num2words

    spelt = [
        module._fill("{n}", {"n": lambda lang, n=n: num2words(n, lang=lang)}, language)
        for n in range(1, 1_200)
    ]
    ordinals = [
        module._fill(
            "{n}", {"n": lambda lang, n=n: num2words(n, lang=lang, to="ordinal")}, language
        )
        for n in range(1, 700)
    ]
    assert len(set(spelt)) == len(spelt)
    assert len(set(ordinals)) == len(ordinals)


def test_twelve_thousand_pairs_take_less_than_three_seconds():
    start = time.process_time()
    splits = phrases("en", "de", 12_000)
    assert time.process_time() - start < 3
    assert [len(splits[split]) for split in ("train", "valid", "test")] == [10_000, 1_000, 1_000]


def test_the_files_and_the_recipe_hold_the_corpus(tmp_path):
    recipe = read_recipe(write_phrases(tmp_path / "new", "en", "fr", pairs=200, seed=5))
    splits = phrases("en", "fr", 200, seed=5)
    for section, split in (
        (recipe.data.corpora, "train"),
        (recipe.data.validation, "valid"),
        (recipe.data.test, "test"),
    ):
        (corpus,) = section
        sides = [
            (tmp_path / "new" / name).read_bytes().decode().split("\n")
            for (name,) in (corpus.source, corpus.target)
        ]
        assert [side.pop() for side in sides] == ["", ""]
        assert list(zip(*sides, strict=True)) == splits[split]
    assert (recipe.data.source_language, recipe.data.target_language) == ("en", "fr")
    assert recipe.data.tokenizer.vocab_size == recipe.model.vocab_size
    assert not list((tmp_path / "new").glob(".*"))


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("fr", "it")])
def test_cleaning_drops_nothing(source, target, tmp_path, capsys):
    recipe = write_phrases(tmp_path, source, target, pairs=1_000)
    assert run(["doctor", str(recipe)]) == 0
    assert "800 kept, 0 dropped" in capsys.readouterr().out


def test_a_folder_that_was_not_finished_has_no_recipe(tmp_path):
    write_phrases(tmp_path, "en", "de", pairs=20)
    (tmp_path / "valid.de").unlink()
    (tmp_path / "valid.de").mkdir()  # cannot be replaced by a file
    with pytest.raises(DataError, match="cannot be written"):
        write_phrases(tmp_path, "en", "de", pairs=30)
    assert not (tmp_path / "recipe.toml").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("en", "xx"), "no language 'xx'; known: de, en, es, fr, it"),
        (("de", "de"), "'de' twice; known: de, en, es, fr, it"),
        (("en", "de", 3), "asked for 3 pairs; expected 10 to 1,000,000"),
        (("en", "de", 2_000_000), "asked for 2,000,000 pairs"),
    ],
)
def test_wrong_requests_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        phrases(*arguments)


def test_a_missing_library_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel.dates", None)
    phrase_values._babel.cache_clear()
    try:
        with pytest.raises(MissingExtra, match=r"pip install .*\[phrases\]"):
            phrases("en", "de", 50)
    finally:
        phrase_values._babel.cache_clear()
