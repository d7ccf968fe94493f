"""The package as others install it: metadata, optional packages, wheel, container and CI."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests import minimal_install

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transduce"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
HOME = "https://github.com/transduce/transduce"

# Where the name of a package differs from the name of its module.
MODULES = {"protobuf": "google", "prometheus-client": "prometheus_client"}

# Modules that import an optional package when they are imported themselves.
IMPORTED_LAZILY = {
    f"kernels/{name}.py": {"triton"}
    for name in (
        "beam_step",
        "decoding",
        "embedding",
        "feed_forward",
        "loss",
        "products",
        "residual",
        "tile_attention",
        "tile_gradients",
        "topk",
    )
}
# The commands that import this room ask for its packages first.
SERVING = "serving/"
# Modules that are imported only if there is a CUDA device, because they launch Triton's kernels.
ONLY_ON_A_GPU = {"transduce.kernels.fused", "transduce.kernels.varlen"}
# Functions that are called only if the package is installed, or whose ImportError is caught.
CHECKED_BEFORE = {
    "translation/benchmark.py": {"transformers"},
    "monitoring/metrics.py": {"tensorboard"},
}


def requirement_name(requirement):
    return re.match(r"[A-Za-z0-9_-]+", requirement)[0].lower()


def optional_modules():
    """Return the modules of all optional packages that are not also hard dependencies."""
    requirements = []
    for extra in EXTRAS.values():
        requirements += extra
    names = {requirement_name(requirement) for requirement in requirements}
    names -= {requirement_name(requirement) for requirement in PROJECT["dependencies"]}
    names -= {"transduce"}
    return {MODULES.get(name, name) for name in names}


def imported_packages(tree):
    """Return the packages of all import statements, `torch.utils.tensorboard` as tensorboard."""
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            tensorboard = name == "torch.utils.tensorboard"
            packages.add("tensorboard" if tensorboard else name.partition(".")[0])
    return packages


def source_files():
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield path.relative_to(PACKAGE).as_posix(), tree


def require_calls():
    """Yield the file, module and extra of every call of `errors.require`."""
    for file, tree in source_files():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id != "require":
                continue
            (extra,) = [word.value.value for word in node.keywords if word.arg == "extra"]
            argument = node.args[0]
            if isinstance(argument, ast.JoinedStr):  # f"babel.{part}"
                argument = argument.values[0]
            module = argument.value if isinstance(argument, ast.Constant) else None
            yield file, module, extra


# Metadata


def test_the_links_of_the_project_have_one_home():
    urls = PROJECT["urls"]
    assert set(urls) == {"Homepage", "Documentation", "Issues", "Changelog"}
    assert all(url.startswith(HOME) for url in urls.values())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["repository-code"] == HOME


def test_the_citation_has_the_version_and_license_of_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    assert len(paper["authors"]) == 8


def test_the_changelog_names_the_version():
    assert PROJECT["version"] in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_ci_runs_every_python_version_that_the_classifiers_name():
    named = re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$",
        "\n".join(PROJECT["classifiers"]),
        flags=re.MULTILINE,
    )
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_every_pinned_package_installs_on_the_oldest_python():
    """Debian 12 has Python 3.11.2; a package that needs 3.11.5 would stop `make test` there."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    unsuitable = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # a comment, or a package of another environment
        needed = package.metadata["Requires-Python"] or ""
        if package.version == version and oldest not in SpecifierSet(needed):
            unsuitable[line] = needed
    assert unsuitable == {}


def test_only_systems_with_file_locks_are_named():
    systems = [name for name in PROJECT["classifiers"] if name.startswith("Operating System")]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]


# Package data


def test_the_package_says_that_it_is_typed():
    assert files("transduce").joinpath("py.typed").is_file()


def test_every_data_file_that_the_code_reads_is_in_the_package():
    read = 0
    for file, tree in source_files():
        for node in ast.walk(tree):
            text = ast.unparse(node) if isinstance(node, ast.Call) else ""
            match = re.fullmatch(r"files\('([\w.]+)'\)\.joinpath\('([^']+)'\)", text)
            if match:
                read += 1
                assert files(match[1]).joinpath(match[2]).is_file(), f"{file}: {text}"
    assert read


# Optional packages


def test_optional_packages_are_imported_through_require():
    optional = optional_modules()
    found = {}
    of_the_server = set()
    for file, tree in source_files():
        packages = imported_packages(tree) & optional
        if file.startswith(SERVING):
            of_the_server |= packages
        elif packages:
            found[file] = packages
    assert found == IMPORTED_LAZILY | CHECKED_BEFORE

    # The command asks for all of them, besides what they bring themselves.
    asked = set()
    command = (PACKAGE / "cli/serving.py").read_text(encoding="utf-8")
    for name in of_the_server:
        if f'"{name}"' in command:
            asked.add(name)
    assert of_the_server - asked <= {"h11", "lxml"}


IMPORT_WITHOUT_EXTRAS = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # importing these raises ImportError
import transduce
for name in transduce.__all__:
    getattr(transduce, name)
for module in pkgutil.walk_packages(transduce.__path__, "transduce."):
    try:
        importlib.import_module(module.name)
    except ImportError:
        print(module.name)
"""


def test_modules_that_need_no_optional_package_can_be_imported_without_any():
    command = [sys.executable, "-c", IMPORT_WITHOUT_EXTRAS, *sorted(optional_modules())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    failed = set(done.stdout.splitlines())
    lazy = {f"transduce.{file[:-3].replace('/', '.')}" for file in IMPORTED_LAZILY}
    assert lazy <= failed
    # Others that fail are the ones that only a GPU needs.
    rooms = ("transduce.engines.cuda", "transduce.serving")
    others = {name for name in failed - lazy if not name.startswith(rooms)}
    assert others == ONLY_ON_A_GPU


def test_every_required_package_is_in_the_extra_that_the_message_names():
    calls = [call for call in require_calls() if call[1]]
    assert len(calls) > 10
    everywhere = {requirement_name(requirement) for requirement in PROJECT["dependencies"]}
    for file, module, extra in calls:
        provided = everywhere | {requirement_name(name) for name in EXTRAS[extra]}
        modules = {MODULES.get(name, name) for name in provided}
        assert module.partition(".")[0] in modules, f"{file}: {module} is not in {extra}"


def test_the_check_of_a_minimal_install_covers_every_extra_that_users_choose():
    covered = set(minimal_install.COMMANDS.values())
    required = {extra for _, _, extra in require_calls()}
    # `text` is not required: without it, each line is one sentence.
    assert required <= covered


# Container


def test_everything_that_the_dockerfile_copies_exists_and_reaches_the_build():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = []
    for words in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, flags=re.MULTILINE):
        *sources, _ = words.split()
        copied += sources
    assert "transduce" in copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed, source


def test_the_build_in_the_container_has_what_the_metadata_names():
    copied = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for name in (PROJECT["readme"], *PROJECT["license-files"]):
        assert re.search(rf"^COPY .*\b{re.escape(name)}\b", copied, flags=re.MULTILINE), name


def test_the_container_runs_the_command_without_privileges():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["transduce"]
    assert lines.index("USER transduce") < lines.index('ENTRYPOINT ["transduce"]')
    extras = set(re.findall(r'extras="(?:\$extras,)?([\w,]+)"', "\n".join(lines)))
    assert {name for group in extras for name in group.split(",")} <= set(EXTRAS)


# Project files


@pytest.mark.parametrize(
    "name",
    [
        ".github/ISSUE_TEMPLATE/bug_report.yml",
        ".github/ISSUE_TEMPLATE/feature_request.yml",
        ".github/ISSUE_TEMPLATE/config.yml",
        ".github/workflows/ci.yml",
        ".pre-commit-config.yaml",
    ],
)
def test_project_files_are_valid_yaml(name):
    assert yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
    named = set()
    for name in (
        "CONTRIBUTING.md",
        "docs/releasing.md",
        ".github/workflows/ci.yml",
        ".github/pull_request_template.md",
    ):
        text = (ROOT / name).read_text(encoding="utf-8")
        named |= set(re.findall(r"(?:`|run: )make ([\w-]+)", text))
    assert {"test", "check", "build"} <= named <= targets


# The wheel


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment_without_extras(tmp_path):
    """It needs a package index, or one that pip is configured for."""

    def run(*command):
        done = subprocess.run(
            [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run(sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--wheel-dir", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "transduce"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()} <= names

    for name in ("en-de", "de-en"):
        assert f"transduce/bundles/{name}/model.safetensors" in names

    run(sys.executable, "-m", "venv", tmp_path / "clean")
    python = tmp_path / "clean/bin/python"
    run(python, "-m", "pip", "install", "-c", "constraints.txt", wheel)
    run(python, "tests/minimal_install.py")
