"""A bundle as a CTranslate2 model with its tokenizer, checked against our own numbers before it is handed over."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from transduce.bundle import Bundle
from transduce.config import SearchConfig
from transduce.decoding.conversion import Quantization, convert
from transduce.decoding.ctranslate2 import CTranslate2Engine
from transduce.decoding.engine import TorchEngine, load_model, log_probabilities
from transduce.errors import ExportError
from transduce.model import Tokens, Transformer

SAMPLE = 16  # sequences of random tokens
TOLERANCE = 1e-3  # of a log-probability in float32


def export(bundle: Bundle, out: Path, quantization: Quantization = "int8") -> dict[str, Any]:
    """Make the folder `out`; the report that is written into it. What is handed over was verified in float32."""
    if out.exists():
        raise ExportError(f"{out} is already there; choose another folder, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        work = Path(folder) / out.name
        work.mkdir()
        convert(bundle, work, quantization)
        report = verify(bundle) | {"quantization": quantization, "bundle": bundle.fingerprint}
        for name, content in bundle.tokenizer_files.items():
            (work / name).write_bytes(content)
        (work / "export.json").write_text(json.dumps(report, indent=1) + "\n")
        shutil.move(work, out)
    return report


def verify(bundle: Bundle) -> dict[str, Any]:
    """Log-probabilities and translated tokens of a sample equal ours, or an error names the first difference."""
    model, config = load_model(bundle), bundle.recipe.model
    with tempfile.TemporaryDirectory() as folder:
        convert(bundle, Path(folder), "float32")
        engine = CTranslate2Engine(bundle, "cpu", quantization="float32", folder=Path(folder))
        chance, worst = random.Random(1), 0.0
        sources = [_sequence(chance, config.source_vocab_size or config.vocab_size) for _ in range(SAMPLE)]
        targets = [_sequence(chance, config.vocab_size) for _ in range(SAMPLE)]
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
            ours, theirs = _log_probs(model, source, target), engine.log_probs(source, target[:-1])
            for place, (mine, other) in enumerate(zip(ours, theirs, strict=True), start=1):
                worst = max(worst, abs(mine - other))
                if abs(mine - other) > TOLERANCE:
                    raise ExportError(
                        f"CTranslate2 gives token {place} of sample {number} the log-probability {other:.5f}, "
                        f"but transduce {mine:.5f}; report this with the bundle's config.toml"
                    )
        search = SearchConfig(beam_size=1, max_length=20)
        expected, found = (each.search(sources, search) for each in (TorchEngine(model), engine))
        for number, (here, there) in enumerate(zip(expected, found, strict=True), start=1):
            if here[0].ids != there[0].ids and here[0].margin > TOLERANCE:
                raise ExportError(f"CTranslate2 translates sample {number} as {there[0].ids}, transduce {here[0].ids}")
    return {"sequences": SAMPLE, "largest_difference": worst, "tolerance": TOLERANCE}


def _sequence(chance: random.Random, vocab_size: int) -> list[int]:
    return [*chance.choices(range(2, vocab_size - 1), k=chance.randint(1, 24)), 0]


@torch.inference_mode()
def _log_probs(model: Transformer, source: list[int], target: list[int]) -> list[float]:
    tokens = Tokens.padded([target], model.config.pad)
    logits = model(Tokens.padded([source], 0), tokens.shifted_right(model.config.pad))[0]  # (T, V)
    chosen: list[float] = log_probabilities(logits).gather(-1, torch.tensor(target)[:, None])[:, 0].tolist()
    return chosen
