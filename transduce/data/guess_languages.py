"""Guess the languages of parallel text: from the names of its files, or from the text itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from transduce.config import CorpusConfig
from transduce.data.cleaning import langid
from transduce.data.pairs import Chunk
from transduce.data.readers.compression import is_compressed, plain_suffix
from transduce.data.readers.corpus import container_languages, read_chunks
from transduce.errors import ConfigError, DataError, MissingExtra

Files = tuple[Path, ...]  # (source, target), or one file with both languages

IDENTIFIED = 200  # sentences of each side by which a language is identified
# ISO 639-1, for file names such as train.en.
_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy "
    "da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu "
    "hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb "
    "lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om "
    "or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw "
    "ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
LANGUAGE_CODES = frozenset(_CODES.split())
CODE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]+)*")
CODE_PAIR = re.compile(r"(?:^|[._-])([a-z]{2})[-_]([a-z]{2})(?=[._-]|$)")


def guess_languages(files: Files, source: str | None, target: str | None) -> tuple[str, str]:
    """Return the language codes: as given, from the names of the files, or from the text."""
    for given in (source, target):
        if given is not None and not CODE.fullmatch(given):
            raise ConfigError(f"{given!r} is not a language code; expected one such as en or pt-BR")
    if source and target:
        return source, target

    guesses = _languages_from_file_names(files) or container_languages(files[0])
    guesses = guesses or _languages_from_text(files)
    languages = (source or guesses[0], target or guesses[1])
    if languages[0] == languages[1]:
        raise DataError(
            f"both sides of {file_names(files)} look like {languages[0]!r}; "
            "pass --source-language and --target-language"
        )
    return languages


def _languages_from_file_names(files: Files) -> tuple[str, str] | None:
    """Return the codes in names such as train.en and train.de, or corpus.en-de.tsv."""
    names = [file.stem if is_compressed(file) else file.name for file in files]
    if len(names) == 2:
        codes = [name.rpartition(".")[2].lower() for name in names]
        if LANGUAGE_CODES.issuperset(codes):
            return codes[0], codes[1]
        return None
    match = CODE_PAIR.search(Path(names[0]).stem.lower())
    if match and LANGUAGE_CODES.issuperset(match.groups()):
        return match[1], match[2]
    return None


def _languages_from_text(files: Files) -> tuple[str, str]:
    """Return the codes in the first line of a TSV file, or identify the languages of the text."""
    advice = "pass --source-language and --target-language"
    if len(files) == 1 and plain_suffix(files[0]) != ".tsv":
        raise DataError(f"{files[0]} does not say which languages it is in; {advice}")

    # A header alone is a chunk without pairs.
    chunks = read_files(files, ("source", "target"))
    first = next((chunk for chunk in chunks if chunk.sources), None)
    if first is None:
        raise DataError(f"there is no text in {file_names(files)}; expected one sentence per line")
    header = (first.sources[0].lower(), first.targets[0].lower())
    if LANGUAGE_CODES.issuperset(header):
        return header
    try:
        source = langid.identify("\n".join(first.sources[:IDENTIFIED]))
        target = langid.identify("\n".join(first.targets[:IDENTIFIED]))
    except MissingExtra:
        raise DataError(
            f"the name of {files[0]} does not end in a language code such as .en; {advice}"
        ) from None
    return source, target


def read_files(files: Files, languages: tuple[str, str]) -> Iterator[Chunk]:
    """Yield the pairs of parallel text, some thousands at a time."""
    paths = [str(file) for file in files]
    corpus = CorpusConfig(source=paths[:1], target=paths[1:])  # type: ignore[arg-type]
    return read_chunks(corpus, *languages, Path())


def file_names(files: Files) -> str:
    """Return the names of parallel text, as an error message gives them."""
    return " and ".join(map(str, files))
