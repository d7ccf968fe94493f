"""The command that serves models over HTTP."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Annotated

from transduce.cli.arguments import Command, Help
from transduce.cli.options import Alpha, Beam, Device, Engine, Precision
from transduce.errors import require


def serve(
    model: Annotated[
        tuple[Path, ...],
        Help(
            "saved models (bundles), run folders, or names that transduce bundles lists; the first "
            "is used by requests that name none (default: the models of the package, or else the "
            "newest one in ./runs)",
            value="MODEL",
        ),
    ] = (),
    *,
    host: Annotated[str, Help("address to listen on; 0.0.0.0 is all", value="HOST")] = "127.0.0.1",
    port: Annotated[int, Help("port to listen on; 0 chooses a free one", value="PORT")] = 8000,
    beam: Beam = None,
    alpha: Alpha = None,
    engine: Engine = "auto",
    device: Device = None,
    precision: Precision = "auto",
    workers: Annotated[
        int | None,
        Help("batches that CTranslate2 translates at once (default: one for each core, at most 4)"),
    ] = None,
    processes: Annotated[
        int | None,
        Help(
            "processes that speak HTTP; with 1, the process that translates does (default: 1; "
            "on a GPU one for every two cores, at most 4)"
        ),
    ] = None,
    runs: Annotated[
        Path, Help("folder of the training runs that the page shows", value="FOLDER")
    ] = Path("runs"),
    api_keys: Annotated[
        Path | None,
        Help("file of accepted API keys, one on each line (default: no key is needed)"),
    ] = None,
    rate: Annotated[
        int, Help("requests per minute of one key, or of one address without keys; 0: any number")
    ] = 0,
    cors: Annotated[
        tuple[str, ...],
        Help("origin of web pages that may call /v1, or *; can be repeated", value="ORIGIN"),
    ] = (),
    max_characters: Annotated[int, Help("characters that one request may have")] = 100_000,
    queue_tokens: Annotated[int, Help("tokens that may wait to be translated")] = 65_536,
    seconds: Annotated[float, Help("time until a text must be translated")] = 120.0,
    drain: Annotated[
        float, Help("seconds between being asked to stop and refusing connections")
    ] = 0.0,
    log_text: Annotated[bool, Help("write the texts to the access log, too")] = False,
) -> None:
    """Serve models over HTTP, with a page for the browser.

    It also speaks the APIs of LibreTranslate and DeepL. The access log is written to standard
    output, one line of JSON for each request.

    Examples:
        transduce serve
        transduce serve runs/demo
        transduce serve runs/en-de runs/de-en --host 0.0.0.0 --port 8080
        transduce serve runs/en-de --api-keys keys.txt --rate 60
        transduce serve runs/en-de --device cuda --processes 4
    """
    for library in ("starlette", "uvicorn", "pydantic", "prometheus_client", "py3langid"):
        require(library, extra="serve")
    from transduce.recipe import adjusted
    from transduce.serving.guards.keys import read_keys
    from transduce.serving.models import load_models
    from transduce.serving.processes.supervisor import choose_count, run_processes
    from transduce.serving.queue.turns import QueueSettings
    from transduce.serving.server import bind, run
    from transduce.serving.service import Service
    from transduce.serving.settings import ServerSettings

    settings = ServerSettings(
        runs=runs,
        api_keys=read_keys(api_keys) if api_keys else frozenset(),
        requests_per_minute=rate,
        allowed_origins=cors,
        max_characters=max_characters,
        answer_seconds=seconds,
        drain_seconds=drain,
        log_text=log_text,
    )
    listener = bind(host, port)  # a port in use is reported before a model is loaded
    models = load_models(
        model,
        engine=engine,
        device=device,
        precision=precision,
        search=functools.partial(adjusted, beam_size=beam, alpha=alpha),
        queue=QueueSettings(queue_tokens=queue_tokens),
        workers=workers,
        say=_say,
    )
    count = choose_count(processes, models)
    if count == 1:
        run(Service(models, settings), listener, _say)
    else:
        run_processes(models, settings, listener, count, _say)


def _say(message: str) -> None:
    print(f"transduce: {message}", file=sys.stderr, flush=True)


COMMANDS: dict[str, Command] = {"serve": serve}
