"""Table 2: the rivals are as large as base, are trained like it, and their cost is counted."""

from dataclasses import replace

import pytest
import torch

from tests.paper.conftest import BUDGET, SMALL, trained
from transduce.cli.commands import run
from transduce.config import ModelConfig
from transduce.describe import count_flops, count_parameters
from transduce.model import Transformer
from transduce.paper import table2
from transduce.paper.corpus import find_corpus
from transduce.paper.experiment import Plan
from transduce.paper.flops import count_training_flops, estimated_flops
from transduce.paper.results import load_results, save_result
from transduce.presets import BASE
from transduce.recipe import to_toml

SMALLER = (
    "model.N=3", "model.d_model=128", "model.d_ff=512", "model.h=2", "data.tokenizer.vocab_size=2000"
)  # fmt: skip


@pytest.mark.parametrize(("changes", "tolerance"), [((), 0.05), (SMALLER, 0.2)])
@pytest.mark.parametrize("name", table2.RIVALS)
def test_a_rival_has_about_as_many_parameters_as_base(name, changes, tolerance):
    base, rival = table2.rows(["base", name], Plan(data=BASE.data, overrides=changes))
    with torch.device("meta"):
        size = sum(weight.numel() for weight in rival.model(rival.recipe.model).parameters())
    assert size == pytest.approx(count_parameters(base.recipe.model), rel=tolerance)


def test_a_rival_can_be_built_for_any_width_of_base():
    plan = Plan(data=BASE.data, overrides=("model.d_model=40",))
    (row,) = table2.rows(["recurrent"], plan)
    assert row.recipe.model.d_model == 56  # 11/8 of 40 is 55, which is odd


def test_flops_of_any_model_are_counted_as_those_of_the_transformer():
    config = ModelConfig(vocab_size=500, N=2, d_model=64, d_ff=96, h=2, d_k=32, d_v=32)
    expected = count_flops(config, 20).training
    assert count_training_flops(Transformer, config, 20) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("name", table2.RIVALS)
def test_flops_of_a_rival_contain_all_its_products(name):
    build = table2.RIVALS[name].build
    config = replace(BASE.model, vocab_size=100, N=3, d_model=32)
    with torch.device("meta"):
        weights = [weight for weight in build(config).parameters() if weight.dim() > 1]
    products = sum(weight.numel() for weight in weights)
    # Two operations for each weight and token, three times. Attention comes on top, and the
    # first step has no state whose gradient is needed.
    assert 5.9 * products < count_training_flops(build, config, 10) < 9 * products


def test_the_papers_method_is_time_times_speed():
    assert estimated_flops(10, {"gpu": "NVIDIA H200", "gpus": 2}) == 10 * 2 * 990e12
    assert estimated_flops(10, {"cpu": "any"}) is None


def test_rivals_train_beside_base_and_again_for_as_long(text, tmp_path, capsys):
    rows = ["base", "recurrent", "equal-time-recurrent"]
    words = ["paper", "table2", str(text), *SMALL, "--out", str(tmp_path), "--device", "cpu"]
    words += ["--budget", str(BUDGET), "--rows", *rows]
    assert run([*words, "--dry-run"]) == 0
    assert "equal-time-recurrent: as long as base" in capsys.readouterr().out
    assert run(words) == 0

    results = table2._results(tmp_path)
    assert set(results) == set(rows)
    assert results["recurrent"].numbers["steps"] == results["base"].numbers["steps"] == 4
    speed = {name: result.numbers["tokens_per_second"] for name, result in results.items()}
    share = speed["recurrent"] / speed["base"]
    steps = results["equal-time-recurrent"].numbers["steps"]
    assert steps == max(1, round(100_000 * BUDGET * share))
    assert set(load_results(tmp_path, "table3")) == {"base"}
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert " than recurrent, with 0." in page
    rungs = [line for line in page.splitlines() if line.startswith("| average of 4 checkpoints |")]
    ladder = results["base"].numbers["ladder"]
    assert rungs == [f"| average of 4 checkpoints | {ladder[1]['score']['value']:.2f} | +0.00 |"]
    assert "ladder" not in results["recurrent"].numbers


def test_rivals_of_another_budget_or_other_settings_are_marked_and_not_judged(tmp_path):
    plan = Plan(data=BASE.data, budget=0.1)
    rows = table2.rows(["base", "recurrent", "convolutional"], plan)
    base_recipe, recurrent, convolutional = (to_toml(row.recipe) for row in rows)
    shorter = convolutional.replace("tokens_per_step = 25000", "tokens_per_step = 2500")
    base = trained("table3", "base", recipe=base_recipe)
    save_result(tmp_path, base)
    rival = trained("table2", "recurrent", recipe=recurrent, tokens_per_second=500.0)
    save_result(tmp_path, rival)
    time = table2.equal_time_row("equal-time-recurrent", plan, tmp_path)
    assert time.recipe.training.steps == 5_000
    save_result(tmp_path, replace(rival, row=time.name, recipe=to_toml(time.recipe)))
    save_result(tmp_path, replace(rival, row="convolutional", recipe=shorter))
    save_result(tmp_path, replace(rival, row="equal-time-convolutional", budget=0.01))
    section = table2.section(tmp_path, "")
    assert section.paragraphs[1] == "sacreBLEU: 3,000 sentences, tok:13a."
    judged = [paragraph.split(" than ")[1].split(",")[0] for paragraph in section.paragraphs[2:]]
    assert judged == ["recurrent", "equal-time-recurrent"]
    notes = {row[0]: row[-1] for row in section.tables[0].rows}
    assert notes["recurrent"] == notes["equal-time-recurrent"] == ""
    assert notes["convolutional"] == "other settings than base: training.tokens_per_step"
    assert notes["equal-time-convolutional"] == "budget 0.01, base has 0.1"
    cost = section.figures[1].svg
    drawn = {"base", "recurrent", "equal-time-recurrent"}
    assert {name for name in table2.ROWS if f">{name}</text>" in cost} == drawn


def test_seeds_of_base_follow_base(tmp_path):
    for row in ("base-seed2", "base"):
        save_result(tmp_path, trained("table3", row))
    assert list(table2._results(tmp_path)) == ["base", "base-seed2"]


def test_equal_time_without_the_others_says_what_is_missing(text, tmp_path, capsys):
    words = ["paper", "table2", str(text), "--out", str(tmp_path), "--rows", "equal-time-recurrent"]
    assert run(words) == 2
    assert "needs the speeds of base and recurrent" in capsys.readouterr().err


def test_equal_time_follows_the_speeds_of_its_own_seed(text, tmp_path):
    for part, row, speed in (("table3", "base-seed2", 4.0), ("table2", "recurrent-seed2", 2.0)):
        save_result(tmp_path, trained(part, row, tokens_per_second=speed))
    plan = Plan(data=find_corpus(str(text), tmp_path), budget=0.1, seed=2)
    row = table2.equal_time_row("equal-time-recurrent", plan, tmp_path)
    assert set(table2._results(tmp_path)) == {"base-seed2", "recurrent-seed2"}
    assert (row.name, row.recipe.training.steps) == ("equal-time-recurrent-seed2", 5_000)
