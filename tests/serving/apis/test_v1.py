"""Our own API: every part of an answer is what the translator gives."""

import json

import pytest
import torch

TEXT = "Sunday, September 16, 1984. 42 hours and 25 minutes\n\n12 kilometers"


def events(content):
    """The name and the data of each server-sent event."""
    for block in content.decode().split("\n\n"):
        if block:
            name, data = block.split("\n")
            yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_the_models_are_listed_with_their_languages(server, bundle):
    status, answer = server.get("/v1/models")
    assert status == 200
    assert answer["models"] == [
        {
            "name": bundle.path.name,
            "source_language": "en",
            "target_language": "de",
            "default": True,
            "parameters": 197_888,
            "engine": "torch",
        }
    ]


def test_a_text_is_translated_as_by_the_translator(server, translator):
    status, answer = server.post("/v1/translate", {"text": TEXT})
    expected = translator.translate(TEXT)
    (translation,) = answer["translations"]
    assert status == 200
    assert translation["text"] == expected.text
    assert translation["score"] == pytest.approx(expected.score, abs=1e-3)
    assert [sentence["text"] for sentence in translation["sentences"]] == [
        sentence.text for sentence in expected.sentences
    ]
    assert "".join(s["before"] + s["text"] for s in translation["sentences"]) == expected.text


def test_several_texts_are_answered_in_order(server, translator):
    texts = ["12 kilometers", "", "42 hours", "  \n"]
    _, answer = server.post("/v1/translate", {"text": texts})
    expected = [translation.text for translation in translator.translate(texts)]
    assert [translation["text"] for translation in answer["translations"]] == expected


def test_details_are_returned_if_requested_and_only_then(server, translator):
    wanted = {"n_best": 3, "alignments": True, "confidences": True}
    _, answer = server.post("/v1/translate", {"text": "42 hours", **wanted})
    expected = translator.translate("42 hours", **wanted)
    (sentence,) = answer["translations"][0]["sentences"]
    (original,) = expected.sentences
    assert [choice["text"] for choice in sentence["n_best"]] == [t for t, _ in original.n_best]
    assert len(sentence["n_best"]) == 3
    assert sentence["source_words"] == list(original.alignment.source)
    assert sentence["target_words"] == list(original.alignment.target)
    assert [tuple(link) for link in sentence["alignment"]] == list(original.alignment.links)
    assert [token["text"] for token in sentence["tokens"]] == [t.text for t in original.tokens]
    assert all(0 < token["probability"] <= 1 for token in sentence["tokens"])

    _, answer = server.post("/v1/translate", {"text": "42 hours"})
    (sentence,) = answer["translations"][0]["sentences"]
    assert sentence.keys() == {"source", "text", "score", "n_best", "before"}


def test_terms_of_a_glossary_are_translated_as_it_says(server):
    glossary = {"kilometers": "KM", "hours": "Std."}
    _, answer = server.post("/v1/translate", {"text": "12 kilometers\nhours", "glossary": glossary})
    text = answer["translations"][0]["text"]
    assert text.count("KM") == 1
    assert text.endswith("\nStd.")


def test_a_text_is_split_as_requested(server):
    body = {"text": "42 hours and\n25 minutes"}
    _, answer = server.post("/v1/translate", {**body, "split": "sentences"})
    assert len(answer["translations"][0]["sentences"]) == 1
    _, answer = server.post("/v1/translate", body)
    assert len(answer["translations"][0]["sentences"]) == 2
    assert server.post("/v1/translate", {**body, "split": "words"})[0] == 400


def test_a_stream_has_each_sentence_in_order_and_then_the_whole_answer(server):
    texts = [TEXT, "12 kilometers"]
    _, headers, content = server.request(
        "POST",
        "/v1/translate",
        json.dumps({"text": texts, "stream": True}),
        {"content-type": "application/json"},
    )
    _, whole = server.post("/v1/translate", {"text": texts})
    *sentences, (name, last) = events(content)
    assert headers["content-type"].startswith("text/event-stream")
    assert name == "done"
    assert [t["text"] for t in last["translations"]] == [t["text"] for t in whole["translations"]]
    assert {name for name, _ in sentences} == {"sentence"}
    places = [(data["index"], data["sentence"], data["of"]) for _, data in sentences]
    assert places == [(0, 0, 3), (0, 1, 3), (0, 2, 3), (1, 0, 1)]
    streamed = "".join(data["before"] + data["text"] for _, data in sentences[:3])
    assert streamed == whole["translations"][0]["text"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "text: Field required"),
        ({"text": 5}, 400, "text: Input should be a valid string"),
        ({"text": []}, 400, "text: List should have at least 1 item"),
        ({"text": ["a", 5]}, 400, "text.1: Input should be a valid string"),
        ({"text": "a", "n_best": 0}, 400, "n_best"),
        ({"text": "a", "n_best": 17}, 400, "n_best"),
        ({"text": "a", "n_best": "2"}, 400, "n_best"),
        ({"text": "a", "beam": 2}, 400, "beam is not a setting of this request"),
        ({"text": "a", "b\x1b[1m": 2}, 400, "b\ufffd[1m is not a setting of this request"),
        ({"text": "a", "\n": 2}, 400, "an empty name is not a setting of this request"),
        ({"text": "a", "model": "other"}, 404, "there is no model 'other'; the models are: demo"),
        ({"text": "a", "glossary": {" ": "x"}}, 400, "glossary: String should"),
        ({"text": "a", "glossary": {"bank": ""}}, 400, "glossary.bank: String should"),
        ({"text": "a", "glossary": {"bank": " "}}, 400, "glossary.bank: String should"),
        ({"text": "\ud800"}, 400, "Invalid JSON"),
        ({"text": "a" * 100_001}, 413, "100001"),
        ({"text": ["a"] * 1_001}, 413, "1001 texts"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_request_is_refused_in_one_clear_line(server, body, status, message):
    found, answer = server.post("/v1/translate", body)
    assert (found, answer.keys()) == (status, {"error"})
    assert message in answer["error"]
    assert "\n" not in answer["error"]


def test_what_is_not_json_is_refused(server):
    json_type = {"content-type": "application/json"}
    deep = "[" * 100_000
    for body in ("", "{", "null", "[]", deep, b"\xff\xfe", '{"text": NaN}'):
        status, _, content = server.request("POST", "/v1/translate", body, json_type)
        assert status == 400
        assert json.loads(content).keys() == {"error"}
    status, _, _ = server.request("POST", "/v1/translate", "{}", {"content-type": "text/plain"})
    assert status == 415


def test_wrong_paths_and_methods_are_answered_in_json(server):
    for path, name in (("/v1/nothing", "error"), ("/v2/document", "message"), ("/v3/x", "message")):
        expected = f"this server has nothing at {path}; GET /openapi.json describes what it has"
        assert server.get(path) == (404, {name: expected})
    status, headers, content = server.request("GET", "/v1/translate")
    assert (status, headers["allow"]) == (405, "POST")
    assert "does not accept GET; GET /openapi.json" in json.loads(content)["error"]


def test_the_page_may_load_nothing_from_elsewhere(server):
    status, headers, content = server.request("GET", "/")
    assert status == 200
    assert b"<!doctype html>" in content.lower()
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "connect-src 'self'" in headers["content-security-policy"]
    assert server.request("GET", "/static/app.js")[0] == 200
    for name in ("nothing.js", "..%2f__init__.py", "../__init__.py"):
        assert server.request("GET", f"/static/{name}")[0] == 404


def test_attention_is_that_of_an_inspection(server, translator):
    import transduce

    status, answer = server.post("/v1/attention", {"text": "42 hours", "without": ["cross.1.2"]})
    expected = transduce.inspect(translator, "42 hours", without=["cross.1.2"])
    assert status == 200
    assert answer["translation"] == expected.translation
    assert answer["without"] == ["cross.1.2"]
    assert answer["attention"]["cross"]["shape"] == list(expected.attention["cross"].shape)


def test_what_cannot_be_inspected_is_not_found(server):
    for body in (
        {"text": "42 hours", "without": ["cross.9.1"]},
        {"text": "42 hours", "sentence": 1},
        {"text": "..."},
    ):
        status, answer = server.post("/v1/attention", body)
        assert (status, answer.keys()) == (404, {"error"})
    assert server.post("/v1/attention", {"text": "a", "without": ["cross"]})[0] == 400
    assert server.post("/v1/attention", {"text": "a" * 2_001})[0] == 413
    blank = {"error": "the text is blank; expected at least one word"}
    assert server.post("/v1/attention", {"text": " \n"}) == (400, blank)


def test_a_walkthrough_has_its_steps(server):
    status, answer = server.post("/v1/walkthrough", {"text": "42 hours", "layer": 2, "head": 3})
    assert (status, answer["layer"], answer["head"]) == (200, 2, 3)
    assert answer["steps"]
    assert server.post("/v1/walkthrough", {"text": "42 hours", "layer": 99})[0] == 404


def test_runs_are_those_of_the_folder(server):
    assert server.get("/v1/runs") == (200, {"runs": []})
    for name in ("nothing", "..", "%2e%2e"):
        assert server.get(f"/v1/runs/{name}")[0] == 404


@pytest.mark.parametrize("path", ["/v1/attention", "/v1/walkthrough", "/v1/translate"])
def test_torch_takes_one_core_where_another_engine_translates(server, monkeypatch, path):
    limited = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", limited.append)
    assert server.post(path, {"text": "42 hours"})[0] == 200
    assert limited == []  # torch translates here
    monkeypatch.setattr(server.service, "needs_torch", False)
    assert server.post(path, {"text": "42 hours"})[0] == 200
    assert set(limited) == {1}
