"""Documents over HTTP: what LibreTranslate's clients send, and what must be refused."""

import json

import pytest

from tests.serving.running import running
from tests.translation.documents.samples import docx, packed, unpacked
from transduce.serving import file_store
from transduce.serving.apis import files
from transduce.serving.file_store import FileStore
from transduce.serving.models import load_models
from transduce.serving.refusals import Busy

FIELDS = {"source": "en", "target": "de"}


def upload(server, name, content, fields=FIELDS):
    """Send a form with a file; the status and the answer."""
    parts = [
        f'content-disposition: form-data; name="{key}"\r\n\r\n{value}'.encode()
        for key, value in fields.items()
    ]
    if name is not None:
        head = f'content-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        parts.append(head.encode() + content)
    body = b"".join(b"--limit\r\n" + part + b"\r\n" for part in parts) + b"--limit--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=limit"}
    status, _, answer = server.request("POST", "/translate_file", body, headers)
    return status, json.loads(answer)


def download(server, answer):
    path = answer["translatedFileUrl"].removeprefix(server.url)
    return server.request("GET", path)


@pytest.mark.parametrize("source", ["en", "auto"])
def test_a_document_is_uploaded_and_its_translation_downloaded(server, translator, source):
    text = "The price rose by 88.8% in this beautiful country."
    status, answer = upload(
        server,
        "My Report.docx",
        docx(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"),
        {**FIELDS, "source": source},
    )
    assert status == 200
    assert answer["translatedFileUrl"].startswith(f"{server.url}/download_file/")
    status, headers, content = download(server, answer)
    assert status == 200
    german = translator.translate(text).text
    assert german in unpacked(content)["word/document.xml"].decode()
    assert headers["content-type"] == "application/octet-stream", "a browser never shows it"
    assert headers["content-disposition"].startswith("attachment")


def test_a_document_in_a_language_that_is_not_served_is_refused(server):
    french = "Je voudrais un café et un croissant, s'il vous plaît."
    status, answer = upload(server, "a.txt", french.encode(), {**FIELDS, "source": "auto"})
    assert status == 400
    assert "seems to be in French (fr), which is not supported" in answer["error"]


def test_the_layout_of_a_text_stays(server, translator):
    _, answer = upload(server, "a.txt", b"42 hours\r\n\r\n")
    _, _, content = download(server, answer)
    assert content.decode() == translator.translate("42 hours").text + "\r\n\r\n"


def test_the_formats_are_announced(server):
    _, settings = server.get("/frontend/settings")
    assert settings["filesTranslation"] is True
    assert {".txt", ".docx", ".odt", ".html", ".srt"} <= set(settings["supportedFilesFormat"])


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        (None, b"", {}, "Invalid request: missing file parameter"),
        ("a.exe", b"", {}, "Invalid request: expected a file with one of .txt"),
        ("a.docx", b"damaged", {}, "a.docx is damaged"),
        ("a.txt", b"\xff", {}, "a.txt is not UTF-8"),
        ("a.txt", b"a", {"target": "auto"}, "auto is not supported as a target"),
        ("a.txt", b"a", {"target": "xx"}, "xx is not supported"),
        ("a.txt", b"a", {"source": "de", "target": "en"}, "is not available as a target"),
        (
            "a.txt",
            b"Guten Morgen mein lieber Freund",
            {"source": "auto", "target": "en"},
            "from German",
        ),
        ("a.txt", b"a " * 60_000, {}, "exceeds text limit"),
    ],
    ids=str,
)
def test_mistakes_get_one_clear_line(server, name, content, changes, message):
    status, answer = upload(server, name, content, {**FIELDS, **changes})
    assert status == 400
    assert message in answer["error"]
    assert "\n" not in answer["error"]


def test_a_file_without_a_name_is_refused(server):
    """A client may send a name that is not ASCII only as `filename*`."""
    status, answer = upload(server, None, b"", {**FIELDS, "file": "Good morning."})
    assert (status, answer["error"].partition(";")[0]) == (
        400,
        "Invalid request: the file has no name",
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("My Report.txt", "My Report.txt"),
        ("../../a.txt", "a.txt"),
        ("folder\\a.txt", "a.txt"),
        ("a\x1b[31mred.TXT", "a\ufffd[31mred.TXT"),
        (f"{'long' * 100}.txt", f"{'long' * 13}l....txt"),
    ],
)
def test_a_message_has_the_name_of_the_uploaded_file(server, name, shown):
    status, answer = upload(server, name, b"\xff")
    assert (status, answer["error"].partition(" is not")[0]) == (400, shown)


def test_a_malformed_form_is_refused_without_a_line_in_the_log(server, caplog):
    headers = {"content-type": "multipart/form-data; boundary=limit"}
    status, _, answer = server.request("POST", "/translate_file", b"no form", headers)
    assert (status, caplog.records) == (400, []), answer


@pytest.mark.parametrize("suffix", [".html", ".tmx", ".xlf", ".docx", ".odt"])
def test_a_document_of_too_many_tags_is_refused_before_it_is_parsed(server, monkeypatch, suffix):
    monkeypatch.setattr(files, "MOST_TAGS", 20)
    content = b"<p>" * 21
    if suffix in (".docx", ".odt"):
        content = packed({"word/document.xml": content, "content.xml": content})
    status, answer = upload(server, f"a{suffix}", content)
    assert (status, answer["error"]) == (400, f"a{suffix} has 21 tags; expected at most 20")


def test_an_archive_that_unpacks_to_too_much_is_refused(server, monkeypatch):
    monkeypatch.setattr(files, "MOST_UNPACKED", 1_000_000)
    status, answer = upload(server, "a.docx", docx("", bomb=b"0" * 2_000_000))
    assert status == 400
    assert "unpacks to 2,000," in answer["error"]


def test_a_request_that_is_no_form_is_refused(server):
    assert server.post("/translate_file", FIELDS)[0] == 400


def test_a_key_is_needed_where_texts_need_one(bundle):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models, api_keys=frozenset({"secret"})) as guarded:
        assert upload(guarded, "a.txt", b"42 hours")[0] in (400, 403)
        assert upload(guarded, "a.txt", b"42 hours", {**FIELDS, "api_key": "secret"})[0] == 200


def test_files_are_forgotten_after_their_time_and_bounded_in_size(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(file_store.time, "monotonic", lambda: now[0])
    store = FileStore(most_bytes=10, seconds=60)
    first = store.add(b"12345", ".txt")
    second = store.add(b"1234", ".txt")
    assert first != second
    assert (len(first), first[-4:]) == (36, ".txt")
    with pytest.raises(Busy):
        store.add(b"12", ".txt")
    now[0] = 61.0
    assert store.get(first) is None
    assert store.get(store.add(b"1234567890", ".txt")) == b"1234567890"


def test_a_document_may_be_larger_than_other_requests(bundle):
    """It is refused while it is read, and only some large ones are read at the same time."""
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models, max_body=1_000, max_upload=5_000) as server:
        content = b"42\r\n" * 1_000  # nothing to translate
        assert upload(server, "a.txt", content)[0] == 200
        status, answer = upload(server, "a.txt", content * 2)
        assert status == 413
        assert "at most 5,000 bytes" in answer["error"]
        assert server.post("/v1/translate", {"text": "a" * 1_000})[0] == 413
        assert upload(server, "a.txt", b"42")[0] == 200
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models, max_body=1_000, max_upload=5_000, max_uploads=0) as server:
        status, answer = upload(server, "a.txt", content)
        assert status == 503
        assert "too many uploads" in answer["error"]
        assert upload(server, "a.txt", b"42")[0] == 200
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models, max_body=1_000, max_upload=5_000, max_uploads=1) as server:
        assert [upload(server, "a.txt", content)[0] for _ in range(3)] == [200] * 3
