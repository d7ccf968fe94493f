"""The models that are served, and one clear line for each that is not as it should be."""

import http.client
import json
import shutil
from dataclasses import replace

import pytest

from tests.serving.running import running
from transduce.engines.torch import TorchEngine
from transduce.errors import BundleError, ConfigError, InputError
from transduce.search.hypothesis import Hypothesis
from transduce.serving import models as models_module
from transduce.serving.models import load_models
from transduce.storage import installed
from transduce.storage.bundle import save_bundle


@pytest.fixture(scope="module")
def copies(bundle, tmp_path_factory):
    """The same model three times: whole, damaged, and without known languages."""
    folder = tmp_path_factory.mktemp("copies")
    shutil.copytree(bundle.path, folder / "damaged")
    weights = folder / "damaged" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    data = replace(bundle.recipe.data, source_language="und", target_language="xx")
    recipe = replace(bundle.recipe, data=data)
    save_bundle(folder / "unknown", recipe, bundle.weights(), bundle.tokenizer_files, {}, {})
    shutil.copytree(bundle.path, folder / "second" / "best")
    return folder


@pytest.fixture
def said():
    return []


def load(said, *places):
    return load_models(places, engine="torch", say=said.append)


def test_a_damaged_bundle_is_named_and_the_others_are_served(bundle, copies, said):
    models = load(said, copies / "damaged", bundle.path)
    (line,) = said
    assert line.startswith("damaged is not served: ")
    assert "model.safetensors" in line
    with running(models) as server:
        assert [m["name"] for m in server.get("/v1/models")[1]["models"]] == [bundle.path.name]
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200
        status, answer = server.post("/v1/translate", {"text": "a", "model": "damaged"})
        assert status == 404
        assert "model.safetensors" in answer["error"]


def test_without_a_place_all_models_of_the_package_are_served(
    bundle, copies, said, tmp_path, monkeypatch
):
    monkeypatch.setattr(installed, "PACKAGED", tmp_path)
    for name in ("de-en", "en-de"):
        shutil.copytree(bundle.path, tmp_path / name)
    assert [model.name for model in load(said).served] == ["en-de", "de-en"]

    # One that is damaged does not stop the other.
    shutil.copytree(copies / "damaged", tmp_path / "en-fr")
    models = load(said)
    assert [model.name for model in models.served] == ["en-de", "de-en"]
    assert list(models.refused) == ["en-fr"]


def test_a_run_without_a_model_and_a_folder_that_cannot_be_read_do_not_stop_the_others(
    bundle, said, tmp_path, monkeypatch
):
    (tmp_path / "begun" / "checkpoints").mkdir(parents=True)
    (tmp_path / "locked").mkdir()
    find = models_module.find_bundle

    def find_readable(place):
        if place.name == "locked":
            raise PermissionError(13, "Permission denied", str(place))
        return find(place)

    monkeypatch.setattr(models_module, "find_bundle", find_readable)
    models = load(said, tmp_path / "begun", tmp_path / "locked", bundle.path)
    assert [model.name for model in models.served] == [bundle.path.name]
    assert said[0].startswith("begun is not served: the run ")
    assert said[1].startswith("locked is not served: [Errno 13] Permission denied")
    models.close()


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/v1/attention", {}),
        ("/v1/translate", {"alignments": True}),
        ("/v1/translate", {"alignments": True, "stream": True}),
    ],
)
def test_a_bundle_that_is_damaged_while_it_is_served_is_a_fault_of_the_server(
    bundle, said, tmp_path, capsys, path, options
):
    pytest.importorskip("ctranslate2")
    shutil.copytree(bundle.path, tmp_path / "later")
    models = load_models([tmp_path / "later"], engine="ctranslate2", say=said.append)
    weights = tmp_path / "later" / "model.safetensors"
    weights.unlink()
    weights.write_bytes(b"damaged")
    body = json.dumps({"text": "42 hours", **options})
    with running(models, write=print) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        status, content = answer.status, read_all(answer)
        connection.close()
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200
    assert status == (200 if options.get("stream") else 500)
    assert "the server failed; its log has the reason" in content
    assert str(tmp_path) not in content
    written = capsys.readouterr()
    assert "model.safetensors cannot be read" in written.err
    line, *_ = map(json.loads, written.out.splitlines())
    assert line["status"] == status


def read_all(answer):
    """The answer, which a fault may have cut."""
    try:
        return answer.read().decode()
    except http.client.IncompleteRead as error:
        return error.partial.decode()


def test_without_any_whole_bundle_nothing_is_served(copies, said):
    with pytest.raises(BundleError, match=r"model\.safetensors"):
        load(said, copies / "damaged")
    with pytest.raises(BundleError, match="none of the models"):
        load(said, copies / "damaged", copies / "damaged")


def test_two_models_of_one_pair_are_both_served_and_the_first_is_the_default(bundle, copies, said):
    models = load(said, bundle.path, copies / "second")
    assert said == [
        "demo and second both translate en-de; demo is used unless a request to /v1 names second"
    ]
    assert models.default.name == "demo"
    assert models.named("second") is models.served[1]
    assert models.for_languages("en", "de-AT") is models.default
    models.close()


def test_a_model_without_known_languages_is_served_by_its_name(copies, said):
    models = load(said, copies / "unknown")
    (line,) = said
    assert "the languages of unknown are not known" in line
    assert (models.default.source_language, models.default.target_language) == (None, None)
    with running(models) as server:
        assert server.post("/v1/translate", {"text": "42 hours"})[0] == 200
        assert server.get("/languages") == (200, [])
        body = {"q": "a", "source": "en", "target": "de"}
        assert server.post("/translate", body) == (400, {"error": "en is not supported"})


def test_models_of_the_same_name_get_numbers(bundle, copies, said):
    models = load(said, bundle.path, bundle.path)
    assert [model.name for model in models.served] == ["demo", "demo-2"]
    with pytest.raises(InputError, match="the models are: demo, demo-2"):
        models.named("demo-3")
    models.close()


def test_a_number_of_workers_that_cannot_work_is_refused(bundle):
    with pytest.raises(ConfigError, match="--workers is 0"):
        load_models([bundle.path], workers=0)


def test_several_workers_of_ctranslate2_translate_as_one(bundle, said, translator):
    pytest.importorskip("ctranslate2")
    models = load_models([bundle.path], engine="ctranslate2", workers=2, say=said.append)
    assert models.default.engine == "ctranslate2"
    assert models.default.queue.is_alive
    with running(models) as server:
        _, answer = server.post("/v1/translate", {"text": ["42 hours", "12 kilometers"]})
        assert len(answer["translations"]) == 2


def test_a_gpu_has_recorded_every_number_of_sentences_before_the_first_request(
    bundle, said, monkeypatch
):
    pytest.importorskip("triton")
    counts = []

    def stream(self, feed, config, *, token_scores):
        while feed.longest():
            jobs = feed.take(64, 64)
            counts.append(len(jobs))
            for job in jobs:
                yield job.number, [Hypothesis([], 0.0, 0.0, [])]

    monkeypatch.setattr(TorchEngine, "can_stream", lambda self: True)
    monkeypatch.setattr(TorchEngine, "stream", stream)
    models = load(said, bundle.path)
    models.close()
    assert counts == [n for n in (1, 2, 4, 8, 16, 32, 64) for _ in range(2)]
