"""From search results to text: put the markup back, and join the sentences of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transduce.data.tokenizer import EOS, Tokenizer
from transduce.translation import markup, sentences
from transduce.translation.capitals import to_capitals
from transduce.translation.confidences import restore_tokens
from transduce.translation.reading import PreparedText
from transduce.translation.restore import needs_alignment, restore, restore_words
from transduce.translation.result import Alignment, Sentence, Token, Translation
from transduce.translation.searching import Candidate, Searched

if TYPE_CHECKING:
    from transduce.translation.alignment import Links

# Called with the number of a text, the number of its sentence, how many it has, and the sentence.
OnSentence = Callable[[int, int, int, Sentence], None]


@dataclass(frozen=True)
class Options:
    """What a call of `translate` asks for besides the texts."""

    alignments: bool = False
    confidences: bool = False
    prefix: str = ""
    n_best: int | None = None
    glossary: Mapping[str, str] | None = None
    on_sentence: OnSentence | None = None
    split: sentences.Split = "lines"


class Writer:
    """Writes translations in a language."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        language: str,
        align: Callable[[str, str, Sequence[int]], Links],
    ) -> None:
        """`align` returns the word alignment of a source, its translation and that one's ids."""
        self._tokenizer = tokenizer
        self._language = language
        self._align = align

    def write(
        self,
        number: int,
        prepared: PreparedText,
        results: Iterator[Searched],
        options: Options,
    ) -> Translation:
        """Join the pieces of a text; those that were searched take the next results.

        `number` is that of the text in its call, for `on_sentence`.
        """
        stopped: list[tuple[str, int]] = []  # pieces whose translations have no end, and the limits
        translated: list[Sentence] = []
        texts: list[list[str]] = []  # of each piece, best first
        count = len(prepared.searched())
        before = ""  # everything since the last sentence
        layout = sentences.layout(prepared.document, self._language)
        for piece, protected, gap in zip(
            prepared.document.pieces, prepared.protected, layout, strict=True
        ):
            before += gap
            if not protected.has_text:
                unchanged = restore(protected.plain, protected)
                texts.append([unchanged if protected.has_terms else piece.text])
                before += texts[-1][0]
                continue
            result = next(results)
            best, _ = result.candidates[0]
            if len(best.ids) >= result.limit:
                stopped.append((piece.text, result.limit))
            sentence = self._sentence(piece.text, before, protected, result.candidates, options)
            before = ""
            if options.on_sentence:
                options.on_sentence(number, len(translated), count, sentence)
            translated.append(sentence)
            texts.append([text for text, _ in sentence.n_best])

        # The nth best text consists of the nth best translations, or the last if there are fewer.
        n_best = []
        for rank in range(max([1, *map(len, texts)])):
            chosen = [choices[min(rank, len(choices) - 1)] for choices in texts]
            scores = []
            for sentence in translated:
                _, score = sentence.n_best[min(rank, len(sentence.n_best) - 1)]
                scores.append(score)
            text = sentences.join(prepared.document, chosen, self._language)
            n_best.append((text, math.fsum(scores)))
        text, score = n_best[0]
        notices = (*prepared.notices, *_notice(stopped))
        return Translation(text, score, tuple(n_best), tuple(translated), notices)

    def _sentence(
        self,
        source: str,
        before: str,
        protected: markup.Protected,
        candidates: list[Candidate],
        options: Options,
    ) -> Sentence:
        """Return the candidates of a piece with their markup, and with what else was requested."""
        n_best = []
        alignment = None
        for rank, (hypothesis, text) in enumerate(candidates):
            wants_alignment = options.alignments and rank == 0
            links: Links = ()
            # An alignment costs a pass through the model, so it is computed only if needed.
            if wants_alignment or needs_alignment(text, protected):
                links = self._align(protected.read, text, hypothesis.ids)
            if protected.lower_case:
                text = self._in_capitals(text)
            if wants_alignment:
                source_words = protected.words()
                restored = restore_words(text, protected, links)
                alignment = Alignment(source_words, restored.words, restored.links)
            text = restore(text, protected, links)
            n_best.append((text, hypothesis.score))

        tokens = self._tokens(candidates[0], protected) if options.confidences else ()
        text, score = n_best[0]
        return Sentence(
            source=source,
            text=text,
            score=score,
            tokens=tokens,
            n_best=tuple(n_best),
            alignment=alignment,
            before=before,
        )

    def _tokens(self, candidate: Candidate, protected: markup.Protected) -> tuple[Token, ...]:
        """Return the tokens of a candidate, with the end of the sentence."""
        hypothesis, text = candidate
        pieces = self._tokenizer.pieces([*hypothesis.ids, EOS])
        if protected.lower_case:
            text = self._in_capitals(text)
            pieces = [*map(self._in_capitals, pieces[:-1]), pieces[-1]]
        tokens = tuple(map(Token, pieces, hypothesis.token_confidences))
        return restore_tokens(tokens, text, protected) if protected.spans else tokens

    def _in_capitals(self, text: str) -> str:
        return to_capitals(text, self._language)


def _notice(stopped: Sequence[tuple[str, int]]) -> list[str]:
    """Return a notice about the pieces whose translations were stopped, if there are any."""
    if not stopped:
        return []
    text, limit = stopped[0]
    more = f" and {len(stopped) - 1} more" if len(stopped) > 1 else ""
    return [
        f'the translation of "{text[:40]}"{more} was stopped at {limit} tokens and may lack its '
        "end; search.max_length and search.max_extra set this limit"
    ]
