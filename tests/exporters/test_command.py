"""`transduce export` and `transduce import`, as a user types them."""

import subprocess

import pytest

from tests.exporters import opus
from transduce.cli.commands import run
from transduce.errors import ExportError
from transduce.exporters.output import complete_output


def test_a_model_goes_out_and_comes_in(bundle, tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(bundle.path), "--to", "huggingface", "marian"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(
        "marian is ready; 16 of 16 sample translations are the same, log-probabilities differ by"
    )
    assert run(["import", "huggingface", "marian"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("runs/marian/best is ready; 16 of 16")
    assert captured.err == ""
    assert run(["translate", "in 98 weeks"]) == 0  # the newest of ./runs


def test_ctranslate2_and_argos_take_a_quantization(bundle, tmp_path, capsys):
    pytest.importorskip("ctranslate2")
    assert run(["export", str(bundle.path), "--to", "ctranslate2", str(tmp_path / "a")]) == 0
    assert "in float32; in int8 " in capsys.readouterr().out
    command = [
        "export",
        str(bundle.path),
        "--to",
        "argos",
        str(tmp_path / "a.argosmodel"),
        "--quantization",
        "float32",
    ]
    assert run(command) == 0
    assert "in float32" not in capsys.readouterr().out


def test_a_users_mistake_is_one_line(bundle, tmp_path, capsys):
    for arguments, message in (
        (["export", str(bundle.path), "--to", "marian", "x"], "marian"),
        (["export", str(tmp_path / "none"), "--to", "onnx", "x"], "does not exist"),
        (
            ["export", str(bundle.path), "--to", "onnx", "x", "--quantization", "int8"],
            "an export to onnx is always in float32; leave out --quantization int8",
        ),
        (["export", str(bundle.path), "--to", "ctranslate2", str(tmp_path)], "exists already"),
        (
            ["import", "huggingface", str(tmp_path)],
            "has no config.json; expected a MarianMT folder",
        ),
    ):
        assert run(arguments) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1


def test_an_imported_bundle_is_not_overwritten(tmp_path, capsys):
    pytest.importorskip("transformers")
    folder = opus.folder(tmp_path / "folder")
    capsys.readouterr()
    (tmp_path / "out").mkdir()
    assert run(["import", "huggingface", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert "never overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space left on device"), ExportError),
        # safetensors
        (RuntimeError("I/O error: No space left on device (os error 28)"), ExportError),
        (RuntimeError("I/O error: File too large (os error 27)"), ExportError),
        (RuntimeError("a bug"), RuntimeError),
    ],
)
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, error, expected):
    def write():
        with complete_output(tmp_path / "out") as work:
            work.mkdir()
            raise error

    with pytest.raises(
        expected, match=r"out cannot be written \((No space left|the file size limit)|a bug"
    ):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.battery
@pytest.mark.parametrize("runtime", ["huggingface", "onnx"])
def test_an_export_to_a_small_file_system_is_refused(bundle, tmp_path, runtime, capsys):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", tmp_path])
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    try:
        assert run(["export", str(bundle.path), "--to", runtime, str(tmp_path / "out")]) == 2
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    message = capsys.readouterr().err
    assert message.startswith(f"transduce: {tmp_path}/out cannot be written (No space left")
    assert message.count("\n") == 1
