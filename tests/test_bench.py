"""The benchmarks keep what they measured, and write headline figures with their origin."""

import json
import sys

import pytest

from bench import train
from bench.figures import command_line, read_figures, record_figure
from bench.training_steps import longer_side, padded, random_steps, target_tokens

HARDWARE = {"cpu": "AMD EPYC", "cores": 2, "torch": "2.13.0"}


def test_an_interrupted_measurement_keeps_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "train.json"
    monkeypatch.setattr(sys, "argv", ["bench.train", "--json", str(path)])

    def interrupted(_):
        raise KeyboardInterrupt

    for previous in (None, {"speed": 1}):
        if previous:
            monkeypatch.setattr(train, "results", lambda _, result=previous: result)
            train.main()
        monkeypatch.setattr(train, "results", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train.main()
        files = {file.name: json.loads(file.read_text()) for file in tmp_path.iterdir()}
        assert files == ({"train.json": previous} if previous else {})


def test_a_training_benchmark_records_its_figure(tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    arguments = ["--preset", "tiny", "--json", str(tmp_path / "train.json"), "--record", str(path)]
    monkeypatch.setattr(sys, "argv", ["bench.train", *arguments])
    rows = {
        "transduce": {
            "target_tokens_per_second": 1_115_822.0,
            "step_ms": 21.28,
            "memory_gib": 6.79,
        },
        "peer": {"target_tokens_per_second": 12_345.0, "step_ms": 73.2, "memory_gib": 22.5},
    }
    monkeypatch.setattr(train, "results", lambda _: {"results": rows})
    train.main()
    (figure,) = read_figures(path).values()
    assert figure["command"] == "python -m bench.train --preset tiny"
    assert figure["values"]["transduce"] == {
        "target_tokens_per_second": 1_116_000,
        "step_ms": 21.3,
        "memory_gib": 6.8,
    }
    assert figure["values"]["peer"]["target_tokens_per_second"] == 12_300
    assert figure["values"]["peer"]["ratio"] == 3.44


def test_recording_a_figure_keeps_its_section_and_the_other_figures(tmp_path):
    path = tmp_path / "figures.json"
    other = {"section": "Data", "command": "x", "hardware": "y", "commit": "z", "values": {"n": 1}}
    path.write_text(json.dumps({"speed": other, "other": other}))
    record_figure(path, "speed", {"n": 2}, "python -m bench.train", HARDWARE)
    figures = read_figures(path)
    assert figures["other"] == other
    assert figures["speed"]["section"] == "Data"
    assert figures["speed"]["values"] == {"n": 2}
    assert figures["speed"]["hardware"] == "2 cores of AMD EPYC, torch 2.13.0"
    assert figures["speed"]["commit"] != "z"


def test_the_recorded_command_does_not_name_output_files():
    arguments = ["--json", "a", "--preset", "big", "--record=b", "--alone"]
    assert command_line("bench.train", arguments) == "python -m bench.train --preset big --alone"


def test_the_steps_of_a_benchmark_hold_similar_lengths_and_about_the_same_tokens():
    steps = random_steps(tokens=600, vocab_size=500, mean=14.0)
    sizes = [sum(longer_side(pair) for pair in pairs) for pairs in steps]
    assert len(steps) == 8
    assert max(sizes) < 1.2 * 600
    assert min(sizes) > 0.8 * 600
    longest = [max(longer_side(pair) for pair in pairs) for pairs in steps]
    assert longest == sorted(longest)
    source, target = padded(steps[0], pad=499)
    assert source.ids.shape == target.ids.shape
    assert int((target.ids != 499).sum()) == target_tokens(steps[0])
