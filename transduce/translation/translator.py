"""The translator, from text to text: split into sentences, search, and join.

Everything in the package that translates text does it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from transduce.config import ModelConfig, Recipe, SearchConfig
from transduce.data.own_tokenizer import OwnTokenizers, TokenizerLike, as_tokenizer, pair_of
from transduce.data.tokenizer import Tokenizer
from transduce.engines.choose import EngineName, Precision, choose_engine
from transduce.errors import BundleError, ConfigError, InputError
from transduce.storage.bundle import TOKENIZERS, Bundle, load_bundle
from transduce.storage.installed import find_bundle
from transduce.translation import chunks, markup
from transduce.translation.capitals import to_capitals, with_one_capital
from transduce.translation.reading import PreparedText, Reader, SourceSentence
from transduce.translation.result import Translation
from transduce.translation.searching import Searcher, with_n_best
from transduce.translation.sentences import SPLITS, Split
from transduce.translation.writing import OnSentence, Options, Writer

if TYPE_CHECKING:  # importing torch takes seconds, and CTranslate2 does not need it
    from transduce.engines.torch import Engine
    from transduce.model import Transformer
    from transduce.translation.alignment import Links

Place = Bundle | str | Path


class Translator:
    """Translates text with a bundle, or with an ensemble of several."""

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
        """Load one or more bundles; by default the one of the package, or the newest of ./runs.

        Args:
            bundle: A bundle, the folder of a bundle or of a run, or the name of a bundle of the
                package, such as "en-de". Several are an ensemble and must have the same
                vocabulary.
            engine: "torch", "ctranslate2" (for which torch searches a few doubtful sentences
                again), or "auto", the fastest; or your own engine, an object with the method
                `search` of `transduce.engines.torch.Engine`.
            device: Such as "cuda" or "cpu"; by default a GPU if there is one.
            precision: Numeric precision; "auto" uses int8 with CTranslate2, bf16 on a GPU and
                float32 otherwise.
            search: Settings of the search, or a function that changes those of the bundle's recipe.
            model: Makes your own model, with which the bundle was trained, from its config.
            tokenizer: Your own tokenizer, with which the bundle was trained, or a pair of them for
                source and target.
        """
        places = [bundle] if bundle is None or isinstance(bundle, Place) else bundle
        if (
            not isinstance(places, Sequence)
            or not places
            or not all(isinstance(place, Place | None) for place in places)
        ):
            raise BundleError(f"bundle is {bundle!r}; expected a folder, or a list of folders")
        bundles = [
            place if isinstance(place, Bundle) else load_bundle(find_bundle(place))
            for place in places
        ]
        first = bundles[0]
        for other in bundles[1:]:
            if _tokenizers_of(other) != _tokenizers_of(first):
                raise BundleError(
                    f"{other.path} has another vocabulary than {first.path}; all models of an "
                    "ensemble need the same tokenizer"
                )
        if tokenizer is None:
            source, target = Tokenizer.pair(first.tokenizer_files)
        else:
            source, target = pair_of(first.tokenizer_files, tokenizer)
        settings = search(first.recipe.search) if callable(search) else search
        models = [loaded.recipe.model for loaded in bundles]
        self._bundle: Bundle | None = first
        self._set(source, target, first.recipe, settings, models)
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
        """Return a translator for a model in memory, on its device.

        Each call uses the model's current weights.
        """
        from transduce.engines.torch import TorchEngine

        self = cls.__new__(cls)
        self._bundle = None
        engine = TorchEngine(model, device=next(model.parameters()).device)
        source = as_tokenizer(source_tokenizer)
        target = as_tokenizer(target_tokenizer)
        self._set(source, target, recipe, search, [model.config])
        self._set_engine(engine)
        return self

    def _set_engine(self, engine: Engine) -> None:
        if not callable(getattr(engine, "search", None)):
            raise ConfigError(
                f"engine is {engine!r}; expected auto, torch, ctranslate2, or an object with "
                "search(sources, config, *, prefixes, token_scores)"
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
        max_tokens = recipe.data.max_tokens
        config = search or recipe.search
        if not isinstance(config, SearchConfig):
            raise ConfigError(
                f"search is {config!r}; expected settings, such as SearchConfig(beam_size=4)"
            )
        # Models with learned positions cannot go beyond their tables.
        learned = [model.max_positions for model in models if model.positions == "learned"]
        if learned:
            last = min(learned) - 1
            config = replace(config, max_length=min(config.max_length or last, last))
            max_tokens = min(max_tokens, *learned)
        self.search = config
        self._reader = Reader(source, recipe.data.source_language, max_tokens)

    @overload
    def translate(
        self,
        texts: str,
        *,
        alignments: bool = ...,
        confidences: bool = ...,
        prefix: str = ...,
        n_best: int | None = ...,
        glossary: Mapping[str, str] | None = ...,
        on_sentence: OnSentence | None = ...,
        split: Split = ...,
    ) -> Translation: ...
    @overload
    def translate(
        self,
        texts: list[str] | tuple[str, ...],
        *,
        alignments: bool = ...,
        confidences: bool = ...,
        prefix: str = ...,
        n_best: int | None = ...,
        glossary: Mapping[str, str] | None = ...,
        on_sentence: OnSentence | None = ...,
        split: Split = ...,
    ) -> list[Translation]: ...
    def translate(
        self,
        texts: str | list[str] | tuple[str, ...],
        *,
        alignments: bool = False,
        confidences: bool = False,
        prefix: str = "",
        n_best: int | None = None,
        glossary: Mapping[str, str] | None = None,
        on_sentence: OnSentence | None = None,
        split: Split = "lines",
    ) -> Translation | list[Translation]:
        """Translate a text, or each of several. A text may have any length, many lines and markup.

        Args:
            texts: One text or several.
            alignments: Whether to add word alignments.
            confidences: Whether to add the probability of each token.
            prefix: The text with which each translation must begin.
            n_best: The number of translations; by default that of the search settings. A beam that
                is smaller becomes as wide.
            glossary: Terms of the source language, as they are spelled in the texts, and their
                translations. The model does not see these terms, so they are never inflected.
            on_sentence: Called for each sentence in order, as soon as it is translated, with the
                number of its text, its own number in the text (both from 0), the number of
                sentences in the text, and the sentence.
            split: Where a text is split: "lines", at the ends of lines and sentences; "sentences",
                if a sentence may extend over several lines; "nothing", if each text is one.
        """
        options = Options(alignments, confidences, prefix, n_best, glossary, on_sentence, split)
        if isinstance(texts, str):
            return self._translate([texts], options)[0]
        return self._translate(list(_several(texts)), options)

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        alignments: bool = False,
        confidences: bool = False,
        prefix: str = "",
    ) -> Iterator[Translation]:
        """Yield the translation of each text of a stream, with at most `chunks.LAST` in memory."""
        options = Options(alignments, confidences, prefix)
        for chunk in chunks.chunks(_several(lines), chunks.sizes()):
            yield from self._translate(chunk, options)

    def translate_sentences(self, sentences: Sequence[str]) -> list[str | None]:
        """Return the translation of each sentence, which is read as training text is.

        It is not split, and its markup is not set apart: this is for text by the million. None
        means that a sentence is blank or too long for the model, or that its translation did not
        end.
        """
        sources = self.tokenizers[0].encode_batch(list(sentences))
        is_searched = [
            bool(sentence.strip()) and len(source) <= self._reader.max_tokens
            for sentence, source in zip(sentences, sources, strict=True)
        ]
        searcher = Searcher(self.engine, self.tokenizers[1], self.search)
        results = searcher.results(list(compress(sources, is_searched)), [], in_chunks=False)

        translations: list[str | None] = []
        for searched in is_searched:
            result = next(results) if searched else None
            if result is None or len(result.candidates[0][0].ids) >= result.limit:
                translations.append(None)
            else:
                _, text = result.candidates[0]
                translations.append(text)
        return translations

    def _translate(self, texts: Sequence[str], options: Options) -> list[Translation]:
        for number, text in enumerate(texts, start=1):
            if not isinstance(text, str):
                raise InputError(f"text {number} is a {type(text).__name__}; expected a string")
        if not isinstance(options.prefix, str):
            raise InputError(
                f"prefix is {options.prefix!r}; expected the text with which a translation must "
                "begin"
            )
        if options.split not in SPLITS:
            raise InputError(f"split is {options.split!r}; expected one of {', '.join(SPLITS)}")

        # All pieces of all texts, as token ids. Only the first piece of a text gets the prefix.
        glossary = markup.Glossary(options.glossary) if options.glossary else None
        prepared_texts: list[PreparedText] = []
        read_texts: list[str] = []
        prefixes: list[list[int]] = []
        for text in texts:
            prepared = self._reader.prepare(text, glossary, options.split)
            if options.prefix and prepared.searched():
                prepared, prefix = self._with_prefix(prepared, options.prefix)
                prefixes += [prefix, *([] for _ in prepared.searched()[1:])]
            prepared_texts.append(prepared)
            read_texts += self._reader.read_texts(prepared)
        sources = self.tokenizers[0].encode_batch(read_texts)

        search = with_n_best(self.search, options.n_best)
        searcher = Searcher(self.engine, self.tokenizers[1], search, options.confidences)
        results = searcher.results(sources, prefixes, in_chunks=options.on_sentence is not None)
        writer = Writer(self.tokenizers[1], self.recipe.data.target_language, self._links)
        return [
            writer.write(number, prepared, results, options)
            for number, prepared in enumerate(prepared_texts)
        ]

    def _with_prefix(self, prepared: PreparedText, prefix: str) -> tuple[PreparedText, list[int]]:
        """Return a text whose translation begins with a prefix, and the ids of the prefix."""
        first = prepared.searched()[0]
        prefix = markup.as_searched(prefix, first)
        language = self.recipe.data.target_language
        lower = with_one_capital(prefix, language)
        # Only a prefix in capitals can be the beginning of a translation in capitals.
        if first.lower_case and to_capitals(lower, language) == prefix:
            prefix = lower
        elif first.lower_case:
            prepared = prepared.with_case_of_first()
        return prepared, self.tokenizers[1].encode(prefix)[:-1]

    @property
    def bundle(self) -> Bundle | None:
        """The bundle, or the first one of an ensemble; None for a model in memory."""
        return self._bundle

    def read(self, text: str) -> tuple[list[SourceSentence], list[str]]:
        """Return the sentences of a text as the model reads them, and notices about it.

        Parts that have nothing to translate, such as numbers between tags, are not among them.
        """
        return self._reader.read(text)

    def _links(self, source: str, translation: str, ids: Sequence[int]) -> Links:
        """Return the word alignment, or no links if the model has no attention."""
        from transduce.translation.alignment import word_links

        if self._model is None:
            return ()
        return word_links(self._model, self.tokenizers, source, translation, ids)

    @cached_property
    def _model(self) -> Transformer | None:
        """The model in torch, for alignments with any engine; None if it is not a `Transformer`."""
        from transduce.engines.torch import TorchEngine, load_model
        from transduce.model import Transformer

        if self._bundle is None or self._bundle.own_model:
            model = self.engine.models[0] if isinstance(self.engine, TorchEngine) else None
            return model if isinstance(model, Transformer) else None
        return load_model(self._bundle)


def _tokenizers_of(bundle: Bundle) -> list[bytes | None]:
    """Return the contents of the tokenizer files that a bundle may have."""
    names = sorted(set().union(*TOKENIZERS))
    return [bundle.tokenizer_files.get(name) for name in names]


def _several(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputError(
            f"texts is of type {type(texts).__name__}; expected several strings, such as a list"
        )
    return texts
