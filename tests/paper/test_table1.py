"""Table 1: each layer type is what it says, and what is measured of it is right."""

import math

import pytest
import torch

from transduce.cli.commands import run
from transduce.model.attention import written_out_attention
from transduce.paper import layer_measures
from transduce.paper.layer_measures import (
    activation_bytes,
    build_layer,
    exponent,
    layer_flops,
    maximum_path,
    sequential_operations,
)
from transduce.paper.layers import Recurrent, RestrictedAttention
from transduce.paper.reference import TABLE_1
from transduce.paper.table1 import Sizes, measure

K, R = 3, 8


def flops(kind, n, d):
    return layer_flops(kind, n, d, K, R)


@pytest.mark.parametrize("kind", TABLE_1)
def test_flops_grow_with_n_and_d_as_the_table_says(kind):
    over_n = [(n, flops(kind, n, 32)) for n in (64, 128, 256)]
    over_d = [(d, flops(kind, 128, d)) for d in (16, 32, 64)]
    assert exponent(over_n) == pytest.approx(TABLE_1[kind].exponent_n, abs=0.02)
    assert exponent(over_d) == pytest.approx(TABLE_1[kind].exponent_d, abs=0.02)


@pytest.mark.parametrize("n", [1, 7, 8, 29, 64])
def test_restricted_attention_is_equation_1_with_a_band(n):
    x = torch.randn(2, n, 6)
    positions = torch.arange(n)
    near = (positions[:, None] - positions).abs() <= R // 2
    expected = written_out_attention(x, x, x, near)
    torch.testing.assert_close(RestrictedAttention(R)(x), expected)


def test_the_fast_recurrence_is_the_written_out_one():
    x = torch.randn(2, 9, 5)
    layer = Recurrent(5)
    torch.testing.assert_close(layer.fused(x), layer(x))
    torch.testing.assert_close(layer(x, memory=9), layer(x))


def test_only_the_recurrence_waits_for_every_step_before():
    chains = {kind: sequential_operations(build_layer(kind, 4, K, R), 20, 4) for kind in TABLE_1}
    assert chains["recurrent"] >= 20
    assert all(chain <= 2 for kind, chain in chains.items() if kind != "recurrent")


def test_paths_are_those_of_the_table():
    n = 60
    assert maximum_path("self-attention", n, 2, K, R) == 1
    assert maximum_path("recurrent", n, 2, K, R) == n
    assert maximum_path("restricted", n, 2, K, R) == math.ceil((n - 1) / (R // 2))
    assert maximum_path("convolutional", n, 2, K, R) == math.ceil(math.log(n, K))


def test_an_exponent_is_the_slope_between_logarithms():
    assert exponent([(n, 7 * n**1.5) for n in (2, 3, 10)]) == pytest.approx(1.5)
    assert math.isnan(exponent([(1.0, 2.0)]))


@pytest.mark.parametrize("kind", ["recurrent", "convolutional"])
def test_weights_are_not_the_memory_of_a_sequence(kind):
    layer = build_layer(kind, 32, K, R)
    short, long = (activation_bytes(layer, n, 32) for n in (64, 128))
    assert long == pytest.approx(2 * short, rel=0.05)


def test_a_layer_type_is_measured_over_lengths_and_widths():
    sizes = Sizes(lengths=(8, 16), widths=(4, 8), length=8, width=4)
    (result,) = measure(["restricted"], torch.device("cpu"), sizes)
    assert set(result.curves) == {
        "flops over n", "flops over d", "seconds over n", "seconds over d", "bytes over n",
        "bytes over d", "sequential over n", "path over n",
    }  # fmt: skip
    assert result.curves["path over n"] == [[8, 1], [16, 1]]


def test_a_gpu_is_measured_with_enough_sequences_to_fill_it(monkeypatch):
    assert layer_measures.batch_size(torch.device("cpu")) == 1
    assert layer_measures.batch_size(torch.device("cuda")) > 1
    seen = []
    monkeypatch.setattr(layer_measures, "batch_size", lambda device: 3)
    layer = torch.nn.Identity()
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    layer_measures.layer_time_and_memory(layer, 8, 4, torch.device("cpu"))
    assert {*seen} == {(3, 8, 4)}


def test_the_command_writes_a_result_and_the_report_shows_it(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.paper.command.SIZES", Sizes((8, 16), (4, 8), 8, 4))
    words = ["paper", "table1", "--rows", "recurrent", "--out", str(tmp_path), "--device", "cpu"]
    assert run(words) == 0
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("| Recurrent")]
    assert line.split(" | ")[7] == "1.00"  # the chain grows as n
    assert line.split(" | ")[9] == "1.00 (8 at 8, 16 at 16)"
    assert "A pass is over 1 sequence of n vectors." in page
    assert (tmp_path / "figures" / "table1-flops.svg").read_text().startswith("<svg")
