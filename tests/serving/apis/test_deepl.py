"""The API of DeepL, with its own client and on the wire."""

import json

import deepl
import jsonschema_rs
import pytest

from transduce.translation.sentences import SPLITS

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def client(server):
    client = deepl.DeepLClient("any-key", server_url=server.url)
    yield client
    client.close()


def test_the_client_of_deepl_works_unchanged(client, translator):
    texts = ["42 hours", "12 kilometers"]
    found = client.translate_text(texts, source_lang="EN", target_lang="DE")
    assert [item.text for item in found] == [t.text for t in translator.translate(texts)]
    assert [item.billed_characters for item in found] == [8, 13]
    assert {item.detected_source_lang for item in found} == {"EN"}
    assert [language.code for language in client.get_target_languages()] == ["DE"]
    assert [language.code for language in client.get_source_languages()] == ["EN"]
    usage = client.get_usage()
    assert usage.character.count >= 21
    assert not usage.any_limit_reached


def test_the_source_is_detected_and_regions_are_ignored(client):
    found = client.translate_text("This is a beautiful country.", target_lang="EN-US")
    assert (found.text, found.detected_source_lang) == ("This is a beautiful country.", "EN")
    with pytest.raises(deepl.DeepLException, match=r"not available .* from German"):
        client.translate_text("Guten Morgen mein lieber Freund", target_lang="EN-GB")


def test_a_text_in_a_language_that_is_not_served_stays_beside_others_and_is_refused_alone(client):
    texts = ["OK", "Hello", "Hotel", "pizza", "Cancel"]
    found = client.translate_text(texts, target_lang="DE")
    assert {item.detected_source_lang for item in found} <= {"EN", "DE"}
    french = "Il fait très beau aujourd'hui."
    *others, last = client.translate_text([*texts, french], target_lang="DE")
    assert [item.text for item in others] == [item.text for item in found]
    assert (last.text, last.detected_source_lang) == (french, "FR")
    with pytest.raises(deepl.DeepLException, match=r"seems to be in French \(fr\)"):
        client.translate_text(french, target_lang="DE")


def test_a_form_with_repeated_texts_is_understood(server):
    body = "text=42+hours&text=12+kilometers&target_lang=de&source_lang=en"
    status, _, content = server.request("POST", "/v2/translate", body, FORM)
    assert status == 200
    assert len(json.loads(content)["translations"]) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("glossary_id", "a1b2"),
        ("glossary_ids", ["a1b2"]),
        ("style_id", "a1b2"),
        ("custom_instructions", ["Be brief."]),
        ("translation_memory_id", "a1b2"),
        ("ignore_tags", ["x"]),
        ("ignore_tags", "x,y"),
        ("splitting_tags", ["p"]),
        ("non_splitting_tags", ["b"]),
        ("outline_detection", False),
        ("outline_detection", "0"),
        ("tag_handling", "foo"),
        ("tag_handling_version", "v3"),
        ("formality", "more"),
        ("formality", "less"),
        ("formality", "polite"),
        ("formality", ["more"]),
        ("split_sentences", "2"),
        ("split_sentences", ["0"]),
        ("preserve_formatting", "maybe"),
        ("model_type", "best"),
        ("context", 5),
    ],
    ids=str,
)
def test_an_option_that_would_change_the_translation_is_refused(server, name, value):
    body = {"text": ["42 hours"], "target_lang": "DE", name: value}
    status, answer = server.post("/v2/translate", body)
    assert (status, answer.keys()) == (400, {"message"})
    assert f"'{name}' not supported" in answer["message"]
    _, description = server.get("/openapi.json")
    content = description["paths"]["/v2/translate"]["post"]["requestBody"]["content"]
    assert not jsonschema_rs.is_valid(content["application/json"]["schema"], body)


@pytest.mark.parametrize(
    "options",
    [
        *({"formality": value} for value in ("default", "prefer_more", "prefer_less", "", None)),
        {"tag_handling": "html", "tag_handling_version": "v2"},
        *({"tag_handling": value} for value in ("xml", "html", "", None)),
        {"glossary_id": None, "ignore_tags": [], "splitting_tags": "", "non_splitting_tags": [""]},
        {"outline_detection": True, "split_sentences": "1", "model_type": "latency_optimized"},
        {"preserve_formatting": False, "split_sentences": "", "context": "It is late."},
    ],
    ids=str,
)
def test_an_option_that_changes_nothing_is_accepted(server, translator, options):
    body = {"text": ["42 hours"], "source_lang": "EN", "target_lang": "DE", **options}
    status, answer = server.post("/v2/translate", body)
    assert status == 200
    assert answer["translations"][0]["text"] == translator.translate("42 hours").text
    _, description = server.get("/openapi.json")
    content = description["paths"]["/v2/translate"]["post"]["requestBody"]["content"]
    assert jsonschema_rs.is_valid(content["application/json"]["schema"], body)


@pytest.mark.parametrize(
    ("options", "split"),
    [
        ({}, "lines"),
        ({"split_sentences": "1", "tag_handling": "html"}, "lines"),
        ({"split_sentences": True}, "lines"),
        ({"split_sentences": "nonewlines"}, "sentences"),
        ({"tag_handling": "html"}, "sentences"),
        ({"split_sentences": "0"}, "nothing"),
        ({"split_sentences": 0, "tag_handling": "html"}, "nothing"),
    ],
    ids=str,
)
def test_a_text_is_split_as_the_client_wants(server, translator, options, split):
    text = "42 hours. 12\nkilometers. 25 minutes"
    body = {"text": [text], "source_lang": "EN", "target_lang": "DE", **options}
    _, answer = server.post("/v2/translate", body)
    expected = {at: translator.translate(text, split=at).text for at in SPLITS}
    assert answer["translations"][0]["text"] == expected[split]
    assert len({*expected.values()}) == len(SPLITS)


@pytest.mark.parametrize(("tag_handling", "is_read"), [("xml", True), ("html", True), ("", False)])
def test_letters_of_markup_may_be_written_as_character_references(
    server, translator, tag_handling, is_read
):
    body = {"text": ["42 ho&#117;rs"], "source_lang": "EN", "target_lang": "DE"}
    _, answer = server.post("/v2/translate", {**body, "tag_handling": tag_handling})
    (found,) = answer["translations"]
    assert (found["text"] == translator.translate("42 hours").text) == is_read
    assert found["billed_characters"] == 13


def test_mistakes_are_answered_with_a_message(server, client):
    assert server.post("/v2/translate", {"target_lang": "DE"})[0] == 400
    assert server.post("/v2/translate", {"text": ["a"]})[0] == 400
    status, answer = server.post("/v2/translate", {"text": ["a"], "target_lang": "XX"})
    assert (status, answer) == (400, {"message": "Value for 'target_lang' not supported."})
    assert server.post("/v2/translate", {"text": [5], "target_lang": "DE"})[0] == 400
    assert server.post("/v2/translate", {"text": ["a" * 100_001], "target_lang": "DE"})[0] == 413
    with pytest.raises(deepl.DeepLException, match="not supported"):
        client.translate_text("a", source_lang="DE", target_lang="EN-GB")
