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
            "saved models (bundles) or run folders; the first is the default "
            "(default: the newest model in ./runs, or the model of the package)",
            value="FOLDER",
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
    runs: Annotated[
        Path, Help("folder of the training runs that the page shows", value="FOLDER")
    ] = Path("runs"),
) -> None:
    """Serve models over HTTP, with a page for the browser.

    Examples:
        transduce serve runs/demo
        transduce serve runs/en-de runs/de-en --host 0.0.0.0 --port 8080
    """
    for library in ("starlette", "uvicorn", "pydantic"):
        require(library, extra="serve")
    from transduce.recipe import adjusted
    from transduce.serving.models import load_models
    from transduce.serving.server import bind, run
    from transduce.serving.service import Service
    from transduce.serving.settings import ServerSettings

    listener = bind(host, port)  # a port in use is reported before a model is loaded
    models = load_models(
        model,
        engine=engine,
        device=device,
        precision=precision,
        search=functools.partial(adjusted, beam_size=beam, alpha=alpha),
        say=_say,
    )
    run(Service(models, ServerSettings(runs=runs)), listener, _say)


def _say(message: str) -> None:
    print(f"transduce: {message}", file=sys.stderr, flush=True)


COMMANDS: dict[str, Command] = {"serve": serve}
