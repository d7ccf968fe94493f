"""Running a bundle in CTranslate2, the fast engine on a CPU: converted on first use and kept beside the bundle.

It searches as `search` does, greedy and beam. What it does otherwise (samples, prefixes, forbidden tokens, whose
probability it gives to the others) is left to torch, or refused where CTranslate2 was asked for by name. A sentence
that reaches a limit on its length, or for which torch might have found something better, is always searched again in
torch: CTranslate2 has one limit for all, and all engines are to give the same text.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.config import SearchConfig
from transduce.data.store import sha256
from transduce.data.tokenizer import Tokenizer
from transduce.engines.conversion import Quantization, convert, positions
from transduce.errors import ConfigError, require
from transduce.search.hypothesis import Hypothesis
from transduce.storage.bundle import Bundle

if TYPE_CHECKING:
    from transduce.engines.torch import TorchEngine

BATCH_TOKENS = 2048  # source tokens, padding counted, of one batch
_PLAIN = SearchConfig()
# Scores are log-probabilities; 0 would make CTranslate2 stop where the best so far has ended.
_NO_PENALTY = 1e-30
_COMPLETE = "complete"
_MODEL = "model.bin"


class CTranslate2Engine:
    """A bundle in CTranslate2."""

    def __init__(
        self,
        bundle: Bundle,
        device: str | None = None,
        *,
        quantization: Quantization = "int8",
        threads: int = 0,
        folder: Path | None = None,
        by_name: bool = False,
    ) -> None:
        """`folder` has the converted model, if it is not to be kept beside the bundle; 0 threads: as many as fit.

        `by_name`: nothing else was asked for, and a search that it does otherwise is refused.
        """
        runtime = require("ctranslate2", extra="ctranslate2")
        self._bundle, self._by_name = bundle, by_name
        present = ["cpu", *(f"cuda:{number}" for number in range(runtime.get_cuda_device_count()))]
        if device not in (None, *present, *(["cuda"] if len(present) > 1 else [])):
            raise ConfigError(
                f"device is {device!r}, which CTranslate2 cannot use here; there is {', '.join(present)}"
            )
        where, _, number = (device or "auto").partition(":")
        folder = folder or converted(bundle, quantization)
        try:
            self._translator = runtime.Translator(
                str(folder),
                where,
                device_index=int(number or 0),
                compute_type=quantization,
                intra_threads=threads,
            )
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(
                f"CTranslate2 cannot run {folder} on {where} ({reason}); try --engine torch"
            ) from None
        source, target = Tokenizer.pair(bundle.tokenizer_files)
        self._source_pieces = source.pieces(range(source.vocab_size))
        self._target_pieces = target.pieces(range(target.vocab_size))
        self._ids = {piece: token for token, piece in enumerate(self._target_pieces)}

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] = (),
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each source, best first; without `token_scores` their tokens have none."""
        limits = [config.limit(len(source)) for source in sources]
        longest = max(limits, default=0) + 1
        other = _searched_otherwise(config) or ("a prefix is forced" if prefixes else None)
        if other and self._by_name:
            raise ConfigError(
                f"{other}, which CTranslate2 does not do as torch does; use --engine torch (no int8)"
            )
        if other or max([longest, *map(len, sources)]) > positions(self._bundle):
            return self._torch.search(sources, config, prefixes=prefixes)
        results = self._translator.translate_batch(
            [self._written(source) for source in sources],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            beam_size=config.beam_size,
            patience=config.patience,
            num_hypotheses=config.beam_size,
            length_penalty=_NO_PENALTY,
            max_input_length=0,
            max_decoding_length=longest,
            min_decoding_length=0,
            return_scores=True,
        )
        found = [self._ranked(result, config) for result in results]
        again = [
            i for i, hypotheses in enumerate(found) if _in_doubt(hypotheses, limits[i], config)
        ]
        if again:
            for i, hypotheses in zip(
                again, self._torch.search([sources[i] for i in again], config), strict=True
            ):
                found[i] = hypotheses
        found = [hypotheses[: config.n_best] for hypotheses in found]
        if token_scores:
            self._score_tokens(sources, found, sorted({*range(len(found))} - {*again}), config)
        return found

    def _ranked(self, result: Any, config: SearchConfig) -> list[Hypothesis]:
        found = [
            _hypothesis([self._ids[piece] for piece in pieces], [log_prob], config)
            for pieces, log_prob in zip(result.hypotheses, result.scores, strict=True)
        ]
        return sorted(found, key=lambda one: one.score, reverse=True)

    def _score_tokens(
        self,
        sources: Sequence[Sequence[int]],
        found: list[list[Hypothesis]],
        which: list[int],
        config: SearchConfig,
    ) -> None:
        """Give the hypotheses of these sentences a log-probability for each token."""
        pairs = [(i, rank) for i in which for rank in range(len(found[i]))]
        scores = self._translator.score_batch(
            [self._written(sources[i]) for i, _ in pairs],
            [[self._target_pieces[token] for token in found[i][rank].ids] for i, rank in pairs],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        for (i, rank), result in zip(pairs, scores, strict=True):
            found[i][rank] = _hypothesis(found[i][rank].ids, result.log_probs, config)

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """Of each target id, and of the end after them."""
        pieces = [self._target_pieces[token] for token in target]
        found: list[float] = self._translator.score_batch([self._written(source)], [pieces])[
            0
        ].log_probs
        return found

    def _written(self, source: Sequence[int]) -> list[str]:
        return [self._source_pieces[token] for token in source]

    @cached_property
    def _torch(self) -> TorchEngine:
        from transduce.engines.torch import TorchEngine, load_model

        return TorchEngine(load_model(self._bundle), frozen=True)


def _hypothesis(ids: list[int], log_probs: list[float], config: SearchConfig) -> Hypothesis:
    """Scored as in §6.1: log P / ((5 + length) / 6)^alpha, the end counted."""
    log_prob = math.fsum(log_probs)
    return Hypothesis(ids, log_prob / ((5 + len(ids) + 1) / 6) ** config.alpha, log_prob, log_probs)


def _in_doubt(hypotheses: Sequence[Hypothesis], limit: int, config: SearchConfig) -> bool:
    """Whether torch might have found something better.

    CTranslate2 has one limit for all sentences of a batch. And it hands back no more hypotheses than the beam has,
    although several may end at once: any that it kept for itself is no more probable than the last of these, and no
    longer than the longest.
    """
    longest = max(len(one.ids) for one in hypotheses)
    kept_back = min(one.log_prob for one in hypotheses) / ((5 + longest + 1) / 6) ** config.alpha
    return longest >= limit or (config.beam_size > 1 and hypotheses[0].score < kept_back)


def _searched_otherwise(config: SearchConfig) -> str | None:
    """The setting of a search that CTranslate2 does not do in the same way."""
    for name in ("min_length", "no_repeat_ngram", "max_repeats", "forbid_unk", "temperature"):
        if (value := getattr(config, name)) != getattr(_PLAIN, name):
            return f"search.{name} is {value}"
    enough = config.patience * config.beam_size
    return (
        None
        if config.beam_size <= enough == round(enough, 0) < 1e6
        else f"search.patience is {config.patience}"
    )


def converted(bundle: Bundle, quantization: Quantization) -> Path:
    """The folder of the converted model: beside the bundle, or in the user's cache where that cannot be written."""
    name = f"{bundle.fingerprint[:16]}-{quantization}"
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "transduce"
        / "ctranslate2"
    )
    places = [bundle.path.with_name(f"{bundle.path.name}.ctranslate2"), cache]
    for place in places:
        if _is_whole(place / name):
            return place / name
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=place))
        except OSError:
            continue
        try:
            convert(bundle, work, quantization)
            for old in place.glob(f"*-{quantization}") if place != cache else []:
                shutil.rmtree(old, ignore_errors=True)  # of a bundle that stood here before
            (work / _COMPLETE).write_text(sha256(work / _MODEL))
            if not _is_whole(place / name):
                shutil.rmtree(place / name, ignore_errors=True)
            work.rename(place / name)
        except OSError:
            if not _is_whole(place / name):  # unless another process was faster
                raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return place / name
    raise ConfigError(
        f"neither {places[0]} nor {cache} can be written, where CTranslate2's model goes; free one"
    )


def _is_whole(folder: Path) -> bool:
    """Whether a conversion was finished, and is as it was then."""
    complete, model = folder / _COMPLETE, folder / _MODEL
    return complete.is_file() and model.is_file() and complete.read_text() == sha256(model)
