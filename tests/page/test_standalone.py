"""The page as one file: nothing is requested, nothing in the data is run."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest

from transduce.page.standalone import joined_modules, page_html, write_page

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<!-- </script -->",
    "</SCRIPT\t>",
    "]]><img src=x onerror=alert(1)>",
    "\u2028\u2029\u202e &lt;/script&gt; &amp;",
    '"}</script>',
)


class Page(HTMLParser):
    """The elements of a document, and the text of its scripts and styles."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.contents, self.inside = [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name in ("script", "style"):
            self.contents.append((name, dict(attributes), []))
            self.inside = True

    def handle_endtag(self, name):
        self.inside = False

    def handle_data(self, text):
        if self.inside:
            self.contents[-1][2].append(text)

    def content(self, name, **attributes):
        found = [
            "".join(parts)
            for other, values, parts in self.contents
            if other == name and attributes.items() <= values.items()
        ]
        assert len(found) == 1
        return found[0]

    def meta(self, name):
        return next(
            values["content"] for _, values in self.elements if values.get("http-equiv") == name
        )


def digest(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_data_come_back_unchanged():
    inspection = {"text": "Ein Satz.", "weights": [1, 0.5], "nothing": None}
    page = Page(page_html(inspection, {"steps": []}))
    data = json.loads(page.content("script", type="application/json", id="data"))
    assert data == {"inspection": inspection, "walkthrough": {"steps": []}}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_inside_the_data(text):
    page = Page(page_html({"text": text}))
    data = page.content("script", type="application/json", id="data")
    assert json.loads(data)["inspection"] == {"text": text}
    assert not re.search(r"[<>&]", data)
    assert [name for name, _ in page.elements if name in ("script", "img")] == ["script"] * 2


def test_the_policy_allows_exactly_the_script_and_the_style():
    page = Page(page_html({}))
    policy = page.meta("Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == digest(page.content("script", type="module"))
    assert rules["style-src"] == digest(page.content("style"))
    assert "connect-src" not in rules
    assert "unsafe" not in policy


def test_the_policy_comes_before_everything_it_rules():
    names = [name for name, _ in Page(page_html({})).elements]
    assert names[:4] == ["html", "head", "meta", "meta"]
    text = page_html({})
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")


def test_nothing_is_loaded_from_elsewhere():
    page = Page(page_html({}))
    loaded = [values.get("src") or values.get("href") for _, values in page.elements]
    assert [address for address in loaded if address and address[0] != "#"] == [
        address for address in loaded if address and address.startswith("data:")
    ]


def test_the_joined_script_has_each_module_once_and_no_import():
    script = joined_modules("app.js")
    assert not re.search(r"^\s*(?:import|export)\b", script, flags=re.MULTILINE)
    assert script.count("function showInspect(") == 1
    assert script.count("function element(") == 1
    # A module comes after those that it uses when it is loaded.
    assert script.index("const KINDS") < script.index("function showInspect(")
    assert script.index("const standalone =") < script.index("\nstart();")


def test_a_file_is_written_whole(tmp_path):
    @dataclass
    class Inspection:
        text: str

        def to_dict(self):
            return {"text": self.text}

    path = write_page(tmp_path / "page.html", Inspection("Ein Satz."))
    assert path == tmp_path / "page.html"
    assert path.read_text(encoding="utf-8") == page_html({"text": "Ein Satz."})
    assert [other.name for other in tmp_path.iterdir()] == ["page.html"]


def test_numbers_that_json_does_not_know_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        page_html({"score": float("nan")})
