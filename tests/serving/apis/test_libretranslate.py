"""The API of LibreTranslate, with its own clients and on the wire."""

import json

import deep_translator
import libretranslatepy
import pytest

FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_libretranslatepy_works_unchanged(server, translator):
    client = libretranslatepy.LibreTranslateAPI(server.url)
    assert client.translate("42 hours", "en", "de") == translator.translate("42 hours").text
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["en", "de"]},
        {"code": "de", "name": "German", "targets": ["de"]},
    ]
    (found, *_) = client.detect("The weather is very nice in this beautiful country today.")
    assert found["language"] == "en"
    assert found["confidence"] > 90


def test_deep_translator_works_unchanged(server, translator):
    """It puts everything into the query string of a POST without a body."""
    client = deep_translator.LibreTranslator("en", "de", "unused", custom_url=f"{server.url}/")
    assert client.translate("42 hours") == translator.translate("42 hours").text


@pytest.mark.parametrize("path", ["/translate", "/translate/"])
@pytest.mark.parametrize("way", ["json", "form", "query", "multipart", "mixed"])
def test_parameters_are_taken_from_wherever_a_client_puts_them(server, translator, path, way):
    multipart = (
        '--x\r\ncontent-disposition: form-data; name="q"\r\n\r\n42 hours\r\n'
        '--x\r\ncontent-disposition: form-data; name="source"\r\n\r\nen\r\n'
        '--x\r\ncontent-disposition: form-data; name="target"\r\n\r\nDE\r\n--x--\r\n'
    )
    values = {"q": "42 hours", "source": "EN", "target": "de", "apiKey": None}
    query = "?q=42+hours&source=en&target=de"
    sent = {
        "json": (path, json.dumps(values), {"content-type": "application/json"}),
        "form": (path, query[1:], FORM),
        "query": (path + query, None, {}),
        "multipart": (path, multipart, {"content-type": "multipart/form-data; boundary=x"}),
        "mixed": (path + "?source=en", "q=42+hours&target=de", FORM),
    }
    place, body, headers = sent[way]
    status, _, content = server.request("POST", place, body, headers)
    assert status == 200
    assert json.loads(content) == {"translatedText": translator.translate("42 hours").text}


@pytest.mark.parametrize("way", ["form", "query", "both"])
def test_several_q_are_a_list(server, translator, way):
    """As `requests` sends a list in a form."""
    first, second = "q=42+hours&source=en", "q=25+minutes&target=de"
    path = {"form": "", "query": f"?{first}&{second}", "both": f"?{first}"}[way]
    body = {"form": f"{first}&{second}", "query": None, "both": second}[way]
    status, _, content = server.request("POST", f"/translate{path}", body, FORM)
    expected = [found.text for found in translator.translate(["42 hours", "25 minutes"])]
    assert (status, json.loads(content)) == (200, {"translatedText": expected})


def test_a_batch_with_alternatives_and_an_unknown_source(server, translator):
    texts = ["The price rose by 88.8% in this beautiful country.", "42 hours and 25 minutes"]
    body = {"q": texts, "source": "auto", "target": "de", "alternatives": 2}
    status, answer = server.post("/translate", body)
    expected = [t.text for t in translator.translate(texts)]
    assert status == 200
    assert answer["translatedText"] == expected
    assert [found["language"] for found in answer["detectedLanguage"]] == ["en", "en"]
    assert all(0 < found["confidence"] <= 100 for found in answer["detectedLanguage"])
    assert all(len(others) <= 2 for others in answer["alternatives"])
    assert expected[0] not in answer["alternatives"][0]
    one = {"q": "42 hours", "source": "en", "target": "de", "alternatives": 1}
    assert isinstance(server.post("/translate", one)[1]["alternatives"], list)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("bank", "en"),
        ("Stop", "en"),
        ("Das ist ein schönes Land.", "de"),
        ('<p class="inner-container main-content has-background">Guten Tag</p>', "de"),
        ("https://www.example.org/the-best-house-of-the-world Guten Tag", "de"),
    ],
)
def test_a_word_that_may_be_in_the_target_language_is_translated(server, text, language):
    _, answer = server.post("/translate", {"q": text, "source": "auto", "target": "de"})
    assert answer["detectedLanguage"]["language"] == language
    assert (answer["translatedText"] == text) == (language == "de")


@pytest.mark.parametrize("many", [False, True])
def test_a_text_that_no_model_translates_to_the_target_is_refused(server, many):
    """Only the other direction is served; a text in the target language stays as it is."""
    english = "The weather is very nice in this beautiful country today."
    german = "Guten Morgen"
    body = {"q": [english] if many else english, "source": "auto", "target": "en"}
    status, answer = server.post("/translate", body)
    assert (status, answer["translatedText"]) == (200, body["q"])
    message = "English (en) is not available as a target language from German (de)"
    texts = [english, german] if many else german
    assert server.post("/translate", {**body, "q": texts}) == (400, {"error": message})
    assert server.post("/translate", {**body, "q": "12 ..."})[1]["translatedText"] == "12 ..."


FRENCH = "Je voudrais un café\net un croissant, s'il vous plaît."


@pytest.mark.parametrize("target", ["de", "en"])
@pytest.mark.parametrize("q", [FRENCH, [FRENCH], [FRENCH, FRENCH]])
def test_a_text_in_a_language_that_is_not_served_is_refused(server, target, q):
    message = (
        'the text "Je voudrais un café et un croissant, s\'i..." seems to be in French (fr), which '
        "is not supported; if it is not, name its language as the source"
    )
    body = {"q": q, "source": "auto", "target": target}
    assert server.post("/translate", body) == (400, {"error": message})
    assert server.post("/translate", {**body, "source": "en"})[0] == 200
    assert server.post("/detect", {"q": FRENCH})[1][0]["language"] == "fr"
    # A short text may be in any language.
    assert server.post("/translate", {**body, "q": "Bonjour", "target": "de"})[0] == 200


def test_a_text_in_a_language_that_is_not_served_does_not_refuse_the_others(server):
    body = {"q": ["12 hours", FRENCH, ""], "source": "auto", "target": "de", "alternatives": 1}
    status, answer = server.post("/translate", body)
    alone = server.post("/translate", {**body, "q": "12 hours"})[1]
    assert status == 200
    assert answer["translatedText"] == [alone["translatedText"], FRENCH, ""]
    assert answer["alternatives"] == [alone["alternatives"], [], []]
    found = [item["language"] for item in answer["detectedLanguage"]]
    assert found == ["en", "fr", "en"]


@pytest.mark.parametrize("text", [" ", "\n\t", "\U0001f600 \U0001f680", "...", "\0 \x07"])
def test_texts_without_words_come_back_unchanged(server, text):
    _, answer = server.post("/translate", {"q": text, "source": "auto", "target": "de"})
    assert answer["translatedText"] == text
    body = {"q": "42 hours", "source": "en", "target": "en"}
    assert server.post("/translate", body)[1] == {"translatedText": "42 hours"}


def test_html_keeps_its_tags(server):
    body = {"q": "<p>42 <b>hours</b></p>", "source": "en", "target": "de", "format": "html"}
    _, answer = server.post("/translate", body)
    text = answer["translatedText"]
    assert text.startswith("<p>")
    assert text.endswith("</p>")
    assert text.count("<b>") == text.count("</b>") == 1


def test_letters_of_html_may_be_written_as_character_references(server, translator):
    body = {"q": "<p>42 ho&#117;rs</p>", "source": "en", "target": "de"}
    _, answer = server.post("/translate", {**body, "format": "html"})
    expected = translator.translate("<p>42 hours</p>").text
    assert answer["translatedText"] == expected
    assert server.post("/translate", body)[1]["translatedText"] != expected


@pytest.mark.parametrize(("text_format", "count"), [("html", 1), ("text", 2)])
def test_a_sentence_of_html_extends_over_lines(server, translator, text_format, count):
    text = "42 hours and\n25 minutes"
    body = {"q": text, "source": "en", "target": "de", "format": text_format}
    _, answer = server.post("/translate", body)
    expected = translator.translate(text, split="sentences" if count == 1 else "lines")
    assert answer["translatedText"] == expected.text
    assert len(expected.sentences) == count


GOOD = {"q": "a", "source": "en", "target": "de"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "zz"}, "zz is not supported"),
        ({"source": "e\n\x1b[1m"}, "e\ufffd\ufffd[1m is not supported"),
        ({"alternatives": -1}, "Invalid request: alternatives parameter is negative"),
        ({"format": "xml"}, "xml format is not supported"),
        ({"alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": None}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": True}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 16}, "Invalid request: requested alternatives (16) exceeds limit (15)"),
        ({"q": 5}, "Invalid request: q must be a string or a list of strings"),
        ({"q": [5]}, "Invalid request: q must be a string or a list of strings"),
        ({"q": {}}, "Invalid request: q must be a string or a list of strings"),
        ({"q": True}, "Invalid request: q must be a string or a list of strings"),
        ({"q": "a\ud800"}, "a text contains half of a surrogate pair; expected valid Unicode"),
        ({"q": "a" * 100_001}, "Invalid request: request (100001) exceeds text limit (100000)"),
        (
            {"source": "de", "target": "en"},
            "English (en) is not available as a target language from German (de)",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mistakes_are_answered_as_by_libretranslate(server, changes, message):
    assert server.post("/translate", {**GOOD, **changes}) == (400, {"error": message})


def test_other_paths_of_libretranslate(server):
    assert server.post("/translate", [1]) == (400, {"error": "Invalid JSON format"})
    assert server.post("/suggest", {}) == (
        403,
        {"error": "Suggestions are disabled on this server."},
    )
    assert server.get("/download_file/nothing.txt")[0] == 404
    assert server.get("/health") == (200, {"status": "ok"})
    assert server.post("/detect", {"q": "1234"}) == (200, [{"confidence": 0.0, "language": "en"}])
    status, settings = server.get("/frontend/settings")
    assert (status, settings["charLimit"], settings["keyRequired"]) == (200, 100_000, False)
    assert settings["language"]["target"] == {"code": "de", "name": "German"}


def test_pages_of_any_origin_may_use_it_but_not_our_own_api(server):
    origin = {"origin": "https://example.org"}
    _, headers, _ = server.request("GET", "/languages", headers=origin)
    assert headers["access-control-allow-origin"] == "*"
    _, headers, _ = server.request("GET", "/v1/runs", headers=origin)
    assert "access-control-allow-origin" not in headers
    ask = {**origin, "access-control-request-method": "POST"}
    status, headers, _ = server.request("OPTIONS", "/translate", headers=ask)
    assert status == 200
    assert headers["access-control-allow-methods"] == "GET, POST"
