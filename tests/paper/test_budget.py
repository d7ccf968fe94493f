"""Budgets: a row is the paper's recipe with its time axis compressed, and varies one thing."""

import pytest

from transduce.config import DataConfig, TokenizerConfig
from transduce.errors import ConfigError
from transduce.paper.budget import check_budget, row_recipe, scaled
from transduce.presets import BASE, TABLE_3
from transduce.recipe import differences
from transduce.training.optimizer import learning_rate

DATA = DataConfig(tokenizer=TokenizerConfig(vocab_size=900))


def test_a_tenth_of_the_budget_is_the_papers_schedule_ten_times_as_fast():
    short = row_recipe(BASE, DATA, 0.1)
    assert short.training.steps == 10_000
    for step in (1, 100, 399, 400, 401, 5_000, 10_000):
        assert learning_rate(short, step) == pytest.approx(learning_rate(BASE, 10 * step))


def test_the_averaged_checkpoints_span_the_same_share_of_the_training():
    for name in ("base", "big"):
        full = TABLE_3[name].training
        short = scaled(TABLE_3[name], 0.1).training
        span = full.save_every * full.average_checkpoints / full.steps
        assert short.save_every * short.average_checkpoints / short.steps == pytest.approx(span)


@pytest.mark.parametrize("budget", [1, 0.1, 0.001])
def test_a_run_is_validated_and_saved_a_few_times_whatever_its_length(budget):
    training = scaled(BASE, budget).training
    assert training.steps / training.validate_every == 10
    assert training.steps / training.early_save_every == 10


@pytest.mark.parametrize("row", TABLE_3)
def test_a_row_differs_from_base_by_what_the_table_says_whatever_else_is_changed(row):
    overrides = ("model.d_ff=96", "training.tokens_per_step=7")
    base = row_recipe(BASE, DATA, 0.1, overrides)
    varied = row_recipe(TABLE_3[row], DATA, 0.1, overrides)
    changed = set(differences(varied, base)) - {"training.learning_rate"}
    assert changed == set(differences(scaled(TABLE_3[row], 0.1), scaled(BASE, 0.1)))
    assert varied.model.vocab_size == 900
    assert varied.training.tokens_per_step == 7


@pytest.mark.parametrize("budget", [0, -1, 11, float("nan")])
def test_a_budget_that_is_no_share_is_refused(budget):
    with pytest.raises(ConfigError, match=r"--budget is .*; expected a share"):
        check_budget(budget)
