"""The doctor: an exact report for every nasty corpus, and a cleaned copy that is whole or absent."""

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.cleaning.nasty import CASES, DE, EN, LONG_DE, LONG_EN, LONG_FR, Case, lines
from transduce.cli.commands import run
from transduce.config import CleanConfig, CorpusConfig, DataConfig
from transduce.corpora.phrases import phrases
from transduce.data.cleaning import doctor
from transduce.data.cleaning.doctor import examine, from_arguments
from transduce.data.cleaning.rules import RULES
from transduce.errors import ConfigError, DataError, install_command

MESSY = Case(
    "messy",
    {
        "x.en": lines(*EN, "Good morning.", "", "Tab\there", "a\0b", "one " * 40),
        "x.de": lines(*DE, "Guten Morgen.", "leer", "Hier\tTab", "a\u2028b", "eins"),
    },
    pairs=8,
    kept=4,
)


def write(case, folder):
    for name, content in case.files.items():
        (folder / name).write_bytes(content)


def report_of(case, folder, monkeypatch, *overrides, **options):
    monkeypatch.chdir(folder)
    write(case, folder)
    return examine(
        *from_arguments([*case.arguments, *overrides], case.test, *case.languages), **options
    )


def found(report):
    return {rule: finding.count for rule, finding in report.findings.items()}


def test_there_are_sixty_nasty_corpora_and_every_rule_is_in_one():
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    assert {rule for case in CASES for rule in case.findings} == set(RULES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_nasty_corpus_gets_its_exact_report(case, tmp_path, monkeypatch):
    report = report_of(case, tmp_path, monkeypatch)
    assert {
        "findings": {
            rule: (finding.count, finding.first) for rule, finding in report.findings.items()
        },
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


@settings(max_examples=150, deadline=None)
@given(source=st.binary(max_size=200), target=st.binary(max_size=200))
def test_no_bytes_at_all_make_it_fail(tmp_path_factory, source, target):
    folder = tmp_path_factory.mktemp("any")
    (folder / "x.en").write_bytes(source + b"\nend\n")
    (folder / "x.de").write_bytes(target + b"\nend\n")
    data = DataConfig(corpora=(CorpusConfig(source=("x.en",), target=("x.de",)),))
    report = examine(data, folder, out=folder / "out")
    assert bool(report.errors) != (folder / "out").exists()
    assert report.kept == report.pairs - sum(report.dropped.values())
    json.loads(report.to_json())


def test_a_recipe_names_corpora_and_held_out_sets_beside_it(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "x.tsv").write_bytes(lines("one\teins", f"{LONG_EN}\t{LONG_DE}", "two\tzwei"))
    (folder / "valid.tsv").write_bytes(lines(f"{LONG_EN}\tanders"))
    (tmp_path / "test.tsv").write_bytes(lines("TWO\tZwei!"))
    (folder / "recipe.toml").write_text(
        '[data.clean]\noff = ["copy"]\n[[data.corpora]]\nsource = "x.tsv"\n[[data.validation]]\nsource = "valid.tsv"\n'
    )
    monkeypatch.chdir(tmp_path)
    data, base = from_arguments(["data/recipe.toml", "data.clean.max_words=9"], ["test.tsv"])
    assert (data.clean.off, data.clean.max_words) == (("copy",), 9)
    report = examine(data, base)
    assert (found(report), report.kept) == ({"leak": 2, "too-long": 1}, 1)
    assert report.findings["leak"].first == "data/x.tsv:2"


@pytest.mark.parametrize(
    ("setting", "counts", "kept"),
    [
        ("off=['duplicate', 'copy']", {}, 3),
        ("off=['duplicate']", {"copy": 1}, 2),
        ("warn=['duplicate']", {"duplicate": 1, "copy": 1}, 2),
        ("max_characters=4", {"duplicate": 1, "copy": 1, "too-long": 2}, 0),
        ("min_letters=5", {"duplicate": 1, "copy": 1, "too-short": 3}, 0),
    ],
)
def test_a_rule_can_be_switched_off_softened_hardened_and_bounded(
    tmp_path, monkeypatch, setting, counts, kept
):
    case = Case(
        "settings",
        {"x.en": lines("same", "hi", "hi"), "x.de": lines("same", "hallo", "hallo")},
        3,
        1,
    )
    report = report_of(case, tmp_path, monkeypatch, f"data.clean.{setting}")
    assert (found(report), report.kept) == (counts, kept)


def test_near_duplicates_are_dropped_on_demand(tmp_path, monkeypatch):
    case = Case("near", {"x.en": lines("hi", "Hi!"), "x.de": lines("hallo", "Hallo!")}, 2, 1)
    report = report_of(case, tmp_path, monkeypatch, 'data.clean.drop=["near-duplicate"]')
    assert (report.kept, report.dropped) == (1, {"near-duplicate": 1})


@pytest.mark.parametrize("setting", ["off", "warn", "drop"])
def test_an_unknown_rule_is_refused_with_the_known_ones(tmp_path, monkeypatch, setting):
    with pytest.raises(
        ConfigError,
        match=rf"data\.clean\.{setting} names 'dupes', which is not a rule; known: .*duplicate",
    ):
        report_of(MESSY, tmp_path, monkeypatch, f"data.clean.{setting}=['dupes']")


def test_a_rule_about_files_cannot_drop_pairs(tmp_path, monkeypatch):
    with pytest.raises(
        ConfigError,
        match=r"data\.clean\.drop names crlf, which is about files, not pairs; it can only warn",
    ):
        report_of(MESSY, tmp_path, monkeypatch, "data.clean.drop=['crlf']")


def test_bounds_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match=r"data\.clean\.max_words is 0; it must be at least 1"):
        CleanConfig(max_words=0)
    with pytest.raises(ConfigError, match=r"data\.clean\.max_ratio is 0\.5"):
        CleanConfig(max_ratio=0.5)
    with pytest.raises(ConfigError, match="wrong-language, but the language of only"):
        CleanConfig(drop=("wrong-language",))


def test_languages_are_identified_on_a_sample_or_in_full(tmp_path, monkeypatch):
    files = {
        name: lines(*(f"{text} {n}" for n in "abcdefghi"))
        for name, text in (("x.en", LONG_EN), ("x.de", LONG_FR))
    }
    case = Case("French", files, 9, 9)
    sampled = report_of(case, tmp_path, monkeypatch, "data.clean.language_sample=4")
    assert (sampled.findings["wrong-language"].count, sampled.findings["wrong-language"].of) == (
        4,
        4,
    )
    full = report_of(
        case,
        tmp_path,
        monkeypatch,
        "data.clean.language_sample=0",
        "data.clean.drop=['wrong-language']",
    )
    assert (
        full.findings["wrong-language"].count,
        full.findings["wrong-language"].of,
        full.kept,
    ) == (9, None, 0)


def test_without_the_identifier_the_rest_is_still_examined(tmp_path, monkeypatch):
    from transduce.data.cleaning import langid

    langid._identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    report = report_of(MESSY, tmp_path, monkeypatch)
    assert (report.pairs, report.kept) == (8, 4)
    assert report.notes == [
        "languages were not identified: py3langid is not installed; install it with: "
        + install_command("data")
    ]


def test_examples_can_be_shown_anywhere(tmp_path, monkeypatch):
    report = report_of(MESSY, tmp_path, monkeypatch)
    assert asdict(report.findings["control-characters"].examples[0]) == {
        "file": "x.en",
        "line": 7,
        "source": "a\\x00b",
        "target": "a\\u2028b",
    }


def test_the_cleaned_corpus_is_what_was_kept_and_the_rest_has_its_reason(tmp_path, monkeypatch):
    report = report_of(MESSY, tmp_path, monkeypatch, out=tmp_path / "new" / "out")
    out = tmp_path / "new" / "out"
    assert sorted(path.name for path in out.iterdir()) == ["dropped.tsv", "x.de", "x.en"]
    assert (out / "x.en").read_bytes() == lines(*EN, "Tab\there")
    assert (out / "x.de").read_bytes() == lines(*DE, "Hier\tTab")
    assert (out / "dropped.tsv").read_bytes() == lines(
        "reason\tfile\tline\tsource\ttarget",
        "duplicate\tx.en\t4\tGood morning.\tGuten Morgen.",
        "empty\tx.en\t5\t\tleer",
        "control-characters\tx.en\t7\ta\0b\ta\u2028b",
        f"length-ratio\tx.en\t8\t{'one ' * 40}\teins",
    )
    assert report.dropped == {
        "duplicate": 1,
        "empty": 1,
        "control-characters": 1,
        "length-ratio": 1,
    }
    assert (tmp_path / "x.en").read_bytes() == MESSY.files["x.en"]
    monkeypatch.chdir(out)
    again = examine(*from_arguments(["x.en", "x.de"]))
    assert (again.pairs, again.kept) == (report.kept, report.kept)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "10 MB" not in case.name], ids=lambda case: case.name
)
def test_every_nasty_corpus_is_cleaned_or_refused(case, tmp_path, monkeypatch):
    out = tmp_path / "out"
    report = report_of(case, tmp_path, monkeypatch, out=out)
    litter = [path.name for path in tmp_path.iterdir() if path.name not in case.files]
    assert litter == ([] if report.errors else ["out"])
    if not report.errors:
        kept = [path for path in out.iterdir() if path.name != "dropped.tsv"]
        assert sum(path.read_bytes().count(b"\n") for path in kept) == 2 * report.kept
        assert (out / "dropped.tsv").read_bytes().count(b"\n") == 1 + report.pairs - report.kept


def test_the_cleaned_corpus_stays_parallel_if_line_breaks_are_kept(tmp_path, monkeypatch):
    files = {"x.jsonl": b'{"en": "one\\ntwo", "de": "eins zwei"}\n'}
    case = Case("break", files, 1, 1, arguments=["x.jsonl"], languages=("en", "de"))
    report_of(
        case, tmp_path, monkeypatch, "data.clean.warn=['line-separators']", out=tmp_path / "out"
    )
    assert (tmp_path / "out" / "x.en").read_bytes() == b"one two\n"
    assert (tmp_path / "out" / "x.de").read_bytes() == b"eins zwei\n"


def test_corpora_of_one_name_do_not_write_over_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.en.gz").write_bytes(gzip.compress(lines(f"in {folder}")))
        (tmp_path / folder / "train.de.gz").write_bytes(gzip.compress(lines(f"im {folder}")))
    names = [f"{folder}/train.{language}.gz" for folder in "ab" for language in ("en", "de")]
    examine(*from_arguments(names), out=tmp_path / "out")
    written = {
        path.name: path.read_text()
        for path in (tmp_path / "out").iterdir()
        if path.name != "dropped.tsv"
    }
    assert written == {
        "train.en": "in a\n",
        "train.de": "im a\n",
        "train-2.en": "in b\n",
        "train-2.de": "im b\n",
    }


def test_command_line_prints_a_table_and_writes_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(MESSY, tmp_path)
    (tmp_path / "y.tsv").write_bytes(lines(f"{EN[0]}\t{DE[0]}"))
    command = ["doctor", "x.en", "x.de", "--test", "y.tsv", "--json", "report.json", "--out", "out"]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "duplicate" in shown
    assert "8 pairs (en-de): 3 kept, 5 dropped" in shown
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["findings"]["leak"]["count"] == 2
    assert report["findings"]["leak"]["first"] == "x.en:1"
    assert (tmp_path / "out" / "x.en").read_bytes() == lines(*EN[1:], "Tab\there")

    assert run([*command[:5], "--json", "report.json"]) == 2
    assert (
        capsys.readouterr().err
        == "transduce: report.json exists already and is never overwritten; choose another name\n"
    )
    assert run([*command[:5], "--out", "out"]) == 2
    assert (
        capsys.readouterr().err
        == "transduce: out exists already and is never overwritten; choose another name\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.en"], "x.en has no parallel file; expected source and target, or a container"),
        (["no.toml"], "no.toml does not exist; expected a recipe"),
        (["no.en", "x.de"], "no.en does not exist; expected a text file"),
        (
            ["x.en", "short.de", "--out", "out"],
            "short.de has 1 lines but x.en has 8; they must be parallel",
        ),
        (
            ["x.en", "x.de", "--test", "x.en", "short.de"],
            "short.de has 1 lines but x.en has 8; they must be parallel",
        ),
        (["empty.en", "empty.en", "--out", "out"], "no usable pair is left of 2 (2 empty)"),
        (["data.clean.max_words=3"], "there is no corpus to examine"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    write(MESSY, tmp_path)
    (tmp_path / "short.de").write_text("kurz\n")
    (tmp_path / "empty.en").write_text("\n\n")
    before = sorted(tmp_path.iterdir())
    assert run(["doctor", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"transduce: {message}")
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("place", ["x.en/report.json", "empty"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    tmp_path, monkeypatch, capsys, place
):
    monkeypatch.chdir(tmp_path)
    write(MESSY, tmp_path)
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(doctor, "examine", lambda *arguments, **options: pytest.fail("examined"))
    assert run(["doctor", "x.en", "x.de", "--json", place]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"transduce: {place} cannot be written: ")
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_killed_doctor_left_is_cleared_by_the_next(tmp_path, monkeypatch):
    write(MESSY, tmp_path)
    script = (
        "import os; from pathlib import Path; from transduce.data.cleaning.doctor import examine, from_arguments;"
        "examine(*from_arguments(['x.en', 'x.de']), out=Path('out'), progress=lambda pairs: os._exit(9))"
    )
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    killed = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=here, check=False)
    assert killed.returncode == 9
    left = tmp_path / ".out.unfinished"
    (left / "cleaned" / "stale.en").touch()
    report_of(MESSY, tmp_path, monkeypatch, out=tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.de", "x.en"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "dropped.tsv",
        "x.de",
        "x.en",
    ]


def test_two_doctors_do_not_write_into_one_folder(tmp_path, monkeypatch):
    def meanwhile(pairs):
        with pytest.raises(DataError, match="another transduce doctor is at work in"):
            report_of(MESSY, tmp_path, monkeypatch, out=tmp_path / "out")

    report_of(MESSY, tmp_path, monkeypatch, out=tmp_path / "out", progress=meanwhile)
    assert (tmp_path / "out" / "x.en").read_bytes() == lines(*EN, "Tab\there")


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """A limit on the size of files acts like a full disk: writing fails in the same place."""
    (tmp_path / "x.en").write_bytes(lines(*(f"sentence {n}" for n in range(20_000))))
    (tmp_path / "x.de").write_bytes(lines(*(f"Satz {n}" for n in range(20_000))))
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        "from transduce.cli.commands import run; sys.exit(run(sys.argv[1:]))"
    )
    command = [
        sys.executable,
        "-c",
        script,
        "doctor",
        "x.en",
        "x.de",
        "--out",
        "out",
        "--processes",
        "1",
    ]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    result = subprocess.run(
        command, cwd=tmp_path, env=here, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (
        2,
        "transduce: out cannot be written: the file size limit is reached, see ulimit -f; choose another "
        "folder, or make room\n",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.de", "x.en"]


def corpus(tmp_path, change=lambda text: text, target_language="de", pairs=400):
    """Phrases in English and another language, in x.en and x.de."""
    found = phrases("en", target_language, pairs)["train"]
    for side, name in enumerate(("x.en", "x.de")):
        text = "".join(f"{change(pair[side])}\n" for pair in found)
        (tmp_path / name).write_text(text, encoding="utf-8")


def tokenize(text):
    return re.sub(r"(\w)([.,])", r"\1 \2", text) + " ."


def test_a_good_corpus_gets_its_facts_a_verdict_and_the_next_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path)
    assert run(["doctor", "x.en", "x.de"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"source: looks like 'en', \d+ words \(median\), 95% have at most \d+", shown)
    assert "target: looks like 'de'" in shown
    assert "suggested: preset tiny, a vocabulary of " in shown
    assert "verdict: good: " in shown
    assert shown.endswith("next: transduce new FOLDER --source x.en --target x.de\n")


def test_a_file_in_another_language_than_its_name_is_not_usable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path, target_language="fr")
    assert run(["doctor", "x.en", "x.de", "--json", "report.json"]) == 2
    shown = capsys.readouterr()
    assert "verdict: not usable: the target text looks like 'fr', not 'de'" in shown.out
    assert shown.err.endswith("pass --target-language fr\n")
    assert "next:" not in shown.out
    verdict = json.loads((tmp_path / "report.json").read_text())["verdict"]
    assert not verdict["usable"]
    assert verdict["sides"][1]["language"] == "fr"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (tokenize, "tokenized"),
        (str.lower, "lower-cased"),
        (lambda text: tokenize(text.lower()), "tokenized and lower-cased"),
    ],
)
def test_tokenized_and_lower_cased_text_is_noticed(change, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path, change)
    assert run(["doctor", "x.en", "x.de"]) == 0
    shown = capsys.readouterr().out
    assert f"verdict: usable, but the source text is {kind}, and a model learns" in shown
    assert f"the target text is {kind}" in shown


def test_the_next_command_is_about_what_was_examined(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path)
    assert run(["doctor", "x.en", "x.de", "--out", "out"]) == 0
    expected = "next: transduce new FOLDER --source out/x.en --target out/x.de\n"
    assert capsys.readouterr().out.endswith(expected)
    assert run(["new", "new", "--source", "x.en", "--target", "x.de"]) == 0
    assert run(["doctor", "new/recipe.toml"]) == 0
    assert capsys.readouterr().out.endswith("next: transduce train new/recipe.toml\n")
