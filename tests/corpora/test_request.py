import pytest

from tests.corpora.scripted_server import answer, scripted_server, status  # noqa: F401
from transduce.corpora.request import refuse_unless_http, send
from transduce.errors import DataError


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_followed(server, code):
    server.says("/moved", answer(b"content"))
    with send(server.says("/file", status(code, Location="/moved")), {}, timeout=1.0) as response:
        assert response.read() == b"content"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("file:///etc/hosts", "not allowed"),
        ("ftp://127.0.0.1/file", "has an unsupported scheme"),
        ("/file", "infinite loop"),
    ],
)
def test_a_redirect_to_anything_but_a_page_of_the_web_is_refused(server, where, message):
    with pytest.raises(DataError, match=message) as error:
        send(server.says("/file", status(302, Location=where)), {}, timeout=1.0)
    assert "\n" not in str(error.value)


def test_a_secure_address_never_leads_to_an_insecure_one():
    with pytest.raises(DataError, match=r"http://b/ \(where https://a/ leads\).*expected https"):
        refuse_unless_http("http://b/", after="https://a/")
    refuse_unless_http("https://b/", after="http://a/")


@pytest.mark.parametrize(
    "address", ["ftp://host/file", "file:///etc/hosts", "/etc/hosts", "data:,x"]
)
def test_only_addresses_of_the_web_are_requested(address):
    with pytest.raises(DataError, match="expected http or https"):
        send(address, {}, timeout=1.0)
