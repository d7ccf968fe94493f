"""Measurements: what was measured is kept, whole."""

import json
import sys

import pytest

from bench import train


def test_an_interrupted_measurement_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "train.json"
    monkeypatch.setattr(sys, "argv", ["bench.train", "--json", str(path)])

    def interrupted(_):
        raise KeyboardInterrupt

    for before in (None, {"speed": 1}):
        if before:
            monkeypatch.setattr(train, "results", lambda _, found=before: found)
            train.main()
        monkeypatch.setattr(train, "results", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train.main()
        assert {each.name: json.loads(each.read_text()) for each in tmp_path.iterdir()} == (
            {"train.json": before} if before else {}
        )
