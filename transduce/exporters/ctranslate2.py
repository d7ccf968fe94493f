"""A bundle as a CTranslate2 model with its tokenizer, checked against our own numbers before it is handed over."""

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
from transduce.exporters.output import made_whole, write_report
from transduce.exporters.verification import verify
from transduce.storage.bundle import Bundle


def export(bundle: Bundle, out: Path, quantization: Quantization = "int8") -> dict[str, Any]:
    """Make the folder `out`; the report that is written into it."""
    with made_whole(out) as work:
        work.mkdir()
        convert(bundle, work, quantization)
        for name, content in bundle.tokenizer_files.items():
            (work / name).write_bytes(content)
        (work / "README.md").write_text(_readme(bundle, quantization), encoding="utf-8")
        return write_report(work, bundle, verify_model(bundle, work, quantization))


def verify_model(
    bundle: Bundle, folder: Path, quantization: Quantization, *, adds_end: bool = False
) -> dict[str, Any]:
    """The conversion is exact in float32; how far the model in the folder is from that where it is rounded to int8."""
    model, report = load_model(bundle), {"quantization": quantization}
    if quantization == "float32":
        return report | verify(model, _Runtime(bundle, folder, "float32", adds_end))
    with tempfile.TemporaryDirectory() as exact:
        convert(bundle, Path(exact), "float32", adds_end=adds_end)
        report |= verify(model, _Runtime(bundle, Path(exact), "float32", adds_end))
    rounded = verify(model, _Runtime(bundle, folder, quantization, adds_end), tolerance=math.inf)
    return report | {
        "rounded": {name: rounded[name] for name in ("largest_difference", "same_translations")}
    }


class _Runtime:
    """A folder in CTranslate2, called as its users do; where the model adds the end of a source itself, without it."""

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
        found: list[float] = self._translator.score_batch([self._written(source)], [pieces])[
            0
        ].log_probs
        return found

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        (result,) = self._translator.translate_batch(
            [self._written(source)], beam_size=1, max_decoding_length=length, min_decoding_length=0
        )
        return list(map(self._target_pieces.index, result.hypotheses[0]))

    def _written(self, source: Sequence[int]) -> list[str]:
        return [self._source_pieces[token] for token in (source[:-1] if self._adds_end else source)]


def _readme(bundle: Bundle, quantization: Quantization) -> str:
    data, search = bundle.recipe.data, bundle.recipe.search
    source, target = bundle.tokenizer_names
    return f"""# Translation from {data.source_language} to {data.target_language}, in CTranslate2

Weights are in {quantization}. A source is its sentence in SentencePiece's pieces, and `</s>` after them.

```python
import ctranslate2, sentencepiece

translator = ctranslate2.Translator(".", compute_type="{quantization}")
reader, writer = (sentencepiece.SentencePieceProcessor(model_file=name) for name in ("{source}", "{target}"))
source = reader.encode("in 98 weeks", out_type=str) + ["</s>"]
settings = {{"beam_size": {search.beam_size}, "length_penalty": {search.alpha}, "max_input_length": 0}}
(result,) = translator.translate_batch([source], max_decoding_length=len(source) + {search.max_extra}, **settings)
print(writer.decode(result.hypotheses[0]))
```

The model's own length penalty is ((5 + length) / 6)^{search.alpha}, CTranslate2's is length^`length_penalty`: with the
same exponent it is the nearest. No sentence of more than {data.max_tokens} tokens was learnt from; split longer ones.
`export.json` says how this was compared with the model that it was made of.
"""
