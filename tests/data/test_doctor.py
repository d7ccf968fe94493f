"""The doctor: an exact report for every nasty corpus, and a cleaned copy that is whole or absent."""

import pytest

from tests.data.nasty import CASES
from transduce.data.doctor import examine, from_arguments


def report_of(case, folder, monkeypatch, **options):
    monkeypatch.chdir(folder)
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    return examine(*from_arguments(case.arguments, case.test, *case.languages), **options)


def test_there_are_sixty_nasty_corpora():
    assert len({case.name for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_nasty_corpus_gets_its_exact_report(case, tmp_path, monkeypatch):
    report = report_of(case, tmp_path, monkeypatch)
    assert {
        "findings": {rule: (finding.count, finding.first) for rule, finding in report.findings.items()},
        "pairs": report.pairs,
        "kept": report.kept,
        "errors": report.errors,
        "notes": report.notes,
    } == {
        "findings": case.findings,
        "pairs": case.pairs,
        "kept": case.kept,
        "errors": case.errors,
        "notes": case.notes,
    }
