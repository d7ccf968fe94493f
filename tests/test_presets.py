"""Table 3: what each row changes, and the last column, parameters in millions."""

from dataclasses import replace

import pytest

from transduce.describe import count_flops, count_parameters
from transduce.presets import BASE, PRESETS
from transduce.recipe import differences

TABLE_3 = {
    "base": ({}, 65),
    "A-h1": ({"h": 1, "d_k": 512, "d_v": 512}, None),
    "A-h4": ({"h": 4, "d_k": 128, "d_v": 128}, None),
    "A-h16": ({"h": 16, "d_k": 32, "d_v": 32}, None),
    "A-h32": ({"h": 32, "d_k": 16, "d_v": 16}, None),
    "B-dk16": ({"d_k": 16}, 58),
    "B-dk32": ({"d_k": 32}, 60),
    "C-N2": ({"N": 2}, 36),
    "C-N4": ({"N": 4}, 50),
    "C-N8": ({"N": 8}, 80),
    "C-dmodel256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
    "C-dmodel1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    "C-dff1024": ({"d_ff": 1024}, 53),
    "C-dff4096": ({"d_ff": 4096}, 90),
    "D-drop0.0": ({"p_drop": 0.0}, None),
    "D-drop0.2": ({"p_drop": 0.2}, None),
    "D-ls0.0": ({"eps_ls": 0.0}, None),
    "D-ls0.2": ({"eps_ls": 0.2}, None),
    "E-learned": ({"positions": "learned"}, None),
    "big": (
        {
            "d_model": 1024,
            "d_ff": 4096,
            "h": 16,
            "p_drop": 0.3,
            "steps": 300_000,
            "average_checkpoints": 20,
            "keep_checkpoints": 20,
        },
        213,
    ),
}


@pytest.mark.parametrize("row", TABLE_3)
def test_every_row_of_table_3_differs_from_base_by_what_it_says(row):
    changes = differences(PRESETS[f"table3-{row}"], BASE)
    assert {name.split(".")[-1]: value for name, (value, _) in changes.items()} == TABLE_3[row][0]


def test_the_presets_are_the_table_and_seven_more():
    others = {"base", "big", "parser", "modern", "tiny", "small", "student"}
    assert set(PRESETS) == {f"table3-{row}" for row in TABLE_3} | others
    assert (PRESETS["base"], PRESETS["big"]) == (PRESETS["table3-base"], PRESETS["table3-big"])


@pytest.mark.parametrize(
    ("row", "millions"), [(row, count) for row, (_, count) in TABLE_3.items() if count]
)
def test_parameter_counts_are_the_papers(row, millions):
    # The counts of Table 3 imply a vocabulary of 41,000 for every row but big, which fits the text's 37,000.
    model = replace(PRESETS[f"table3-{row}"].model, vocab_size=37_000 if row == "big" else 41_000)
    assert count_parameters(model) == pytest.approx(millions * 1e6, rel=0.01)


@pytest.mark.parametrize("row", [row for row in TABLE_3 if row.startswith("A")])
def test_rows_a_keep_the_amount_of_computation(row):
    assert count_parameters(PRESETS[f"table3-{row}"].model) == count_parameters(BASE.model)
    assert count_flops(PRESETS[f"table3-{row}"].model) == count_flops(BASE.model)


def test_base_has_the_papers_numbers():
    model, training, search = BASE.model, BASE.training, BASE.search
    assert (model.N, model.d_model, model.d_ff, model.h, model.d_k, model.d_v) == (
        6,
        512,
        2048,
        8,
        64,
        64,
    )  # §3
    kinds = (model.norm_order, model.norm, model.activation, model.positions, model.sharing)
    assert kinds == ("post", "layer", "relu", "sinusoidal", "three-way")  # §3.1, §3.3, §3.5, §3.4
    assert (model.attention_bias, model.output_bias) == (
        False,
        False,
    )  # §3.2.2, §3.4: matrices alone
    assert (model.vocab_size, model.p_drop, training.eps_ls) == (37_000, 0.1, 0.1)  # §5.1, §5.4
    assert (training.beta_1, training.beta_2, training.eps, training.warmup_steps) == (
        0.9,
        0.98,
        1e-9,
        4000,
    )  # §5.3
    assert (training.steps, training.tokens_per_step) == (100_000, 25_000)  # §5.1, §5.2
    assert (search.beam_size, search.alpha, search.max_extra, training.average_checkpoints) == (
        4,
        0.6,
        50,
        5,
    )  # §6.1


def test_small_has_the_settings_that_were_measured():
    changes = differences(PRESETS["small"], BASE)
    assert {name: value for name, (value, _) in changes.items()} == {
        "model.vocab_size": 16_000,
        "model.d_ff": 1024,
        "model.p_drop": 0.2,
        "model.norm_order": "pre",
        "data.tokenizer.vocab_size": 16_000,
        "training.steps": 5_000,
        "training.tokens_per_step": 8_000,
        "training.schedule": "cosine",
        "training.warmup_steps": 1_000,
        "training.learning_rate": 1e-3,
        "training.validate_every": 800,
        "training.save_every": 800,
    }


def test_tiny_has_about_a_million_parameters():
    embedding = 2_000 * 128
    attention, feed_forward, norm = 4 * 128 * 128, 2 * 128 * 512 + 512 + 128, 2 * 128
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    assert count_parameters(PRESETS["tiny"].model) == embedding + 2 * (encoder + decoder)
