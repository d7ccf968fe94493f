"""Text in, text out: split into sentences, search, join. Everything that translates does it here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

from transduce.bundle import TOKENIZERS, Bundle, find_bundle, load_bundle
from transduce.config import ModelConfig, Recipe, SearchConfig
from transduce.data.tokenizer import EOS, Tokenizer
from transduce.decoding import chunks, markup, text
from transduce.decoding.engines import EngineName, Precision, choose_engine
from transduce.decoding.hypothesis import Hypothesis
from transduce.decoding.translation import Alignment, Sentence, Token, Translation
from transduce.errors import BundleError, ConfigError, InputError

if TYPE_CHECKING:  # torch is waited for only where torch runs
    from transduce.decoding.engine import Engine
    from transduce.model import Transformer

Candidate = tuple[Hypothesis, str]  # and its text


@dataclass(frozen=True)
class _Work:
    """A text on its way: its pieces, and of each what the model is to see."""

    document: text.Document
    protected: tuple[markup.Protected | None, ...]  # None: there is nothing to translate

    def searched(self) -> list[markup.Protected]:
        """What an engine is to translate."""
        return [kept for kept in self.protected if kept]


Place = Bundle | str | Path
_CODE = re.compile(r">>[^\s<>]+<<")


class Translator:
    """A bundle, or an ensemble of several, ready to translate."""

    def __init__(
        self,
        bundle: Place | Sequence[Place] | None = None,
        *,
        engine: EngineName = "auto",
        device: str | None = None,
        precision: Precision = "auto",
        search: SearchConfig | Callable[[SearchConfig], SearchConfig] | None = None,
    ) -> None:
        """Without a bundle: the newest of ./runs, or the one that came with the package.

        Args:
            bundle: A bundle, or the folder of one or of a run; several with one vocabulary are an ensemble.
            engine: "torch", "ctranslate2" (torch searches the few doubtful sentences again), or "auto", the fastest.
            device: Such as "cuda" or "cpu"; by default a GPU where there is one.
            precision: Of the numbers; by default int8 in CTranslate2, bf16 on a GPU, float32 elsewhere.
            search: How to search, or what to change in how the bundle's recipe says to search.
        """
        places = [bundle] if bundle is None or isinstance(bundle, Place) else bundle
        if not isinstance(places, Sequence) or not places or not all(isinstance(one, Place | None) for one in places):
            raise BundleError(f"bundle is {bundle!r}; expected a folder, or a list of them")
        bundles = [one if isinstance(one, Bundle) else load_bundle(find_bundle(one)) for one in places]
        self._bundle: Bundle | None = bundles[0]
        recipe, files = bundles[0].recipe, bundles[0].tokenizer_files
        for other in bundles[1:]:
            if any(other.tokenizer_files.get(name) != files.get(name) for names in TOKENIZERS for name in names):
                raise BundleError(
                    f"{other.path} has another vocabulary than {bundles[0].path}; an ensemble needs one tokenizer"
                )
        source, target = Tokenizer.pair(files)
        models = [one.recipe.model for one in bundles]
        self._set(source, target, recipe, search(recipe.search) if callable(search) else search, models)
        self.engine: Engine = choose_engine(bundles, engine, device, precision)

    @classmethod
    def from_model(
        cls,
        model: Transformer,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        recipe: Recipe,
        *,
        search: SearchConfig | None = None,
    ) -> Translator:
        """A translator for a model in memory, on the device where it is; the model is used as it is at each call."""
        from transduce.decoding.engine import TorchEngine

        self = cls.__new__(cls)
        self._bundle, self._model = None, model
        self._set(source_tokenizer, target_tokenizer, recipe, search, [model.config])
        self.engine = TorchEngine(model, device=model.target_embedding.weight.device)
        return self

    def _set(
        self,
        source: Tokenizer,
        target: Tokenizer,
        recipe: Recipe,
        search: SearchConfig | None,
        models: Sequence[ModelConfig],
    ) -> None:
        self.tokenizers = source, target
        self.recipe = recipe
        config, self._max_tokens = search or recipe.search, recipe.data.max_tokens
        if not isinstance(config, SearchConfig):
            raise ConfigError(f"search is {config!r}; expected settings, such as SearchConfig(beam_size=4)")
        if learned := [model.max_positions for model in models if model.positions == "learned"]:
            last = min(learned) - 1  # there are no positions after it
            config = replace(config, max_length=min(config.max_length or last, last))
            self._max_tokens = min(self._max_tokens, *learned)
        self.search = config

    @overload
    def translate(
        self, texts: str, *, alignments: bool = ..., confidences: bool = ..., prefix: str = ...
    ) -> Translation: ...
    @overload
    def translate(
        self, texts: list[str] | tuple[str, ...], *, alignments: bool = ..., confidences: bool = ..., prefix: str = ...
    ) -> list[Translation]: ...
    def translate(
        self,
        texts: str | list[str] | tuple[str, ...],
        *,
        alignments: bool = False,
        confidences: bool = False,
        prefix: str = "",
    ) -> Translation | list[Translation]:
        """The translation of a text, or of each of several. A text may have any length, many lines and markup.

        Args:
            texts: One text or several.
            alignments: Also say which words come from which.
            confidences: Also say how sure the model is of each token.
            prefix: How each translation has to begin.
        """
        if isinstance(texts, str):
            return self._translate([texts], alignments, confidences, prefix)[0]
        return self._translate(list(_several(texts)), alignments, confidences, prefix)

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        alignments: bool = False,
        confidences: bool = False,
        prefix: str = "",
    ) -> Iterator[Translation]:
        """The translation of each text of a stream, in order, never holding more than `chunks.LAST` of them."""
        for chunk in chunks.chunks(_several(lines), chunks.sizes()):
            yield from self._translate(chunk, alignments, confidences, prefix)

    def _translate(self, texts: Sequence[str], alignments: bool, confidences: bool, prefix: str) -> list[Translation]:
        for number, one in enumerate(texts):
            if not isinstance(one, str):
                raise InputError(f"text {number + 1} is a {type(one).__name__}; expected a string")
        if not isinstance(prefix, str):
            raise InputError(f"prefix is {prefix!r}; expected the text that a translation has to begin with")
        works = [self._prepare(one) for one in texts]
        plains = [plain for work in works for plain in self._coded([kept.plain for kept in work.searched()])]
        sources = self.tokenizers[0].encode_batch(plains)
        forced = self.tokenizers[1].encode(prefix)[:-1] if prefix else []
        prefixes = [[] if n else forced for work in works for n, _ in enumerate(work.searched())] if forced else ()
        found = self.engine.search(sources, self.search, prefixes=prefixes, token_scores=confidences) if plains else []
        decoded = iter(self.tokenizers[1].decode_batch([one.ids for hypotheses in found for one in hypotheses]))
        limits = (self.search.limit(len(source)) for source in sources)
        candidates = zip(limits, [[(one, next(decoded)) for one in hypotheses] for hypotheses in found], strict=True)
        return [self._finish(work, candidates, alignments, confidences) for work in works]

    def _prepare(self, one: str) -> _Work:
        language, limit = self.recipe.data.source_language, self._max_tokens
        document = text.split(one, language, count_tokens=self._count_tokens(limit), max_tokens=limit)
        protected = (markup.protect(piece.text) for piece in document.pieces)
        return _Work(document, tuple(kept if kept.has_text else None for kept in protected))

    def _coded(self, sentences: list[str]) -> list[str]:
        """A text's code of the target language (>>deu<<), which some imported models read, before every sentence."""
        code = _CODE.match(sentences[0]) if sentences else None
        if code is None or len(self.tokenizers[0].encode(code[0])) != 2:  # one piece and the end
            return sentences
        return [sentences[0], *(f"{code[0]} {sentence}" for sentence in sentences[1:])]

    def _count_tokens(self, limit: int) -> text.CountTokens:
        def count(part: str) -> int:
            most = len(part.encode(errors="replace")) + 2  # bytes, the first space and the end
            return most if most <= limit else len(self.tokenizers[0].encode(part))

        return count

    def _finish(
        self, work: _Work, candidates: Iterator[tuple[int, list[Candidate]]], alignments: bool, confidences: bool
    ) -> Translation:
        """Join the pieces of a text, taking the candidates of those that were searched, with limits on their length."""
        sentences, written, notices = [], [], [*work.document.notices]
        for piece, kept in zip(work.document.pieces, work.protected, strict=True):
            if kept:
                limit, mine = next(candidates)
                if len(mine[0][0].ids) >= limit:
                    notices.append(
                        f'the translation of "{piece.text[:40]}" was stopped at {limit} tokens and may lack its end; '
                        "search.max_length and search.max_extra set this limit"
                    )
                sentences.append(self._sentence(piece.text, kept, mine, alignments, confidences))
                written.append([text for text, _ in sentences[-1].n_best])
            else:
                written.append([piece.text])
        count = max([1, *map(len, written)])
        language = self.recipe.data.target_language
        n_best = []
        for rank in range(count):
            chosen = [texts[min(rank, len(texts) - 1)] for texts in written]
            scores = [one.n_best[min(rank, len(one.n_best) - 1)][1] for one in sentences]
            n_best.append((text.join(work.document, chosen, language), math.fsum(scores)))
        return Translation(*n_best[0], tuple(n_best), tuple(sentences), tuple(notices))

    def _sentence(
        self, source: str, kept: markup.Protected, candidates: list[Candidate], alignments: bool, confidences: bool
    ) -> Sentence:
        n_best, alignment = [], None
        for rank, (hypothesis, written) in enumerate(candidates):
            if kept.spans or (alignments and rank == 0):
                links = self._links(kept.plain, written, hypothesis.ids)
                if alignments and rank == 0:
                    alignment = Alignment(kept.words(kept.plain), kept.words(written), links)
                written = markup.restore(written, kept, links)
            n_best.append((written, hypothesis.score))
        best = candidates[0][0]
        pieces = self.tokenizers[1].pieces([*best.ids, EOS]) if confidences else []
        return Sentence(source, *n_best[0], tuple(map(Token, pieces, best.token_confidences)), tuple(n_best), alignment)

    def _links(self, source: str, translation: str, ids: Sequence[int]) -> tuple[tuple[int, int], ...]:
        from transduce.decoding.alignment import word_links

        return word_links(self._model, self.tokenizers, source, translation, ids)

    @cached_property
    def _model(self) -> Transformer:
        """The model in torch, for alignments, whatever engine searches."""
        from transduce.decoding.engine import load_model

        assert self._bundle is not None
        return load_model(self._bundle)


def _several(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputError(f"texts is {type(texts).__name__}; expected strings, such as a list of them")
    return texts
