"""§3.5: the sinusoids of the paper, and the variants."""

import cmath
import math
from dataclasses import replace

import pytest
import torch

from tests.model.conftest import SOURCES, TARGETS, build
from transduce.config import ModelConfig
from transduce.errors import InputError
from transduce.model import Tokens
from transduce.model.positions import Positions, rotate, sinusoids


def test_sinusoids_are_the_papers_formula_interleaved():
    table = sinusoids(torch.arange(60).unsqueeze(0), 10)[0]
    for pos in (0, 1, 7, 59):
        for i in range(5):
            angle = pos / 10000 ** (2 * i / 10)
            assert table[pos, 2 * i] == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[pos, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_a_rotation_turns_each_pair_of_a_dimension_and_the_one_half_way_on():
    heads = torch.randn(1, 2, 9, 8, dtype=torch.float64)
    turned = rotate(
        heads, build(positions="rotary").source_positions.rotation(torch.arange(9).unsqueeze(0))
    )
    for pos in range(9):
        for i in range(4):
            pair, expected = (
                torch.complex(x[0, :, pos, i], x[0, :, pos, i + 4]) for x in (heads, turned)
            )
            assert torch.allclose(
                pair * cmath.exp(1j * pos / 10000 ** (2 * i / 8)), expected, atol=1e-5
            )


def test_rotary_scores_depend_on_the_distance_alone():
    model = build(positions="rotary")
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(at, other):
        rotations = [
            model.source_positions.rotation(torch.tensor([[place]])) for place in (at, other)
        ]
        return float((rotate(q, rotations[0]) * rotate(k, rotations[1])).sum())

    assert score(3, 5) == pytest.approx(score(13, 15), abs=1e-5)
    assert score(3, 5) != pytest.approx(score(3, 6), abs=1e-3)
    assert score(4, 4) == pytest.approx(float((q * k).sum()), abs=1e-5)


def test_a_rotary_model_knows_distances_inside_each_side_and_nothing_else():
    model = build(positions="rotary")
    source, target = (
        Tokens.padded(SOURCES[1:2], 30),
        Tokens.padded(TARGETS[1:2], 30).shifted_right(30),
    )
    moved = [
        replace(side, positions=side.positions + by) for side, by in ((source, 3), (target, 11))
    ]
    stretched = replace(source, positions=2 * source.positions)
    assert torch.allclose(model(*moved), model(source, target), atol=1e-5)
    assert not torch.allclose(model(stretched, target), model(source, target), atol=1e-3)


def without_order(model, side):
    """Logits of the last target position for a text, and for the same with two inner tokens exchanged."""
    pad = model.config.pad
    results = []
    for swap in (False, True):
        source, target = list(SOURCES[1]), [pad, *TARGETS[1][:-1]]
        changed = source if side == "source" else target
        if swap:
            changed[3], changed[4] = changed[4], changed[3]
            assert changed[3] != changed[4]
        results.append(model(Tokens.padded([source], pad), Tokens.padded([target], pad))[0, -1])
    return results


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_order_matters_with_positions(kind, side):
    first, second = without_order(build(positions=kind), side)
    assert not torch.allclose(first, second, atol=1e-6)


def test_the_encoder_sees_a_bag_without_positions():
    first, second = without_order(build(positions="none"), "source")
    assert torch.allclose(first, second)


def test_a_learned_table_serves_sequences_as_long_as_itself_and_no_longer():
    positions = Positions(ModelConfig(positions="learned", max_positions=8))
    positions.check_length(8)
    with pytest.raises(InputError, match="9 tokens; learned positions end at max_positions = 8"):
        positions.check_length(9)
