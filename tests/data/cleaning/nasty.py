"""Nasty corpora: the files to write, the arguments for the doctor, and the exact report."""

# ruff: noqa: RUF001  (signs that look like others are the point)

import bz2
import gzip
import io
import json
import lzma
import unicodedata
from dataclasses import dataclass, field

import pyarrow
import pyarrow.parquet
import zstandard

EN = ["Good morning.", "The house is red.", "We will see each other tomorrow."]
DE = ["Guten Morgen.", "Das Haus ist rot.", "Wir sehen uns morgen."]
LONG_EN = "The committee has discussed the proposal at length and will vote on it next week."
LONG_DE = "Der Ausschuss hat den Vorschlag ausführlich beraten und stimmt nächste Woche darüber ab."
LONG_FR = "La commission a longuement discuté de la proposition et votera la semaine prochaine."
DROP = "drop such lines with: transduce doctor ... --out FOLDER"


@dataclass
class Case:
    """A corpus and its report."""

    name: str
    files: dict[str, bytes]
    pairs: int
    kept: int
    findings: dict[str, tuple[int, str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=lambda: ["x.en", "x.de"])
    test: list[str] = field(default_factory=list)
    languages: tuple[str | None, str | None] = (None, None)


def lines(*texts):
    return "".join(f"{text}\n" for text in texts).encode()


def after(source, target):
    """Three sound pairs, then the one in question: line 4."""
    return {"x.en": lines(*EN, source), "x.de": lines(*DE, target)}


def clean_en_and(target):
    return {"x.en": lines(*EN), "x.de": target}


def convert(where, encoding):
    found = f"{where} is not UTF-8 but looks like {encoding}"
    return f"{found}; convert the (uncompressed) file with: iconv -f {encoding} -t UTF-8"


def not_parallel(target, source):
    return f"x.de has {target} lines but x.en has {source}; they must be parallel"


def cut(data):
    return data[: len(data) * 2 // 3]


def tmx(*units):
    body = "".join(
        "<tu>"
        + "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in unit.items())
        + "</tu>\n"
        for unit in units
    )
    return (
        f'<?xml version="1.0"?>\n<tmx version="1.4"><header/><body>\n{body}</body></tmx>'.encode()
    )


def jsonl(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def parquet(**columns):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


nfd = unicodedata.normalize("NFD", "Grüße aus Köln")
many = [f"This is sentence number {n} of the file." for n in "abcdefghijklmnopqrstuvwxyz"] * 40
zst = zstandard.ZstdCompressor()

SOUND = [
    Case("sound text", {"x.en": lines(*EN), "x.de": lines(*DE)}, 3, 3),
    Case("two empty files", {"x.en": b"", "x.de": b""}, 0, 0),
    Case("no final newline", {"x.en": lines(*EN)[:-1], "x.de": lines(*DE)[:-1]}, 3, 3),
    Case("a final newline on one side only", {"x.en": lines(*EN)[:-1], "x.de": lines(*DE)}, 3, 3),
    Case("emoji joined to one", after("A family 👨‍👩‍👧 and ❤️", "Eine Familie 👨‍👩‍👧 und ❤️"), 4, 4),
    Case(
        "Persian with its joiners",
        {"x.en": lines("I want it.", "The books"), "x.fa": lines("می‌خواهم.", "کتاب‌ها")},
        2,
        2,
        arguments=["x.en", "x.fa"],
    ),
    Case("letters before quotation marks", after("“Café…”", "„Café…“ “É”"), 4, 4),
    Case(
        "a compound is a phrase",
        after("the law on beef labels", "Rindfleischetikettierungsgesetz"),
        4,
        4,
    ),
    Case(
        "Japanese has no spaces",
        {
            "x.en": lines("I have been studying at this school for ten years."),
            "x.ja": lines("私は十年間この学校で勉強しています。"),
        },
        1,
        1,
        arguments=["x.en", "x.ja"],
    ),
    Case(
        "numbers in another notation",
        after("1,234.5 on 12/25/2020 at 8:15", "1.234,5 am 25.12.2020 um 8.15"),
        4,
        4,
    ),
    Case(
        "a date beside a digit in words", after("0 is 12/30/1899", "null ist der 30.12.1899"), 4, 4
    ),
    Case(
        "numbers in words",
        after("ten past 8, 10,000 times", "zehn nach acht, zehntausend Mal"),
        4,
        4,
    ),
    Case("markup in another order", after("<b>{n}</b> of %1$s", "von %1$s <B>{n}</B>"), 4, 4),
    Case(
        "a page in another language",
        after("https://en.site.org/a", "siehe https://de.site.org/b."),
        4,
        4,
    ),
    Case("percent is no placeholder", after("100 % sure, 50%d", "Hundert % dicht, 50%"), 4, 4),
    Case(
        "a short text of unclear language", after("Tom is taking a bath", "Tom badet gerade."), 4, 4
    ),
    Case(
        "names of another language",
        after(
            "Question No 38 by Karin Riis-Jørgensen (H-0868/00)",
            "Anfrage Nr. 38 von Frau Riis-Jørgensen (H-0868/00)",
        ),
        4,
        4,
    ),
]

LENGTHS = [
    Case("target lost a line", clean_en_and(lines(*DE[:2])), 2, 2, errors=[not_parallel(2, 3)]),
    Case(
        "target gained a line", clean_en_and(lines(*DE, "mehr")), 3, 3, errors=[not_parallel(4, 3)]
    ),
    Case("one empty file", clean_en_and(b""), 0, 0, errors=[not_parallel(0, 3)]),
    Case(
        "an empty line at the end of one",
        clean_en_and(lines(*DE, "")),
        3,
        3,
        errors=[not_parallel(4, 3)],
    ),
    Case(
        "a thousand lines against 998",
        {"x.en": lines(*map(str, range(998))), "x.de": lines(*(f"Nr. {n}" for n in range(1000)))},
        998,
        998,
        errors=[not_parallel("1,000", 998)],
    ),
    Case("an empty source", after("", "nichts"), 4, 3, {"empty": (1, "x.en:4")}),
    Case(
        "a target of white space",
        after("nothing", " \t\u3000\u00a0"),
        4,
        3,
        {"empty": (1, "x.de:4")},
    ),
    Case(
        "both sides empty",
        {"x.en": b"\n\n", "x.de": b"\n\n"},
        2,
        0,
        {"empty": (2, "x.en:1"), "duplicate": (1, "x.en:2")},
    ),
    Case(
        "a target of zero width",
        after("nothing", "\u200b\u2060"),
        4,
        3,
        {"empty": (1, "x.de:4"), "invisible-characters": (1, "x.de:4")},
    ),
    Case(
        "several lines of signs",
        {
            "x.en": lines("***", "---"),
            "x.de": lines("!!!", "???"),
            "y.en": lines("=="),
            "y.de": lines("++"),
        },
        2,
        0,
        {"too-short": (2, "x.en:1")},
        test=["y.en", "y.de"],
    ),
    Case("a line of stars", after("Three stars", "***"), 4, 3, {"too-short": (1, "x.de:4")}),
    Case(
        "10 MB on one line",
        after("word " * 2_000_000, "kurz"),
        4,
        3,
        {"too-long": (1, "x.en:4"), "length-ratio": (1, "x.en:4")},
    ),
    Case("10 MB in one word", after("kurz", "ü" * 5_000_000), 4, 3, {"too-long": (1, "x.de:4")}),
    Case(
        "10 MB of tags that never close",
        after("<a" * 1_000_000, "<a" + "a" * 10_000_000),
        4,
        3,
        {"too-long": (1, "x.en:4")},
    ),
    Case("251 words", after("so " * 251, "so " * 250), 4, 3, {"too-long": (1, "x.en:4")}),
    Case(
        "a ratio outlier", after("one " * 10, "eins " * 34), 4, 3, {"length-ratio": (1, "x.en:4")}
    ),
]

ENCODINGS = [
    Case(
        "a byte-order mark on both",
        {"x.en": b"\xef\xbb\xbf" + lines(*EN), "x.de": b"\xef\xbb\xbf" + lines(*DE)},
        3,
        3,
        {"byte-order-mark": (2, "x.en:1")},
    ),
    Case(
        "a byte-order mark inside",
        after("\ufeffone", "\ufeffeins"),
        4,
        4,
        {"invisible-characters": (1, "x.en:4")},
    ),
    Case(
        "UTF-16 LE with mark",
        clean_en_and("\ufeff".encode("utf-16-le") + "\n".join(DE).encode("utf-16-le")),
        0,
        0,
        errors=[convert("x.de:1", "UTF-16")],
    ),
    Case(
        "UTF-16 BE with mark",
        clean_en_and("\ufeff".encode("utf-16-be") + "\n".join(DE).encode("utf-16-be")),
        0,
        0,
        errors=[convert("x.de:1", "UTF-16")],
    ),
    Case(
        "UTF-16 LE without mark",
        clean_en_and("\n".join(DE).encode("utf-16-le")),
        0,
        0,
        errors=[convert("x.de:1", "UTF-16LE")],
    ),
    Case(
        "UTF-16 BE without mark",
        clean_en_and("\n".join(DE).encode("utf-16-be")),
        0,
        0,
        errors=[convert("x.de:1", "UTF-16BE")],
    ),
    Case(
        "UTF-16 Japanese without mark",
        {"x.en": lines("yes", "Japanese"), "x.ja": "はい\n日本語\n".encode("utf-16-be")},
        0,
        0,
        errors=[convert("x.ja:1", "UTF-16BE")],
        arguments=["x.en", "x.ja"],
    ),
    Case(
        "UTF-32",
        clean_en_and("\n".join(DE).encode("utf-32")),
        0,
        0,
        errors=[convert("x.de:1", "UTF-32")],
    ),
    Case(
        "Latin-1",
        {
            "x.en": lines(*EN, "Greetings", "Nice"),
            "x.de": "\n".join([*DE, "Grüße", "Schön"]).encode("latin-1"),
        },
        5,
        3,
        {"undecodable": (2, "x.de:4")},
        notes=[convert("x.de:4", "ISO-8859-1")],
    ),
    Case(
        "Windows-1252",
        {
            "x.en": lines(*EN, "“So”", "Nice"),
            "x.de": "\n".join([*DE, "„So“", "Schön"]).encode("cp1252"),
        },
        5,
        3,
        {"undecodable": (2, "x.de:4")},
        notes=[convert("x.de:4", "CP1252")],
    ),
    Case(
        "Windows-1251",
        {"x.en": lines("yes", "no"), "x.ru": "да\nнет\n".encode("cp1251")},
        2,
        0,
        {"undecodable": (2, "x.ru:1")},
        notes=[convert("x.ru:1", "CP1251")],
        arguments=["x.en", "x.ru"],
    ),
    Case(
        "Shift JIS",
        {"x.en": lines("yes", "Japanese"), "x.ja": "はい\n日本語\n".encode("cp932")},
        2,
        0,
        {"undecodable": (2, "x.ja:1")},
        notes=[convert("x.ja:1", "CP932")],
        arguments=["x.en", "x.ja"],
    ),
    Case(
        "one line of Latin-1 in UTF-8",
        {
            "x.en": lines(*EN, "Nice", "Greetings"),
            "x.de": lines(*DE) + "Schön\n".encode() + "Grüße\n".encode("latin-1"),
        },
        5,
        4,
        {"undecodable": (1, "x.de:5")},
        notes=[f"x.de:5 looks like ISO-8859-1 in a file that is UTF-8 elsewhere; {DROP}"],
    ),
    Case(
        "surrogates written as bytes",
        clean_en_and(lines(*DE[:2]) + b"\xed\xa0\xbd\xed\xb8\x80 lacht\n"),
        3,
        2,
        {"lone-surrogate": (1, "x.de:3")},
        notes=[f"x.de:3 has half a UTF-16 pair (a lone surrogate), which is not text; {DROP}"],
    ),
    Case(
        "a lone surrogate in JSON",
        {
            "x.jsonl": b'{"en": "half \\ud83d a smile", "de": "halb"}\n{"en": "\\ud83d\\ude00 whole", "de": "ganz"}\n'
        },
        2,
        1,
        {"lone-surrogate": (1, "x.jsonl:1")},
        arguments=["x.jsonl"],
        languages=("en", "de"),
    ),
    Case("mojibake letters", after("Greetings", "GrÃ¼ÃŸe"), 4, 3, {"mojibake": (1, "x.de:4")}),
    Case(
        "mojibake quotation marks",
        after("It is â€œsoâ€\x9d", "Es ist so"),
        4,
        3,
        {"mojibake": (1, "x.en:4"), "control-characters": (1, "x.en:4")},
    ),
    Case(
        "mojibake Cyrillic",
        {"x.en": lines("yes"), "x.ru": lines("Ð´Ð°")},
        1,
        0,
        {"mojibake": (1, "x.ru:1")},
        arguments=["x.en", "x.ru"],
    ),
    Case(
        "a replacement character",
        after("Greetings", "Gr\ufffdße"),
        4,
        3,
        {"replacement-character": (1, "x.de:4")},
    ),
    Case(
        "letters apart from their accents",
        after("Greetings from Cologne", nfd),
        4,
        4,
        {"not-nfc": (1, "x.de:4")},
    ),
]

CHARACTERS = [
    Case(
        "CRLF",
        {"x.en": lines(*EN).replace(b"\n", b"\r\n"), "x.de": lines(*DE).replace(b"\n", b"\r\n")},
        3,
        3,
        {"crlf": (6, "x.en:1")},
    ),
    Case(
        "CRLF in one line",
        clean_en_and(lines(*DE).replace(b"rot.\n", b"rot.\r\n")),
        3,
        3,
        {"crlf": (1, "x.de:2")},
    ),
    Case(
        "CR only",
        {"x.en": b"one\rtwo\r", "x.de": b"eins\rzwei\r"},
        1,
        0,
        {"line-separators": (1, "x.en:1")},
    ),
    Case("a CR inside", after("one\rtwo", "eins zwei"), 4, 3, {"line-separators": (1, "x.en:4")}),
    Case("NUL", after("one\0two", "eins zwei"), 4, 3, {"control-characters": (1, "x.en:4")}),
    Case(
        "a block of zeros",
        clean_en_and(lines(*DE[:2]) + bytes(5000) + b"\n"),
        3,
        2,
        {"control-characters": (1, "x.de:3"), "too-short": (1, "x.de:3")},
    ),
    Case(
        "an escape sequence",
        after("red", "\x1b[31mrot\x1b[0m"),
        4,
        3,
        {"control-characters": (1, "x.de:4")},
    ),
    Case("C1 controls", after("It\x92s", "Es ist"), 4, 3, {"control-characters": (1, "x.en:4")}),
    Case(
        "U+2028", after("one\u2028two", "eins\u2028zwei"), 4, 3, {"line-separators": (1, "x.en:4")}
    ),
    Case("U+2029", after("one two", "eins\u2029zwei"), 4, 3, {"line-separators": (1, "x.de:4")}),
    Case("U+0085", after("one\x85two", "eins zwei"), 4, 3, {"line-separators": (1, "x.en:4")}),
    Case(
        "vertical tab and form feed",
        after("one\x0btwo", "eins\x0czwei"),
        4,
        3,
        {"line-separators": (1, "x.en:4")},
    ),
    Case(
        "file separators",
        after("one two", "eins\x1czwei\x1e"),
        4,
        3,
        {"line-separators": (1, "x.de:4")},
    ),
    Case(
        "a zero-width space",
        after("one two", "eins\u200bzwei"),
        4,
        4,
        {"invisible-characters": (1, "x.de:4")},
    ),
    Case(
        "a soft hyphen",
        after("of\u00adfice", "Büro"),
        4,
        4,
        {"invisible-characters": (1, "x.en:4")},
    ),
    Case(
        "a joiner in Latin text",
        after("Auf\u200clage", "edition"),
        4,
        4,
        {"invisible-characters": (1, "x.en:4")},
    ),
    Case(
        "a turned reading direction",
        after("abc\u202edef", "abc"),
        4,
        4,
        {"invisible-characters": (1, "x.en:4")},
    ),
    Case(
        "a line break inside JSON",
        {"x.jsonl": jsonl({"en": "one\ntwo", "de": "eins zwei"}, {"en": "three", "de": "drei"})},
        2,
        1,
        {"line-separators": (1, "x.jsonl:1")},
        arguments=["x.jsonl"],
        languages=("en", "de"),
    ),
]

REPEATS = [
    Case("an exact duplicate", after(EN[0], DE[0]), 4, 3, {"duplicate": (1, "x.en:4")}),
    Case(
        "a near duplicate",
        after("GOOD  MORNING!", "„Guten Morgen“"),
        4,
        4,
        {"near-duplicate": (1, "x.en:4")},
    ),
    Case("the same source with another target", after(EN[0], "Moin."), 4, 4),
    Case(
        "a duplicate in another corpus",
        {
            "x.en": lines(*EN),
            "x.de": lines(*DE),
            "y.en": lines("new", EN[1]),
            "y.de": lines("neu", DE[1]),
        },
        5,
        4,
        {"duplicate": (1, "y.en:2")},
        arguments=["x.en", "x.de", "y.en", "y.de"],
    ),
    Case("a copy", after("Visual Studio ", "Visual Studio"), 4, 3, {"copy": (1, "x.en:4")}),
    Case(
        "a copy of a long sentence",
        after(LONG_EN, LONG_EN),
        4,
        3,
        {"copy": (1, "x.en:4")},
    ),
    Case(
        "both sides leaked, though short",
        {**after("Hi!", "Hallo!"), "y.en": lines("hi"), "y.de": lines("HALLO.")},
        4,
        3,
        {"leak": (1, "x.en:4")},
        test=["y.en", "y.de"],
    ),
    Case(
        "one long side leaked in another normalization",
        {
            **after(
                "something else", unicodedata.normalize("NFD", LONG_DE).upper().replace(" ", "  ")
            ),
            "y.en": lines(LONG_EN),
            "y.de": lines(f"»{LONG_DE}«"),
        },
        4,
        3,
        {"leak": (1, "x.en:4"), "not-nfc": (1, "x.de:4"), "length-ratio": (1, "x.en:4")},
        test=["y.en", "y.de"],
    ),
    Case(
        "one short side in a test set is no leak",
        {
            **after("Thank you very much", "Danke"),
            "y.en": lines("Thank you very much!"),
            "y.de": lines("Merci"),
        },
        4,
        4,
        test=["y.en", "y.de"],
    ),
    Case(
        "a leak from a container",
        {
            **after(LONG_EN, "etwas ganz anderes, aber auch recht lang"),
            "y.tsv": lines(f"{LONG_EN}\t{LONG_DE}"),
        },
        4,
        3,
        {"leak": (1, "x.en:4")},
        test=["y.tsv"],
    ),
]

DIFFERENCES = [
    Case("another number", after("in 1987", "im Jahr 1978"), 4, 4, {"numbers": (1, "x.en:4")}),
    Case(
        "another small number", after("in 45 days", "in 54 Tagen"), 4, 4, {"numbers": (1, "x.en:4")}
    ),
    Case(
        "a number that is missing",
        after("since 1987", "seit langem"),
        4,
        4,
        {"numbers": (1, "x.en:4")},
    ),
    Case(
        "a tag that is missing",
        after("Press <b>OK</b>", "<b>OK drücken"),
        4,
        4,
        {"markup": (1, "x.en:4")},
    ),
    Case(
        "a placeholder that is missing",
        after("Hello {name}!", "Hallo!"),
        4,
        4,
        {"markup": (1, "x.en:4")},
    ),
    Case(
        "another placeholder", after("%1$s files", "%2$s Dateien"), 4, 4, {"markup": (1, "x.en:4")}
    ),
    Case(
        "an address that is missing",
        after("see https://x.org/a", "siehe dort"),
        4,
        4,
        {"urls": (1, "x.en:4")},
    ),
    Case("escaped characters", after("R&amp;D", "F&E"), 4, 4, {"html-entities": (1, "x.en:4")}),
    Case(
        "quotation marks of several styles",
        {"x.en": lines('a "b"', 'c "d"', "e “f”"), "x.de": lines("a „b“", "c «d»", "e „f“")},
        3,
        3,
        {"mixed-quotes": (2, "x.de:2")},
    ),
    Case("a French target", after(LONG_EN, LONG_FR), 4, 4, {"wrong-language": (1, "x.de:4")}),
    Case(
        "sides that are swapped",
        {"x.en": lines(LONG_DE), "x.de": lines(LONG_EN)},
        1,
        1,
        {"wrong-language": (1, "x.en:1")},
    ),
    Case(
        "an unknown language",
        {"x.en": lines("one"), "x.xx": lines("uno")},
        1,
        1,
        notes=["sentences in 'xx' cannot be identified: their language was not checked"],
        arguments=["x.en", "x.xx"],
    ),
]

BROKEN = [
    Case(
        "a cut-off gz",
        {"x.en.gz": cut(gzip.compress(lines(*many))), "x.de": lines(*many)},
        0,
        0,
        errors=[
            "x.en.gz is cut off: the compressed data ends early, after line 0; download or copy it again"
        ],
        arguments=["x.en.gz", "x.de"],
    ),
    Case(
        "a cut-off xz",
        {"x.en.xz": cut(lzma.compress(lines(*many))), "x.de": lines(*many)},
        0,
        0,
        errors=[
            "x.en.xz is cut off: the compressed data ends early, after line 0; download or copy it again"
        ],
        arguments=["x.en.xz", "x.de"],
    ),
    Case(
        "a cut-off bz2",
        {"x.en.bz2": cut(bz2.compress(lines(*many))), "x.de": lines(*many)},
        0,
        0,
        errors=[
            "x.en.bz2 is cut off: the compressed data ends early, after line 0; download or copy it again"
        ],
        arguments=["x.en.bz2", "x.de"],
    ),
    Case(
        "a cut-off zst",
        {"x.en.zst": cut(zst.compress(lines(*many))), "x.de": lines(*many)},
        0,
        0,
        errors=[
            "x.en.zst is cut off: the compressed data ends early, after line 0; download or copy it again"
        ],
        arguments=["x.en.zst", "x.de"],
    ),
    Case(
        "text named gz",
        {"x.en.gz": lines(*EN), "x.de": lines(*DE)},
        0,
        0,
        errors=[
            "x.en.gz cannot be read after line 0: Error -3 while decompressing data: incorrect header check"
        ],
        arguments=["x.en.gz", "x.de"],
    ),
    Case(
        "a missing file",
        {"x.en": lines(*EN)},
        0,
        0,
        errors=["x.de does not exist; expected a text file"],
    ),
    Case(
        "a glob without a match",
        {"x.en": lines(*EN)},
        0,
        0,
        errors=["y*.de matches no file; check data.corpora"],
        arguments=["x.en", "y*.de"],
    ),
    Case(
        "one column",
        {"x.tsv": lines("one\teins", "two")},
        0,
        0,
        errors=["x.tsv:2 has 1 column; expected 2, as in line 1"],
        arguments=["x.tsv"],
        languages=("en", "de"),
    ),
    Case(
        "a tab too many",
        {"x.tsv": lines("one\teins", "two\t\tzwei")},
        0,
        0,
        errors=["x.tsv:2 has 3 columns; expected 2, as in line 1"],
        arguments=["x.tsv"],
        languages=("en", "de"),
    ),
    Case(
        "no tabs",
        {"x.tsv": lines("one,eins")},
        0,
        0,
        errors=["x.tsv:1 has 1 column; expected two or more, split by tabs"],
        arguments=["x.tsv"],
        languages=("en", "de"),
    ),
    Case(
        "TMX without the language",
        {"x.tmx": tmx({"en": "one", "fr": "un"})},
        1,
        0,
        {"empty": (1, "x.tmx:3")},
        errors=[
            "x.tmx has no 'de'; it has en, fr: set the source and target language to such codes"
        ],
        arguments=["x.tmx"],
        languages=("en", "de"),
    ),
    Case(
        "a TMX unit without the language",
        {"x.tmx": tmx({"en-US": "one", "fr": "un"}, {"en": "two", "DE-AT": "zwei"})},
        2,
        1,
        {"empty": (1, "x.tmx:3")},
        arguments=["x.tmx"],
        languages=("en", "de"),
    ),
    Case(
        "XML that does not close",
        {"x.tmx": tmx({"en": "one", "de": "eins"})[:-6]},
        1,
        1,
        errors=["x.tmx:4 is not well-formed XML: no element found"],
        arguments=["x.tmx"],
        languages=("en", "de"),
    ),
    Case(
        "XML with a stray sign",
        {"x.tmx": tmx({"en": "1 < 2", "de": "eins"})},
        0,
        0,
        errors=["x.tmx:3 is not well-formed XML: not well-formed (invalid token)"],
        arguments=["x.tmx"],
        languages=("en", "de"),
    ),
    Case(
        "JSON cut off",
        {"x.jsonl": b'{"en": "one", "de": "eins"}\n{"en": "tw'},
        1,
        1,
        errors=[
            "x.jsonl:2 is not JSON: Unterminated string starting at: line 1 column 8 (char 7);"
            " expected one object a line"
        ],
        arguments=["x.jsonl"],
        languages=("en", "de"),
    ),
    Case(
        "JSON without the language",
        {"x.jsonl": jsonl({"en": "one", "fr": "un"})},
        0,
        0,
        errors=[
            "x.jsonl:1 has no 'de'; it has en, fr: set the source and target language to such codes, or call the sides source and target"
        ],
        arguments=["x.jsonl"],
        languages=("en", "de"),
    ),
    Case(
        "JSON with a number for text",
        {"x.jsonl": jsonl({"en": "one", "de": 1})},
        0,
        0,
        errors=["x.jsonl:1: de is 1; expected text"],
        arguments=["x.jsonl"],
        languages=("en", "de"),
    ),
    Case(
        "JSON without objects",
        {"x.jsonl": b'["one", "eins"]\n'},
        0,
        0,
        errors=["x.jsonl:1 is a JSON list; expected an object with a text per language"],
        arguments=["x.jsonl"],
        languages=("en", "de"),
    ),
    Case(
        "Parquet without the column",
        {"x.parquet": parquet(en=["one"], fr=["un"])},
        0,
        0,
        errors=[
            "x.parquet has no 'de'; it has en, fr: set the source and target language to such codes, or call the sides source and target"
        ],
        arguments=["x.parquet"],
        languages=("en", "de"),
    ),
    Case(
        "Parquet with numbers for text",
        {"x.parquet": parquet(en=["one"], de=[1])},
        0,
        0,
        errors=["x.parquet:1: de is 1; expected text"],
        arguments=["x.parquet"],
        languages=("en", "de"),
    ),
    Case(
        "Parquet with nulls",
        {"x.parquet": parquet(en=["one", "two"], de=["eins", None])},
        2,
        1,
        {"empty": (1, "x.parquet:2")},
        arguments=["x.parquet"],
        languages=("en", "de"),
    ),
    Case(
        "Parquet that is not",
        {"x.parquet": b"PAR1 but no more"},
        0,
        0,
        errors=[
            "x.parquet cannot be read as Parquet: Parquet magic bytes not found in footer."
            " Either the file is corrupted or this is not a parquet file."
        ],
        arguments=["x.parquet"],
        languages=("en", "de"),
    ),
]

CASES = SOUND + LENGTHS + ENCODINGS + CHARACTERS + REPEATS + DIFFERENCES + BROKEN
