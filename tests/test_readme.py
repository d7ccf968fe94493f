"""The commands and the Python of the README run, on a small corpus and with a small model."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from torch import nn

import transduce
from transduce.cli.commands import run
from transduce.config import ModelConfig
from transduce.corpora.phrases import phrases
from transduce.model import Transformer
from transduce.model.multi_head import MultiHeadAttention
from transduce.storage import installed
from transduce.training.optimizer import build_optimizers
from transduce.training.run import Run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = """
[data.tokenizer]
vocab_size = 600
[data.clean]
off = ["numbers", "length-ratio", "wrong-language"]
[training]
steps = 4
tokens_per_step = 800
validation_sentences = 4
"""


def blocks(language, text=README):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def corpus(bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A small model in place of those of the package.
    monkeypatch.setattr(installed, "PACKAGED", tmp_path / "package")
    for name in ("en-de", "de-en"):
        shutil.copytree(bundle.path, tmp_path / "package" / name)
    for split, pairs in phrases("en", "de", pairs=1_200, seed=1).items():
        if split != "train":
            pairs = pairs[:8]  # an untrained model is slow to stop
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")


def write_small_recipe(path):
    (recipe,) = blocks("toml")
    assert path.exists()  # it was written by the command before
    small = recipe.replace('preset = "base"', 'preset = "tiny"') + SMALL
    path.write_text(small, encoding="utf-8")


def test_every_command_of_the_readme_runs(corpus, capsys):
    lines = [line.partition("#")[0] for line in "".join(blocks("sh")).splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("transduce ")]
    names = [command[1] for command in commands]
    assert names == [
        "translate",
        "translate",
        "inspect",
        "serve",
        "doctor",
        "new",
        "train",
        "watch",
        "translate",
        "score",
        "export",
        "export",
        "export",
        "import",
    ]
    for command in commands:
        if command[1] == "serve":  # it would not end; tests/serving starts it
            assert run(["serve", "--help"]) == 0
            continue
        if command[1] == "train":  # the recipe of the page, made small, in place of the new one
            write_small_recipe(Path(command[2]))
        extra = ["--once"] if command[1] == "watch" else []
        assert run([*command[1:], *extra]) == 0, (command, capsys.readouterr())
    output = capsys.readouterr().out
    assert "BLEU" in output
    assert output.count("16 of 16 sample translations are the same") == 4

    # The first block prints that the run is finished, and two translations.
    first, own_model = blocks("python")
    names = {}
    exec(first, names)
    assert len(capsys.readouterr().out.splitlines()) == 3

    # The second uses names that the reader defines.
    names["AlibiTransformer"] = Transformer
    names["lion"] = build_optimizers
    names["log"] = lambda record: None
    exec(own_model, names)
    assert Run("runs/alibi").step == 4


def test_the_code_of_the_guide_to_changing_the_model_runs():
    (code,) = blocks("python", (ROOT / "docs/extending.md").read_text(encoding="utf-8"))
    model = Transformer(ModelConfig(vocab_size=9, N=1, d_model=8, d_ff=8, h=2, d_k=4, d_v=4))
    names = {
        "transduce": transduce,
        "AlibiAttention": MultiHeadAttention,
        "MyNetwork": nn.Tanh,
        "model": model,
    }
    exec(code, {**names, "f": lambda *_: None})
    assert isinstance(model.decoder[0].feed_forward, nn.Tanh)


def test_the_readme_shows_the_commands_that_the_makefile_has():
    targets = re.findall(r"^make (\w+)", "".join(blocks("sh")), flags=re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_the_readme_fits_on_two_screens():
    assert len(README.splitlines()) <= 120
