"""Figures: the schedule and encodings need no model; attention is drawn from any bundle."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from transduce.cli.commands import run
from transduce.errors import InputError
from transduce.paper.figures import (
    CAPTIONS,
    _clearest_head,
    _strongest_head,
    attention_figures,
)
from transduce.paper.sentences import SENTENCES
from transduce.presets import BASE
from transduce.training.optimizer import learning_rate
from transduce.translation.translator import Translator


def test_all_figures_are_drawn_from_a_bundle(bundle, tmp_path):
    assert run(["paper", "figures", "--model", str(bundle.path), "--out", str(tmp_path)]) == 0
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == set(CAPTIONS)
    for path in (tmp_path / "figures").iterdir():
        assert ET.parse(path).getroot().tag.endswith("svg")
    heads = set()
    for ending in ("tired", "wide"):
        text = (tmp_path / "figures" / f"paper-it-{ending}.svg").read_text()
        heads.add(
            re.search(r">Encoder self-attention, (layer \d) of .*?>head<.*?>(\d)<", text).groups()
        )
    assert len(heads) == 1


def test_without_a_model_the_others_are_drawn_and_the_rest_is_named(tmp_path, capsys):
    assert run(["paper", "figures", "--out", str(tmp_path)]) == 0
    assert "need a trained model: --model" in capsys.readouterr().err
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"paper-schedule.svg", "paper-positions.svg"}


def test_english_sentences_are_not_drawn_with_a_model_of_another_language(bundle):
    translator = Translator(bundle.path, engine="torch", device="cpu")
    data = replace(translator.recipe.data, source_language="de", target_language="en")
    translator.recipe = replace(translator.recipe, data=data)
    with pytest.raises(InputError, match="from de to en; give a model that translates from Eng"):
        next(attention_figures(translator))


@pytest.mark.parametrize(
    ("part", "arguments", "name"),
    [
        ("figures", ["--rows", "x"], "--rows"),
        ("table1", ["en-de.toml"], "the corpus en-de.toml"),
        ("table1", ["--seed", "2"], "--seed"),
        ("table3", ["--model", "en-de"], "--model"),
        ("claims", ["x.toml", "model.N=2"], "the setting model.N=2"),
        ("report", ["--budget", "0.5"], "--budget"),
        ("report", ["--dry-run"], "--dry-run"),
        ("figures", ["--dry-run"], "--dry-run"),
        ("figures", ["--device", "cpu"], "--device"),
        ("table1", ["--tokens-per-second", "5", "--dry-run"], "--tokens-per-second"),
    ],
)
def test_an_option_without_effect_is_refused(part, arguments, name, tmp_path, capsys):
    assert run(["paper", part, *arguments, "--out", str(tmp_path)]) == 2
    assert f"{name} has no effect on {part}; leave it out" in capsys.readouterr().err


def test_the_schedule_peaks_at_the_end_of_the_warm_up():
    rates = {step: learning_rate(BASE, step) for step in range(1, 20_001)}
    assert max(rates, key=rates.get) == 4_000


def test_the_strongest_head_is_the_one_that_looks_at_the_word(bundle):
    from transduce.inspection.inspect import inspect
    from transduce.translation.translator import Translator

    found = inspect(Translator(bundle, engine="torch", device="cpu"), SENTENCES["tired"])
    tokens = found.source.tokens
    words = found.source.words
    it, animal = (
        [place for place, token in enumerate(tokens) if token.word == words.index(word)]
        for word in ("it", "animal")
    )
    weights = found.attention["encoder"]
    weights[:] = 0
    weights[1, 2][np.ix_(it, animal)] = 1
    assert _strongest_head(found, "it", "animal") == (2, 3)
    weights[1, 0][:, -1] = 1  # rests on the end of the sentence
    assert _clearest_head(found, 2) == 3
    with pytest.raises(Exception, match="does not read 'it' and 'cow' as words"):
        _strongest_head(found, "it", "cow")
