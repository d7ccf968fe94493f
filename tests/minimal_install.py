"""Check an installed transduce without extras: python tests/minimal_install.py.

Run it with the Python of a clean environment that has only the wheel and its dependencies. It needs
neither pytest nor the sources. It translates with the model of the package, trains a tiny model,
translates with it, and checks that every command that needs an extra fails with one line that says
how to install it.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from transduce.errors import install_command

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RECIPE = """
preset = "tiny"
[data]
source_language = "en"
target_language = "de"
[[data.corpora]]
source = "train.en"
target = "train.de"
[[data.validation]]
source = "valid.en"
target = "valid.de"
[data.tokenizer]
vocab_size = 300
[data.clean]
off = ["numbers", "length-ratio", "wrong-language"]
[model]
N = 1
d_model = 32
d_ff = 64
h = 2
d_k = 16
d_v = 16
[training]
steps = 3
tokens_per_step = 300
validation_sentences = 2
"""

# A package of each extra, and the extra.
OPTIONAL = {
    "babel": "phrases",
    "num2words": "phrases",
    "py3langid": "data",
    "pyarrow": "data",
    "zstandard": "data",
    "sentencex": "text",
    "polib": "documents",
    "ctranslate2": "ctranslate2",
    "ray": "ray",
    "transformers": "export",
    "onnx": "export",
    "starlette": "serve",
    "uvicorn": "serve",
}

# Commands that need an extra, and that extra.
COMMANDS = {
    "data get phrases --out phrases": "phrases",
    "doctor corpus.parquet": "data",
    "doctor corpus.en.zst corpus.de.zst": "data",
    "translate --model run --input app.po --output app.de.po": "documents",
    "translate --model run --engine ctranslate2 1": "ctranslate2",
    "translate --model run --on ray --input valid.en --output translated.de": "ray",
    "export run --to ctranslate2 out": "ctranslate2",
    "export run --to argos out.argosmodel": "ctranslate2",
    "export run --to huggingface out": "export",
    "export run --to onnx out": "export",
    "serve run": "serve",
    "bench serve run --input valid.en": "serve",
}


def main() -> None:
    """Run all checks in a temporary folder; the first failure ends the program."""
    installed = [name for name in OPTIONAL if find_spec(name)]
    if installed:
        sys.exit(f"this environment has extras ({', '.join(installed)}); expected a clean one")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        check_training(folder)
        check_missing_extras(folder)
    print("the minimal install works")


def write_corpus(folder: Path) -> None:
    """Write a small corpus of numbers and their words, a recipe, and files that need extras."""
    rng = random.Random(1)
    for split, lines in (("train", 1_000), ("valid", 20)):
        sources = []
        targets = []
        for _ in range(lines):
            digits = [rng.randrange(10) for _ in range(rng.randint(2, 7))]
            sources.append(" ".join(str(digit) for digit in digits) + "\n")
            targets.append(" ".join(WORDS[digit] for digit in digits) + "\n")
        (folder / f"{split}.en").write_text("".join(sources), encoding="utf-8")
        (folder / f"{split}.de").write_text("".join(targets), encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    for name in ("corpus.parquet", "corpus.en.zst", "corpus.de.zst", "app.po"):
        (folder / name).write_bytes(b"x")


def check_training(folder: Path) -> None:
    """Check help, version, training, translation and scoring."""
    for command in (
        "--help",
        "--version",
        "describe base",
        "bundles",
        "translate Hello",
        "train recipe.toml --run run",
        "translate --model run 1",
        "score run valid.en valid.de",
    ):
        done = transduce(folder, command)
        if done.returncode != 0:
            sys.exit(f"transduce {command} failed:\n{done.stdout}{done.stderr}")
    if not (folder / "run/report.html").is_file():
        sys.exit("training wrote no report.html")


def check_missing_extras(folder: Path) -> None:
    """Check that each command fails with one line that contains the install command."""
    for command, extra in COMMANDS.items():
        done = transduce(folder, command)
        lines = done.stderr.splitlines()
        wanted = install_command(extra)
        if done.returncode != 2 or not lines or wanted not in lines[-1]:
            sys.exit(
                f"transduce {command}: expected status 2 and a line with {wanted}, found status "
                f"{done.returncode} and:\n{done.stderr}"
            )
        if "Traceback" in done.stderr:
            sys.exit(f"transduce {command} printed a traceback:\n{done.stderr}")


def transduce(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a folder."""
    program = Path(sys.executable).with_name("transduce")
    return subprocess.run(
        [str(program), *command.split()], cwd=folder, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    main()
