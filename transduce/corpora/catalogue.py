"""The catalogue of known corpora: their addresses, sizes and licences.

Addresses and members have fields for the languages:

    {side}        the language of this side
    {other}       the language that is not English
    {pair}        both languages in alphabetical order
    {role}        src for English, ref for the other language
    {code}        the three-letter code of {side}
    {other_code}  the three-letter code of {other}
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from transduce.errors import ConfigError

Split = Literal["train", "valid", "test"]
PHRASES = "phrases"  # this corpus is generated, not downloaded
CODES = {"de": "deu", "en": "eng", "es": "spa", "fr": "fra", "it": "ita"}


class Text(NamedTuple):
    """One side of a part: a download, and its member that holds the text ("" means all of it)."""

    address: str
    member: str
    file_name: str


@dataclass(frozen=True)
class Part:
    """Two parallel texts of a corpus."""

    split: Split
    name: str
    address: str
    member: str = ""
    pairs: int | None = None  # None means unknown
    saved_as: str = ""  # the file name of the download; "" means the end of the address


@dataclass(frozen=True)
class Entry:
    """A corpus of English and another language, and the settings to train on it."""

    name: str
    other: str
    licence: str
    about: str
    parts: tuple[Part, ...]
    vocab_size: int = 32_000
    preset: str = "base"

    @property
    def languages(self) -> tuple[str, str]:
        """English and the other language."""
        return "en", self.other

    @property
    def pairs(self) -> int | None:
        """The number of training pairs, or None if it is not known."""
        counts = [part.pairs for part in self.parts if part.split == "train"]
        return None if None in counts else sum(filter(None, counts))

    def texts(self, part: Part) -> tuple[Text, Text]:
        """Return the two sides of a part, English first."""
        common_fields = {
            "other": self.other,
            "pair": "-".join(sorted(self.languages)),
            "other_code": CODES[self.other],
        }

        def text(side: str, role: str) -> Text:
            fields = {**common_fields, "side": side, "role": role, "code": CODES[side]}
            address = part.address.format_map(fields)
            member = part.member.format_map(fields)
            file_name = part.saved_as.format_map(fields)
            return Text(address, member, file_name or PurePosixPath(address).name)

        return text("en", "src"), text(self.other, "ref")


def find(name: str) -> Entry:
    """Return the entry of a corpus."""
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    names = [PHRASES, *(entry.name for entry in ENTRIES)]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ConfigError(
        f"no corpus is called {name!r}; {hint}transduce data list shows all {len(ENTRIES) + 1}"
    )


def listing() -> str:
    """Return a table of all corpora: name, training pairs, licence and description."""
    about_phrases = "dates, numbers, money in two of de, en, es, fr, it; made here, not fetched"
    rows = [
        ("NAME", "PAIRS", "LICENCE", "WHAT IT IS"),
        (PHRASES, "any", "free", about_phrases),
    ]
    for entry in ENTRIES:
        pairs = f"{entry.pairs:,}" if entry.pairs else "not known"
        rows.append((entry.name, pairs, entry.licence, entry.about))

    columns = list(zip(*rows, strict=True))
    name_width, pairs_width, licence_width = (max(map(len, column)) for column in columns[:3])
    lines = []
    for name, pairs, licence, about in rows:
        lines.append(
            f"{name:<{name_width}}  {pairs:>{pairs_width}}  {licence:<{licence_width}}  {about}"
        )
    return "\n".join(lines)


def details(name: str) -> str:
    """Return the licence of a corpus, and the pairs and addresses of each part."""
    if name == PHRASES:
        return listing().split("\n")[1]
    entry = find(name)
    lines = [f"{entry.name}: {entry.about}", f"licence: {entry.licence}"]
    for part in entry.parts:
        pairs = f"{part.pairs:,}" if part.pairs else "unknown number of"
        lines.append(f"{part.split:5}  {part.name}, {pairs} pairs")
        addresses = dict.fromkeys(text.address for text in entry.texts(part))
        lines += [f"       {address}" for address in addresses]
    return "\n".join(lines)


_STATMT = "https://www.statmt.org"
_OPUS = "https://object.pouta.csc.fi"
_GITHUB = "https://raw.githubusercontent.com"
_TED = (
    "https://huggingface.co/datasets/IWSLT/iwslt2017/resolve/main/data/2017-01-trnted/texts"
    "/en/{other}/en-{other}.zip"
)


def _wmt14(europarl: int, crawl: int, news: int) -> tuple[Part, ...]:
    """The three training sets that WMT 2014 had for each language, with their pairs."""
    wmt13 = f"{_STATMT}/wmt13/training-parallel"
    wmt14 = f"{_STATMT}/wmt14/training-parallel"
    member = "{other}-en.{side}"
    return (
        Part(
            "train",
            "europarl-v7",
            f"{wmt13}-europarl-v7.tgz",
            f"training/europarl-v7.{member}",
            europarl,
        ),
        Part("train", "commoncrawl", f"{wmt13}-commoncrawl.tgz", f"commoncrawl.{member}", crawl),
        Part(
            "train",
            "news-commentary-v9",
            f"{wmt14}-nc-v9.tgz",
            f"training/news-commentary-v9.{member}",
            news,
        ),
    )


def _newstest(split: Split, year: int) -> Part:
    """A WMT news test set; for 2014 the full one, on which the paper reports its scores."""
    archive = "test"
    infix = "src"
    if year == 2014:
        archive = "test-full"
        infix = "{other}en-{role}"
    return Part(
        split,
        f"newstest{year}",
        address=f"{_STATMT}/wmt{year % 100}/{archive}.tgz",
        member=f"{archive}/newstest{year}-{infix}.{{side}}.sgm",
        pairs=3_000 if year == 2013 else 3_003,
        saved_as=f"wmt{year % 100}-{archive}.tgz",
    )


def _opus(corpus: str, version: str, pairs: int | None = None) -> Part:
    address = f"{_OPUS}/OPUS-{corpus}/{version}/moses/{{pair}}.txt.zip"
    saved_as = f"{corpus}-{version}-{{pair}}.txt.zip"
    return Part(
        "train",
        f"{corpus.lower()}-{version}",
        address,
        f"{corpus}.{{pair}}.{{side}}",
        pairs,
        saved_as,
    )


def _opus_100(split: Split, name: str, pairs: int) -> Part:
    member = f"opus-100-corpus/v1.0/supervised/{{pair}}/opus.{{pair}}-{name}.{{side}}"
    return Part(
        split, name, f"{_OPUS}/OPUS-100/v1.0/opus-100-corpus-{{pair}}-v1.0.tar.gz", member, pairs
    )


def _tatoeba_test(pairs: int) -> Part:
    name = "tatoeba-test-v2021-08-07"
    testsets = f"{_GITHUB}/Helsinki-NLP/OPUS-MT-testsets/master/testsets"
    address = f"{testsets}/eng-{{other_code}}/{name}.{{code}}"
    return Part("test", name, address, pairs=pairs, saved_as=f"{name}.eng-{{other_code}}.{{code}}")


def _multi30k(split: Split, name: str, pairs: int) -> Part:
    address = f"{_GITHUB}/multi30k/dataset/master/data/task1/raw/{name}.{{side}}.gz"
    return Part(split, name, address, pairs=pairs, saved_as=f"multi30k-{name}.{{side}}.gz")


def _ted(split: Split, name: str, pairs: int) -> Part:
    member = f"en-{{other}}/IWSLT17.TED.{name}.en-{{other}}.{{side}}.xml"
    if split == "train":
        member = "en-{other}/train.tags.en-{other}.{side}"
    return Part(split, name, _TED, member, pairs, "iwslt2017-en-{other}.zip")


_UN = Part(
    "train",
    "un-2000",
    f"{_STATMT}/wmt13/training-parallel-un.tgz",
    "un/undoc.2000.fr-en.{side}",
    12_886_831,
)
_GIGA = Part(
    "train",
    "giga-fren",
    f"{_STATMT}/wmt10/training-giga-fren.tar",
    "giga-fren.release2.fixed.{side}.gz",
    22_520_376,
)
# Validation and test sets; WMT 2014 had no Spanish.
_NEWS = {
    "de": (_newstest("valid", 2013), _newstest("test", 2014)),
    "fr": (_newstest("valid", 2013), _newstest("test", 2014)),
    "es": (_newstest("valid", 2012), _newstest("test", 2013)),
}
_RESEARCH = "free for research"
_PAPER = "what the paper trains on, with newstest2012, 2013 and 2014"

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "wmt14-en-de",
        "de",
        _RESEARCH,
        _PAPER,
        (*_wmt14(1_920_209, 2_399_123, 201_288), *_NEWS["de"], _newstest("test", 2012)),
        vocab_size=37_000,  # §5.1
    ),
    Entry(
        "wmt14-en-fr",
        "fr",
        _RESEARCH,
        _PAPER,
        (*_wmt14(2_007_723, 3_244_152, 183_251), _UN, _GIGA, *_NEWS["fr"], _newstest("test", 2012)),
    ),
    *(
        Entry(
            f"multi30k-en-{other}",
            other,
            "research (Flickr30k)",
            "captions of photographs",
            (
                _multi30k("train", "train", 29_000),
                _multi30k("valid", "val", 1_014),
                _multi30k("test", "test_2016_flickr", 1_000),
                _multi30k("test", "test_2017_flickr", 1_000),
                _multi30k("test", "test_2017_mscoco", 461),
            ),
            vocab_size=8_000,
            preset="tiny",
        )
        for other in ("de", "fr")
    ),
    *(
        Entry(
            f"tatoeba-en-{other}",
            other,
            "CC BY 2.0 FR",
            "short everyday sentences",
            (_opus("Tatoeba", "v2023-04-12"), _NEWS[other][0], _tatoeba_test(pairs)),
            vocab_size=16_000,
        )
        for other, pairs in (("de", 17_565), ("es", 16_583), ("fr", 12_681))
    ),
    Entry(
        "iwslt2017-en-de",
        "de",
        "CC BY-NC-ND 4.0",
        "talks (TED)",
        (
            _ted("train", "ted", 206_112),
            _ted("valid", "dev2010", 888),
            _ted("test", "tst2010", 1_568),
            _ted("test", "tst2011", 1_433),
            _ted("test", "tst2012", 1_700),
            _ted("test", "tst2013", 993),
            _ted("test", "tst2014", 1_305),
            _ted("test", "tst2015", 1_080),
        ),
        vocab_size=16_000,
    ),
    *(
        Entry(
            f"opus-100-en-{other}",
            other,
            "as its parts",
            "drawn from all of OPUS",
            (
                _opus_100("train", "train", 1_000_000),
                _opus_100("valid", "dev", 2_000),
                _opus_100("test", "test", 2_000),
            ),
        )
        for other in ("de", "es", "fr", "it")
    ),
    *(
        Entry(
            f"{corpus.lower()}-en-{other}",
            other,
            licence,
            about,
            (_opus(corpus, version, pairs), *_NEWS[other]),
        )
        for corpus, version, licence, about, sizes in (
            (
                "Europarl",
                "v8",
                "free, name the source",
                "parliament",
                {"de": 1_961_119, "es": 2_009_073, "fr": 2_051_014},
            ),
            (
                "News-Commentary",
                "v16",
                _RESEARCH,
                "opinion",
                {"de": 294_498, "es": 49_089, "fr": 156_122},
            ),
            ("WikiMatrix", "v1", "CC BY-SA 4.0", "mined from Wikipedia", dict.fromkeys(_NEWS)),
            ("ParaCrawl", "v9", "CC0", "mined from the web; very large", dict.fromkeys(_NEWS)),
        )
        for other, pairs in sizes.items()
    ),
)
