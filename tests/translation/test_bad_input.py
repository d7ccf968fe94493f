"""Any input works, or one clear line says what is wrong."""

import io
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from transduce.cli.commands import run
from transduce.storage import bundle as bundles
from transduce.storage import installed


@pytest.fixture
def damaged(bundle, tmp_path):
    """A copy of the bundle, to be damaged."""
    return shutil.copytree(bundle.path, tmp_path / "bundle")


@pytest.fixture
def translate(monkeypatch, capsysbinary):
    def command(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = run(["translate", "--device", "cpu", "--beam", "1", *map(str, arguments)])
        captured = capsysbinary.readouterr()
        return status, captured.out.decode(), captured.err.decode()

    return command


def refused(answer, *words):
    status, out, err = answer
    assert (status, out, err.count("\n")) == (2, "", 1), err
    for word in words:
        assert word in err


def test_a_folder_that_is_no_bundle(translate, tmp_path):
    refused(translate("--model", tmp_path, "text"), str(tmp_path), "not a bundle")
    refused(translate("--model", tmp_path / "nowhere", "text"), "nowhere")
    (tmp_path / "file").write_text("x")
    refused(translate("--model", tmp_path / "file", "text"), "file")


@pytest.mark.parametrize(
    "name", ["model.safetensors", "tokenizer.model", "config.toml", "MANIFEST.json"]
)
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_bundle_names_the_file(translate, damaged, name, damage):
    file = damaged / name
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 64
        file.write_bytes(content)
    else:
        file.unlink()
    refused(translate("--model", damaged, "text"), str(damaged))


def test_a_bundle_of_a_newer_format(translate, bundle, tmp_path, monkeypatch):
    with monkeypatch.context() as later:
        later.setattr(bundles, "BUNDLE", replace(bundles.BUNDLE, version=2))
        bundles.save_bundle(
            tmp_path / "b", bundle.recipe, bundle.weights(), bundle.tokenizer_files, {}, {}
        )
    refused(
        translate("--model", tmp_path / "b", "text"),
        "bundle format 2",
        "up to 1; upgrade transduce",
    )


def test_a_poisoned_pickle_is_never_read(translate, damaged, tmp_path):
    """A pickle under every name that a loader looks for; loading it would leave a trace."""
    trace = tmp_path / "trace"
    poison = b"cos\nsystem\n(S'touch " + str(trace).encode() + b"'\ntR."
    for name in (
        "pytorch_model.bin",
        "model.pt",
        "model.pkl",
        "model.ckpt",
        "config.pkl",
        "tokenizer.pkl",
    ):
        (damaged / name).write_bytes(poison)
    status, out, _ = translate("--model", damaged, "in 98 weeks")
    assert status == 0
    assert out.strip()
    (damaged / "model.safetensors").write_bytes(poison)
    refused(translate("--model", damaged, "text"), "model.safetensors")
    assert not trace.exists()


def test_without_a_model_the_newest_of_the_runs_is_taken(translate, bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "PACKAGED", tmp_path / "package")
    refused(translate("text"), "no model found in the package nor in ./runs")
    for age, name in ((100, "old"), (0, "new"), (200, "oldest")):
        folder = shutil.copytree(bundle.path, tmp_path / "runs" / name / "best")
        stamp = (folder / "MANIFEST.json").stat().st_mtime - age
        os.utime(folder / "MANIFEST.json", (stamp, stamp))
        if name != "new":
            (folder / "tokenizer.model").unlink()  # the others would not load
    status, out, err = translate("in 98 weeks")
    assert (status, err) == (0, "")
    assert out.strip()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert translate("in 98 weeks") == (0, out, "transduce: the model is runs/new/best\n")
    assert translate("--model", "runs/new", "in 98 weeks") == (0, out, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "?!...",
        "\u00bf\u2014\u2026\u201c",
        "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
        "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd. \u0645\u0631\u062d\u0628\u0627\u061f",
        "a\u0301\u0301\u0301\u0301 \ufeff \u200b \x00 \x1b[31m",
        "\U00020000\U0010ffff",
    ],
)
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_any_text_is_one_line(translate, bundle, text, engine):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    stdin = f"{text}\nin 98 weeks\n".encode()
    status, out, err = translate("--model", bundle.path, "--engine", engine, stdin=stdin)
    assert status == 0
    assert all("a script that the model has never seen, and w" in line for line in err.splitlines())
    lines = out.split("\n")
    assert len(lines) == 3
    assert lines[2] == ""
    assert lines[1] == translate("--model", bundle.path, "--engine", engine, "in 98 weeks")[
        1
    ].strip("\n")
    if not text.strip():
        assert lines[0] == text


@pytest.mark.slow
def test_ten_megabytes_on_one_line_stay_in_bounded_memory(bundle, tmp_path):
    """In a process that may take no more than 3 GiB of addresses."""
    (tmp_path / "in.txt").write_text("in 98 weeks. " * (10_000_000 // 13) + "\n")
    command = [
        sys.executable,
        "-m",
        "transduce",
        "translate",
        "--model",
        str(bundle.path),
        "--beam",
        "1",
    ]
    files = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")]
    most = 3 << 30
    subprocess.run(
        [*command, *files],
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    (line,) = (tmp_path / "out.txt").read_text().splitlines()
    assert len(set(line.split(". "))) <= 3
    assert len(line) > 1_000_000
