"""The tables of a report, in words: the terminal, Markdown and HTML show the same ones."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from transduce.evaluation.breakdown import WorstSentence
from transduce.evaluation.report import Report, SystemReport
from transduce.evaluation.significance import LEVEL, TRIALS, EstimatedScore

PLUS_MINUS = "\u00b1"


@dataclass(frozen=True)
class Table:
    """A table of texts with a title above and notes below it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def tables(report: Report) -> Iterator[Table]:
    """Yield the scores, what the translations look like, and BLEU by length."""
    yield _scores(report)
    yield _output(report)
    yield _by_length(report)


def _scores(report: Report) -> Table:
    rows = []
    for key in report.systems[0].scores:
        scores = [system.scores[key] for system in report.systems]
        cells = [score_cell(score) for score in scores]
        rows.append((scores[0].name, *cells, scores[0].signature))
    if any(system.perplexity for system in report.systems):
        cells = [_perplexity(system) for system in report.systems]
        rows.append(("perplexity", *cells, "per token of the model's tokenizer"))

    # What the numbers mean.
    notes = []
    if report.resamples:
        notes.append(
            f"{PLUS_MINUS}: 95% confidence interval, from {report.resamples:,} bootstrap resamples "
            "of the test set"
        )
    notes += _left_out(report)
    notes += verdicts(report)
    header = ("score", *_names(report), "signature")
    return Table(_title(report), header, tuple(rows), tuple(notes))


def _title(report: Report) -> str:
    files = f"{report.source} and {report.reference}: " if report.source else ""
    return f"{files}{report.sentences:,} sentences"


def _names(report: Report) -> list[str]:
    return [system.name for system in report.systems]


def score_cell(score: EstimatedScore) -> str:
    """Return a score with its interval and its p-value, as far as they are known."""
    text = f"{score.value:.2f}"
    if score.margin is not None:
        text += f" {PLUS_MINUS} {score.margin:.2f}"
    if score.p_value is not None:
        text += f" (p = {score.p_value:.4g})"
    return text


def _perplexity(system: SystemReport) -> str:
    return f"{system.perplexity.value:.2f}" if system.perplexity else "-"


def _left_out(report: Report) -> Iterator[str]:
    """Say which perplexities are not those of the whole test set."""
    for system in report.systems:
        if system.perplexity and system.perplexity.left_out:
            yield (
                f"{system.name}: perplexity without {system.perplexity.left_out:,} pairs that are "
                "longer than the positions of the model"
            )


def verdicts(report: Report) -> Iterator[str]:
    """Say for each system whether it is better than the first one, judged by BLEU."""
    first, *others = report.systems
    for system in others:
        score = system.scores["bleu"]
        difference = score.value - first.scores["bleu"].value
        verdict = f"{system.name}: BLEU {difference:+.2f} against {first.name}"
        if score.p_value is not None:
            name = f"paired bootstrap of {report.resamples:,} resamples"
            if report.test == "randomization":
                name = f"approximate randomization with {TRIALS:,} trials"
            significant = "significant" if score.p_value < LEVEL else "not significant"
            verdict += f", {significant} (p = {score.p_value:.4g}, {name})"
        yield verdict


def _output(report: Report) -> Table:
    outputs = [system.output for system in report.systems]
    references = outputs[0].copied_words_of_references
    ratios = [f"{output.length_ratio:.3f}" for output in outputs]
    copied_words = [f"{output.copied_words:.1%}" for output in outputs]
    copied = [f"{output.copied_sentences:,}" for output in outputs]
    empty = [f"{output.empty:,}" for output in outputs]
    repetitive = [f"{output.repetitive:,}" for output in outputs]
    rows = (
        ("length ratio", *ratios, "tokens for each token of the references"),
        ("copied words", *copied_words, f"also in the source; {references:.1%} of the references"),
        ("copied sentences", *copied, "equal to the source, unlike the reference"),
        ("empty", *empty, "translations without text"),
        ("repetitive", *repetitive, "with the same words three times in a row"),
    )
    return Table("Translations", ("", *_names(report), "meaning"), rows)


def _by_length(report: Report) -> Table:
    rows = []
    for groups in zip(*(system.by_length for system in report.systems), strict=True):
        cells = [f"{group.bleu:.2f} ({group.length_ratio:.2f})" for group in groups]
        rows.append((groups[0].name, f"{groups[0].sentences:,}", *cells))
    title = "BLEU (and length ratio) by words of the source"
    return Table(title, ("words", "sentences", *_names(report)), tuple(rows))


def inspection(system: SystemReport, sentence: WorstSentence) -> str:
    """Return the command that looks inside a translation; the model of a file is not known."""
    words = ["transduce", "inspect", system.model or "MODEL", sentence.source]
    return shlex.join(words)
