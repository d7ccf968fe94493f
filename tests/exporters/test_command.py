"""`transduce export` and `transduce import`, as a user types them."""

import pytest

from tests.exporters import opus
from transduce.cli.commands import run


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
