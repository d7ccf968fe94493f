"""docs/scaling.md: bench.scaling prints its table, and torchrun and transduce accept its commands."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from bench.scaling import Scaling, table
from transduce.cli.commands import run
from transduce.corpora.phrases import write_phrases
from transduce.monitoring.metrics import read_metrics
from transduce.training import train as training
from transduce.training.run import Run

DOCUMENT = (Path(__file__).parent.parent / "docs/scaling.md").read_text(encoding="utf-8")
SMALL = [
    "model.N=1", "model.d_model=32", "model.d_ff=64", "model.h=2", "model.d_k=16", "model.d_v=16",
    "data.tokenizer.vocab_size=500", "training.steps=3", "training.tokens_per_step=600",
    "training.validation_sentences=2",
]  # fmt: skip


def commands():
    """Return the words of every torchrun command of the page, with or without srun."""
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    shell = "\n".join(blocks).replace("$SLURM_NNODES", "4")
    lines = [line.removeprefix("srun ") for line in shell.splitlines()]
    from_shell = [shlex.split(line) for line in lines if line.startswith("torchrun ")]
    from_yaml = [json.loads(words) for words in re.findall(r"command: (\[.*\])", DOCUMENT)]
    return from_shell + from_yaml


def test_the_table_is_what_the_calculation_gives():
    assert table() in DOCUMENT


def test_the_calculation_is_that_of_a_ring():
    eight = Scaling("base", 8, 25_000)
    many = Scaling("base", 10_000, 25_000)
    assert eight.exchange_ms == pytest.approx(
        1000 * 2 * 7 / 8 * eight.gradient_bytes / (0.8 * 450e9)
    )
    assert many.exchange_ms == pytest.approx(
        1000 * 2 * many.gradient_bytes / (0.8 * 50e9), rel=1e-3
    )
    assert Scaling("base", 1, 25_000).efficiency == 1
    for size in (eight.gradient_bytes, Scaling("big", 8, 25_000).gradient_bytes):
        assert f"{size / 1e6:.0f} MB" in DOCUMENT


def test_torchrun_and_transduce_accept_every_command(monkeypatch, tmp_path):
    calls = []
    monkeypatch.chdir(tmp_path)
    Path("data/wmt14").mkdir(parents=True)
    Path("data/wmt14/recipe.toml").touch()

    def record_call(name, overrides, *, run, **options):
        calls.append((name, run))
        return Run(run)

    monkeypatch.setattr(training, "train", record_call)
    for words in commands():
        options = get_args_parser().parse_args(words[1:])
        assert (options.module, options.training_script) == (True, "transduce")
        assert run(options.training_script_args) == 0
    assert calls == [("data/wmt14/recipe.toml", Path("runs/wmt14"))] * 4


@pytest.mark.ranks
def test_the_command_for_one_machine_runs(tmp_path):
    (tmp_path / "data").mkdir()
    write_phrases(tmp_path / "data", "en", "de", 1_200, 1).rename(tmp_path / "data/recipe.toml")
    (_, *words) = next(words for words in commands() if "--standalone" in words)
    words[words.index("--nproc-per-node") + 1] = "2"
    line = [word.replace("data/wmt14", "data") for word in words]
    launcher = [sys.executable, "-m", "torch.distributed.run", *line, *SMALL, "--device", "cpu"]
    environment = {
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "PATH": "/usr/bin:/bin",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        launcher, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert read_metrics(tmp_path / "runs/wmt14").records[-1]["kind"] == "finish"
