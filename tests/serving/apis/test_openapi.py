"""The description of the API is true: it names every path, and generated requests find nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest

from transduce.serving.app import create_app

CONFIG = Path(__file__).with_name("schemathesis.toml")


def check_with_schemathesis(server, examples, seconds):
    """Send generated requests, and expect that nothing is found."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG),
        "run", f"{server.url}/openapi.json",
        "--checks", "all", "--max-examples", str(examples), "--request-timeout", "10",
        "--no-color", "--warnings", "off",
    ]  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "COLUMNS": "200"},
    )
    cases = re.search(r"([\d,]+) generated", done.stdout)
    assert cases, done.stdout[-2000:] + done.stderr[-2000:]
    print(f"{cases[1]} generated requests")
    found = done.stdout.partition("FAILURES")[2]
    if done.returncode or found:
        pytest.fail("\n".join(line[:200] for line in found.splitlines())[:8000])


@pytest.mark.slow
def test_a_sample_of_generated_requests_finds_nothing(server):
    check_with_schemathesis(server, 20, 600)


@pytest.mark.battery
def test_twenty_thousand_generated_requests_find_nothing(server):
    check_with_schemathesis(server, 1_200, 7_200)


def test_every_path_is_described_and_every_described_path_exists(server):
    status, description = server.get("/openapi.json")
    assert status == 200
    assert server.get("/spec") == (200, description)
    served = set()
    for route in create_app(server.service).routes:
        served |= {(route.path, method.lower()) for method in route.methods - {"HEAD"}}
    described = {
        (path, method) for path, methods in description["paths"].items() for method in methods
    }
    assert served == described


def test_the_description_has_the_models_and_languages_that_are_served(server):
    _, description = server.get("/openapi.json")
    schemas = description["components"]["schemas"]
    assert schemas["TranslateRequest"]["properties"]["model"]["enum"] == ["demo", None]
    assert schemas["TranslateRequest"]["properties"]["n_best"]["maximum"] == 16
    assert "http" not in str(schemas)  # nothing is loaded from elsewhere


@pytest.mark.parametrize(
    ("source", "target", "status"), [("", "DE", 200), (None, "DE", 200), ("DE", "EN", 400)]
)
def test_the_description_and_the_server_agree_on_languages(server, source, target, status):
    _, description = server.get("/openapi.json")
    content = description["paths"]["/v2/translate"]["post"]["requestBody"]["content"]
    body = {"text": "", "source_lang": source, "target_lang": target}
    is_valid = jsonschema_rs.is_valid(content["application/json"]["schema"], body)
    assert (is_valid, server.post("/v2/translate", body)[0]) == (status == 200, status)


def test_what_the_server_may_refuse_is_not_described_as_valid(server):
    _, description = server.get("/openapi.json")

    def is_valid(path, body):
        content = description["paths"][path]["post"]["requestBody"]["content"]
        schema = content["application/json"]["schema"]
        return jsonschema_rs.is_valid({**schema, "components": description["components"]}, body)

    # Without a source, it is detected: a text in German cannot be translated to English.
    assert is_valid("/v2/translate", {"text": "Hallo", "source_lang": "EN", "target_lang": "EN"})
    assert not is_valid("/v2/translate", {"text": "Hallo", "target_lang": "EN"})
    assert is_valid("/v1/translate", {"text": "a", "glossary": {"a": "b"}})
    for term, translation in ((" ", "b"), ("", "b"), ("a", " "), ("a" * 201, "b")):
        body = {"text": "a", "glossary": {term: translation}}
        assert not is_valid("/v1/translate", body)
        assert server.post("/v1/translate", body)[0] == 400
