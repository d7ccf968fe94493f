"""Export to CTranslate2: a model with its tokenizer, verified against the bundle."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transduce.data.tokenizer import Tokenizer
from transduce.engines.conversion import Quantization, convert
from transduce.engines.torch import load_model
from transduce.errors import require
from transduce.exporters.output import complete_output, write_report
from transduce.exporters.verification import verify
from transduce.storage.bundle import Bundle

SHORTLIST_NOTE = """
`vmap.txt` is the model's shortlist: with `use_vmap=True`, which works on a CPU, only its tokens are
considered. This is faster. Leave it out on a GPU, and for n-best lists.
"""


def export(bundle: Bundle, out: Path, quantization: Quantization = "int8") -> dict[str, Any]:
    """Write the folder `out`, and return the report that is written into it."""
    with complete_output(out) as work:
        work.mkdir()
        convert(bundle, work, quantization)
        for name, content in bundle.tokenizer_files.items():
            (work / name).write_bytes(content)
        (work / "README.md").write_text(_readme(bundle, quantization), encoding="utf-8")
        return write_report(work, bundle, verify_model(bundle, work, quantization))


def verify_model(
    bundle: Bundle, folder: Path, quantization: Quantization, *, adds_end: bool = False
) -> dict[str, Any]:
    """Verify a conversion, and return the figures.

    In int8 the weights are rounded. Then the same conversion in float32 is verified, and the report
    says how far the rounded model differs.
    """
    model = load_model(bundle)
    report: dict[str, Any] = {"quantization": quantization}
    if quantization == "float32":
        return report | verify(model, _Runtime(bundle, folder, "float32", adds_end))
    with tempfile.TemporaryDirectory() as exact:
        convert(bundle, Path(exact), "float32", adds_end=adds_end)
        report |= verify(model, _Runtime(bundle, Path(exact), "float32", adds_end))
    rounded = verify(model, _Runtime(bundle, folder, quantization, adds_end), tolerance=math.inf)
    report["rounded"] = {
        "largest_difference": rounded["largest_difference"],
        "same_translations": rounded["same_translations"],
    }
    return report


class _Runtime:
    """A model in CTranslate2. With `adds_end` it adds the end of a source itself."""

    name = "CTranslate2"

    def __init__(self, bundle: Bundle, folder: Path, compute_type: str, adds_end: bool) -> None:
        runtime = require("ctranslate2", extra="ctranslate2")
        self._translator = runtime.Translator(str(folder), device="cpu", compute_type=compute_type)
        self._adds_end = adds_end
        source, target = Tokenizer.pair(bundle.tokenizer_files)
        self._source_pieces = source.pieces(range(source.vocab_size))
        self._target_pieces = target.pieces(range(target.vocab_size))

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Sequence[float]:
        pieces = [self._target_pieces[token] for token in target[:-1]]
        (result,) = self._translator.score_batch([self._to_pieces(source)], [pieces])
        log_probs: list[float] = result.log_probs
        return log_probs

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        (result,) = self._translator.translate_batch(
            [self._to_pieces(source)],
            beam_size=1,
            max_decoding_length=length,
            min_decoding_length=0,
        )
        return [self._target_pieces.index(piece) for piece in result.hypotheses[0]]

    def _to_pieces(self, source: Sequence[int]) -> list[str]:
        tokens = source[:-1] if self._adds_end else source
        return [self._source_pieces[token] for token in tokens]


def _readme(bundle: Bundle, quantization: Quantization) -> str:
    data = bundle.recipe.data
    search = bundle.recipe.search
    source, target = bundle.tokenizer_names
    shortlist_line = "\n    use_vmap=True," if bundle.shortlist else ""
    shortlist_note = SHORTLIST_NOTE if bundle.shortlist else ""
    return f"""# Translation from {data.source_language} to {data.target_language}, in CTranslate2

The weights are in {quantization}. A source consists of SentencePiece pieces and `</s>`.

```python
import ctranslate2, sentencepiece

translator = ctranslate2.Translator(".", compute_type="{quantization}")
reader = sentencepiece.SentencePieceProcessor(model_file="{source}")
writer = sentencepiece.SentencePieceProcessor(model_file="{target}")
source = reader.encode("in 98 weeks", out_type=str) + ["</s>"]
(result,) = translator.translate_batch(
    [source],
    beam_size={search.beam_size},
    length_penalty={search.alpha},
    max_input_length=0,
    max_decoding_length=len(source) + {search.max_extra},{shortlist_line}
)
print(writer.decode(result.hypotheses[0]))
```

transduce uses the length penalty ((5 + length) / 6)^{search.alpha}, CTranslate2 uses
length^`length_penalty`; the same exponent comes closest. The training data had no sentence of more
than {data.max_tokens} tokens; split longer ones.
{shortlist_note}`export.json` has the comparison of this model with the original.
"""
