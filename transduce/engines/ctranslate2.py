"""Running a bundle in CTranslate2, the fast engine on a CPU.

Greedy and beam search give the same results as `search`. Searches that CTranslate2 does differently
(sampling, prefixes, forbidden tokens) are left to torch, or refused if the user requested
CTranslate2. Two kinds of sentences are always searched again in torch, so that all engines give the
same text: those that reach their length limit, since CTranslate2 has one limit for all, and those
for which torch might have found a better translation.

If the bundle has a shortlist, only its tokens are considered. They are the same for all sentences,
so a translation still does not depend on its neighbors. torch always considers all tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.config import SearchConfig
from transduce.data.tokenizer import Tokenizer
from transduce.engines.conversion import Quantization, positions
from transduce.engines.kept_conversion import kept_conversion
from transduce.errors import ConfigError, require
from transduce.search.hypothesis import Hypothesis
from transduce.storage.bundle import Bundle

if TYPE_CHECKING:
    from transduce.engines.torch import TorchEngine

BATCH_TOKENS = 2048  # source tokens in a batch, including padding
_DEFAULTS = SearchConfig()
# Almost no length penalty, so that scores are log-probabilities. With 0, CTranslate2 would stop as
# soon as the best hypothesis so far has ended.
_NO_PENALTY = 1e-30


class CTranslate2Engine:
    """Searches with a bundle in CTranslate2."""

    def __init__(
        self,
        bundle: Bundle,
        device: str | None = None,
        *,
        quantization: Quantization = "int8",
        threads: int = 0,
        workers: int = 1,
        folder: Path | None = None,
        by_name: bool = False,
    ) -> None:
        """Load the model.

        Args:
            bundle: The bundle to run.
            device: Such as "cpu" or "cuda:0"; by default a GPU if there is one.
            quantization: The precision of weights and products.
            threads: How many threads each worker uses; 0 lets CTranslate2 choose.
            workers: How many searches can run at the same time, called from several threads.
            folder: A converted model; by default it is made and kept.
            by_name: Refuse searches that CTranslate2 does differently from torch.
        """
        runtime = require("ctranslate2", extra="ctranslate2")
        self._bundle = bundle
        self._by_name = by_name
        self.workers = workers
        _check_device(runtime, device)
        device_name, _, number = (device or "auto").partition(":")
        folder = folder or kept_conversion(bundle, quantization)
        try:
            self._translator = runtime.Translator(
                str(folder),
                device_name,
                device_index=int(number or 0),
                compute_type=quantization,
                inter_threads=workers,
                intra_threads=threads,
            )
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(
                f"CTranslate2 cannot run {folder} on {device_name} ({reason}); try --engine torch"
            ) from None
        # On a GPU the output projection is cheap, and choosing its rows is not.
        self._has_shortlist = bool(bundle.shortlist) and self._translator.device == "cpu"
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
        """Return the n best hypotheses of each source, best first.

        Without `token_scores` they have no `token_log_probs`.
        """
        limits = [config.limit(len(source)) for source in sources]
        longest = max(limits, default=0) + 1
        difference = _difference(config) or ("a prefix is forced" if prefixes else None)
        if difference and self._by_name:
            raise ConfigError(
                f"{difference}, which CTranslate2 does not do as torch does; use --engine torch, "
                "which has no int8"
            )
        if difference or max([longest, *map(len, sources)]) > positions(self._bundle):
            return self.torch_engine.search(sources, config, prefixes=prefixes)

        # Log-probabilities are relative to the shortlist, so they could rank several hypotheses
        # differently from the whole vocabulary.
        use_shortlist = self._has_shortlist and config.shortlist and config.n_best == 1
        results = self._translator.translate_batch(
            [self._to_pieces(source) for source in sources],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            beam_size=config.beam_size,
            patience=config.patience,
            num_hypotheses=config.beam_size,
            length_penalty=_NO_PENALTY,
            max_input_length=0,
            max_decoding_length=longest,
            min_decoding_length=0,  # more would change the scores, see `_is_doubtful`
            return_scores=True,
            use_vmap=use_shortlist,
        )
        found = [self._ranked(result, config) for result in results]
        doubtful = [i for i, limit in enumerate(limits) if _is_doubtful(found[i], limit, config)]
        if doubtful:
            searched_again = self.torch_engine.search([sources[i] for i in doubtful], config)
            for i, hypotheses in zip(doubtful, searched_again, strict=True):
                found[i] = hypotheses

        found = [hypotheses[: config.n_best] for hypotheses in found]
        if token_scores:
            certain = sorted({*range(len(found))} - {*doubtful})
            self._score_tokens(sources, found, certain, config)
        return found

    def _ranked(self, result: Any, config: SearchConfig) -> list[Hypothesis]:
        """Return CTranslate2's hypotheses, the best score first."""
        hypotheses = []
        for pieces, log_prob in zip(result.hypotheses, result.scores, strict=True):
            ids = [self._ids[piece] for piece in pieces]
            hypotheses.append(_hypothesis(ids, [log_prob], config))
        return sorted(hypotheses, key=lambda hypothesis: hypothesis.score, reverse=True)

    def _score_tokens(
        self,
        sources: Sequence[Sequence[int]],
        found: list[list[Hypothesis]],
        which: list[int],
        config: SearchConfig,
    ) -> None:
        """Give the hypotheses of these sentences a log-probability for each token."""
        pairs = [(i, rank) for i in which for rank in range(len(found[i]))]
        targets = []
        for i, rank in pairs:
            targets.append([self._target_pieces[token] for token in found[i][rank].ids])
        scores = self._translator.score_batch(
            [self._to_pieces(sources[i]) for i, _ in pairs],
            targets,
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        for (i, rank), result in zip(pairs, scores, strict=True):
            found[i][rank] = _hypothesis(found[i][rank].ids, result.log_probs, config)

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """Return the log-probability of each target id, and of the end after them."""
        pieces = [self._target_pieces[token] for token in target]
        (result,) = self._translator.score_batch([self._to_pieces(source)], [pieces])
        log_probs: list[float] = result.log_probs
        return log_probs

    def _to_pieces(self, source: Sequence[int]) -> list[str]:
        return [self._source_pieces[token] for token in source]

    @cached_property
    def torch_engine(self) -> TorchEngine:
        """The same model in torch, loaded when it is needed."""
        from transduce.engines.torch import TorchEngine, load_model

        return TorchEngine(load_model(self._bundle), frozen=True)


def _hypothesis(ids: list[int], log_probs: list[float], config: SearchConfig) -> Hypothesis:
    """Return a hypothesis with the score of §6.1, where the length includes the end."""
    log_prob = math.fsum(log_probs)
    return Hypothesis(ids, log_prob / ((5 + len(ids) + 1) / 6) ** config.alpha, log_prob, log_probs)


def _check_device(runtime: Any, device: str | None) -> None:
    """Raise a ConfigError unless CTranslate2 can use this device."""
    gpus = [f"cuda:{number}" for number in range(runtime.get_cuda_device_count())]
    accepted = [None, "cpu", *gpus]
    if gpus:
        accepted.append("cuda")
    if device not in accepted:
        raise ConfigError(
            f"device is {device!r}, which CTranslate2 cannot use here; available: "
            f"{', '.join(['cpu', *gpus])}"
        )


def _is_doubtful(hypotheses: Sequence[Hypothesis], limit: int, config: SearchConfig) -> bool:
    """Return whether torch might have found something better.

    This is the case at the length limit, since CTranslate2 has one limit for all sentences of a
    batch. Also, CTranslate2 returns no more hypotheses than the beam has, although several may end
    in one step. Any that it left out is at most as probable as the last of these, and at most as
    long as the longest. Last, CTranslate2 was allowed to write nothing.
    """
    if config.min_length and not all(hypothesis.ids for hypothesis in hypotheses):
        return True
    longest = max(len(hypothesis.ids) for hypothesis in hypotheses)
    lowest = min(hypothesis.log_prob for hypothesis in hypotheses)
    best_left_out = lowest / ((5 + longest + 1) / 6) ** config.alpha
    return longest >= limit or (config.beam_size > 1 and hypotheses[0].score < best_left_out)


def _difference(config: SearchConfig) -> str | None:
    """Return the setting that CTranslate2 treats differently from `search`, if there is one."""
    if config.min_length > 1:
        return f"search.min_length is {config.min_length}"
    for name in ("no_repeat_ngram", "max_repeats", "forbid_unk", "temperature"):
        value = getattr(config, name)
        if value != getattr(_DEFAULTS, name):
            return f"search.{name} is {value}"
    # CTranslate2 rounds the number of endings after which a search stops.
    endings = config.patience * config.beam_size
    if config.beam_size <= endings == round(endings, 0) < 1e6:
        return None
    return f"search.patience is {config.patience}"
