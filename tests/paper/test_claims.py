"""Claims: each experiment runs, its verdict follows from its numbers, and the report shows it."""

import copy
import dataclasses
from types import SimpleNamespace

import pytest
import torch

from tests.paper.conftest import trained
from transduce.cli.commands import run
from transduce.evaluation.test_set import read_sets
from transduce.paper.claims import (
    head_distance,
    head_removal,
    linear_positions,
    pronoun,
    scale,
    step_cost,
    toy_task,
    warmup,
)
from transduce.paper.claims.catalogue import CLAIMS, section
from transduce.paper.claims.claim import Context
from transduce.paper.corpus import find_corpus
from transduce.paper.results import find_result, save_result
from transduce.presets import BASE, TABLE_3
from transduce.recipe import to_toml
from transduce.translation.translator import Translator

CPU = torch.device("cpu")


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path, CPU, effort=0.001)


def test_dot_products_and_their_softmax_behave_as_the_paper_says(context):
    finding = scale.experiment(context)
    assert finding.holds
    assert finding.numbers["exponent"] == pytest.approx(1, abs=0.1)


def test_sinusoids_move_linearly_and_other_vectors_do_not(context, monkeypatch):
    finding = linear_positions.experiment(context)
    assert finding.holds
    assert min(error for _, error in finding.charts[0].curves["random vectors"]) > 0.5

    monkeypatch.setattr(
        linear_positions, "sinusoids", lambda ids, d: ids[..., None] ** 2.0 % torch.arange(7, 7 + d)
    )
    assert not linear_positions.experiment(context).holds


def test_the_cost_of_a_step_is_measured_but_not_judged_on_a_cpu(context, monkeypatch):
    monkeypatch.setattr(step_cost, "LENGTHS", (2, 4, 8))
    finding = step_cost.experiment(context)
    assert finding.holds is None
    assert len(finding.charts[0].curves["recurrence"]) == 3


@pytest.mark.parametrize("name", ["warmup", "longer-sequences"])
def test_claims_with_training_run_with_any_effort(name, context, monkeypatch):
    monkeypatch.setattr(warmup, "LAYERS", 1)
    finding = CLAIMS[name].experiment(context)
    assert finding.holds is None  # nothing is learned in two steps
    assert finding.charts[0].curves


def test_the_toy_task_is_to_write_backwards():
    source, inputs, labels = toy_task.batch(3, 5, torch.Generator().manual_seed(0))
    assert (source[:, :5].flip(1) == labels[:, :5]).all()
    assert (labels[:, 5] == toy_task.EOS).all()
    assert (inputs[:, 1:] == labels[:, :5]).all()


@pytest.fixture
def save(context):
    """A function that saves a row of Table 3 with a BLEU and the recipe of its name."""

    def save(name, bleu, **changes):
        recipe = dataclasses.replace(TABLE_3[name.partition("-seed")[0]], **changes)
        save_result(context.out, trained("table3", name, bleu=bleu, recipe=to_toml(recipe)))

    return save


def test_one_head_is_judged_from_the_results_of_table_3(context, save):
    claim = CLAIMS["one-head"].experiment
    assert claim(context).holds is None
    for name, bleu in {"base": 20.0, "A-h1": 19.0, "A-h16": 20.5}.items():
        save(name, bleu)
    finding = claim(context)
    assert finding.holds is None
    assert finding.verdict == (
        "h=16 is best; h=1 is 1.5 BLEU below it (in the paper 0.9). The row A-h32 is missing."
    )
    save("A-h32", 20.1)
    assert claim(context).holds
    save("base-seed2", 20.5)
    finding = claim(context)
    assert finding.holds is None  # the gap of 0.4 is smaller than that of the seeds
    assert finding.verdict.endswith(
        "h=32 is 0.4 BLEU below it (in the paper 0.4). Seeds of base are 0.5 apart."
    )
    save("A-h32", 20.6)
    assert claim(context).holds is False  # quality does not drop with too many heads


def test_one_head_is_compared_with_the_heads_that_base_had(context, save):
    save("base", 21.0, model=dataclasses.replace(BASE.model, h=2, d_k=256, d_v=256))
    save("A-h1", 20.0)
    finding = CLAIMS["one-head"].experiment(context)
    assert finding.verdict.startswith("h=2 is best; h=1 is 1.0 BLEU below it")
    assert [h for h, _ in finding.charts[0].curves["ours"]] == [1, 2]


def test_one_head_is_compared_with_rows_like_base_only(context):
    for name, bleu, budget in (("base", 20, 0.1), ("A-h1", 5, 0.01), ("A-h32", 5, 0.01)):
        save_result(context.out, trained("table3", name, bleu=bleu, budget=budget))
    finding = CLAIMS["one-head"].experiment(context)
    assert finding.holds is None
    assert finding.verdict == "The rows base and A-h1 of Table 3 are missing, or not comparable."


@pytest.fixture(scope="module")
def translator(bundle):
    return Translator(bundle, engine="torch", device="cpu")


def test_the_distance_of_heads_is_measured_in_a_trained_model(context, translator, text):
    data = find_corpus(str(text), text)
    finding = CLAIMS["head-distance"].experiment(
        dataclasses.replace(context, translator=translator, data=data)
    )
    assert (
        "over 8 sentences" in finding.verdict
    )  # four of the paper and of the text, with any budget
    assert len(finding.numbers["layer_means"]) == 2
    assert 0 < finding.numbers["nearest"] < finding.numbers["farthest"]


def test_one_layer_cannot_tell_whether_later_layers_look_farther(context, monkeypatch):
    head = SimpleNamespace(kind="encoder", layer=1, index=1, distance=2.0)
    monkeypatch.setattr(head_distance, "inspect", lambda *_: SimpleNamespace(measures=[head]))
    finding = head_distance.experiment(dataclasses.replace(context, translator=object()))
    assert finding.holds is None


def test_heads_are_removed_from_the_least_important_on(context, translator, text):
    full = dataclasses.replace(context, translator=translator, data=find_corpus(str(text), text))
    finding = CLAIMS["head-removal"].experiment(full)
    shares = [share for share, _ in finding.charts[0].curves["BLEU"]]
    assert shares[0] == 0
    assert shares[-1] == 100
    assert "heads can be removed" in finding.verdict
    without_text = dataclasses.replace(full, data=None)
    assert CLAIMS["head-removal"].experiment(without_text).holds is None


def test_heads_are_ranked_on_other_sentences_than_those_that_judge(
    context, translator, text, monkeypatch
):
    seen = {}
    importance = head_removal.head_importance

    def rank(translator, sources, references):
        seen["ranked"] = sources
        return importance(translator, sources, references)

    def judge(translator, heads, sources, references):
        seen["judged"] = sources
        return 50.0

    monkeypatch.setattr(head_removal, "head_importance", rank)
    monkeypatch.setattr(head_removal, "_bleu_without", judge)
    monkeypatch.setattr(head_removal, "SENTENCES", 2)
    data = find_corpus(str(text), text)
    sources, _ = read_sets(data.validation, data)
    head_removal.experiment(dataclasses.replace(context, translator=translator, data=data))
    assert seen == {"judged": sources[:2], "ranked": sources[2:4]}


def test_pronouns_are_found_in_the_last_clause():
    assert pronoun._pronoun("Das Tier überquerte die Straße nicht, weil es zu müde war.") == "es"
    assert pronoun._pronoun("Es ging nicht, weil sie zu breit war.") == "sie"
    assert pronoun._pronoun("Es war müde, sehr müde.") == "none"


def test_pronouns_are_judged_for_english_and_german_only(context, translator):
    data = dataclasses.replace(translator.recipe.data, source_language="de", target_language="en")
    other = copy.copy(translator)
    other.recipe = dataclasses.replace(translator.recipe, data=data)
    finding = CLAIMS["pronoun"].experiment(dataclasses.replace(context, translator=other))
    assert finding.holds is None
    assert finding.verdict.startswith("The model translates from de to en;")


def test_text_in_other_languages_than_the_model_is_refused(bundle, text, tmp_path, capsys):
    recipe = text.read_text(encoding="utf-8").replace('"en"', '"fr"')
    other = text.with_name("other.toml")
    other.write_text(recipe, encoding="utf-8")
    words = ["paper", "claims", str(other), "--model", str(bundle.path), "--out", str(tmp_path)]
    words += ["--rows", "head-distance"]
    assert run(words) == 2
    assert "is from fr to de, but the model translates from en to de" in capsys.readouterr().err


def test_the_command_saves_what_it_found_and_names_what_needs_a_model(tmp_path, capsys):
    rows = ["--rows", "scale", "--out", str(tmp_path), "--device", "cpu"]
    assert run(["paper", "claims", *rows]) == 0
    assert "claim scale: holds. The variance" in capsys.readouterr().err
    assert find_result(tmp_path, "claims", "scale").numbers["holds"] is True
    found = section(tmp_path, "any commit")
    assert found.figures[0].svg.startswith("<svg")
    assert "| scale | Dot products" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert run(["paper", "claims", *rows, "--budget", "0.5"]) == 0
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| budget 0.5 |" in page

    assert run(["paper", "claims", "--rows", "pronoun", "--out", str(tmp_path)]) == 2
    assert "give one with --model" in capsys.readouterr().err
