"""The report of one or several systems on a test set: plain data, for JSON, tables and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from transduce.errors import InputError
from transduce.evaluation.breakdown import (
    LengthGroup,
    WorstSentence,
    score_by_length,
    worst_sentences,
)
from transduce.evaluation.output import OutputStatistics, describe_output
from transduce.evaluation.scores import check_parallel, metrics
from transduce.evaluation.significance import (
    RESAMPLES,
    EstimatedScore,
    PairedTest,
    estimate_scores,
)

if TYPE_CHECKING:  # importing torch takes seconds, and files of translations do not need it
    from transduce.evaluation.perplexity import Perplexity

WORST = 5  # sentences


@dataclass(frozen=True)
class SystemReport:
    """Everything that is known about the translations of one system."""

    name: str  # the model, or the file with the translations
    scores: dict[str, EstimatedScore]  # by key: bleu, chrf, chrf_plus_plus, tokenized_bleu, ter
    output: OutputStatistics
    by_length: tuple[LengthGroup, ...]
    worst: tuple[WorstSentence, ...]
    perplexity: Perplexity | None = None  # None for translations whose model is not known
    model: str | None = None  # the folder of the model, or None


@dataclass(frozen=True)
class Report:
    """One or several systems on a test set. The first is the baseline of the significance tests."""

    systems: tuple[SystemReport, ...]
    sentences: int
    test: PairedTest
    resamples: int
    source: str = ""  # the files of the test set
    reference: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; what was not computed is left out."""
        values = asdict(self)
        for system, found in zip(values["systems"], self.systems, strict=True):
            system["scores"] = {
                key: _without_none(value) for key, value in system["scores"].items()
            }
            for sentence, worst in zip(system["worst"], found.worst, strict=True):
                sentence["link"] = worst.link
        values["systems"] = [_without_none(system) for system in values["systems"]]
        return values


def evaluate(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    ter: bool = False,
    test: PairedTest = "randomization",
    resamples: int = RESAMPLES,
    worst: int = WORST,
    advance: Callable[[int], None] = lambda _: None,
) -> Report:
    """Compare the translations of one or several systems with references.

    Args:
        systems: The translations of each system, by its name. The first is the baseline.
        references: The reference translations.
        sources: The sentences that were translated.
        ter: Whether to compute TER, which is slow.
        test: The paired significance test: "randomization" or "bootstrap".
        resamples: The number of resamples for intervals and tests; 0 computes neither.
        worst: The number of worst sentences to list.
        advance: Called with 1 after each metric, and after each system (see `work`).
    """
    if not systems:
        raise InputError("there is no system to score; expected translations of at least one")
    for hypotheses in systems.values():
        check_parallel(hypotheses, references)
    if len(sources) != len(references):
        raise InputError(
            f"{len(sources):,} sources but {len(references):,} references; they must be parallel, "
            "line by line"
        )

    # The scores, of all systems at once: they are compared with each other.
    scores: dict[str, list[EstimatedScore]] = {}
    for key, metric in metrics(references, ter=ter).items():
        scores[key] = estimate_scores(
            key, metric, systems, references, test=test, resamples=resamples
        )
        advance(1)

    # Everything else, system by system.
    reports = []
    for index, (name, hypotheses) in enumerate(systems.items()):
        reports.append(
            SystemReport(
                name=name,
                scores={key: column[index] for key, column in scores.items()},
                output=describe_output(hypotheses, references, sources),
                by_length=tuple(score_by_length(hypotheses, references, sources)),
                worst=tuple(worst_sentences(hypotheses, references, sources, worst)),
            )
        )
        advance(1)
    return Report(tuple(reports), len(references), test, resamples)


def work(systems: int, *, ter: bool) -> int:
    """Return how many units of progress `evaluate` reports."""
    return len(metrics(ter=ter)) + systems


def with_models(
    report: Report, models: Sequence[str], perplexities: Mapping[str, Perplexity]
) -> Report:
    """Return the report with the models among its systems, and their perplexities, by name."""
    systems = []
    for system in report.systems:
        model = system.name if system.name in models else None
        systems.append(replace(system, model=model, perplexity=perplexities.get(system.name)))
    return replace(report, systems=tuple(systems))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
