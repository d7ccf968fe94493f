"""The export to CTranslate2 is verified, whole, and loads in the real library."""

import json
import re
import subprocess
import sys

import numpy
import pytest
import torch

from transduce.engines import conversion
from transduce.errors import ExportError
from transduce.exporters.ctranslate2 import export
from transduce.storage.bundle import load_bundle, save_bundle
from transduce.translation.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2")


def test_an_export_loads_and_brings_its_tokenizer_and_report(bundle, tmp_path):
    report = export(bundle, tmp_path / "out")
    assert report["largest_difference"] < 1e-5 < report["rounded"]["largest_difference"]
    assert json.loads((tmp_path / "out/export.json").read_text()) == report
    assert (tmp_path / "out/tokenizer.model").read_bytes() == bundle.tokenizer_files[
        "tokenizer.model"
    ]
    translator = ctranslate2.Translator(str(tmp_path / "out"), device="cpu")
    assert translator.translate_batch([["\u2581", "</s>"]], max_decoding_length=3)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(ExportError, match="exists already"):
        export(bundle, tmp_path / "out")


def run_readme(folder):
    """Return what the Python in the README of an export prints."""
    (code,) = re.findall(
        r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("joint", [True, False])
def test_the_readme_inside_translates_as_we_do(make_bundle, tokenizer, tmp_path, joint):
    model = tokenizer.to_bytes()
    bundle = make_bundle(None if joint else {"source.model": model, "target.model": model})
    export(bundle, tmp_path / "out", "float32")
    expected = Translator(bundle, engine="torch").translate("in 98 weeks").text + "\n"
    assert run_readme(tmp_path / "out") == expected
    assert "vmap" not in (tmp_path / "out/README.md").read_text()


def test_the_readme_of_a_model_with_a_shortlist_uses_it(make_bundle, tokenizer, tmp_path):
    files = {"tokenizer.model": tokenizer.to_bytes(), "shortlist.txt": b"a\nb\nc\n"}
    export(make_bundle(files), tmp_path / "out", "float32")
    assert {*run_readme(tmp_path / "out")} - {"\n"} <= {*"abc"}
    assert "with `use_vmap=True`, which works on a CPU" in (tmp_path / "out/README.md").read_text()


def test_in_float32_what_is_handed_over_is_what_was_verified(bundle, tmp_path):
    report = export(bundle, tmp_path / "out", "float32")
    assert "rounded" not in report
    assert report["same_translations"] == report["sequences"]


def test_a_learnt_start_is_carried_too(bundle, tmp_path):
    """Only an imported model has one: padding's row is zero in ours."""
    weights = bundle.weights()
    weights["target_embedding.weight"][-1] = torch.linspace(
        -1, 1, weights["target_embedding.weight"].size(1)
    )
    path = save_bundle(tmp_path / "started", bundle.recipe, weights, bundle.tokenizer_files, {}, {})
    assert export(load_bundle(path), tmp_path / "out", "float32")["largest_difference"] < 1e-5


def test_an_export_that_differs_is_refused_and_leaves_nothing(bundle, tmp_path, monkeypatch):
    zeros = numpy.zeros((1024, bundle.recipe.model.d_model), dtype=numpy.float32)
    monkeypatch.setattr(conversion, "_table", lambda config, rows: zeros)
    with pytest.raises(
        ExportError, match="CTranslate2 gives token 1 of sample 1 the log-probability"
    ):
        export(bundle, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_clear_line(bundle, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot be written"):
        export(bundle, tmp_path / "file" / "out")
