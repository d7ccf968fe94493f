"""Table 3, last column: parameters in millions."""

from dataclasses import replace

import pytest

from transduce.describe import count_flops, count_parameters
from transduce.presets import PRESETS

# The counts of Table 3 imply a vocabulary of 41,000 for every row but big, which fits the text's 37,000.
TABLE_3 = {
    "table3-base": 65,
    "table3-B-dk16": 58,
    "table3-B-dk32": 60,
    "table3-C-N2": 36,
    "table3-C-N4": 50,
    "table3-C-N8": 80,
    "table3-C-dmodel256": 28,
    "table3-C-dmodel1024": 168,
    "table3-C-dff1024": 53,
    "table3-C-dff4096": 90,
}


@pytest.mark.parametrize(("row", "millions"), TABLE_3.items())
def test_parameter_counts_are_the_papers(row, millions):
    model = replace(PRESETS[row].model, vocab_size=41_000)
    assert count_parameters(model) == pytest.approx(millions * 1e6, rel=0.01)


def test_big_has_the_papers_parameters_at_37_000():
    assert PRESETS["big"].model.vocab_size == 37_000
    assert count_parameters(PRESETS["big"].model) == pytest.approx(213e6, rel=0.01)


@pytest.mark.parametrize("row", [name for name in PRESETS if name.startswith("table3-A")])
def test_rows_a_keep_the_amount_of_computation(row):
    assert count_parameters(PRESETS[row].model) == count_parameters(PRESETS["base"].model)
    assert count_flops(PRESETS[row].model) == count_flops(PRESETS["base"].model)


def test_every_row_of_table_3_differs_from_base_by_what_it_says():
    assert PRESETS["table3-D-ls0.2"].training.eps_ls == 0.2
    assert PRESETS["table3-D-drop0.0"].model.p_drop == 0.0
    assert PRESETS["table3-E-learned"].model.positions == "learned"
    assert len([name for name in PRESETS if name.startswith("table3-")]) == 20
