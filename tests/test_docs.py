"""The documentation: its commands run, its links and names lead somewhere, and the site builds."""

import ast
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

import transduce
from transduce.cli.arguments import parse
from transduce.cli.commands import COMMANDS, run
from transduce.config import Recipe
from transduce.corpora.catalogue import find
from transduce.corpora.phrases import phrases
from transduce.storage import installed

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
# Pages outside docs/ with links and names.
OTHERS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("*/README.md"))]
# Settings that make any recipe train in a second.
FAST = ["training.steps=4", "training.tokens_per_step=800", "training.validation_sentences=4"]
SMALL_VOCABULARY = "[data.tokenizer]\nvocab_size = 600\n"
# Files and names of other toolkits in how-to/coming-from.md.
FOREIGN = {
    "scripts/build_vocab.py",
    "scripts/average_checkpoints.py",
    "model.generate",
    "model.npz",
}


def _load_generator():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module


generate = _load_generator()


def page_id(path):
    return path.relative_to(ROOT).as_posix()


def blocks(language, page):
    """Return the fenced code blocks of a language, with the title of each."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(rf'```{language}(?: title="([^"]+)")?\n(.*?)```', text, flags=re.DOTALL)
    return list(found)


# --- Commands ---------------------------------------------------------------------------------


class Sandbox:
    """A folder with a small corpus, in which the commands of a page run."""

    starts_servers = False  # if not, the words of such a command are only read

    def __init__(self, folder):
        self.folder = folder
        self.texts = phrases("en", "de", pairs=1_200, seed=1)
        for split in ("valid", "test"):
            self.texts[split] = self.texts[split][:8]  # an untrained model is slow to stop
        for split in ("train", "valid", "test"):
            self.write(f"{split}.en", split, 0)
            self.write(f"{split}.de", split, 1)

    def write(self, name, split, side):
        """Write one side of the corpus into a file, unless it exists."""
        path = self.folder / name
        if not path.exists():
            lines = [pair[side] for pair in self.texts[split]]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def add_memories(self):
        """Write a folder of translation memories, and a document to translate."""
        (self.folder / "memories").mkdir()
        units = ""
        for source, target in self.texts["train"][:80]:
            units += f'<tu><tuv xml:lang="en-US"><seg>{escape(source)}</seg></tuv>'
            units += f'<tuv xml:lang="de-DE"><seg>{escape(target)}</seg></tuv></tu>'
        text = f'<tmx><header srclang="en-US"/><body>{units}</body></tmx>'
        (self.folder / "memories/a.tmx").write_text(text, encoding="utf-8")
        (self.folder / "manual.html").write_text("<p>in 98 weeks</p>", encoding="utf-8")

    def add_recipe(self, name, text):
        """Write a recipe, with a tiny model, and the text files that it names."""
        recipe = tomllib.loads(text)
        for kind, split in (("corpora", "train"), ("validation", "valid"), ("test", "test")):
            for corpus in recipe["data"].get(kind, []):
                self.write(corpus["source"], split, 0)
                self.write(corpus["target"], split, 1)
        text = re.sub(r'preset = "\w+"', 'preset = "tiny"', text)
        text = re.sub(r"vocab_size = \d+", "vocab_size = 600", text)
        if "[data.tokenizer]" not in text:
            text += SMALL_VOCABULARY
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, line):
        """Run a line of a shell block: `transduce` really, others only if they are known."""
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE)
        elif words[0] == "pip":
            self.check_extras(words[-1])
        elif words[0] == "source":
            assert words[1] == ".venv/bin/activate"
        else:
            assert words[0] == "transduce", line
            self.run_transduce(words[1:])

    def check_extras(self, requirement):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for extra in re.search(r"\[(.*)\]", requirement)[1].split(","):
            assert extra in project["optional-dependencies"]

    def run_transduce(self, arguments):
        command = arguments[0]
        if command == "train":
            arguments = self.fast_training(arguments)
        if command == "doctor":  # the text is English and German, whatever the page calls it
            arguments = [*arguments, "--source-language", "en", "--target-language", "de"]
        if command == "watch" and "--once" not in arguments:
            arguments = [*arguments, "--once"]
        if command == "serve":
            parse(command, COMMANDS[command], arguments[1:])
            if self.starts_servers:
                start_and_stop(arguments)
            return
        if arguments[:3] == ["data", "get", "phrases"]:
            arguments = [*arguments, "--pairs", "1200"]
        elif arguments[:2] == ["data", "get"]:
            # This would download; the name of the corpus has to be known.
            find(arguments[2])
            return
        assert run(arguments) == 0, arguments

    def fast_training(self, arguments):
        """Put settings for a short run first, and shorten the steps that the page asks for."""
        rest = [re.sub(r"training\.steps=\d+", "training.steps=6", word) for word in arguments[2:]]
        return [*arguments[:2], *FAST, *rest]


WITH_COMMANDS = [page for page in PAGES if blocks("sh", page) and page.name != "scaling.md"]
# The commands of these pages have tests in the default run.
SLOW = {"exporting.md", "smaller-models.md"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train the run `runs/en-de`, which most pages start from."""
    sandbox = Sandbox(tmp_path_factory.mktemp("trained"))
    (title, recipe), *_ = blocks("toml", DOCS / "tutorials" / "your-own-text.md")
    sandbox.add_recipe(title, recipe)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(sandbox.folder)
        sandbox.run("transduce train en-de.toml")
    return sandbox.folder


@pytest.fixture
def sandbox(trained, bundle, tmp_path, monkeypatch):
    folder = tmp_path / "sandbox"
    shutil.copytree(trained, folder)
    monkeypatch.chdir(folder)
    # A small model in place of the one of the package.
    monkeypatch.setattr(installed, "PACKAGED", folder / "package")
    shutil.copytree(bundle.path, folder / "package/en-de")
    return Sandbox(folder)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.name in SLOW else [], id=page_id(page))
        for page in WITH_COMMANDS
    ],
)
def test_the_commands_and_the_python_of_a_page_run(page, sandbox, bundle, capsys):
    # A teacher must be able to translate, and an untrained model would be slow to measure.
    if page.name in ("smaller-models.md", "serving.md"):
        shutil.rmtree("runs/en-de")
        shutil.copytree(bundle.path, "runs/en-de/best")
    sandbox.starts_servers = page.name == "serving.md"
    if page.name == "tutorial.md":
        sandbox.add_memories()
    for title, recipe in blocks("toml", page):
        sandbox.add_recipe(title, recipe)
    for _, block in blocks("sh", page):
        for line in block.splitlines():
            sandbox.run(line)
    if page.name == "extending.md":
        return  # tests/test_readme.py runs its code
    names = {"__name__": "docs"}
    for _, code in blocks("python", page):
        exec(compile(code, str(page), "exec"), names)


def start_and_stop(arguments):
    """Start `transduce serve` on a free port, ask whether it is ready, and stop it."""
    command = [sys.executable, "-m", "transduce", *arguments, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            found = None
            while not found and (line := server.stderr.readline()):
                found = re.search(r"serving .* on (http://\S+)", line)
            with urllib.request.urlopen(f"{found[1]}/ready", timeout=60) as answer:
                assert json.load(answer) == {"status": "ready"}
        finally:
            server.terminate()
    assert server.returncode == 0


def test_every_page_with_commands_is_run():
    names = {page.name for page in WITH_COMMANDS}
    assert {"first-translation.md", "your-own-text.md", "small-data.md", "fine-tuning.md"} <= names


# --- Links and names --------------------------------------------------------------------------


def slug(heading):
    """Return the anchor of a heading, as MkDocs makes it."""
    text = re.sub(r"[^\w\s-]", "", heading.replace("`", "").lower()).strip()
    return re.sub(r"[-\s]+", "-", text)


def anchors(page):
    text = page.read_text(encoding="utf-8")
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=page_id)
def test_every_link_inside_the_repository_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith(("https://", "http://")):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        generated = target.is_relative_to(DOCS) and target.relative_to(DOCS).as_posix()
        if generated in generate.PAGES:
            continue
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def module_paths(text):
    """Find paths such as `model/layers.py` in back ticks."""
    return re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md|toml|diff))`", text)


def dotted_names(text):
    """Find names such as `transduce.kernels.accelerate` in back ticks."""
    return re.findall(r"`(transduce(?:\.\w+)+)", text)


def exists_in_code(name):
    """Whether a dotted name can be imported, as a module or as something inside one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=page_id)
def test_every_module_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for path in module_paths(prose):
        made = path.startswith(("runs/", "data/wmt14"))
        if path in FOREIGN or made or Path(path).stem.isupper():
            continue  # not of this repository, made by a run, or a placeholder
        places = (ROOT / path, ROOT / "transduce" / path, page.parent / path)
        assert any(place.exists() for place in places), path
    for name in dotted_names(text):
        assert exists_in_code(name), name


def test_every_test_that_the_paper_map_names_exists():
    text = (DOCS / "paper-map.md").read_text(encoding="utf-8")
    defined = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    named = set(re.findall(r"`(test_\w+)`", text))
    assert named
    assert named <= defined


def test_every_setting_that_a_page_names_exists():
    known = {
        f"{section}.{setting.name}"
        for section, found in generate.settings().items()
        for setting in found
    }
    known |= {*generate.SECTIONS, *generate.SAME_AS_CORPORA, *FOREIGN}
    pattern = re.compile(r"`((?:model|data|training|search)(?:\.\w+)+)(?=[`= ])")
    for page in [*PAGES, *OTHERS]:
        named = set(pattern.findall(page.read_text(encoding="utf-8"))) - known
        assert [name for name in named if not exists_in_code(f"transduce.{name}")] == [], page


# --- The reference ----------------------------------------------------------------------------


def test_every_command_has_an_entry_in_the_reference():
    page = generate.commands_page()
    for command in COMMANDS:
        assert f"## transduce {command}\n" in page
        assert f"usage: transduce {command}" in page


def test_every_setting_has_an_entry_with_a_description_in_the_reference():
    page = generate.settings_page()
    rows = dict(re.findall(r"^\| `([\w.]+)` \|.*\| (.*) \|$", page, flags=re.MULTILINE))
    nested = {"clean", "tokenizer"}  # sections of their own
    for section in Recipe.__dataclass_fields__:
        names = {name for name in rows if name.startswith(f"{section}.")}
        fields = getattr(Recipe(), section).__dataclass_fields__
        assert {f"{section}.{name}" for name in fields} <= names
    undescribed = [
        name for name, text in rows.items() if not text and name.split(".")[-1] not in nested
    ]
    assert undescribed == []


def test_every_public_name_has_an_entry_in_the_reference():
    page = generate.python_page()
    for name in transduce.__all__:
        assert f"\n## {name}\n" in page
    assert "\n### Translator.translate\n" in page


def test_a_comment_above_and_at_the_end_of_a_field_describes_it():
    source = "class A:\n    # One.\n    # Two.\n    x: int = 1  # three\n    y: int = 2\n"
    comments = generate._comments(source)
    fields = ast.parse(source).body[0].body
    assert generate._described(fields[0], comments) == "One. Two. three"
    assert generate._described(fields[1], comments) == ""


# --- The notebook -----------------------------------------------------------------------------


def test_the_notebook_runs_and_learns_to_copy():
    outputs = [output for _, _, output in generate.run_cells()]
    copied = re.search(r"copied without a mistake: (\d+)%", "\n".join(outputs))
    assert int(copied[1]) >= 95
    assert "facade -> facade" in "\n".join(outputs)
    assert "the same weights as in the model: True" in "\n".join(outputs)
    assert "the same result of the head: True" in "\n".join(outputs)


def test_the_notebook_is_one_that_jupyter_reads():
    book = json.loads(generate.notebook_file())
    assert (book["nbformat"], book["cells"][0]["cell_type"]) == (4, "markdown")
    code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    assert code == [text for kind, text in generate.cells() if kind == "code"]


# --- The site ---------------------------------------------------------------------------------


class Assets(HTMLParser):
    """Collects the addresses of everything that a browser loads with a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.found.append(values.get("src") or "")
        if tag == "link":
            self.found.append(values.get("href") or "")


def remote(address):
    return address.startswith(("http:", "https:", "//"))


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr

    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assets = Assets()
        assets.feed(page.read_text(encoding="utf-8"))
        assert [address for address in assets.found if remote(address)] == [], page
        # The theme would fetch a library to draw these.
        assert 'class="mermaid"' not in page.read_text(encoding="utf-8")
    for style in site.rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", style.read_text("utf-8"))
        assert [address for address in addresses if remote(address)] == [], style
    for path in generate.PAGES:
        assert (site / path).with_suffix(".html" if path.endswith(".md") else ".ipynb").exists()


def test_the_remote_assets_that_the_test_looks_for_are_found():
    assets = Assets()
    assets.feed('<link href="//a/b.css"><script src="https://a/b.js"></script><img src="a.png">')
    assert [address for address in assets.found if remote(address)] == [
        "//a/b.css",
        "https://a/b.js",
    ]
