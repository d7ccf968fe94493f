"""The compose file, the Kubernetes example and the Dockerfile start the server that there is."""

from pathlib import Path

import pytest
import yaml

from transduce.cli.arguments import read_arguments
from transduce.cli.commands import COMMANDS
from transduce.serving import app
from transduce.serving.settings import ServerSettings

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "examples" / "serving" / "compose.yaml"
KUBERNETES = ROOT / "examples" / "serving" / "kubernetes.yaml"


def values_of(words):
    """The options of a command line of `transduce serve`, which must all exist."""
    assert words[0] == "serve"
    options = {argument.option for argument in read_arguments(COMMANDS["serve"])}
    found = dict(zip(words[1::2], words[2::2], strict=True))
    assert found.keys() <= options
    return found


@pytest.fixture(scope="module")
def deployment():
    documents = list(yaml.safe_load_all(KUBERNETES.read_text()))
    assert [document["kind"] for document in documents] == ["Deployment", "Service"]
    return documents


def test_the_compose_file_runs_the_server_and_gives_it_time_to_stop():
    service = yaml.safe_load(COMPOSE.read_text())["services"]["transduce"]
    options = values_of(service["command"])
    assert options["--host"] == "0.0.0.0"
    seconds = int(service["stop_grace_period"].removesuffix("s"))
    assert seconds > float(options["--drain"]) + ServerSettings().stop_seconds
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert "/health" in service["healthcheck"]["test"][-1]
    home = "/home/transduce:uid=1000,gid=1000"  # root's, it could not take a copy of the model
    assert service["tmpfs"] == ["/tmp", home]
    assert "useradd --create-home --uid 1000 transduce" in (ROOT / "Dockerfile").read_text()


def test_the_kubernetes_example_probes_paths_that_exist_and_waits_for_the_stop(deployment):
    workload, service = deployment
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = values_of(container["args"])
    assert pod["terminationGracePeriodSeconds"] > (
        float(options["--drain"]) + ServerSettings().stop_seconds
    )
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 8000}
    assert container["livenessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert callable(app.ready)
    assert callable(app.health)
    assert container["resources"].keys() == {"requests", "limits"}
    assert service["spec"]["selector"] == workload["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["ports"] == [{"port": 80, "targetPort": 8000}]


def test_the_image_has_the_server():
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert 'extras="data,text,documents,export,serve"' in dockerfile
    assert "EXPOSE 8000" in dockerfile
