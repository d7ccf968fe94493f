"""A model card has the facts that a stranger asks for, and front matter that is always YAML."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import CorpusConfig, DataConfig, Recipe
from transduce.storage.model_card import facts, front_matter, model_card

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"
SCORES = {
    "bleu": 27.3456789,
    "perplexity": 4.56789,
    "test": {"corpora": "newstest2014", "sentences": 3003, "bleu": 26.98, "signature": SIGNATURE},
}


def recipe(source="en", target="de"):
    return Recipe(
        data=DataConfig(
            source_language=source,
            target_language=target,
            corpora=(CorpusConfig(source=("europarl.en",), target=("europarl.de",)),),
            validation=(CorpusConfig(name="dev", source=("d.en",), target=("d.de",)),),
        )
    )


def yaml_of(card):
    start, block, _ = card.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(block)


def test_a_card_begins_with_what_model_hubs_read():
    found = yaml_of(model_card(recipe(), {}, {}, 1000, "float32"))
    assert found == {
        "language": ["en", "de"],
        "library_name": "transduce",
        "pipeline_tag": "translation",
        "tags": ["translation", "transduce"],
    }


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
@pytest.mark.parametrize("other", ["no", 'a"b', "a: b\n---\n"])
def test_front_matter_is_yaml_with_any_name_of_a_language(other, language):
    lines = front_matter(recipe(language, other), "transduce")
    found = yaml.safe_load("\n".join(lines[1:-2]))
    assert found["language"] == list(dict.fromkeys([language, other]))


def test_scores_are_rounded_and_those_of_the_test_text_have_their_signature():
    card = "\n".join(facts(recipe(), SCORES, {}))
    assert "| score | validation text (dev) |\n| --- | --- |\n| BLEU | 27.3 |" in card
    assert "| perplexity | 4.57 |" in card
    assert "| score | test text (newstest2014, 3,003 sentences) |" in card
    assert "| BLEU | 27.0 |" in card
    assert "| signature | " + SIGNATURE.replace("|", r"\|") in card


def test_the_corpora_have_their_pairs_where_these_are_known():
    card = "\n".join(facts(recipe(), {}, {"corpora": {"a|b\nc": 1_920_209}, "step": 5}))
    assert "| training text | pairs |\n| --- | --- |\n| a\\|b c | 1,920,209 |" in card
    assert "| step | 5 |" in card
    older = "\n".join(facts(recipe(), {}, {"step": 5}))
    assert "| europarl.en |  |" in older


def test_the_hardware_is_a_phrase():
    machine = {"cpu": "EPYC", "cores": 16, "memory_gib": 128, "torch": "2.13", "python": "3.11"}
    card = "\n".join(facts(recipe(), {}, {"hardware": machine | {"gpu": "H200", "gpus": 8}}))
    phrase = "8 x H200, EPYC with 16 cores, 128 GiB of memory, torch 2.13, Python 3.11"
    assert f"| hardware | {phrase} |" in card
    assert "| hardware | a text |" in "\n".join(facts(recipe(), {}, {"hardware": "a text"}))


@pytest.mark.parametrize(
    ("scores", "quality"),
    [
        (SCORES, ", BLEU 27.0 on newstest2014"),
        ({"bleu": 27.3456789, "test": {}}, ", BLEU 27.3 on its validation text"),
        ({"loss": 2.5}, ""),
        ("edited", ""),
    ],
)
def test_a_student_names_its_teacher(scores, quality):
    teacher = {"name": "large", "fingerprint": "0123456789abcdef", "scores": scores}
    card = model_card(recipe(), {}, {"distilled_from": teacher}, 1000, "float32")
    row = (
        f"| distilled_from | large (0123456789ab){quality}; its licence and its training text count"
    )
    assert row in card
    assert "| distilled_from | a text |" in "\n".join(
        facts(recipe(), {}, {"distilled_from": "a text"})
    )


def test_an_edited_file_of_scores_does_not_prevent_a_card():
    edited = {"bleu": "good", "test": {"sentences": "many", "bleu": None}}
    card = "\n".join(facts(recipe(), edited, {"corpora": {"a": None}}))
    assert "many sentences" in card
