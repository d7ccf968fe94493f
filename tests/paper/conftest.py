"""A tiny text, and settings with which any row trains in a second."""

import pytest

from transduce.corpora.phrases import write_phrases
from transduce.paper.results import Result

SMALL = (
    "model.N=1",
    "model.d_model=32",
    "model.d_ff=32",
    "model.h=2",
    "model.d_k=16",
    "model.d_v=16",
    "training.tokens_per_step=400",
    "data.tokenizer.vocab_size=400",
    "search.max_extra=2",
    "search.beam_size=1",
)
BUDGET = 4e-5  # four steps


def trained(part, row, *, bleu=20.0, tokens_per_second=1000.0, **changes):
    """Return a result as training writes it."""
    numbers = {
        "perplexity": 9.0,
        "parameters": 1,
        "target_tokens": 1,
        "tokens_per_second": tokens_per_second,
        "validation": {
            "sentences": 3000,
            "bleu": bleu,
            "bleu_signature": "tok:13a",
            "tokenized_bleu": bleu,
        },
    }
    values = {"numbers": numbers, "seconds": 1, "commit": "", "hardware": {}, "flops": 1.0}
    return Result(part=part, row=row, **{**values, "budget": 0.1, **changes})


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """A recipe file with short validation and test sets."""
    path = write_phrases(tmp_path_factory.mktemp("phrases"), "en", "de", 600, 1)
    for split in ("valid", "test"):
        for language in ("en", "de"):
            file = path.parent / f"{split}.{language}"
            lines = file.read_text(encoding="utf-8").splitlines()[:4]
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
