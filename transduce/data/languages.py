"""Language codes, such as zh-Hant: a language, perhaps with a script and a region."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)  # clients of a server may send any
def base_language(language: str) -> str:
    """Return a language without script and region: "zh" for "zh-Hant"."""
    return re.split("[-_]", language.lower(), maxsplit=1)[0]
