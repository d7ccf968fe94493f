"""`transduce bench serve`: every load is measured, and requests are really sent."""

import json

import pytest

from transduce.cli.commands import run
from transduce.errors import InputError
from transduce.serving.load import send


def test_every_load_is_measured(bundle, server, tmp_path, capsys):
    sentences = tmp_path / "some.en"
    sentences.write_text("42 hours\n12 kilometers\n25 minutes\n")
    command = ["bench", "serve", str(bundle.path), "--input", str(sentences), "--peer", server.url]
    assert run([*command, "--rounds", "1", "--clients", "2", "--texts", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["server"], row["clients"]) for row in rows] == [
        ("offline", 0),
        ("offline", 0),
        ("batches", 1),
        ("batches", 2),
        ("batches, beside a document", 1),
        (f"peer {server.url}", 1),
        (f"peer {server.url}", 2),
        ("one at a time", 1),
        ("one at a time", 2),
    ]
    assert [row["texts"] for row in rows] == [3, 2, 2, 2, 2, 2, 2, 2, 2]
    offline = rows[0]["sentences_per_second"]
    for row in rows:
        assert row["share_of_offline"] == pytest.approx(row["sentences_per_second"] / offline)
    assert all(row["sentences_per_second"] > 0 for row in rows)
    assert all(0 < row["milliseconds"][0] <= row["milliseconds"][1] for row in rows)


@pytest.mark.parametrize("address", ["localhost:5000", "http://127.0.0.1:1"])
def test_a_peer_that_does_not_answer_is_named(address):
    with pytest.raises(InputError, match=r"not an address|does not answer"):
        send(address, ["{}"], 1)


@pytest.mark.parametrize("option", ["rounds", "clients", "sentences", "texts"])
def test_numbers_that_measure_nothing_are_refused(bundle, option, capsys):
    assert run(["bench", "serve", str(bundle.path), f"--{option}", "0"]) == 2
    assert f"{option} is 0" in capsys.readouterr().err


def test_a_server_that_refuses_ends_the_measurement(server):
    with pytest.raises(InputError, match="the server answered 404"):
        send(f"{server.url}/missing", ["{}"] * 3, 2)


def test_clients_are_shared_out_among_processes(server, monkeypatch):
    monkeypatch.setattr("transduce.serving.load.available_cores", lambda: 4)
    bodies = [json.dumps({"text": "42 hours"})] * 5
    _, seconds = send(f"{server.url}/v1/translate", bodies, 3)
    assert len(seconds) == 5
    assert min(seconds) > 0
