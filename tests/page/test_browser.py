"""The page in a real browser, with a server that answers without a model."""

import contextlib
import json
import re

import pytest

from transduce.page.standalone import write_page

from . import example

pytestmark = pytest.mark.browser

ANIMAL = "The animal didn't cross the street because it was too tired."
IT = 7  # the place of "it" among its words
WOMAN = "Die Frau überquerte die Straße nicht, weil sie zu müde war."


def address(view, **parameters):
    from urllib.parse import urlencode

    return f"#{view}?{urlencode(parameters)}" if parameters else f"#{view}"


def expect(locator):
    from playwright.sync_api import expect as wait_for

    return wait_for(locator)


def translated(page, text=ANIMAL):
    page.fill("#source", text)
    expect(page.locator(".output .word").first).to_be_attached()
    expect(page.locator(".output")).not_to_have_class(re.compile("waiting"))


# Translate


def test_the_translation_follows_the_typing(open_page):
    page = open_page()
    page.locator("#source").press_sequentially("Hello world.", delay=5)
    expect(page.locator("#translation")).to_have_text("Hallo Welt.")
    page.fill("#source", "Good morning!")
    expect(page.locator("#translation")).to_have_text("Guten Morgen!")
    expect(page.locator("#count")).to_have_text("13 characters")
    expect(page.locator("#live")).to_have_text("Translation: Guten Morgen!")


def test_the_translation_is_translated_back(open_page):
    """If a model of the opposite direction is served."""
    page = open_page()
    translated(page, "Good morning!")
    page.click("#swap")
    expect(page.locator("#source")).to_have_value("Guten Morgen!")
    expect(page.locator("#source-language")).to_have_text("German")
    expect(page.locator("#target-language")).to_have_text("English")
    expect(page.locator("#models select")).to_have_value("back")
    expect(page.locator("#translation .word").first).to_be_attached()
    assert page.evaluate("location.hash").endswith("model=back")

    # And forth again, with the default model; there is nothing to swap for a pair with one model.
    page.click("#swap")
    expect(page.locator("#models select")).to_have_value("example")
    page.select_option("#models select", "other")
    expect(page.locator("#target-language")).to_have_text("French")
    expect(page.locator("#swap")).to_be_hidden()


def test_a_swap_keeps_text_that_is_not_translated_yet(open_page):
    page = open_page()
    translated(page, "Good morning!")
    page.fill("#source", "Das ist neu.")
    page.click("#swap")
    expect(page.locator("#source-language")).to_have_text("German")
    expect(page.locator("#source")).to_have_value("Das ist neu.")


def test_nothing_is_left_of_a_text_that_was_cleared(open_page):
    page = open_page()
    translated(page, "Good morning!")
    page.fill("#source", "")
    expect(page.locator("#translation .word")).to_have_count(0)
    page.click("#swap")
    expect(page.locator("#source-language")).to_have_text("German")
    expect(page.locator("#source")).to_have_value("")


def test_examples_are_in_the_language_of_the_source(open_page):
    page = open_page()
    expect(page.locator(".samples button").first).to_have_text(ANIMAL)
    page.select_option("#models select", "back")
    expect(page.locator(".samples button").first).to_have_text(WOMAN)
    page.locator(".samples button").first.click()
    expect(page.locator("#source")).to_have_value(WOMAN)


@pytest.mark.parametrize("view", ["translate", "inspect"])
def test_an_example_gives_way_to_one_in_the_language_of_another_model(open_page, view):
    field = {"translate": "#source", "inspect": "#inspect-text"}[view]
    page = open_page(address(view, text=ANIMAL))
    for model, text in [("back", WOMAN), ("example", ANIMAL), ("other", ANIMAL)]:
        page.select_option("#models select", model)
        expect(page.locator(field)).to_have_value(text)
    if view == "inspect":
        expect(page.locator(".problem")).to_contain_text("other has no weights")
        page.watch.errors.clear()  # the browser itself reports the status

    # Nothing but an example is replaced, and it disappears if there is none in the language.
    page = open_page(address(view, text="Hello world."))
    page.select_option("#models select", "back")
    expect(page.locator("#models select")).to_have_value("back")
    expect(page.locator(field)).to_have_value("Hello world.")
    page = open_page(address(view, text=ANIMAL))
    page.select_option("#models select", "nordic")
    expect(page.locator(field)).to_have_value("")


def test_an_answer_that_comes_too_late_is_dropped(open_page):
    page = open_page()
    late = example.translation_answer({"text": "Hello world."})
    held = []

    def hold_first(route):
        if "Hello" in route.request.post_data:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/translate", hold_first)
    page.fill("#source", "Hello world.")
    page.wait_for_timeout(400)
    translated(page, "Good morning!")
    assert held
    for route in held:
        with contextlib.suppress(Exception):  # the page has given the request up
            route.fulfill(body=f"event: done\ndata: {json.dumps(late)}\n\n")
    page.wait_for_timeout(300)
    expect(page.locator("#translation")).to_have_text("Guten Morgen!")


def test_layout_between_sentences_is_kept_and_copied(open_page):
    page = open_page()
    translated(page, "Hello world.\n\nGood morning!")
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "Hallo Welt.\n\nGuten Morgen!"


def test_a_word_shows_what_it_came_from_and_back(open_page):
    page = open_page()
    translated(page)
    page.hover(".word >> text=Tier")
    expect(page.locator(".mirror .linked")).to_have_text("animal")
    expect(page.locator("#tip")).to_have_text("from animal, confidence 90 %")
    page.locator(".word >> text=Straße").hover()
    expect(page.locator(".mirror .linked")).to_have_text("street")

    # From the source: the pointer over a word, and the caret in it.
    box = page.locator(".mirror span >> text=street").bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2)
    expect(page.locator(".output .linked")).to_have_text(["das", "Straße"])
    page.mouse.move(5, 600)
    page.focus("#source")
    page.evaluate("document.querySelector('#source').setSelectionRange(5, 5)")
    expect(page.locator(".output .linked")).to_have_text("Tier")


def test_the_mirror_lies_letter_on_letter(open_page):
    """Marks would stand beside their words if the mirror were set differently from the text."""
    page = open_page()
    translated(page, f"{ANIMAL} " * 8)
    sizes = page.evaluate(
        """() => [".mirror", "#source"].map((name) => {
          const box = document.querySelector(name);
          const style = getComputedStyle(box);
          return [style.font, style.letterSpacing, style.padding, style.lineHeight, box.clientWidth, box.getBoundingClientRect().top];
        })"""
    )
    assert sizes[0] == sizes[1]


def test_confidence_is_shown_by_more_than_colour_and_can_be_hidden(open_page):
    page = open_page()
    translated(page)
    unsure = page.locator(".output .unsure").first
    assert "underline" in unsure.evaluate("node => getComputedStyle(node).textDecorationLine")
    expect(page.locator("#legend")).to_contain_text("unsure")
    page.uncheck("label:has-text('Confidence') input")
    assert unsure.evaluate("node => getComputedStyle(node).textDecorationLine") == "none"


def test_alternatives_are_offered_and_taken(open_page, server):
    page = open_page()
    translated(page, f"{ANIMAL} Hello world.")
    page.click(".word >> text=Tier")
    offers = page.locator(".alternatives li button")
    expect(offers).to_have_count(6)
    assert server.asked[-1][1]["text"] == ANIMAL
    expect(offers.nth(1).locator("ins")).to_have_text("Vieh")
    offers.nth(1).click()
    expect(page.locator(".alternatives")).to_be_hidden()
    expect(page.locator("#translation")).to_contain_text("Das Vieh überquerte")
    expect(page.locator("#translation")).to_contain_text("Hallo Welt.")

    # The second sentence alone can be inspected from here.
    page.click(".word >> text=Hallo")
    page.click("text=Inspect this sentence")
    expect(page.locator(".bitext p").first).to_have_text("Hello world.")


def test_a_sentence_of_a_long_text_is_inspected_alone(open_page):
    page = open_page()
    translated(page, f"{ANIMAL} " * 40)
    page.click("#to-inspect")
    expect(page.locator("#inspect-text")).to_have_value(ANIMAL)


def test_a_text_file_is_opened_and_another_file_is_refused(open_page):
    page = open_page()
    file = page.locator("input[type=file]")
    file.set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"Hello world.\r\n"})
    expect(page.locator("#translation")).to_have_text("Hallo Welt.")
    file.set_input_files({"name": "b.bin", "mimeType": "text/plain", "buffer": b"a\0b"})
    expect(page.locator(".problem")).to_contain_text("b.bin is no text file")
    file.set_input_files({"name": "c.txt", "mimeType": "text/plain", "buffer": b"a" * 1_000_001})
    expect(page.locator(".problem")).to_contain_text("c.txt is 1,001 kB")


def test_a_dropped_file_is_read(open_page):
    page = open_page()
    page.evaluate(
        """() => {
          const transfer = new DataTransfer();
          transfer.items.add(new File(["Good morning!"], "a.txt", { type: "text/plain" }));
          document.querySelector(".pane").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator("#translation")).to_have_text("Guten Morgen!")


def test_an_error_of_the_server_is_one_line(open_page):
    page = open_page()
    page.route(
        "**/v1/translate",
        lambda route: route.fulfill(
            status=413,
            content_type="application/json",
            body=json.dumps({"error": "the text has 9 sentences; at most 8 are taken"}),
        ),
    )
    page.fill("#source", "Hello world.")
    expect(page.locator(".problem")).to_have_text("the text has 9 sentences; at most 8 are taken")
    page.watch.errors.clear()  # the browser itself reports the status


# Inspect


def inspect(open_page, **parameters):
    page = open_page(address("inspect", text=ANIMAL, **parameters))
    expect(page.locator(".cell").first).to_be_visible()
    return page


def test_every_head_of_every_kind_is_shown(open_page):
    page = inspect(open_page)
    for kind in ("Decoder", "Cross", "Encoder"):
        page.click(f".heads button:text-is('{kind}')")
        expect(page.locator(".cell")).to_have_count(48)


def test_the_numbers_are_those_of_the_inspection(open_page):
    import base64

    import numpy as np

    page = inspect(open_page, kind="cross", layer=4, head=2, figure="heat", level="token")
    answer = example.inspection_of(ANIMAL)["attention"]["cross"]
    weights = np.frombuffer(base64.b64decode(answer["data"]), "<u2").reshape(answer["shape"])
    figure = page.locator(".one-head svg")
    frame = figure.locator("rect[fill=none]").first
    frame.scroll_into_view_if_needed()
    box = frame.bounding_box()
    rows, columns = answer["shape"][2:]
    for row, column in [(0, 0), (3, 5), (rows - 1, columns - 1)]:
        x = box["x"] + (column + 0.5) * box["width"] / columns
        y = box["y"] + (row + 0.5) * box["height"] / rows
        page.mouse.move(x, y)
        expect(page.locator("#tip")).to_contain_text(f"{weights[3, 1, row, column] / 65535:.3f}")


def test_words_join_their_tokens(open_page):
    """Keys are summed and queries averaged, so that every row still sums to one."""
    page = inspect(open_page)
    sums = page.evaluate(
        """async (data) => {
          const attention = await import("/static/attention.js");
          const decoded = attention.decodeAttention(data);
          const sums = [];
          for (const kind of ["encoder", "decoder", "cross"]) {
            const axes = attention.attentionAxes(data, kind, "word");
            const table = attention.headTable(decoded[kind], axes, 2, 3);
            table.rows.forEach((_, row) => sums.push(table.columns.reduce((sum, _, column) => sum + attention.weightAt(table, row, column), 0)));
          }
          return sums;
        }""",
        example.inspection_of("Information about extraordinary animals."),
    )
    assert len(sums) > 10
    assert sums == pytest.approx([1] * len(sums), abs=2e-3)


def test_it_is_one_click_away(open_page):
    page = open_page("#inspect")
    page.click("text=too tired")
    expect(page.locator(".strongest h3").first).to_contain_text("“it” in head")
    expect(page.locator(".strongest li").first).to_contain_text("animal")
    assert f"word={IT}" in page.url
    page.click("text=too wide")
    expect(page.locator(".result")).to_contain_text("zu breit.")


def test_the_riddle_is_in_the_language_of_the_source(open_page, server):
    page = open_page(address("inspect", model="back"))
    expect(page.locator("#inspect-text")).to_have_attribute("placeholder", re.compile("in German$"))
    expect(page.locator(".ask")).to_contain_text("What is “sie”?")
    expect(page.locator("main")).not_to_contain_text("animal")
    page.click("text=Die Katze")
    expect(page.locator("#inspect-text")).to_have_value(WOMAN.replace("Frau", "Katze"))
    expect(page.locator(".strongest h3").first).to_contain_text("“sie” in head")
    expect(page.locator(".strongest li").first).to_contain_text(re.compile("Katze|Straße"))
    assert server.asked[-1][1]["model"] == "back"


def test_a_sentence_is_asked_for_where_there_are_no_examples(open_page):
    page = open_page(address("inspect", model="nordic"))
    hint = "A sentence in Norwegian Bokmål"
    expect(page.locator("#inspect-text")).to_have_attribute("placeholder", hint)
    expect(page.locator(".ask button")).to_have_count(2)  # Inspect and the hidden Copy link
    expect(page.locator("main")).not_to_contain_text("What is")
    page.select_option("#models select", "unknown")
    hint = "A sentence in the language of the model"
    expect(page.locator("#inspect-text")).to_have_attribute("placeholder", hint)


def test_heads_are_switched_off_and_on(open_page, server):
    page = inspect(open_page)
    page.click("text=switches off")
    page.click("[data-head='encoder.2.2']")
    expect(page.locator(".result del")).to_have_text("nicht")
    assert server.asked[-1][1]["without"] == ["encoder.2.2"]
    assert "without=encoder.2.2" in page.url
    expect(page.locator("[data-head='encoder.2.2']")).to_have_attribute(
        "aria-label", "Layer 2, head 2, switched off"
    )
    page.click(".result .chip")
    expect(page.locator(".result del")).to_have_count(0)
    assert server.asked[-1][1]["without"] == []


def test_heads_are_overlaid(open_page):
    page = inspect(open_page, layer=1, head=1)
    page.click("text=overlays")
    page.click("[data-head='encoder.2.2']")
    page.click("[data-head='encoder.3.3']")
    expect(page.locator(".overlay-key")).to_contain_text("1.12.2 ✕3.3 ✕")
    colors = page.locator(".one-head path").evaluate_all(
        "nodes => new Set(nodes.map((node) => node.getAttribute('stroke'))).size"
    )
    assert colors == 3


def test_heads_are_sorted_by_a_measure(open_page):
    page = inspect(open_page)
    page.select_option("label:has-text('Sort by') select", "entropy")
    order = page.locator(".cell").evaluate_all("nodes => nodes.map((node) => node.dataset.head)")
    measures = [m for m in example.inspection_of(ANIMAL)["measures"] if m["kind"] == "encoder"]
    expected = sorted(measures, key=lambda measure: -measure["entropy"])
    assert order == [measure["head"] for measure in expected]

    # The arrow down goes to the head below, however many stand in a row.
    page.locator(".cell").first.focus()
    page.keyboard.press("ArrowDown")
    places = page.evaluate(
        "[document.querySelector('.cell'), document.activeElement].map((node) => node.getBoundingClientRect().left)"
    )
    assert places[0] == places[1]
    assert page.evaluate("document.activeElement.dataset.head") != order[0]


def test_decoding_is_replayed(open_page):
    page = inspect(open_page)
    expect(page.locator(".so-far")).to_have_text("Das")
    page.click("[aria-label='Step forward']")
    expect(page.locator(".so-far")).to_have_text("Das Tier")
    expect(page.locator(".replay .chosen")).to_contain_text("Tier")
    page.locator("[aria-label='Step of decoding']").press("End")
    expect(page.locator(".so-far")).to_contain_text("\u2039end\u203a")
    page.click("button:text-is('Play')")
    expect(page.locator(".so-far")).to_have_text("Das")
    expect(page.locator(".so-far")).to_have_text("Das Tier")
    page.click("button:text-is('Pause')")


def test_the_beam_shows_what_was_given_up_and_why(open_page):
    page = inspect(open_page)
    page.locator("[aria-label='Tree of the beam search']").scroll_into_view_if_needed()
    page.locator("[aria-label='Tree of the beam search'] text >> text=✕").first.hover()
    expect(page.locator("#tip")).to_contain_text("given up: rank")
    page.click("text=The tree as a table")
    nodes = example.inspection_of(ANIMAL)["beam"]["nodes"]
    expect(page.locator("details table tbody tr")).to_have_count(len(nodes) - 1)


def test_a_link_shows_the_same_view(open_page):
    page = open_page(address("inspect", text=f"{ANIMAL} Hello world.", sentence=1))
    page.click(".heads button:text-is('Cross')")
    page.click("[data-head='cross.6.2']")
    page.click("text=Heat map")
    page.click("text=Tokens")
    page.select_option("label:has-text('From') select", "1")
    page.click("[aria-label='Step forward']")
    page.click("text=Copy link")
    expect(page.locator("button:text-is('Copied')")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    other = open_page(link.removeprefix(page.url.partition("#")[0]))
    for part in (".one-head", ".result", ".replay", ".grid"):
        expect(other.locator(part).first).to_have_text(
            page.locator(part).first.inner_text(), use_inner_text=True
        )
    assert other.url == page.url


def test_a_figure_is_saved_as_svg_and_png(open_page):
    page = inspect(open_page, figure="heat")
    with page.expect_download() as download:
        page.click(".one-head [aria-label='Save the figure as SVG']")
    figure = download.value.path().read_text(encoding="utf-8")
    assert figure.startswith("<svg")
    assert ">animal</text>" in figure
    assert "var(" not in figure
    assert download.value.suggested_filename == "encoder.5.1.svg"
    with page.expect_download() as download:
        page.click(".one-head [aria-label='Save the figure as PNG']")
    picture = download.value.path().read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 5_000


def test_a_model_that_cannot_be_inspected_is_said(open_page):
    page = open_page(address("inspect", text=ANIMAL, model="other"))
    expect(page.locator(".problem")).to_have_text(
        "other has no weights for torch; export it from its bundle"
    )
    page.watch.errors.clear()  # the browser itself reports the status


# The shell


def test_the_text_goes_along_from_view_to_view(open_page):
    page = open_page()
    translated(page, "Hello world.")
    page.click("nav >> text=Inspect")
    expect(page.locator("#inspect-text")).to_have_value("Hello world.")
    page.click("nav >> text=Translate")
    expect(page.locator("#translation")).to_have_text("Hallo Welt.")


def test_another_model_is_asked_once_it_is_chosen(open_page, server):
    page = open_page()
    page.select_option("#models select", "other")
    expect(page.locator("#target-language")).to_have_text("French")
    translated(page, "Hello world.")
    assert server.asked[-1][1]["model"] == "other"
    assert "model=other" in page.url
    page.go_back()
    expect(page.locator("#target-language")).to_have_text("German")
    expect(page.locator("#models select")).to_have_value("example")


def test_dark_follows_the_system_and_the_switch(open_page):
    page = open_page(scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 21, 25)"
    page.click(".theme")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(ground) == "rgb(251, 251, 249)"
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.click(".theme")
    assert page.evaluate(ground) == "rgb(20, 21, 25)"


def test_a_theme_that_another_program_has_stored_is_replaced(open_page):
    page = open_page()
    page.evaluate("localStorage.setItem('theme', 'solarized')")
    page.reload()
    expect(page.locator(".theme")).to_have_attribute("title", "Colours: System")
    page.click(".theme")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_figures_are_painted_again_when_the_system_turns_dark(open_page):
    page = inspect(open_page)
    label = page.locator(".one-head svg text").first
    expect(label).not_to_have_attribute("fill", "rgb(166, 169, 181)")
    page.emulate_media(color_scheme="dark")
    expect(label).to_have_attribute("fill", "rgb(166, 169, 181)")


@pytest.mark.parametrize("width", [320, 390, 768])
@pytest.mark.parametrize("view", ["translate", "inspect"])
def test_nothing_is_cut_off_on_a_narrow_screen(open_page, view, width):
    page = open_page(address(view, text=ANIMAL), width=width, height=800)
    expect(page.locator(".output .word, .cell").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_keyboard_is_enough(open_page):
    page = open_page()
    page.keyboard.type("The animal")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".word >> text=Tier")).to_be_visible()

    # Word by word through the translation, then alternatives and back.
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className").startswith("word"):
            break
    page.keyboard.press("ArrowRight")
    expect(page.locator(".word:focus")).to_have_text("Tier")
    expect(page.locator("#live")).to_have_text("from animal, confidence 90 %")
    page.keyboard.press("Enter")
    expect(page.locator(".alternatives li button").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".word:focus")).to_have_text("Tier")

    # Inspect, and choose another head with the arrows.
    page.keyboard.press("Alt+i")
    expect(page.locator(".cell").first).to_be_visible()
    page.locator(".cell[aria-pressed=true]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#head-title")).to_have_text("Layer 6, head 2")
    assert page.evaluate("document.activeElement.dataset.head") == "encoder.6.2"


def test_the_focus_stays_where_it_is_when_a_view_is_drawn_anew(open_page):
    page = inspect(open_page)
    for control in (
        "button:text-is('Heat map')",
        "button:text-is('Cross')",
        "#toggle-head",
        "button:text-is('Tokens')",
    ):
        page.locator(control).focus()
        before = page.evaluate(
            "document.activeElement.outerHTML.replace(/ aria-pressed.*|>.*/, '')"
        )
        page.keyboard.press("Enter")
        expect(page.locator(".parts:not([aria-busy]) .cell").first).to_be_visible()
        page.wait_for_timeout(100)
        after = page.evaluate("document.activeElement.outerHTML.replace(/ aria-pressed.*|>.*/, '')")
        assert after == before
    page.select_option("label:has-text('Sort by') select", "entropy")
    expect(page.locator(".sorted .cell").first).to_be_visible()


def test_the_first_key_skips_the_navigation(open_page):
    page = open_page(address("inspect", text=ANIMAL))
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#view")).to_be_focused()
    assert "inspect" in page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["translate", "inspect", "alternatives"])
def test_axe_finds_nothing(open_page, view, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    page = open_page(
        address("inspect" if view == "inspect" else "translate", text=ANIMAL), scheme=scheme
    )
    expect(page.locator(".output .word, .cell").first).to_be_visible()
    if view == "alternatives":
        page.click(".word >> text=Tier")
        expect(page.locator(".alternatives li button").first).to_be_visible()
    found = axe.Axe().run(page).response["violations"]
    assert [
        (problem["id"], [node["target"] for node in problem["nodes"]][:3]) for problem in found
    ] == []


HOSTILE = [
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>.",
    "\u202ereversed\u202c \u2066isolated\u2069 \u200fright.",
    '"><svg onload=window.hit=1> ${7*7} {{7*7}} %00 \\u003cscript>.',
    "word " * 2_000,
    "x" * 10_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=["markup", "bidi", "quotes", "long", "one word"])
def test_hostile_text_is_shown_as_text(open_page, text):
    page = open_page()
    translated(page, text)
    shown = page.locator("#translation").evaluate("node => node.textContent")
    assert shown == example.translation_answer({"text": text})["translations"][0]["text"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    if len(text) < 1_000:
        page.click("#to-inspect")
        expect(page.locator(".cell").first).to_be_visible()
    assert page.evaluate("window.hit") is None


def test_the_first_view_takes_less_than_a_second(open_page):
    page = open_page()
    expect(page.locator("#source")).to_be_visible()
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert painted < 1_000


# One file


def test_the_file_works_alone(open_page, tmp_path):
    path = write_page(tmp_path / "page.html", example.inspection_of(ANIMAL))
    page = open_page(base=path.as_uri())
    expect(page.locator(".cell")).to_have_count(48)
    expect(page.locator("nav a")).to_have_text(["Inspect"])
    page.click(".heads button:text-is('Cross')")
    page.click("[data-head='cross.6.2']")
    expect(page.locator("#head-title")).to_have_text("Layer 6, head 2")
    page.click("#toggle-head")
    expect(page.locator(".problem")).to_contain_text("transduce serve")
    with page.expect_download():
        page.click(".one-head [aria-label='Save the figure as PNG']")
    assert page.watch.requests == [path.as_uri()]


def test_hostile_data_in_a_file_is_shown_as_text(open_page, tmp_path):
    text = "</script><script>window.hit = 1</script> <!-- <script> <img src=x onerror=window.hit=1>"
    path = write_page(tmp_path / "page.html", example.inspection_of(text))
    page = open_page(base=path.as_uri())
    expect(page.locator(".bitext p").first).to_have_text(text)
    assert page.evaluate("window.hit") is None
