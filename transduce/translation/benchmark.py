"""Translation speed of a bundle in every available engine and in other libraries.

All contenders take turns within one run. Ours translate from text to text; the others get token
ids, which is less work. CTranslate2 is also called directly. The model of Hugging Face has the
bundle's shape and generates as many tokens as ours did, so its weights do not matter.
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

from transduce.config import ModelConfig
from transduce.data.readers.lines import read_lines
from transduce.data.tokenizer import Tokenizer
from transduce.engines.conversion import Quantization, refusal
from transduce.engines.ctranslate2 import BATCH_TOKENS
from transduce.engines.kept_conversion import kept_conversion
from transduce.errors import ConfigError, InputError, MissingExtra, require
from transduce.recipe import adjusted
from transduce.storage.bundle import Bundle, load_bundle
from transduce.storage.installed import find_bundle
from transduce.translation.result import Translation
from transduce.translation.translator import Translator

Translate = Callable[[Sequence[int]], object]  # translates the sentences with these numbers
# Names of contenders: library, engine, precision.
TORCH = "transduce torch float32"
MARIAN = "transformers generate float32"
MARIAN_BATCH = 64  # sentences


@dataclass(frozen=True)
class Figures:
    """The measurements of one contender; throughput is the median over rounds."""

    name: str
    tokens_per_second: float  # of the target, all sentences at once
    sentences_per_second: float
    # The latency of single sentences: percentiles 50, 95 and 99.
    milliseconds: tuple[float, float, float]
    cold_seconds: float  # from the start of a process to its first translation
    memory_mib: float  # the peak of that process


def benchmark(
    bundle: Bundle, sentences: Sequence[str], beam: int, rounds: int
) -> Iterator[Figures]:
    """Yield the measurements of each contender."""
    if rounds < 1:
        raise InputError(f"rounds is {rounds}; it must be at least 1")
    search = partial(adjusted, beam_size=beam)
    ours = Translator(bundle, engine="torch", device="cpu", search=search)
    translations = ours.translate([*sentences], confidences=True)
    lengths = [_count_tokens(translation) for translation in translations]
    contenders = {
        name: contender(name, bundle, sentences, lengths, beam) for name in _names(bundle)
    }

    # All contenders take turns in every round; the first round warms up.
    throughput_times: dict[str, list[float]] = {name: [] for name in contenders}
    latency_times: dict[str, list[float]] = {name: [] for name in contenders}
    everything = range(len(sentences))
    for number in range(rounds + 1):
        for name, translate in contenders.items():
            throughput_times[name].append(_seconds(translate, everything))
        for sentence in everything:
            for name, translate in contenders.items():
                latency_times[name].append(_seconds(translate, [sentence]))
        if number == 0:
            for times in (*throughput_times.values(), *latency_times.values()):
                times.clear()

    for name in contenders:
        median = quantile(throughput_times[name], 0.5)
        cold_seconds, memory_mib = _cold_start(name, bundle, sentences[0], lengths[0], beam)
        yield Figures(
            name=name,
            tokens_per_second=sum(lengths) / median,
            sentences_per_second=len(sentences) / median,
            milliseconds=(
                quantile(latency_times[name], 0.5) * 1e3,
                quantile(latency_times[name], 0.95) * 1e3,
                quantile(latency_times[name], 0.99) * 1e3,
            ),
            cold_seconds=cold_seconds,
            memory_mib=memory_mib,
        )


def read_sentences(
    model: Path, file: Path | None, count: int, *, option: str = "--input"
) -> tuple[Bundle, list[str]]:
    """Return the bundle in a folder, and sentences to translate: those of the file or phrases.

    Without phrases in the language of the model, the error names the option for a file.
    """
    if count < 1:
        raise InputError(f"sentences is {count}; it must be at least 1")
    bundle = load_bundle(find_bundle(model))
    data = bundle.recipe.data
    if file is None:
        from transduce.corpora.phrases import phrases

        try:
            pairs = phrases(data.source_language, data.target_language, 10 * count)["train"]
        except (MissingExtra, ConfigError) as error:
            raise type(error)(f"{error}; or name a file of sentences: {option} FILE") from None
        return bundle, [source for source, *_ in pairs][:count]
    texts = []
    for lines in read_lines(file, data.source_language):
        texts += [text for text in lines.texts if text.strip()]
    if not texts:
        raise InputError(f"{file} contains no sentence; expected one on each line")
    return bundle, texts[:count]


def contender(
    name: str, bundle: Bundle, sentences: Sequence[str], lengths: Sequence[int], beam: int
) -> Translate:
    """Return the function that is timed."""
    library, engine, precision = name.split()
    if library == "transduce":
        search = partial(adjusted, beam_size=beam)
        ours = Translator(bundle, engine=engine, device="cpu", precision=precision, search=search)  # type: ignore[arg-type]
        return lambda which: ours.translate([sentences[i] for i in which])
    tokenizer, _ = Tokenizer.pair(bundle.tokenizer_files)
    sources = tokenizer.encode_batch(sentences)
    if library == "ctranslate2":
        runtime = require("ctranslate2", extra="ctranslate2")
        folder = kept_conversion(bundle, precision)  # type: ignore[arg-type]
        direct = runtime.Translator(str(folder), compute_type=precision)
        pieces = [tokenizer.pieces(source) for source in sources]
        options: dict[str, Any] = {
            "max_batch_size": BATCH_TOKENS,
            "batch_type": "tokens",
            "beam_size": beam,
        }
        return lambda which: direct.translate_batch([pieces[i] for i in which], **options)
    return _marian(bundle, sources, lengths, beam)


def _names(bundle: Bundle) -> list[str]:
    """Return the contenders that are installed and can run the model."""
    names = [TORCH]
    if refusal(bundle.recipe.model):
        return names
    if find_spec("ctranslate2"):
        for precision in get_args(Quantization):
            names += [f"transduce ctranslate2 {precision}", f"ctranslate2 direct {precision}"]
    if find_spec("transformers"):
        names.append(MARIAN)
    return names


def build_marian(shape: ModelConfig, **settings: Any) -> Any:
    """Build Hugging Face's MarianMTModel in this shape, with random weights."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=shape.vocab_size,
            d_model=shape.d_model,
            encoder_layers=shape.N,
            decoder_layers=shape.decoder_layers,
            encoder_attention_heads=shape.h,
            decoder_attention_heads=shape.h,
            encoder_ffn_dim=shape.d_ff,
            decoder_ffn_dim=shape.d_ff,
            activation_function="relu",
            pad_token_id=shape.pad,
            decoder_start_token_id=shape.pad,
            eos_token_id=0,
            **settings,
        )
    )


def _marian(
    bundle: Bundle, sources: Sequence[Sequence[int]], lengths: Sequence[int], beam: int
) -> Translate:
    """Return the function that generates with a Marian model of the bundle's shape."""
    import torch

    shape = bundle.recipe.model
    model = build_marian(shape, max_position_embeddings=1024).eval()

    @torch.inference_mode()
    def translate(which: Sequence[int]) -> None:
        by_length = sorted(which, key=lambda i: lengths[i])
        for start in range(0, len(which), MARIAN_BATCH):
            batch = by_length[start : start + MARIAN_BATCH]
            rows = [torch.tensor(sources[i]) for i in batch]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=shape.pad)
            count = max(lengths[i] for i in batch)
            model.generate(
                ids, attention_mask=(ids != shape.pad).long(), num_beams=beam, do_sample=False,
                min_new_tokens=count, max_new_tokens=count,
            )  # fmt: skip

    return translate


def _cold_start(
    name: str, bundle: Bundle, sentence: str, length: int, beam: int
) -> tuple[float, float]:
    """Return the seconds to a first translation in a new process, and its peak memory in MiB."""
    arguments = json.dumps([name, str(bundle.path), sentence, length, beam])
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "transduce.translation.benchmark", arguments],
        capture_output=True,
        check=True,
    )
    seconds = time.perf_counter() - start
    peak = done.stdout.split()[-2:-1]  # of "VmHWM: 1234 kB", on Linux
    return seconds, float(peak[0]) / 1024 if peak else float("nan")


def _count_tokens(translation: Translation) -> int:
    return sum(len(sentence.tokens) for sentence in translation.sentences)


def _seconds(translate: Translate, which: Sequence[int]) -> float:
    start = time.perf_counter()
    translate(which)
    return time.perf_counter() - start


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def print_json(figures: Sequence[Any]) -> None:
    """Print measurements of any benchmark as a list of JSON objects."""
    print(json.dumps([asdict(row) for row in figures], indent=1))


def print_figures(figures: Sequence[Figures], *, as_json: bool) -> None:
    """Print a table, or JSON."""
    if as_json:
        print_json(figures)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "engine", "tokens/s", "sentences/s", "ms alone: p50", "p95", "p99", "cold start s", "MiB"
    )
    for row in figures:
        table.add_row(
            row.name,
            f"{row.tokens_per_second:,.0f}",
            f"{row.sentences_per_second:,.1f}",
            *(f"{latency:.1f}" for latency in row.milliseconds),
            f"{row.cold_seconds:.2f}",
            f"{row.memory_mib:,.0f}",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _run_once(arguments: str) -> None:
    """Translate one sentence and print the peak memory; `_cold_start` runs this in a process."""
    name, path, sentence, length, beam = json.loads(arguments)
    contender(name, load_bundle(Path(path)), [sentence], [length], beam)([0])
    # getrusage would also count the memory of the parent process before the fork.
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    print(*(line for line in lines if line.startswith("VmHWM")))


if __name__ == "__main__":
    _run_once(sys.argv[1])
