"""README.md, docs/results.md and docs/scaling.md quote the values of docs/figures.json."""

import re
from pathlib import Path

import pytest

from bench.figures import read_figures
from bench.scaling import MODELS, Scaling

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs/results.md").read_text(encoding="utf-8")
FIGURES = read_figures()

# Numbers in the README's results that name a setting and not a result.
SETTINGS = {"4", "512"}  # beam 4, a batch of 512 sentences
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?M?(?!\w)")


def flat(values):
    """Return all numbers of nested dictionaries and lists."""
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, list):
        return [values]
    numbers = []
    for value in values:
        numbers += flat(value)
    return numbers


def is_quote_of(quoted, value):
    """Return whether a number in a text is this value, rounded to the digits that the text shows."""
    text = quoted.replace(",", "")
    if text.endswith("M"):
        text = text[:-1]
        value = value / 1e6
    decimals = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-decimals + 1e-9


def quoted_numbers(text):
    return [number.rstrip(",") for number in NUMBER.findall(text)]


def section_of(document, title):
    """Return the text below a heading, up to the next heading of the same or a higher level."""
    match = re.search(rf"^(#+) {re.escape(title)}\n", document, flags=re.MULTILINE)
    assert match, f"there is no section {title!r}"
    level = len(match[1])
    rest = document[match.end() :]
    end = re.search(rf"^#{{1,{level}}} ", rest, flags=re.MULTILINE)
    return rest[: end.start()] if end else rest


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_command_hardware_and_commit(name):
    figure = FIGURES[name]
    assert set(figure) == {"section", "command", "hardware", "commit", "values"}
    assert re.fullmatch(r"[0-9a-f]{7,40}", figure["commit"])
    assert figure["command"]
    assert figure["hardware"]
    assert all(isinstance(number, int | float) for number in flat(figure["values"]))


@pytest.mark.parametrize("name", FIGURES)
def test_the_results_quote_every_figure_to_the_digit(name):
    figure = FIGURES[name]
    quoted = {float(number.replace(",", "")) for number in plain_numbers(figure["section"])}
    missing = [number for number in flat(figure["values"]) if float(number) not in quoted]
    assert missing == []


def plain_numbers(section):
    """Return the numbers of a section of docs/results.md, with both ends of ranges such as 1-2."""
    text = re.sub(r"(?<=\d)-(?=\d)", " ", section_of(RESULTS, section))
    return [number for number in quoted_numbers(text) if not number.endswith("M")]


def test_every_number_in_the_results_of_the_readme_is_a_figure():
    every_value = flat([figure["values"] for figure in FIGURES.values()])
    numbers = quoted_numbers(section_of(README, "Results"))
    assert len(numbers) > 5
    wrong = []
    for number in numbers:
        if number in SETTINGS:
            continue
        if not any(is_quote_of(number, value) for value in every_value):
            wrong.append(number)
    assert wrong == []


@pytest.mark.parametrize("model", MODELS)
def test_scaling_starts_from_the_measured_step_and_throughput_of_one_gpu(model):
    values = FIGURES[f"train-{model}-cuda"]["values"]["transduce"]
    one = Scaling(model, 1, 25_000)
    assert one.compute_ms == values["step_ms"]
    assert one.tokens_per_second == values["target_tokens_per_second"]


@pytest.mark.parametrize(
    ("quoted", "value", "expected"),
    [
        ("3.4", 3.44, True),
        ("3.5", 3.44, False),
        ("1,116,000", 1_116_000, True),
        ("1,115,000", 1_116_000, False),
        ("2.2M", 2_206_005, True),
        ("2.3M", 2_206_005, False),
        ("270", 274, False),
        ("0.5", 0.46, True),
    ],
)
def test_a_quote_is_rounded_and_not_changed(quoted, value, expected):
    assert is_quote_of(quoted, value) is expected
