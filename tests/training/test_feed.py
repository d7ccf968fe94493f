"""What is fed arrives as it was."""

import torch

from transduce.model import Tokens, tiled
from transduce.training.feed import in_one_piece


def test_a_batch_sent_in_one_piece_is_the_same_batch():
    source = Tokens.packed([[[5, 6, 0], [7, 0]]], pad=9, width=8)
    target = Tokens.packed([[[4, 0], [3, 2, 1, 0]]], pad=9, width=16)
    sent = []
    arrived = in_one_piece(tiled(source, target), lambda numbers: sent.append(numbers) or numbers.clone())
    assert len(sent) == 1
    for side, before in zip(arrived, tiled(source, target), strict=True):
        for ours, theirs in zip(side.tensors(), before.tensors(), strict=True):
            assert ours.dtype == torch.int32
            assert torch.equal(ours, theirs)
