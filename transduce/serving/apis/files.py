"""Documents over HTTP, as LibreTranslate does it: upload one, then download its translation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transduce.errors import printable
from transduce.serving.apis import multilingual
from transduce.serving.apis.libretranslate import AUTO, admit, check_pair, read_language
from transduce.serving.apis.parameters import MULTIPART, Parameters
from transduce.serving.refusals import RequestError
from transduce.serving.service import Service, service_of
from transduce.translation.documents import FORMATS, translate_bytes
from transduce.translation.documents.job import Job

MOST_UNPACKED = 30_000_000  # bytes of one document
MOST_TAGS = 300_000  # of one document
MOST_FIELDS = 20
_LONGEST_NAME = 60  # characters in a message


async def translate_file(request: Request) -> Response:
    """Translate a document, and return the address of the translation."""
    service = service_of(request)
    parameters, file_name, data = await _read_form(request)
    await admit(request, parameters)
    if not file_name:
        raise RequestError(400, "Invalid request: missing file parameter")
    suffix = PurePosixPath(file_name).suffix.lower()
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise RequestError(400, f"Invalid request: expected a file with one of {known}")
    source = read_language(service, parameters, "source")
    target = read_language(service, parameters, "target")
    check_pair(service, source, target)

    translate = _text_translator(service, request, source, target)
    languages = ("" if source == AUTO else source, target)
    shown_name = _shown_name(file_name)
    job = Job(data, shown_name, translate, languages, MOST_UNPACKED, MOST_TAGS)
    await service.shared.take_place("document")
    try:
        translated = await service.run(request, lambda: translate_bytes(job))
    finally:
        await service.shared.give_place_back("document")
    name = await service.shared.add_file(translated, suffix)
    address = request.url.replace(path=f"/download_file/{name}", query="", fragment="")
    return JSONResponse({"translatedFileUrl": str(address)})


async def download_file(request: Request) -> Response:
    """Return a translated document."""
    name = request.path_params["name"]
    data = await service_of(request).shared.get_file(name)
    if data is None:
        raise RequestError(404, "there is no such file; files are kept for some minutes")
    # Never shown by a browser: a page would run its scripts under this server's address.
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "x-content-type-options": "nosniff",
    }
    return Response(data, headers=headers, media_type="application/octet-stream")


async def _read_form(request: Request) -> tuple[Parameters, str, bytes]:
    """Return the fields of a form, and the name and the content of its file."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    pairs = [*request.query_params.multi_items()]
    if content_type != MULTIPART:
        return Parameters(pairs), "", b""
    async with request.form(max_files=1, max_fields=MOST_FIELDS) as form:
        pairs += [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        file = form.get("file")
        if isinstance(file, str):
            raise RequestError(
                400, 'Invalid request: the file has no name; send it with filename="NAME"'
            )
        if file is None:
            return Parameters(pairs), "", b""
        return Parameters(pairs), file.filename or "", await file.read()


def _shown_name(file_name: str) -> str:
    """Return the name of an uploaded file for messages: one short line, without its folders."""
    name = PurePosixPath(file_name.replace("\\", "/")).name
    shown = printable(name)
    if len(shown) <= _LONGEST_NAME:
        return shown
    suffix = PurePosixPath(shown).suffix
    return f"{shown[: _LONGEST_NAME - len(suffix) - 3]}...{suffix}"


def _text_translator(
    service: Service, request: Request, source: str, target: str
) -> Callable[[list[str]], list[str]]:
    """Return a function that translates the texts of a document, which are in one language."""

    def translate(texts: list[str]) -> list[str]:
        together = "\n".join(texts)
        service.check_texts(request, [together], too_much=400)
        language = source
        if source == AUTO:
            language = multilingual.detect_source(service.models, together, target).language
        planned = multilingual.plan(service.models, texts, language, target)
        return [translation.text for translation in multilingual.carry_out(planned)]

    return translate


ROUTES = [
    Route("/translate_file", translate_file, methods=["POST"]),
    Route("/download_file/{name}", download_file, methods=["GET"]),
]
