"""Table 3: rows are runs of their own, kept and resumed; the report shows what exists."""

import functools
import json
import shutil
from dataclasses import replace

import pytest

from tests.paper.conftest import BUDGET, SMALL, trained
from transduce.cli.commands import run
from transduce.errors import DataError
from transduce.monitoring.software import COMMIT_VARIABLE
from transduce.paper import corpus, experiment, results, table3
from transduce.paper.corpus import find_corpus
from transduce.paper.experiment import Plan
from transduce.paper.reference import TABLE_3 as PAPER
from transduce.presets import BASE, TABLE_3
from transduce.recipe import to_toml


def command(text, out, *more):
    words = ["paper", "table3", str(text), *SMALL, "--out", str(out), "--budget", str(BUDGET)]
    return run([*words, "--device", "cpu", *more])


@pytest.fixture(scope="module")
def done(text, tmp_path_factory):
    """A folder in which base and one variation have been trained."""
    out = tmp_path_factory.mktemp("paper") / "out"
    assert command(text, out, "--rows", "base", "D-ls0.0") == 0
    return out


@pytest.fixture
def out(done, tmp_path):
    """A copy of it."""
    return shutil.copytree(done, tmp_path / "out")


def test_the_papers_rows_are_the_rows_of_the_presets():
    assert list(PAPER) == list(TABLE_3)


def test_a_result_says_what_was_measured_how_and_where(done):
    result = json.loads((done / "table3" / "base.json").read_text())
    assert result["commit"] == results.current_commit()
    assert result["hardware"]["cpu"]
    assert result["flops"] > 0
    assert result["seconds"] > 0
    assert "tokens_per_step = 400" in result["recipe"]
    assert result["numbers"]["steps"] == 4
    scores = json.loads((done / "table3" / "base" / "last" / "scores.json").read_text())
    assert result["numbers"]["perplexity"] == pytest.approx(scores["perplexity"])
    assert result["numbers"]["test"]["sentences"] == 4
    assert result["numbers"]["validation"]["bleu_signature"].startswith("nrefs:1")


def test_a_row_that_is_done_is_kept(text, out, capsys):
    before = (out / "table3" / "base.json").read_bytes()
    assert command(text, out, "--rows", "base") == 0
    assert (out / "table3" / "base.json").read_bytes() == before
    assert "table3 base: done already" in capsys.readouterr().err


def test_a_row_that_was_stopped_continues_where_it_was(text, done, tmp_path, monkeypatch):
    def stop(record):
        return record["kind"] == "step" and record["step"] == 2

    stopping = functools.partial(experiment.train, callbacks=[stop])
    monkeypatch.setattr(experiment, "train", stopping)
    assert command(text, tmp_path, "--rows", "base") == 1
    assert results.find_result(tmp_path, "table3", "base") is None

    monkeypatch.undo()
    assert command(text, tmp_path, "--rows", "base") == 0
    resumed = results.find_result(tmp_path, "table3", "base").numbers
    undisturbed = results.find_result(done, "table3", "base").numbers
    assert {**resumed, "tokens_per_second": 0} == {**undisturbed, "tokens_per_second": 0}
    assert [rung["name"] for rung in resumed["ladder"]][1] == "average of 4 checkpoints"


def test_a_row_that_is_done_keeps_its_model_and_not_its_checkpoints(done):
    assert not (done / "table3" / "base" / "checkpoints").exists()
    assert (done / "table3" / "base" / "last").is_dir()


def test_a_row_whose_result_is_lost_is_scored_again_without_training(text, out, capsys):
    path = out / "table3" / "base.json"
    before = json.loads(path.read_text())["numbers"]
    path.unlink()
    assert command(text, out, "--rows", "base") == 0
    now = json.loads(path.read_text())["numbers"]
    assert {**now, "ladder": ()} == {**before, "ladder": ()}  # its first steps need checkpoints
    assert "step 4/4" not in capsys.readouterr().err


def test_a_row_of_other_settings_is_refused(text, out, capsys):
    assert command(text, out, "--rows", "base", "--seed", "1", "--budget", "0.0001") == 2
    assert "was measured with training.steps = 4, not 10" in capsys.readouterr().err


def test_advice_names_no_options_of_other_commands(text, out, capsys):
    (out / "table3" / "base.json").unlink()
    assert command(text, out, "--rows", "base", "training.tokens_per_step=500") == 2
    about_the_run = capsys.readouterr().err
    assert "was started with training.tokens_per_step = 400, not 500; choose" in about_the_run
    assert command(text, out, "--rows", "A-h1", "data.tokenizer.vocab_size=410") == 2
    about_the_store = capsys.readouterr().err
    assert "text.store was made with other settings or text (data.tokenizer)" in about_the_store
    assert "--" not in about_the_run + about_the_store


@pytest.mark.parametrize(("name", "option"), [("seed", "--seed"), ("steps", "--budget")])
def test_a_setting_that_is_an_option_is_refused(name, option, text, tmp_path, capsys):
    setting = f"training.{name}=7"
    assert command(text, tmp_path, "--rows", "base", setting, "--dry-run") == 2
    assert f"{setting} is given as a setting; use {option}" in capsys.readouterr().err


@pytest.mark.parametrize("speed", ["0", "-5", "nan", "inf"])
def test_a_speed_that_is_none_is_refused(speed, text, tmp_path, capsys):
    assert command(text, tmp_path, "--dry-run", "--tokens-per-second", speed) == 2
    assert "expected a speed above 0" in capsys.readouterr().err


def test_a_speed_without_a_dry_run_is_refused(text, tmp_path, capsys):
    assert command(text, tmp_path / "out", "--tokens-per-second", "16") == 2
    assert "--tokens-per-second is given without --dry-run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"valid.en": "", "valid.de": ""}, "the validation set of"),
        ({"test.de": "\n \n\n\n"}, "the test set of"),
    ],
)
def test_a_set_that_cannot_be_scored_is_refused_before_training(
    changes, found, text, tmp_path, capsys
):
    copy = shutil.copytree(text.parent, tmp_path / "copy")
    for name, content in changes.items():
        (copy / name).write_text(content, encoding="utf-8")
    assert command(copy / text.name, tmp_path / "out", "--rows", "base") == 2
    message = capsys.readouterr().err
    assert found in message
    assert "no sources or no references; expected sentences and their translations" in message
    assert not (tmp_path / "out" / "table3").exists()


def test_empty_references_are_named_before_training(text, tmp_path, capsys):
    copy = shutil.copytree(text.parent, tmp_path / "copy")
    lines = (copy / "test.de").read_text(encoding="utf-8").splitlines()
    (copy / "test.de").write_text("\n".join([lines[0], "", *lines[2:]]) + "\n", encoding="utf-8")
    assert command(copy / text.name, tmp_path / "out", "--rows", "base") == 0
    message = "the test set of {} has 1 empty lines, the first is line 2; any translation of them"
    assert message.format(copy / text.name) in capsys.readouterr().err


def test_a_budget_that_is_too_large_is_answered_with_the_largest(text, tmp_path, capsys):
    assert command(text, tmp_path, "--dry-run", "--budget", "20") == 2
    assert "above 0 and at most 10" in capsys.readouterr().err


def test_an_unknown_row_is_answered_with_the_known_ones(text, tmp_path, capsys):
    assert command(text, tmp_path, "--rows", "F") == 2
    assert "'F' is not a row; the rows are base, A-h1, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wmt14-en-fr", "the corpus wmt14-en-fr is not in "),
        ("phrases", "the corpus phrases is not in "),
        ("wmt14-en-xx", "no corpus is called 'wmt14-en-xx'; did you mean "),
    ],
)
def test_a_dry_run_knows_the_names_of_corpora(name, message, tmp_path, capsys):
    assert command(name, tmp_path, "--dry-run") == 2
    assert message in capsys.readouterr().err


def test_a_corpus_that_cannot_be_fetched_says_where_its_advice_is_for(
    tmp_path, monkeypatch, capsys
):
    def get(name, folder):
        raise DataError("it cannot be downloaded; pass its folder as --mirror")

    monkeypatch.setattr(corpus, "get", get)
    assert command("multi30k-en-de", tmp_path, "--rows", "base") == 2
    folder = tmp_path / "corpus" / "multi30k-en-de"
    message = f"as --mirror, in: transduce data get multi30k-en-de --out {folder}\n"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("part", ["table1", "claims", "figures", "report"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(part, tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    assert run(["paper", part, "--out", str(file / "out")]) == 2
    assert capsys.readouterr().err == (
        f"transduce: {file / 'out'} cannot be written, because {file} is not a writable folder; "
        "choose another folder with --out\n"
    )


def test_a_group_is_all_of_its_rows_and_a_dry_run_trains_nothing(text, tmp_path, capsys):
    assert command(text, tmp_path / "out", "--rows", "B", "base", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["row", "B-dk16", "B-dk32", "base", "in"]
    assert not (tmp_path / "out").exists()


def test_settings_may_also_follow_the_rows(text, tmp_path, capsys):
    options = ("--dry-run", "--rows", "base", "training.tokens_per_step=7")
    assert command(text, tmp_path, *options) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["base", "4", "28"]


def test_a_recipe_may_also_follow_the_rows(text, tmp_path, capsys):
    words = ["paper", "table3", "--dry-run", "--out", str(tmp_path), "--rows", "base", str(text)]
    assert run(words) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("base ")


def test_a_dry_run_estimates_the_time_from_a_speed(text, tmp_path, capsys):
    options = ("--rows", "base", "C-N2", "--dry-run", "--tokens-per-second", "16")
    assert command(text, tmp_path, *options) == 0
    base, deeper, total = capsys.readouterr().out.splitlines()[1:]
    assert "1:40" in base  # 4 steps of 400 tokens, 16 per second
    assert "2:" in deeper
    assert "4:" in total
    assert "0.0 GB" in base


def test_a_dry_run_counts_rows_of_other_settings_as_not_done(text, out, capsys):
    options = ("--rows", "base", "--dry-run", "training.tokens_per_step=800")
    assert command(text, out, *options) == 0
    base, total = capsys.readouterr().out.splitlines()[1:]
    assert base.endswith("other settings")
    assert base.split()[4] == total.split()[5]  # the time
    assert command(text, out, "--rows", "base", "--dry-run") == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("done")


def test_a_dry_run_says_how_much_disk_the_checkpoints_take(text, tmp_path, capsys):
    words = ["paper", "table3", str(text), "--out", str(tmp_path), "--rows", "base", "big"]
    assert run([*words, "--dry-run", "data.tokenizer.vocab_size=37000"]) == 0
    base, big, _ = capsys.readouterr().out.splitlines()[1:]
    assert " 4.5 GB" in base  # 63M parameters, 12 bytes, 5 + 1 checkpoints
    assert " 54.0 GB" in big  # 214M, 20 + 1


def test_the_report_marks_rows_that_are_missing_or_from_another_commit(out, monkeypatch):
    monkeypatch.setenv(COMMIT_VARIABLE, "another")
    assert run(["paper", "report", "--out", str(out)]) == 0
    page = (out / "report.md").read_text(encoding="utf-8")
    commit = json.loads((out / "table3" / "base.json").read_text())["commit"]
    rows = {line.split(" | ")[0]: line for line in page.splitlines() if line.startswith("| ")}
    assert rows["| base"].endswith(f"commit {results.short(commit)} |")
    assert rows["| A-h1"].endswith("missing |")
    base, varied = (results.find_result(out, "table3", name) for name in ("base", "D-ls0.0"))
    share = varied.flops / base.flops
    share *= varied.numbers["tokens_per_second"] / base.numbers["tokens_per_second"]
    short = results.short(commit)
    assert rows["| D-ls0.0"].split(" | ")[10] == f"{share:.2f}"
    assert f"other commits, {short}" in page
    assert "Not measured yet: A-h1, " in page
    chart = (out / "figures" / "table3-differences.svg").read_text()
    assert ">D-ls0.0</text>" in chart
    assert chart.count("<circle") == 2
    assert "<table>" in (out / "report.html").read_text(encoding="utf-8")


def test_the_report_says_which_rows_cannot_be_compared_with_base(out):
    path = out / "table3" / "D-ls0.0.json"
    row = json.loads(path.read_text())
    recipe = row["recipe"].replace("tokens_per_step = 400", "tokens_per_step = 500")
    path.write_text(json.dumps({**row, "recipe": recipe}))
    results.save_result(
        out,
        replace(results.load_result(path), row="D-ls0.2", budget=0.5, corpus="other.toml", text=""),
    )
    assert run(["paper", "report", "--out", str(out)]) == 0
    page = (out / "report.md").read_text(encoding="utf-8")
    assert "| other settings than base: training.tokens_per_step |" in page
    assert "| budget 0.5, base has 4e-05; text other.toml, base has " in page


def test_rows_are_kept_wherever_their_text_lies_but_not_if_it_changes(
    text, out, tmp_path, monkeypatch, capsys
):
    before = (out / "table3" / "base.json").read_bytes()
    copy = shutil.copytree(text.parent, tmp_path / "copy")
    monkeypatch.chdir(copy)
    assert find_corpus(text.name, out) == find_corpus(str(copy / text.name), out)
    for recipe in (text.name, copy / text.name):
        assert command(recipe, out, "--rows", "base") == 0
        assert "table3 base: done already" in capsys.readouterr().err
    assert (out / "table3" / "base.json").read_bytes() == before

    # The same path, but other text.
    with (copy / "test.en").open("a", encoding="utf-8") as file:
        file.write("in 98 weeks\n")
    assert command(text.name, out, "--rows", "base") == 2
    assert f"was measured with other text than {text.name} names now" in capsys.readouterr().err


def test_text_is_compared_by_its_content_and_not_by_its_name(out):
    base = results.find_result(out, "table3", "base")
    moved = base.recipe.replace("train.en", "elsewhere.en")
    for row, changes in {
        "base-seed2": {"corpus": "moved.toml", "recipe": moved},
        "base-seed3": {"text": "0" * 64},
        "base-seed4": {"text": "", "recipe": moved},
        "base-seed5": {"text": "", "corpus": "other.toml"},
    }.items():
        results.save_result(out, replace(base, row=row, **changes))
    assert run(["paper", "report", "--out", str(out)]) == 0
    page = (out / "report.md").read_text(encoding="utf-8")
    notes = {}
    for line in page.splitlines():
        cells = line.split(" | ")
        if line.startswith("| base-seed") and len(cells) == 12:  # a row of Table 3
            notes[cells[0].removeprefix("| ")] = cells[-1].removesuffix(" |")
    name = base.corpus
    known = f"base has {name} ({base.text[:7]})"
    assert notes == {
        "base-seed2": "",
        "base-seed3": f"text {name} (0000000), {known}",
        "base-seed4": "other settings than base: data.corpora",
        "base-seed5": f"text other.toml, {known}",
    }


def test_rows_that_cannot_be_compared_are_neither_counted_nor_drawn(out):
    for name in ("D-ls0.0", "base"):
        other = replace(results.find_result(out, "table3", name), budget=0.5)
        row = name if name != "base" else "base-seed2"
        results.save_result(out, replace(other, row=row))
    assert run(["paper", "report", "--out", str(out)]) == 0
    page = (out / "report.md").read_text(encoding="utf-8")
    assert "One seed of base only" in page
    assert "in the paper's direction" not in page
    assert (out / "figures" / "table3-differences.svg").read_text().count("<circle") == 0


def test_differences_are_judged_as_far_as_they_exceed_chance(tmp_path):
    plan = Plan(data=BASE.data, budget=0.1)
    bleu = {"base": 20.0, "C-N2": 19.0, "C-N4": 20.6, "A-h1": 19.8}
    for row in table3.rows(list(bleu), plan):
        recipe = to_toml(row.recipe)
        results.save_result(
            tmp_path, trained("table3", row.name, recipe=recipe, bleu=bleu[row.name])
        )
        if row.name == "base":
            seed = trained("table3", "base-seed2", recipe=recipe, bleu=20.3)
            results.save_result(tmp_path, seed)
    paragraphs = table3.section(tmp_path, "").paragraphs
    assert paragraphs[1] == "sacreBLEU: 3,000 sentences, tok:13a."
    assert paragraphs[3] == (
        "1 of 3 rows differ from base in the paper's direction; not: C-N4 (+0.6, in the paper "
        "-0.5); no more than by chance: A-h1."
    )
    assert paragraphs[4].startswith("With 0.1 of the paper's steps, models are compared earlier")


def test_small_models_have_parameters_too():
    assert [results.millions(number) for number in (63_045_632, 4_947_480, 269_312)] == [
        "63", "4.9", "0.27"
    ]  # fmt: skip


def test_a_report_without_results_says_what_to_do(tmp_path, capsys):
    assert run(["paper", "report", "--out", str(tmp_path)]) == 2
    assert "has no results yet" in capsys.readouterr().err


def test_results_with_the_name_of_no_row_are_left_out(out):
    for name in ("notes", "notes-seed2"):
        result = replace(results.find_result(out, "table3", "base"), row=name)
        results.save_result(out, result)
    assert run(["paper", "report", "--out", str(out)]) == 0
    assert "notes" not in (out / "report.md").read_text(encoding="utf-8")


def test_a_damaged_result_is_named(out, capsys):
    (out / "table3" / "base.json").write_text('{"version": 1}')
    assert run(["paper", "report", "--out", str(out)]) == 2
    assert "base.json cannot be read as a result" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda row: row.pop("seconds"), "the key seconds is missing"),
        (lambda row: row.update(note="good"), "the key note is not known"),
        (lambda row: row.update(row="big"), "row is 'big', but its place is that of 'base'"),
        (lambda row: row.update(hardware=[]), "hardware is [], expected an object"),
        (lambda row: row["hardware"].update(gpus={}), "hardware.gpus is {}, expected a number"),
        (lambda row: row.update(curves={"loss": [[1]]}), "curves is"),
        (lambda row: row.update(curves={"loss": [[1, 1e200]]}), "curves is"),
        (lambda row: row["numbers"].pop("perplexity"), "the key numbers.perplexity is missing"),
        (
            lambda row: row["numbers"]["validation"].update(bleu="22.6"),
            'numbers.validation.bleu is "22.6", expected a number',
        ),
        (
            lambda row: row["numbers"].update(target_tokens=0),
            "numbers.target_tokens is 0, expected a number above 0",
        ),
        (
            lambda row: row["numbers"]["ladder"][1].pop("score"),
            "the key numbers.ladder[1].score is missing",
        ),
        (lambda row: row["numbers"].update(ladder=7), "numbers.ladder is 7, expected a list"),
        (lambda row: row.update(recipe="model = 5"), "has a recipe that cannot be read"),
        (lambda row: row.update(recipe="= 5"), "has a recipe that cannot be read"),
    ],
)
def test_a_result_edited_by_hand_is_refused_with_its_file_and_key(change, found, out, capsys):
    path = out / "table3" / "base.json"
    row = json.loads(path.read_text())
    change(row)
    path.write_text(json.dumps(row))
    assert run(["paper", "report", "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "table3/base.json" in line
    assert found in line


def test_a_row_with_an_infinite_loss_is_reported(out):
    path = out / "table3" / "D-ls0.0.json"
    row = json.loads(path.read_text())
    row["numbers"]["perplexity"] = None
    path.write_text(json.dumps(row))
    assert run(["paper", "report", "--out", str(out)]) == 0
    page = (out / "report.md").read_text(encoding="utf-8")
    assert "| D-ls0.0 | 0.0 | " not in page
