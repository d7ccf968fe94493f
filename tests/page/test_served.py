"""The page with transduce serve behind it: what the page asks for is what the server answers."""

import pytest

from tests.serving.running import running

pytestmark = pytest.mark.browser

TEXT = "Sunday, September 16, 1984"


@pytest.fixture(scope="module")
def base(bundle, tmp_path_factory):
    from transduce.serving.models import load_models

    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models, runs=tmp_path_factory.mktemp("runs")) as server:
        yield f"{server.url}/"


@pytest.fixture(scope="module")
def translator(bundle):
    from transduce import Translator

    return Translator(bundle, engine="torch")


def expect(locator):
    from playwright.sync_api import expect as wait_for

    return wait_for(locator)


def test_a_text_is_translated(open_page, base, translator):
    page = open_page(base=base)
    page.fill("#source", f"{TEXT}\n\n12 kilometers")
    expect(page.locator("#translation")).to_have_text(
        translator.translate(f"{TEXT}\n\n12 kilometers").text
    )
    page.locator(".word").first.hover()
    expect(page.locator("#tip")).to_contain_text("confidence")
    page.locator(".word").first.click()
    expect(page.locator(".alternatives li").first).to_contain_text(translator.translate(TEXT).text)


def test_a_sentence_is_inspected_with_and_without_a_head(open_page, base, translator):
    from transduce import ablate, inspect

    page = open_page(f"#inspect?text={TEXT}&kind=cross&layer=1&head=2&level=token", base=base)
    inspection = inspect(translator, TEXT)
    expect(page.locator(".bitext p").last).to_have_text(inspection.translation)
    heads = inspection.to_dict()["attention"]["cross"]["shape"]
    expect(page.locator(".cell")).to_have_count(heads[0] * heads[1])
    expect(page.locator("#head-title")).to_have_text("Layer 1, head 2")
    page.click("#toggle-head")
    expect(page.locator(".chip")).to_contain_text("cross.1.2 is off")
    expect(page.locator(".bitext p").last).to_have_text(
        ablate(translator, TEXT, heads=["cross.1.2"]).text
    )


def test_a_head_that_does_not_exist_is_said(open_page, base):
    page = open_page(f"#inspect?text={TEXT}&without=cross.9.9", base=base)
    expect(page.locator(".problem")).to_contain_text("'cross.9.9' does not exist")
    page.watch.errors.clear()  # the browser itself reports the status


def test_another_sentence_is_explained_at_the_press_of_a_button(open_page, base):
    page = open_page(f"#learn?text={TEXT}", base=base)
    expect(page.locator("main h2").first).to_be_visible()
    page.get_by_role("textbox", name="Sentence").fill("12 kilometers")
    page.click("button:text-is('Explain')")
    expect(page.locator(".bitext p").first).to_have_text("12 kilometers")


def test_a_sentence_is_walked_through(open_page, base, translator):
    page = open_page(f"#learn?text={TEXT}&layer=2&head=3", base=base)
    expect(page.locator(".bitext strong")).to_have_text(
        translator.translate(TEXT).text, timeout=20_000
    )
    expect(page.locator("#views [aria-current]")).to_have_text("Learn")
    expect(page.locator("section .lead").nth(3)).to_contain_text("Head 3 of encoder layer 2")


def test_the_runs_are_shown(open_page, base):
    page = open_page("#runs", base=base)
    expect(page.locator("main")).to_contain_text("There is no run yet")
    expect(page.locator("#views [aria-current]")).to_have_text("Runs")
