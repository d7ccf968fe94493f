"""Tiles hold every sentence once, whole where it fits, and as many together as fit."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.kernels.tiles import TILE, Tiles, tile, tiled
from transduce.model import Tokens

LENGTHS = st.lists(st.tuples(st.integers(1, 150), st.integers(1, 150)), min_size=1, max_size=40)


def packed(lengths, spare):
    return Tokens.packed([[[1] * n for n in lengths]], pad=9, width=sum(lengths) + spare)


def groups_one_by_one(lengths):
    """Group sentences (source, target) in order by a plain loop: a new group where one no longer fits."""
    groups = [[0, 0]]
    for source, target in lengths:
        if groups[-1][0] + source > TILE or groups[-1][1] + target > TILE:
            groups.append([0, 0])
        groups[-1] = [groups[-1][0] + source, groups[-1][1] + target]
    return [group for group in groups if any(group)]


@settings(deadline=None, max_examples=60)
@given(LENGTHS)
@example([(40, 1), (24, 1), (1, 40), (1, 25), (64, 64), (65, 1), (1, 1), (1, 1), (63, 3)] * 4)
def test_each_group_takes_as_many_sentences_as_fit(lengths):
    source, target = tiled(*(packed(side, 0) for side in zip(*lengths, strict=True)))
    in_many, in_parts, count = Tiles(*target.prepared).counts[0].tolist()
    both = torch.cat(
        [Tiles(*source.prepared).intervals, Tiles(*target.prepared).intervals], dim=-1
    )[0, :count].tolist()
    groups = sorted({(a, b, c, d) for a, b, _, c, d, _ in both})
    assert [[b - a, d - c] for a, b, c, d in groups] == groups_one_by_one(lengths)
    parts = [-(-max(b - a, d - c) // TILE) for a, b, _, c, d, _ in both]
    assert all(n > 2 for n in parts[:in_many])
    assert all(n == 2 for n in parts[in_many:in_parts])
    assert all(n == 1 for n in parts[in_parts:])
    for a, b, c, d in groups:  # all parts of a group are there
        numbers = sorted(part for e, f, part, g, h, _ in both if (e, f, g, h) == (a, b, c, d))
        assert numbers == list(range(-(-max(b - a, d - c) // TILE)))


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(0, 200), st.integers(0, 200))
def test_every_place_of_both_sides_is_in_one_tile_padding_too(lengths, more, other):
    sides = [
        packed(side, spare)
        for side, spare in zip(zip(*lengths, strict=True), (more, other), strict=True)
    ]
    for side in tiled(*sides):
        count, seen = (
            Tiles(*side.prepared).counts[0, 2],
            torch.zeros(side.ids.size(1), dtype=torch.int),
        )
        for low, high, part in Tiles(*side.prepared).intervals[0, :count].tolist():
            seen[low + part * TILE : min(high, low + (part + 1) * TILE)] += 1
        assert (seen == 1).all()


def test_rows_of_one_sentence_have_tiles_too():
    rows = Tokens.padded([[1] * 3, [1] * 100, [1] * 64], pad=9)
    ours, _ = tile(rows.segments, rows.segments)
    assert ours.counts[:, 1].tolist() == [
        2,
        2,
        0,
    ]  # padding of the first, the sentence of the second


@pytest.mark.parametrize("width", [1, 63, 64, 65, 1000])
def test_shapes_depend_on_widths_alone(width):
    shapes = {
        tuple(each.shape for each in tiled(*[Tokens.packed([rows], 9, width)] * 2)[0].tensors())
        for rows in ([[1]], [[1]] * width, [[1] * width])
    }
    assert len(shapes) == 1
