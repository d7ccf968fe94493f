"""Constraints on the next token, on hypotheses that fill their whole window."""

import torch

from transduce.config import SearchConfig
from transduce.search.candidates import NEVER, forbid_repetition


def test_an_n_gram_as_long_as_the_window_is_not_repeated():
    log_probs = torch.zeros(1, 1, 5)
    tokens = torch.tensor([[[2, 2]]])
    config = SearchConfig(no_repeat_ngram=2)
    allowed = forbid_repetition(log_probs, tokens, torch.tensor([2]), config)
    assert allowed[0, 0, 2] == NEVER
    assert allowed[0, 0, [0, 1, 3]].eq(0).all()
