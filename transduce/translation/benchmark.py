"""How fast a bundle translates in every engine that is there, beside the peers, in one run: contenders take turns.

Ours take text and give text; the peers are given token ids, which is less to do. CTranslate2 is also called directly;
Hugging Face's model has the bundle's shape and writes as many tokens as ours did, so its weights do not matter.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from transduce.data.readers.lines import read_lines
from transduce.data.tokenizer import Tokenizer
from transduce.engines.conversion import Quantization, refusal
from transduce.engines.ctranslate2 import BATCH_TOKENS, converted
from transduce.errors import InputError, require
from transduce.recipe import adjusted
from transduce.storage.bundle import Bundle, find_bundle, load_bundle
from transduce.translation.translator import Translator

Translate = Callable[[Sequence[int]], object]  # of the sentences with these numbers
TORCH, MARIAN = "transduce torch float32", "transformers generate float32"


@dataclass(frozen=True)
class Figures:
    """What was measured of one contender; seconds are the median over rounds."""

    name: str
    tokens_per_second: float  # written, all sentences at once
    sentences_per_second: float
    # Of a sentence alone: the median, 95 % and 99 % take no longer.
    milliseconds: tuple[float, float, float]
    cold_seconds: float  # from the start of a process to its first translation
    memory_mib: float  # of that process, at most


def benchmark(
    bundle: Bundle, sentences: Sequence[str], beam: int, rounds: int
) -> Iterator[Figures]:
    """The figures of each contender."""
    if rounds < 1:
        raise InputError(f"rounds is {rounds}; it must be at least 1")
    ours = Translator(
        bundle, engine="torch", device="cpu", search=partial(adjusted, beam_size=beam)
    )
    lengths = [
        sum(len(part.tokens) for part in one.sentences)
        for one in ours.translate([*sentences], confidences=True)
    ]
    contenders = {
        name: contender(name, bundle, sentences, lengths, beam) for name in _names(bundle)
    }
    together: dict[str, list[float]] = {name: [] for name in contenders}
    alone: dict[str, list[float]] = {name: [] for name in contenders}
    everything = range(len(sentences))
    for number in range(rounds + 1):
        for name, translate in contenders.items():
            together[name].append(_seconds(translate, everything))
        for sentence in everything:
            for name, translate in contenders.items():
                alone[name].append(_seconds(translate, [sentence]))
        if number == 0:  # to warm up
            for times in (*together.values(), *alone.values()):
                times.clear()
    for name in contenders:
        median = _share(together[name], 0.5)
        latencies = [_share(alone[name], share) * 1e3 for share in (0.5, 0.95, 0.99)]
        cold = _cold(name, bundle, sentences[0], lengths[0], beam)
        yield Figures(name, sum(lengths) / median, len(sentences) / median, tuple(latencies), *cold)  # type: ignore[arg-type]


def read_sentences(model: Path, file: Path | None, count: int) -> tuple[Bundle, list[str]]:
    """The bundle at a place, and sentences to measure it with."""
    if count < 1:
        raise InputError(f"sentences is {count}; it must be at least 1")
    bundle = load_bundle(find_bundle(model))
    data = bundle.recipe.data
    if file is None:
        from transduce.corpora.phrases import phrases

        return bundle, [
            pair[0]
            for pair in phrases(data.source_language, data.target_language, 10 * count)["train"]
        ][:count]
    texts = [
        text
        for lines in read_lines(file, data.source_language)
        for text in lines.texts
        if text.strip()
    ][:count]
    if not texts:
        raise InputError(f"{file} holds no sentence; expected one a line")
    return bundle, texts


def contender(
    name: str, bundle: Bundle, sentences: Sequence[str], lengths: Sequence[int], beam: int
) -> Translate:
    """The function that is timed."""
    library, engine, precision = name.split()
    if library == "transduce":
        search = partial(adjusted, beam_size=beam)
        ours = Translator(bundle, engine=engine, device="cpu", precision=precision, search=search)  # type: ignore[arg-type]
        return lambda which: ours.translate([sentences[i] for i in which])
    tokenizer, _ = Tokenizer.pair(bundle.tokenizer_files)
    sources = tokenizer.encode_batch(sentences)
    if library == "ctranslate2":
        runtime = require("ctranslate2", extra="ctranslate2")
        folder = converted(bundle, precision)  # type: ignore[arg-type]
        direct = runtime.Translator(str(folder), compute_type=precision)
        written = [tokenizer.pieces(source) for source in sources]
        options: dict[str, Any] = {
            "max_batch_size": BATCH_TOKENS,
            "batch_type": "tokens",
            "beam_size": beam,
        }
        return lambda which: direct.translate_batch([written[i] for i in which], **options)
    return _marian(bundle, sources, lengths, beam)


def _names(bundle: Bundle) -> list[str]:
    """Those that are installed and can carry the model."""
    engines = ("transduce ctranslate2", "ctranslate2 direct")
    theirs = {
        "ctranslate2": [
            f"{engine} {numbers}" for numbers in get_args(Quantization) for engine in engines
        ],
        "transformers": [MARIAN],
    }
    carried = {} if refusal(bundle.recipe.model) else theirs
    return [
        TORCH,
        *(name for module, names in carried.items() if find_spec(module) for name in names),
    ]


def _marian(
    bundle: Bundle, sources: Sequence[Sequence[int]], lengths: Sequence[int], beam: int
) -> Translate:
    import torch
    from transformers import MarianConfig, MarianMTModel

    shape = bundle.recipe.model
    model: Any = MarianMTModel(
        MarianConfig(
            vocab_size=shape.vocab_size, d_model=shape.d_model, decoder_start_token_id=shape.pad,
            encoder_layers=shape.N, decoder_layers=shape.decoder_layers, activation_function="relu",
            encoder_attention_heads=shape.h, decoder_attention_heads=shape.h,
            encoder_ffn_dim=shape.d_ff, decoder_ffn_dim=shape.d_ff, max_position_embeddings=1024,
            pad_token_id=shape.pad, eos_token_id=0,
        )
    ).eval()  # fmt: skip

    @torch.inference_mode()
    def translate(which: Sequence[int]) -> None:
        for start in range(0, len(which), 64):
            some = sorted(which, key=lambda i: lengths[i])[start : start + 64]
            rows = [torch.tensor(sources[i]) for i in some]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=shape.pad)
            count = max(lengths[i] for i in some)
            model.generate(
                ids, attention_mask=(ids != shape.pad).long(), num_beams=beam, do_sample=False,
                min_new_tokens=count, max_new_tokens=count,
            )  # fmt: skip

    return translate


def _cold(name: str, bundle: Bundle, sentence: str, length: int, beam: int) -> tuple[float, float]:
    """Seconds to a first translation in a process of its own, and the most MiB that it held."""
    order = json.dumps([name, str(bundle.path), sentence, length, beam])
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "transduce.translation.benchmark", order],
        capture_output=True,
        check=True,
    )
    held = done.stdout.split()[-2:-1]  # "VmHWM: 1234 kB", on Linux
    return time.perf_counter() - start, float(held[0]) / 1024 if held else float("nan")


def _seconds(translate: Translate, which: Sequence[int]) -> float:
    start = time.perf_counter()
    translate(which)
    return time.perf_counter() - start


def _share(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def print_figures(figures: Sequence[Figures], *, as_json: bool) -> None:
    """A table, or JSON."""
    if as_json:
        print(json.dumps([asdict(one) for one in figures], indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "engine", "tokens/s", "sentences/s", "ms alone: p50", "p95", "p99", "cold start s", "MiB"
    )
    for one in figures:
        numbers = f"{one.tokens_per_second:,.0f}", f"{one.sentences_per_second:,.1f}"
        latencies = (f"{each:.1f}" for each in one.milliseconds)
        table.add_row(
            one.name, *numbers, *latencies, f"{one.cold_seconds:.2f}", f"{one.memory_mib:,.0f}"
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":  # a process that is measured
    name, path, sentence, length, beam = json.loads(sys.argv[1])
    contender(name, load_bundle(Path(path)), [sentence], [length], beam)([0])
    status = Path("/proc/self/status")  # getrusage would count what the parent held
    print(
        *(
            line
            for line in (status.read_text().splitlines() if status.exists() else ())
            if line.startswith("VmHWM")
        )
    )
