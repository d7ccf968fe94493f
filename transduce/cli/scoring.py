"""The command that scores models and translations on a test set."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from transduce.cli.arguments import Command, Help
from transduce.cli.options import Alpha, Beam, Device, Engine, Precision
from transduce.cli.output import STANDARD_OUTPUT, check_output, write_json, write_output
from transduce.cli.translation import loading
from transduce.errors import InputError

if TYPE_CHECKING:
    from transduce.evaluation.perplexity import Perplexity
    from transduce.evaluation.report import Report
    from transduce.translation.translator import Translator

MOST_RESAMPLES = 10_000  # sacreBLEU keeps all of them in memory: 6 GB for 3,000 sentences


def score(
    files: Annotated[
        tuple[Path, ...],
        Help(
            "models (bundles or run folders), then the test set: the sentences to translate and "
            "their human translations, one per line",
            value="[MODEL ...] SOURCE REFERENCE",
        ),
    ] = (),
    *,
    hypothesis: Annotated[
        tuple[Path, ...],
        Help("score the translations in this file, one per line; can be repeated"),
    ] = (),
    source: Annotated[
        Path | None, Help("the sentences to translate (default: the argument SOURCE)")
    ] = None,
    reference: Annotated[
        Path | None, Help("their human translations (default: the argument REFERENCE)")
    ] = None,
    ladder: Annotated[
        bool,
        Help(
            "score a run step by step: its last checkpoint, the average of checkpoints, beam 4 "
            "with alpha 0.6, compounds split as in the paper"
        ),
    ] = False,
    beam: Beam = None,
    alpha: Alpha = None,
    engine: Engine = "auto",
    device: Device = None,
    precision: Precision = "auto",
    ter: Annotated[bool, Help("also compute the translation edit rate, which is slow")] = False,
    perplexity: Annotated[
        bool, Help("also compute the perplexity of the references, per token of the model")
    ] = False,
    test: Annotated[
        Literal["randomization", "bootstrap"],
        Help(
            "how systems are compared with the first one: approximate randomization, or "
            "sacreBLEU's paired bootstrap, which has twice as many false alarms"
        ),
    ] = "randomization",
    resamples: Annotated[
        int, Help("resamples of the test set for intervals and the test; 0 for neither")
    ] = 1000,
    worst: Annotated[int, Help("number of worst sentences to show")] = 5,
    out: Annotated[Path | None, Help("write the translations of the model to this file")] = None,
    json: Annotated[
        Path | None,
        Help("write the report as JSON; without FILE, print it in place of tables", bare="-"),
    ] = None,
    markdown: Annotated[Path | None, Help("write the report as Markdown to this file")] = None,
    html: Annotated[
        Path | None, Help("write the report as one page for a browser, with the chart")
    ] = None,
    svg: Annotated[Path | None, Help("write a chart of BLEU by sentence length")] = None,
) -> None:
    """Score models or translations on a test set, and compare them.

    The first model or hypothesis file is the baseline that the others are compared with.

    Examples:
        transduce score runs/demo test.en test.de
        transduce score runs/demo test.en test.de --beam 4 --json
        transduce score runs/demo runs/other test.en test.de --markdown scores.md
        transduce score --hypothesis a.de --hypothesis b.de test.en test.de
        transduce score --ladder runs/demo test.en test.de
    """
    # Check the arguments and read the files: a mistake shows before the work.
    models, test_set = _split(files, source, reference)
    search: dict[str, Any] = {"beam": beam, "alpha": alpha, "engine": engine, "device": device}
    search |= {"precision": precision, "perplexity": perplexity}
    _check(models, hypothesis, search, out)
    if not 0 <= resamples <= MOST_RESAMPLES:
        raise InputError(f"--resamples is {resamples}; expected 0 to {MOST_RESAMPLES:,}")
    if worst < 0:
        raise InputError(f"--worst is {worst}; expected at least 0")
    if ladder:
        ignored = {**search, "device": None, "ter": ter, "out": out, "html": html, "svg": svg}
        _check_ladder(models, hypothesis, ignored)
    if STANDARD_OUTPUT in (out, markdown, html, svg):
        raise InputError("only --json can be printed; name a file instead of - for other outputs")
    outputs = [path for path in (out, json, markdown, html, svg) if path != STANDARD_OUTPUT]
    for path in outputs:
        check_output(path, [*test_set, *hypothesis])
        if path and outputs.count(path) > 1:
            raise InputError(f"{path} is named for two outputs; give each a file of its own")
    from transduce.evaluation.test_set import read_parallel, report_empty_references

    sources, references, *hypotheses = read_parallel([*test_set, *hypothesis])
    report_empty_references(references, test_set[1])
    if ladder:
        _climb(models[0], sources, references, device, json, markdown)
        return

    # Translate with each model.
    systems: dict[str, list[str]] = {}
    perplexities: dict[str, Perplexity] = {}
    for model in models:
        translator = _load(model, beam, alpha, engine=engine, device=device, precision=precision)
        systems[str(model)] = _translate(translator, sources, model, out)
        if perplexity:
            perplexities[str(model)] = _perplexity(translator, sources, references)
    systems |= {str(path): texts for path, texts in zip(hypothesis, hypotheses, strict=True)}

    # Score all of them, and show the report.
    from transduce.evaluation.report import with_models

    report = _evaluate(
        systems, references, sources, ter=ter, test=test, resamples=resamples, worst=worst
    )
    report = with_models(report, [str(model) for model in models], perplexities)
    report = replace(report, source=str(test_set[0]), reference=str(test_set[1]))
    _show(report, json, markdown, html, svg)


def _split(
    files: Sequence[Path], source: Path | None, reference: Path | None
) -> tuple[list[Path], list[Path]]:
    """Return the models, and the two files of the test set."""
    if source and reference:
        return [*files], [source, reference]
    if source or reference:
        given, other = ("--source", "--reference") if source else ("--reference", "--source")
        raise InputError(f"{given} is given without {other}; give both, or none")
    if len(files) < 2:
        raise InputError(
            "the test set is missing; write transduce score MODEL SOURCE REFERENCE, or transduce "
            "score --hypothesis FILE SOURCE REFERENCE"
        )
    return [*files[:-2]], [*files[-2:]]


def _check(
    models: Sequence[Path], hypotheses: Sequence[Path], search: Mapping[str, Any], out: Path | None
) -> None:
    """Refuse arguments that do not go together."""
    systems = [*models, *hypotheses]
    if not systems:
        raise InputError(
            "there is nothing to score; name a model before SOURCE and REFERENCE, or files of "
            "translations: --hypothesis FILE"
        )
    for path in systems:
        if systems.count(path) > 1:
            raise InputError(f"{path} is given twice; give each system once")
    for path in models:
        if path.is_file():
            raise InputError(
                f"{path} is a file and no model; to score it write --hypothesis {path}"
            )
    if out and len(models) != 1:
        raise InputError(f"--out writes the translations of one model, but {len(models)} are given")
    for name, value in search.items():
        if not models and _is_given(value):
            raise InputError(f"--{name} is given without a model; files of translations have none")


def _check_ladder(
    models: Sequence[Path], hypotheses: Sequence[Path], ignored: Mapping[str, Any]
) -> None:
    """Refuse arguments that do not go together with --ladder."""
    if len(models) != 1 or hypotheses:
        raise InputError(
            f"--ladder has {len(models)} runs and {len(hypotheses)} hypothesis files; expected one "
            "run: transduce score --ladder RUN SOURCE REFERENCE"
        )
    for name, value in ignored.items():
        if _is_given(value):
            raise InputError(f"--{name} has no effect on the ladder; remove it, or --ladder")


def _is_given(value: Any) -> bool:
    """Return whether an option has another value than its default; 0 is no default."""
    return value is not False and value not in (None, "auto")


def _load(model: Path, beam: int | None, alpha: float | None, **options: Any) -> Translator:
    from transduce.recipe import adjusted
    from transduce.translation.translator import Translator

    settings = functools.partial(adjusted, beam_size=beam, alpha=alpha)
    with loading():
        return Translator(model, search=settings, **options)


def _translate(
    translator: Translator, sources: Sequence[str], model: Path, out: Path | None
) -> list[str]:
    from transduce.evaluation.test_set import translate_test_set

    texts = translate_test_set(translator, sources, f"translating with {model}")
    if out:
        lines = [text.replace("\n", " ") + "\n" for text in texts]
        write_output(out, "".join(lines))
    return texts


def _perplexity(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> Perplexity:
    from transduce.data.workers import progress
    from transduce.evaluation.perplexity import measure_perplexity

    with progress("perplexity", len(sources)) as advance:
        return measure_perplexity(translator, sources, references, advance=advance)


def _evaluate(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    ter: bool,
    **options: Any,
) -> Report:
    """Score all systems, with a progress bar."""
    from transduce.data.workers import progress
    from transduce.evaluation.report import evaluate, work

    with progress("scoring", work(len(systems), ter=ter)) as advance:
        return evaluate(systems, references, sources, ter=ter, advance=advance, **options)


def _climb(
    run: Path,
    sources: Sequence[str],
    references: Sequence[str],
    device: str | None,
    json: Path | None,
    markdown: Path | None,
) -> None:
    from transduce.evaluation.ladder import climb
    from transduce.evaluation.show import markdown_table, print_table
    from transduce.evaluation.test_set import translate_test_set

    ladder = climb(
        run,
        sources,
        references,
        device=device,
        translate=lambda translator, name: translate_test_set(translator, sources, name),
    )
    for reason in ladder.missing:
        print(f"transduce: {reason}", file=sys.stderr)
    if json != STANDARD_OUTPUT:
        print_table(ladder.table())
    if json:
        write_json(json, ladder.to_dict())
    if markdown:
        write_output(markdown, "\n".join(markdown_table(ladder.table())))


def _show(
    report: Report, json: Path | None, markdown: Path | None, html: Path | None, svg: Path | None
) -> None:
    """Print the report and write it to the files that were requested."""
    from transduce.evaluation.figure import length_chart
    from transduce.evaluation.show import print_report, to_html, to_markdown

    if json != STANDARD_OUTPUT:
        print_report(report)
    if json:
        write_json(json, report.to_dict())
    if markdown:
        write_output(markdown, to_markdown(report))
    if html:
        write_output(html, to_html(report))
    if svg:
        write_output(svg, length_chart(report))


COMMANDS: dict[str, Command] = {"score": score}
