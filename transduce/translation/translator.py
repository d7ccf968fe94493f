"""Text in, text out: split into sentences, search, join. Everything that translates does it here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from transduce.config import ModelConfig, Recipe, SearchConfig
from transduce.data.own_tokenizer import OwnTokenizers, TokenizerLike, as_tokenizer, pair_of
from transduce.data.tokenizer import EOS, Tokenizer
from transduce.engines.choose import EngineName, Precision, choose_engine
from transduce.errors import BundleError, ConfigError, HookError, InputError, TransduceError
from transduce.search.hypothesis import Hypothesis
from transduce.storage.bundle import TOKENIZERS, Bundle, find_bundle, load_bundle
from transduce.translation import chunks, markup, sentences
from transduce.translation.result import Alignment, Sentence, Token, Translation

if TYPE_CHECKING:  # torch is waited for only where torch runs
    from transduce.engines.torch import Engine
    from transduce.model import Transformer

Candidate = tuple[Hypothesis, str]  # and its text


@dataclass(frozen=True)
class _Work:
    """A text on its way: its pieces, and of each what the model is to see."""

    document: sentences.Document
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
        engine: EngineName | Engine = "auto",
        device: str | None = None,
        precision: Precision = "auto",
        search: SearchConfig | Callable[[SearchConfig], SearchConfig] | None = None,
        model: Callable[[ModelConfig], Any] | None = None,
        tokenizer: OwnTokenizers = None,
    ) -> None:
        """Without a bundle: the newest of ./runs, or the one that came with the package.

        Args:
            bundle: A bundle, or the folder of one or of a run; several with one vocabulary are an ensemble.
            engine: "torch", "ctranslate2" (torch searches the few doubtful sentences again), or "auto", the fastest; or
                one of your own: an object with `search`, as `transduce.engines.torch.Engine` describes it.
            device: Such as "cuda" or "cpu"; by default a GPU where there is one.
            precision: Of the numbers; by default int8 in CTranslate2, bf16 on a GPU, float32 elsewhere.
            search: How to search, or what to change in how the bundle's recipe says to search.
            model: Makes the model of your own that the bundle was trained with, from its config.
            tokenizer: The tokenizer of your own that the bundle was trained with, or those of source and target.
        """
        places = [bundle] if bundle is None or isinstance(bundle, Place) else bundle
        if (
            not isinstance(places, Sequence)
            or not places
            or not all(isinstance(one, Place | None) for one in places)
        ):
            raise BundleError(f"bundle is {bundle!r}; expected a folder, or a list of them")
        bundles = [
            one if isinstance(one, Bundle) else load_bundle(find_bundle(one)) for one in places
        ]
        self._bundle: Bundle | None = bundles[0]
        recipe, files = bundles[0].recipe, bundles[0].tokenizer_files
        for other in bundles[1:]:
            if any(
                other.tokenizer_files.get(name) != files.get(name)
                for names in TOKENIZERS
                for name in names
            ):
                raise BundleError(
                    f"{other.path} has another vocabulary than {bundles[0].path}; an ensemble needs one tokenizer"
                )
        source, target = pair_of(files, tokenizer)
        models = [one.recipe.model for one in bundles]
        self._set(
            source, target, recipe, search(recipe.search) if callable(search) else search, models
        )
        if isinstance(engine, str):
            engine = choose_engine(bundles, engine, device, precision, model)
        self._set_engine(engine)

    @classmethod
    def from_model(
        cls,
        model: Any,
        source_tokenizer: Tokenizer | TokenizerLike,
        target_tokenizer: Tokenizer | TokenizerLike,
        recipe: Recipe,
        *,
        search: SearchConfig | None = None,
    ) -> Translator:
        """A translator for a model in memory, on the device where it is; the model is used as it is at each call."""
        from transduce.engines.torch import TorchEngine

        self = cls.__new__(cls)
        self._bundle = None
        engine = TorchEngine(model, device=next(model.parameters()).device)
        source, target = as_tokenizer(source_tokenizer), as_tokenizer(target_tokenizer)
        self._set(source, target, recipe, search, [model.config])
        self._set_engine(engine)
        return self

    def _set_engine(self, engine: Engine) -> None:
        if not callable(getattr(engine, "search", None)):
            raise ConfigError(
                f"engine is {engine!r}; expected auto, torch, ctranslate2, or an object with search(sources, config, "
                "*, prefixes, token_scores)"
            )
        self.engine = engine

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
            raise ConfigError(
                f"search is {config!r}; expected settings, such as SearchConfig(beam_size=4)"
            )
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
        self,
        texts: list[str] | tuple[str, ...],
        *,
        alignments: bool = ...,
        confidences: bool = ...,
        prefix: str = ...,
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

    def _translate(
        self, texts: Sequence[str], alignments: bool, confidences: bool, prefix: str
    ) -> list[Translation]:
        for number, one in enumerate(texts):
            if not isinstance(one, str):
                raise InputError(f"text {number + 1} is a {type(one).__name__}; expected a string")
        if not isinstance(prefix, str):
            raise InputError(
                f"prefix is {prefix!r}; expected the text that a translation has to begin with"
            )
        works = [self._prepare(one) for one in texts]
        plains = [
            plain
            for work in works
            for plain in self._coded([kept.plain for kept in work.searched()])
        ]
        sources = self.tokenizers[0].encode_batch(plains)
        forced = self.tokenizers[1].encode(prefix)[:-1] if prefix else []
        prefixes = (
            [[] if n else forced for work in works for n, _ in enumerate(work.searched())]
            if forced
            else ()
        )
        found = self._search(sources, prefixes, confidences) if plains else []
        decoded = iter(
            self.tokenizers[1].decode_batch([one.ids for hypotheses in found for one in hypotheses])
        )
        limits = (self.search.limit(len(source)) for source in sources)
        candidates = zip(
            limits,
            [[(one, next(decoded)) for one in hypotheses] for hypotheses in found],
            strict=True,
        )
        return [self._finish(work, candidates, alignments, confidences) for work in works]

    def _search(
        self, sources: list[list[int]], prefixes: Sequence[Sequence[int]], confidences: bool
    ) -> list[list[Hypothesis]]:
        """The engine's hypotheses; one of the user's own is held to its protocol."""
        if type(self.engine).__module__.startswith("transduce."):
            return self.engine.search(
                sources, self.search, prefixes=prefixes, token_scores=confidences
            )
        name = type(self.engine).__name__
        try:
            found = self.engine.search(
                sources, self.search, prefixes=prefixes, token_scores=confidences
            )
            counted = len(found) == len(sources) and all(found)
            fine = counted and all(
                isinstance(one, Hypothesis) for hypotheses in found for one in hypotheses
            )
        except TransduceError:
            raise
        except Exception as error:
            raise HookError(f"engine {name} raised {type(error).__name__}: {error}") from error
        if not fine:
            raise HookError(
                f"engine {name} gave {type(found).__name__} for {len(sources)} sources; expected a list of at least "
                "one Hypothesis for each"
            )
        return found

    def _prepare(self, one: str) -> _Work:
        language, limit = self.recipe.data.source_language, self._max_tokens
        document = sentences.split(
            one, language, count_tokens=self._count_tokens(limit), max_tokens=limit
        )
        protected = (markup.protect(piece.text) for piece in document.pieces)
        return _Work(document, tuple(kept if kept.has_text else None for kept in protected))

    def _coded(self, sentences: list[str]) -> list[str]:
        """A text's code of the target language (>>deu<<), which some imported models read, before every sentence."""
        code = _CODE.match(sentences[0]) if sentences else None
        if code is None or len(self.tokenizers[0].encode(code[0])) != 2:  # one piece and the end
            return sentences
        return [sentences[0], *(f"{code[0]} {sentence}" for sentence in sentences[1:])]

    def _count_tokens(self, limit: int) -> sentences.CountTokens:
        def count(part: str) -> int:
            most = len(part.encode(errors="replace")) + 2  # bytes, the first space and the end
            return most if most <= limit else len(self.tokenizers[0].encode(part))

        return count

    def _finish(
        self,
        work: _Work,
        candidates: Iterator[tuple[int, list[Candidate]]],
        alignments: bool,
        confidences: bool,
    ) -> Translation:
        """Join the pieces of a text, taking the candidates of those that were searched, with limits on their length."""
        translated, written, notices = [], [], [*work.document.notices]
        for piece, kept in zip(work.document.pieces, work.protected, strict=True):
            if kept:
                limit, mine = next(candidates)
                if len(mine[0][0].ids) >= limit:
                    notices.append(
                        f'the translation of "{piece.text[:40]}" was stopped at {limit} tokens and may lack its end; '
                        "search.max_length and search.max_extra set this limit"
                    )
                translated.append(self._sentence(piece.text, kept, mine, alignments, confidences))
                written.append([text for text, _ in translated[-1].n_best])
            else:
                written.append([piece.text])
        count = max([1, *map(len, written)])
        language = self.recipe.data.target_language
        n_best = []
        for rank in range(count):
            chosen = [texts[min(rank, len(texts) - 1)] for texts in written]
            scores = [one.n_best[min(rank, len(one.n_best) - 1)][1] for one in translated]
            n_best.append((sentences.join(work.document, chosen, language), math.fsum(scores)))
        return Translation(*n_best[0], tuple(n_best), tuple(translated), tuple(notices))

    def _sentence(
        self,
        source: str,
        kept: markup.Protected,
        candidates: list[Candidate],
        alignments: bool,
        confidences: bool,
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
        return Sentence(
            source,
            *n_best[0],
            tuple(map(Token, pieces, best.token_confidences)),
            tuple(n_best),
            alignment,
        )

    def _links(
        self, source: str, translation: str, ids: Sequence[int]
    ) -> tuple[tuple[int, int], ...]:
        from transduce.translation.alignment import word_links

        return (
            word_links(self._model, self.tokenizers, source, translation, ids)
            if self._model is not None
            else ()
        )

    @cached_property
    def _model(self) -> Transformer | None:
        """The model in torch, for alignments, whatever engine searches; None if it has no attention to look at."""
        from transduce.engines.torch import TorchEngine, load_model
        from transduce.model import Transformer

        if self._bundle is None or self._bundle.own_model:
            model = self.engine.models[0] if isinstance(self.engine, TorchEngine) else None
            return model if isinstance(model, Transformer) else None
        return load_model(self._bundle)


def _several(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputError(
            f"texts is {type(texts).__name__}; expected strings, such as a list of them"
        )
    return texts
