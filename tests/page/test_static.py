"""The files of the page: small, self-contained, and joinable into one script."""

import re
from importlib.resources import files

import pytest

STATIC = files("transduce.page") / "static"
FILES = {path.name: path.read_text(encoding="utf-8") for path in STATIC.iterdir()}
MODULES = {name: text for name, text in FILES.items() if name.endswith(".js")}
IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+\.js)";$')
TOP_LEVEL = re.compile(
    r"^(?:export )?(?:async )?(?:function\*?|const|let|var|class) (\w+|[\[{])", flags=re.MULTILINE
)


def test_the_page_is_under_150_kb():
    assert sum(len(text.encode()) for text in FILES.values()) < 150_000


def test_the_page_has_one_document_one_stylesheet_and_modules():
    assert FILES.keys() - MODULES.keys() == {"index.html", "style.css"}


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_file_names_a_remote_address(name):
    # The namespace of SVG is a name; browsers do not fetch it.
    text = FILES[name].replace("http://www.w3.org/2000/svg", "")
    text = text.replace("http://www.w3.org/1998/Math/MathML", "")
    assert not re.search(r"\b(?:https?|wss?|ftp):|[\"'(]//|@import|url\(", text)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_text_becomes_elements_in_no_way_but_text_nodes(name):
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment"
    forbidden += r"|DOMParser|srcdoc|\beval\(|new Function|javascript:|setHTMLUnsafe"
    assert not re.search(forbidden, MODULES[name])


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_style_attribute_is_set_that_the_policy_forbids(name):
    assert not re.search(r"""setAttribute\(["']style|\bstyle: ["'`]|cssText""", MODULES[name])


def test_the_document_has_no_inline_script_style_or_handler():
    page = FILES["index.html"]
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.DOTALL) == [""]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_are_single_lines_at_the_top_and_name_what_exists(name):
    lines = MODULES[name].splitlines()
    assert lines[0].startswith("// ")
    imports = [line for line in lines if re.match(r"\s*import\b", line) or " import(" in line]
    for line in imports:
        match = IMPORT.match(line)
        assert match, line
        exported = re.findall(
            r"^export (?:async )?(?:function|const|class) (\w+)",
            MODULES[match[2]],
            flags=re.MULTILINE,
        )
        assert set(match[1].split(", ")) <= set(exported), line
    code = [line for line in lines if line and not line.startswith("//")]
    assert code[: len(imports)] == imports


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_imported_name_is_used(name):
    for line in MODULES[name].splitlines():
        match = IMPORT.match(line)
        for imported in match[1].split(", ") if match else []:
            assert len(re.findall(rf"\b{imported}\b", MODULES[name])) > 1, imported


@pytest.mark.parametrize("name", sorted(MODULES))
def test_exports_stand_before_declarations(name):
    for line in re.findall(r"^[ \t]*export.*", MODULES[name], flags=re.MULTILINE):
        assert re.match(r"export (?:async )?(?:function|const|class) \w", line), line


def test_no_name_at_the_top_level_is_used_by_two_modules():
    owners = {}
    for module, text in MODULES.items():
        for name in TOP_LEVEL.findall(text):
            assert name not in "[{", f"{module} takes a value apart at the top level"
            owners.setdefault(name, []).append(module)
    assert {name: modules for name, modules in owners.items() if len(modules) > 1} == {}


def test_every_module_is_reached_from_the_shell():
    reached, waiting = set(), ["app.js"]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        found = {match[2] for match in map(IMPORT.match, MODULES[name].splitlines()) if match}
        waiting += found - reached
    assert reached == MODULES.keys()


def luminance(color):
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    light, dark = sorted([luminance(first), luminance(second)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize(
    ("text", "ground", "least"),
    [
        ("ink", "paper", 7),
        ("muted", "paper", 4.5),
        ("muted", "well", 4.5),
        ("accent", "card", 4.5),
        ("accent", "accent-soft", 4.5),
        ("on-accent", "accent", 4.5),
        ("bad", "bad-soft", 4.5),
        ("warn", "warn-soft", 4.5),
        ("good", "good-soft", 4.5),
        ("edge", "paper", 3),
    ],
)
def test_text_can_be_read_in_both_themes(text, ground, least, theme):
    """WCAG 2.2: 4.5 for text, 3 for the borders of controls."""
    tokens = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", FILES["style.css"])
    colors = {name: pair[theme] for name, *pair in tokens}
    assert contrast(colors[text], colors[ground]) >= least
