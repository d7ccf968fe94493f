"""The inspector as one self-contained HTML file that works without a server."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from transduce.storage.disk import whole_file

_STATIC = files("transduce.page") / "static"
_IMPORT = re.compile(r'^import \{ [\w, ]+ \} from "\./(\w+\.js)";\n', flags=re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) )", flags=re.MULTILINE)


class PlainData(Protocol):
    """A value that can be written as JSON, such as an inspection or a walkthrough."""

    def to_dict(self) -> dict[str, Any]:
        """Return the value as dictionaries, lists, strings and numbers."""


def write_page(
    path: Path | str,
    inspection: PlainData | Mapping[str, Any],
    walkthrough: PlainData | Mapping[str, Any] | None = None,
) -> Path:
    """Write the inspector with its data as one HTML file; return the path of the file."""
    path = Path(path)
    page = page_html(inspection, walkthrough)
    with whole_file(path) as file:
        file.write(page.encode())
    return path


def page_html(
    inspection: PlainData | Mapping[str, Any],
    walkthrough: PlainData | Mapping[str, Any] | None = None,
) -> str:
    """Return the inspector with its data as one HTML document that requests nothing."""
    style = _read("style.css")
    script = joined_modules("app.js")
    data = {"inspection": _plain(inspection), "walkthrough": _plain(walkthrough)}
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )

    # The links to the server's files become the files themselves; the policy comes first.
    page = _read("index.html")
    page = _replace_once(
        page,
        '<meta charset="utf-8">\n',
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
    )
    page = _replace_once(
        page,
        '<link rel="stylesheet" href="static/style.css">\n',
        f"<style>{style}</style>\n",
    )
    return _replace_once(
        page,
        '<script type="module" src="static/app.js"></script>\n',
        f'<script type="application/json" id="data">{_embedded_json(data)}</script>\n'
        f'<script type="module">{script}</script>\n',
    )


def joined_modules(entry: str) -> str:
    """Return one script with a module and everything it imports, each module once.

    The page's modules follow rules that make this a plain concatenation: every import is one line
    at the top of the form `import { a, b } from "./x.js";`, exports stand before a declaration,
    and no two modules use the same name at the top level.
    """
    parts: list[str] = []
    seen: set[str] = set()

    def add(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        source = _read(name)
        for imported in _IMPORT.findall(source):
            add(imported)
        parts.append(_EXPORT.sub("", _IMPORT.sub("", source)))

    add(entry)
    return "\n".join(parts)


def _read(name: str) -> str:
    return _STATIC.joinpath(name).read_text(encoding="utf-8")


def _plain(value: PlainData | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    return value.to_dict()


def _embedded_json(data: Mapping[str, Any]) -> str:
    """Return JSON that an HTML parser takes as plain text: no `</script>` and no `<!--` in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(text: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _replace_once(page: str, old: str, new: str) -> str:
    assert page.count(old) == 1, old
    return page.replace(old, new)
