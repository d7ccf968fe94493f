"""`transduce bench serve`: every load is measured, and requests are really sent."""

import json

import pytest

from transduce.cli.commands import run
from transduce.errors import InputError
from transduce.serving.load import ask, send


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


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("localhost:5000", "localhost:5000/translate is not an address; expected one such as"),
        ("http://localhost:abc", "http://localhost:abc/translate is not an address"),
        ("http://[::1", "http://[::1/translate is not an address"),
        ("http://ü..de", "http://ü..de/translate does not answer ("),
        ("http://127.0.0.1:1", "http://127.0.0.1:1/translate does not answer ([Errno"),
    ],
)
def test_a_peer_that_does_not_answer_is_named_before_anything_is_measured(
    bundle, tmp_path, address, message, capsys
):
    sentences = tmp_path / "some.en"
    sentences.write_text("42 hours\n")
    command = ["bench", "serve", str(bundle.path), "--input", str(sentences)]
    assert run([*command, "--rounds", "1", "--peer", address]) == 2
    assert capsys.readouterr().err.startswith(f"transduce: {message}")


def test_a_page_in_place_of_an_answer_is_named(monkeypatch):
    monkeypatch.setattr("transduce.serving.load._Connection.post", lambda self, body: b"<html>")
    with pytest.raises(InputError, match="answered b'<html>'; expected JSON"):
        ask("http://127.0.0.1:1", "{}")


def test_clients_name_a_server_that_does_not_answer():
    with pytest.raises(InputError, match="does not answer"):
        send("http://127.0.0.1:1", ["{}"], 1)


@pytest.mark.parametrize("option", ["rounds", "clients", "sentences", "texts"])
def test_numbers_that_measure_nothing_are_refused(bundle, option, capsys):
    assert run(["bench", "serve", str(bundle.path), f"--{option}", "0"]) == 2
    assert f"{option} is 0" in capsys.readouterr().err


def test_a_server_that_refuses_ends_the_measurement(server):
    with pytest.raises(InputError, match="/missing answered 404"):
        send(f"{server.url}/missing", ["{}"] * 3, 2)


def test_clients_are_shared_out_among_processes(server, monkeypatch):
    monkeypatch.setattr("transduce.serving.load.available_cores", lambda: 4)
    bodies = [json.dumps({"text": "42 hours"})] * 5
    _, seconds = send(f"{server.url}/v1/translate", bodies, 3)
    assert len(seconds) == 5
    assert min(seconds) > 0
