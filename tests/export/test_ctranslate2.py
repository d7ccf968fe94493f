"""The export to CTranslate2 is verified, whole, and loads in the real library."""

import json

import pytest

from tests import trained
from transduce.bundle import load_bundle
from transduce.decoding import conversion
from transduce.errors import ExportError
from transduce.export.ctranslate2 import export

ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return load_bundle(trained.save(tmp_path_factory.mktemp("runs") / "demo", steps=1, rows=2))


def test_an_export_loads_and_brings_its_tokenizer_and_report(bundle, tmp_path):
    report = export(bundle, tmp_path / "out")
    assert report["largest_difference"] < 1e-4
    assert json.loads((tmp_path / "out/export.json").read_text()) == report
    assert (tmp_path / "out/tokenizer.model").read_bytes() == bundle.tokenizer_files["tokenizer.model"]
    translator = ctranslate2.Translator(str(tmp_path / "out"), device="cpu")
    assert translator.translate_batch([["\u2581", "</s>"]], max_decoding_length=3)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(ExportError, match="is already there"):
        export(bundle, tmp_path / "out")


def test_an_export_that_differs_is_refused_and_leaves_nothing(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "_table", lambda config, rows: conversion_zeros(rows, config.d_model))
    with pytest.raises(ExportError, match="CTranslate2 gives token 1 of sample 1 the log-probability"):
        export(bundle, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def conversion_zeros(rows, width):
    import numpy

    return numpy.zeros((rows, width), dtype=numpy.float32)
