"""Learn and Runs in a real browser: a real model walks, and the reader changes its numbers."""

import json
import re
import time

import pytest

from tests import trained
from transduce.monitoring.progress import Progress
from transduce.monitoring.run_summary import summaries, summary
from transduce.page.standalone import write_page
from transduce.presets import TINY

pytestmark = pytest.mark.browser
TEXT = "The train leaves at ten."


def expect(locator):
    from playwright.sync_api import expect as wait_for

    return wait_for(locator)


@pytest.fixture(scope="module")
def translator():
    from transduce.translation.translator import Translator

    model, tokenizer, recipe = trained.train(steps=60, rows=16)
    return Translator.from_model(model, tokenizer, tokenizer, recipe)


@pytest.fixture(scope="module")
def walk(translator):
    """A function that returns the walkthrough as JSON, as the server would."""
    from transduce.errors import TransduceError
    from transduce.inspection.walkthrough import walkthrough

    known = {}

    def answer(text=TEXT, layer=1, head=1):
        key = (text, layer, head)
        if key not in known:
            try:
                found = walkthrough(translator, text, layer=layer, head=head)
                known[key] = (200, found.to_dict())
            except TransduceError as error:
                known[key] = (422, {"error": str(error)})
        return known[key]

    return answer


@pytest.fixture
def lesson(open_page, walk):
    """A function that opens a lesson and waits until it is drawn."""

    def open_lesson(query=f"text={TEXT}", **options):
        page = open_page("#translate", **options)
        page.route("**/v1/walkthrough", lambda route: fulfil(route, walk))
        page.evaluate("address => { location.hash = address; }", f"learn?{query}")
        expect(page.locator("#step-next-token, .problem")).to_be_visible(timeout=20_000)
        return page

    return open_lesson


def fulfil(route, walk):
    asked = json.loads(route.request.post_data)
    status, answer = walk(**{name: asked[name] for name in ("text", "layer", "head")})
    route.fulfill(status=status, json=answer)


def section(page, name):
    return page.locator(f"section[aria-labelledby='step-{name}']")


def table(part, number=0):
    """The numbers that a table shows when they are pointed at."""
    return (
        part.locator("table")
        .nth(number)
        .evaluate(
            "table => [...table.tBodies[0].rows].map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))"
        )
    )


def test_every_step_has_words_a_formula_code_and_numbers(lesson, walk):
    page = lesson()
    steps = walk()[1]["steps"]
    assert page.locator(".lesson section").count() == len(steps) == 15
    for step in steps:
        part = section(page, step["name"])
        expect(part.locator("h2")).to_contain_text(step["title"])
        expect(part.locator(".lead")).to_have_text(step["explanation"])
        expect(part.locator("math")).to_be_visible()
        assert part.locator(".source mark").count() == len(step["code"]["highlight"])
        part.locator("summary").click()
        assert part.locator("details pre").text_content() == step["code"]["lines"]
    drawn = (
        section(page, "scale")
        .locator("math")
        .evaluate("node => node.getBoundingClientRect().height")
    )
    assert drawn > 25  # a fraction, not a line of letters


def test_the_numbers_on_the_page_are_those_of_the_model(lesson, walk):
    page = lesson()
    data = {step["name"]: step["data"] for step in walk()[1]["steps"]}
    count = len(walk()[1]["source"])
    for name, key in (
        ("scores", "scores"),
        ("softmax", "weights"),
        ("mask", "weights"),
        ("cross-attention", "weights"),
    ):
        shown = [cell for row in table(section(page, name)) for cell in row]
        expected = data[name][key]["data"]
        assert len(shown) == len(expected)
        for text, value in zip(shown, expected, strict=True):
            assert (
                text == ""
                if name == "mask" and value == 0
                else abs(float(text) - value) <= 0.0051 + abs(value) / 20
            )
    assert len(table(section(page, "softmax"))) == count
    best = data["next-token"]["probability"]["data"][0]
    expect(section(page, "next-token")).to_contain_text(
        f"{best * 100:.0f} %" if best > 0.0995 else f"{best * 100:.1f} %"
    )


def test_a_larger_divisor_flattens_the_weights_in_all_later_steps(lesson):
    page = lesson()
    scale, softmax = section(page, "scale"), section(page, "softmax")

    def entropy():
        return float(re.search(r"Entropy ([\d.]+)", scale.locator("p").last.text_content())[1])

    before, weights = entropy(), table(softmax)
    slider = scale.locator("input[type=range]")
    slider.fill("16")
    flat = entropy()
    assert flat > before
    assert table(softmax) != weights
    expect(softmax).to_contain_text("divided by 16.0")
    slider.fill("0.5")
    assert entropy() < before


def test_without_the_mask_attention_goes_to_the_future(lesson):
    page = lesson()
    mask = section(page, "mask")
    size = len(table(mask))
    assert all(
        table(mask)[row][column] == "" for row in range(size) for column in range(row + 1, size)
    )
    mask.locator("input[type=checkbox]").uncheck()
    assert all(cell for row in table(mask) for cell in row)
    expect(mask).to_contain_text("of the attention now goes to tokens that are not written yet")


def test_positions_can_be_moved_and_taken_away(lesson, walk):
    page = lesson()
    data = walk()[1]["steps"][2]["data"]
    position = section(page, "position")
    position.locator("button", has_text="no positions").click()
    expect(position.locator(".so-far")).to_have_text(data["translations"][-1])
    expect(position).to_contain_text("The largest change of a weight is")
    before = position.locator("polyline").first.get_attribute("points")
    position.locator("input[type=range]").fill("5")
    assert position.locator("polyline").first.get_attribute("points") != before


def test_the_temperature_changes_the_distribution_as_torch_does(lesson, translator, walk):
    import torch

    page = lesson()
    distribution = section(page, "distribution")
    logits = torch.tensor(walk()[1]["steps"][13]["data"]["logits"]["data"][:2])

    def ratio():
        return [
            bar.evaluate("node => parseFloat(node.style.width)")
            for bar in distribution.locator(".bar").all()[:2]
        ]

    for stop, temperature in (("2", 0.5), ("6", 2.0)):
        distribution.locator("input[type=range]").fill(stop)
        best, second = ratio()
        expected = torch.exp((logits[1] - logits[0]) / temperature).item()
        assert (
            second / best == pytest.approx(expected, rel=0.05) or second == 0.5
        )  # the shortest bar


def test_other_changes_have_their_effect(lesson):
    page = lesson()
    for name, change, words in (
        ("embedding", lambda part: part.locator("input").uncheck(), "mean length"),
        (
            "weighted-sum",
            lambda part: part.locator("select").nth(1).select_option("0"),
            "The result changes by",
        ),
        ("residual-norm", lambda part: part.locator("input").uncheck(), "The norm takes"),
        ("feed-forward", lambda part: part.locator("input").fill("0"), "With 1 neurons"),
        ("cross-attention", lambda part: part.locator("select").nth(1).select_option("0"), "reads"),
        ("next-token", lambda part: part.locator("button").click(), "All tokens up to here"),
    ):
        part = section(page, name)
        before = part.text_content()
        change(part)
        expect(part).to_contain_text(words)
        assert part.text_content() != before, name


def test_no_token_is_named_where_all_are_read_alike(open_page, walk):
    """A start token whose vector is zero, as in the models of the package, attends to all alike."""
    answer = json.loads(json.dumps(walk()[1]))
    count = len(answer["source"])
    (weights,) = [s["data"]["weights"] for s in answer["steps"] if s["name"] == "cross-attention"]
    weights["data"][:count] = [1 / count] * count
    page = open_page("#translate")
    page.route("**/v1/walkthrough", lambda route: route.fulfill(json=answer))
    page.evaluate("location.hash = 'learn?text=ten'")
    cross = section(page, "cross-attention")
    expect(cross).to_contain_text(f"head 1 reads {count} tokens alike")
    cross.locator("select").nth(1).select_option("0")
    expect(cross).to_contain_text(f"head 1 reads {count - 1} tokens alike")
    cross.locator("select").nth(0).select_option("1")
    expect(cross).to_contain_text("most (")


def test_layer_and_head_are_chosen_and_stay_in_the_address(lesson):
    page = lesson()
    part = section(page, "queries-keys-values")
    part.locator("select").nth(0).select_option("2")
    expect(section(page, "queries-keys-values").locator(".lead")).to_contain_text("encoder layer 2")
    section(page, "heads").locator("button.cell").nth(3).click()
    expect(section(page, "queries-keys-values").locator(".lead")).to_contain_text("Head 4")
    assert "layer=2" in page.url
    assert "head=4" in page.url


def test_arrow_keys_and_buttons_walk_from_step_to_step(lesson):
    page = lesson()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#step-embedding")).to_be_focused()
    expect(page.locator(".steps [aria-current=step]")).to_contain_text("A vector for each token")
    page.click("text=Next →")
    expect(page.locator("#step-position")).to_be_focused()
    assert "step=position" in page.url
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#step-embedding")).to_be_focused()
    page.locator(".steps button", has_text="Read the source").click()
    expect(page.locator(".steps [aria-current=step]")).to_contain_text("Read the source")
    page.wait_for_timeout(800)

    # A link opens the same step.
    again = lesson(page.url.partition("?")[2])
    expect(again.locator("#step-cross-attention")).to_be_focused()
    expect(again.locator("#step-cross-attention")).to_be_in_viewport()


def test_a_table_is_read_by_keys_and_pointer(lesson, walk):
    page = lesson()
    softmax = section(page, "softmax")
    source = walk()[1]["source"]
    value = walk()[1]["steps"][6]["data"]["weights"]["data"]
    softmax.locator("tbody td").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#tip")).to_have_text(
        f"{source[1]}, {source[1]}: {value[len(source) + 1]:.3f}"
    )
    page.keyboard.press("Enter")
    expect(softmax.locator("tr.chosen th")).to_have_text(source[1])
    softmax.locator("tbody tr").nth(3).locator("td").nth(2).click()
    expect(softmax.locator("tr.chosen th")).to_have_text(source[3])
    expect(section(page, "scale").locator("select")).to_have_value("3")


def test_a_mistake_is_one_line(lesson):
    page = lesson(f"text={TEXT}&layer=9")
    expect(page.locator(".problem")).to_have_text("layer is 9; this model has the layers 1 to 2")
    page.watch.errors.clear()  # the browser reports the status of the answer


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("example", "The animal didn't cross the street because it was too tired."),
        ("back", "Die Frau überquerte die Straße nicht, weil sie zu müde war."),
        ("british", "The animal didn't cross the street because it was too tired."),
    ],
)
def test_the_first_lesson_is_in_the_language_of_the_source(lesson, model, text):
    page = lesson(f"model={model}")
    expect(page.locator(".bitext p").first).to_have_text(text)
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value(text)

    # Another model explains its own example, also after a step has put the text into the address.
    page.keyboard.press("ArrowRight")
    assert "text=" in page.url
    page.select_option("#models select", "other" if model == "back" else "back")
    expect(page.locator(".bitext p").first).to_have_text(
        re.compile("^The" if model == "back" else "^Die")
    )


def test_a_sentence_is_asked_for_where_there_is_no_example(open_page, walk):
    page = open_page("#learn?model=nordic")
    page.route("**/v1/walkthrough", lambda route: fulfil(route, walk))
    field = page.get_by_role("textbox", name="Sentence")
    expect(field).to_have_attribute("placeholder", "A sentence in Norwegian Bokmål")
    expect(page.locator(".lesson")).to_have_text("Type a sentence, then press Explain.")
    field.fill(TEXT)
    page.click("button:text-is('Explain')")
    expect(page.locator(".bitext p").first).to_have_text(TEXT)
    assert sum(url.endswith("walkthrough") for url in page.watch.requests) == 1


def test_markup_in_a_sentence_stays_text(lesson):
    page = lesson("text=1 %3C 2 %26 <b>three</b>")
    expect(page.locator(".bitext p").first).to_have_text("1 < 2 & <b>three</b>")
    assert page.locator(".bitext b").count() == 0


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (380, "light")])
def test_learn_is_accessible_and_fits(lesson, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = lesson(width=width, scheme=scheme)
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [
        (item["id"], item["nodes"][0]["html"])
        for item in found
        if item["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_lesson_works_in_a_file_without_a_server(open_page, walk, tmp_path):
    from . import example

    path = write_page(tmp_path / "page.html", example.inspection_of(TEXT), walk(layer=2)[1])
    page = open_page("#learn?layer=1&head=4", base=path.as_uri())
    expect(page.locator("#step-next-token")).to_be_visible()
    expect(section(page, "queries-keys-values").locator(".lead")).to_contain_text("encoder layer 2")
    assert section(page, "queries-keys-values").locator("select").count() == 0
    expect(section(page, "position")).to_contain_text("Where head 1 of layer 2 looks")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#step-embedding")).to_be_focused()


# Runs


@pytest.fixture
def runs(tmp_path):
    """A run that trains and one that is finished."""
    for name, last in (("finished", 100), ("training", 50)):
        with Progress(tmp_path / name, TINY, 100, 0, 6e6, 1e9, False) as progress:
            for step in range(10, last + 1, 10):
                report(progress, step)
            if name == "finished":
                progress.finish(last, "all steps done")
        time.sleep(0.01)
    return tmp_path


def report(progress, step):
    progress.step(
        step, loss=9 - step / 20, objective=9.0, perplexity=20.0 - step / 10, learning_rate=1e-3, gradient_norm=0.5,
        target_tokens=1100, source_tokens=900, step_seconds=10.0, data_seconds=0.5,
    )  # fmt: skip
    samples = [("A <b>dog</b>.", "Ein Hund.", f"Ein Hund nach {step}.")]
    progress.validation(
        step, loss=3.0, perplexity=15.0, bleu=step / 4, chrf=step / 2, samples=samples
    )


@pytest.fixture
def open_runs(open_page, runs):
    def open_view(query="", **options):
        page = open_page("#translate", **options)
        page.route("**/v1/runs", lambda route: route.fulfill(json={"runs": summaries(runs)}))
        page.route(
            "**/v1/runs/*",
            lambda route: route.fulfill(json=summary(runs / route.request.url.rpartition("/")[2])),
        )
        page.evaluate("address => { location.hash = address; }", f"runs{query}")
        return page

    return open_view


def test_a_run_is_shown_with_curves_and_samples(open_runs):
    page = open_runs("?name=finished")
    expect(page.locator("h2").first).to_have_text("finished")
    expect(page.locator(".measures")).to_contain_text("100 of 100")
    expect(page.locator(".measures")).to_contain_text("BLEU25")
    points = page.locator("polyline").all()
    assert [len(line.get_attribute("points").split()) for line in points] == [10, 10, 10, 10]
    expect(page.locator(".bitext")).to_contain_text("A <b>dog</b>.")
    scores = page.get_by_label("Scores of the validation set").locator("text")
    assert scores.all_text_contents() == ["0", "20", "40", "60", "step 100"]
    page.locator("nav a", has_text="training").click()
    expect(page.locator(".measures")).to_contain_text("50 of 100")


def test_a_run_is_drawn_again_while_it_trains(open_runs, runs):
    page = open_runs()
    expect(page.locator(".measures")).to_contain_text("50 of 100")
    with Progress(runs / "training", TINY, 100, 50, 6e6, 1e9, False) as progress:
        report(progress, 60)
    expect(page.locator(".measures")).to_contain_text("60 of 100", timeout=9_000)
    expect(page.locator(".bitext")).to_contain_text("Ein Hund nach 60.")


def test_runs_are_accessible_and_fit_a_phone(open_runs):
    from axe_playwright_python.sync_playwright import Axe

    page = open_runs(width=380)
    expect(page.locator(".chart").first).to_be_visible()
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [item["id"] for item in found if item["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_no_run_is_said(open_page):
    page = open_page("#runs")
    expect(page.locator("main")).to_contain_text(
        "There is no run yet. Start one with transduce train small"
    )
