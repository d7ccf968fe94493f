"""Reading parallel text: every container and compression gives the same pairs, and damaged files are errors."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from transduce.config import CorpusConfig
from transduce.data.readers import compression
from transduce.data.readers.corpus import (
    container_languages,
    corpus_files,
    read_chunks,
    read_pairs,
)
from transduce.data.readers.lines import wide_encoding
from transduce.errors import DataError

PAIRS = [
    ("Good morning.", "Guten Morgen."),
    (
        'It\'s\u2028 5 < 6 & "so on"',
        "Es ist\x0b „5 kleiner 6“\x85",
    ),  # what other tools take for the end of a line
    ("", "leer"),
    (" Ünïcödé 😀 ", "\ufeff日本語"),
]

COMPRESS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pytest.importorskip("zstandard").ZstdCompressor().compress(data),
}


def lines(texts):
    return "".join(f"{text}\n" for text in texts).encode()


def as_tmx(pairs, declaration='<?xml version="1.0" encoding="utf-8"?>'):
    escape = str.maketrans({"&": "&amp;", "<": "&lt;", "\x0b": ""})
    units = "".join(
        f'<tu><tuv xml:lang="EN-US"><seg>{source.translate(escape)}</seg></tuv>'
        f'<tuv xml:lang="de"><seg>{target.translate(escape)}</seg></tuv></tu>\n'
        for source, target in pairs
    )
    return f'{declaration}<tmx version="1.4"><header/><body>\n{units}</body></tmx>'


def as_jsonl(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def read(base, *source, target=(), languages=("en", "de"), strict=True):
    corpus = CorpusConfig(source=source, target=target)
    return [pair[:2] for pair in read_pairs(corpus, *languages, base, strict=strict)]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_parallel_files_are_read_whatever_the_compression(tmp_path, suffix):
    for column, language in enumerate(("en", "de")):
        data = lines(pair[column] for pair in PAIRS)
        (tmp_path / f"x.{language}{suffix}").write_bytes(COMPRESS[suffix](data))
    corpus = CorpusConfig(source=(f"x.en{suffix}",), target=(f"x.de{suffix}",))
    pairs = list(read_pairs(corpus, "en", "de", tmp_path))
    assert [pair[:2] for pair in pairs] == PAIRS
    assert [(pair.file, pair.line) for pair in pairs] == [
        (str(tmp_path / f"x.en{suffix}"), n) for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_compression_is_known_by_content_too_and_streams_may_follow_each_other(tmp_path, suffix):
    first, rest = lines(["one", "two"]), lines(["three"])
    (tmp_path / "x.en").write_bytes(COMPRESS[suffix](first) + COMPRESS[suffix](rest))
    (tmp_path / "x.de").write_bytes(lines(["eins", "zwei", "drei"]))
    assert read(tmp_path, "x.en", target=("x.de",)) == [
        ("one", "eins"),
        ("two", "zwei"),
        ("three", "drei"),
    ]


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
@pytest.mark.parametrize("streams", [1, 2])
def test_an_archive_cut_at_any_place_is_an_error(tmp_path, suffix, streams):
    whole = COMPRESS[suffix](lines(["one", "two"])) * streams
    (tmp_path / "x.de").write_bytes(lines(["eins", "zwei"] * streams))
    # The end of the first of two streams is a legal end.
    boundary = len(whole) // 2 if streams == 2 else -1
    for size in range(len(whole)):
        (tmp_path / f"x.en{suffix}").write_bytes(whole[:size])
        with pytest.raises(
            DataError, match="must be parallel" if size == boundary else "cut off|cannot be read"
        ):
            read(tmp_path, f"x.en{suffix}", target=("x.de",))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_zeros_may_pad_an_archive(tmp_path, suffix):
    (tmp_path / f"x.en{suffix}").write_bytes(COMPRESS[suffix](lines(["one"])) + bytes(10_000))
    (tmp_path / "x.de").write_bytes(lines(["eins"]))
    assert read(tmp_path, f"x.en{suffix}", target=("x.de",)) == [("one", "eins")]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_rubbish_after_an_archive_is_an_error(tmp_path, suffix):
    (tmp_path / f"x.en{suffix}").write_bytes(COMPRESS[suffix](lines(["one"])) + b"rubbish")
    (tmp_path / "x.de").write_bytes(lines(["eins"]))
    with pytest.raises(DataError, match=r"x\.en.* (cannot be read|cut off)"):
        read(tmp_path, f"x.en{suffix}", target=("x.de",))


@pytest.mark.parametrize(
    "rows",
    [
        [{"en": source, "de": target, "id": 7} for source, target in PAIRS],
        [{"source": source, "target": target} for source, target in PAIRS],
        [{"translation": {"de_DE": target, "en_GB": source}} for source, target in PAIRS],
    ],
)
def test_jsonl_is_read_by_language_or_side(tmp_path, rows):
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(as_jsonl(rows) + b"\n"))
    assert read(tmp_path, "x.jsonl.gz") == PAIRS


def test_jsonl_null_is_an_empty_side(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(as_jsonl([{"en": None, "de": "nichts"}]))
    assert read(tmp_path, "x.jsonl") == [("", "nichts")]


def test_tsv_is_read_by_place_or_by_its_header(tmp_path):
    (tmp_path / "x.tsv").write_bytes(lines(f"{source}\t{target}\tnote" for source, target in PAIRS))
    (tmp_path / "y.tsv").write_bytes(
        lines(["id\tDE\ten-GB", *(f"7\t{target}\t{source}" for source, target in PAIRS)])
    )
    assert read(tmp_path, "x.tsv") == PAIRS
    assert read(tmp_path, "y.tsv") == PAIRS
    assert [
        line
        for chunk in read_chunks(CorpusConfig(source=("y.tsv",)), "en", "de", tmp_path)
        for line in chunk.lines
    ] == [2, 3, 4, 5]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tmx_is_read_in_its_declared_encoding(tmp_path, encoding):
    text = as_tmx(PAIRS, f'<?xml version="1.0" encoding="{encoding}"?>')
    (tmp_path / "x.tmx").write_bytes(text.encode(encoding))
    # XML knows no vertical tab.
    expected = [(source, target.replace("\x0b", "")) for source, target in PAIRS]
    assert read(tmp_path, "x.tmx") == expected
    assert read(tmp_path, "x.tmx", languages=("de", "en")) == [
        (target, source) for source, target in expected
    ]


def test_a_folder_stands_for_its_files_with_both_sides(tmp_path):
    memories = tmp_path / "memories"
    memories.mkdir()
    with pytest.raises(
        DataError, match=r"without a file that holds both sides \(\.tsv, .*name the"
    ):
        read(tmp_path, "memories")
    (memories / "b.tmx").write_text(as_tmx([("two", "zwei")]), encoding="utf-8")
    (memories / "a.tmx.gz").write_bytes(gzip.compress(as_tmx([("one", "eins")]).encode()))
    (memories / "notes.txt").write_text("not a translation memory")
    assert read(tmp_path, "memories") == [("one", "eins"), ("two", "zwei")]


@pytest.mark.parametrize(
    ("header", "variants", "languages"),
    [
        ('srclang="en-US"', ["EN-US", "de-DE"], ("en", "de")),
        ('srclang="en-US"', ["de-DE", "EN-GB"], ("en", "de")),
        ('srclang="*all*"', ["fr", "de_CH"], ("fr", "de")),
        ("", ["fr", "de"], ("fr", "de")),
        ('srclang="en"', ["en", "de", "fr"], None),
        ('srclang="en"', ["en"], None),
        ('srclang="en"', [], None),
        ('srclang="en" <', ["en", "de"], None),
    ],
)
def test_a_tmx_file_says_its_languages_if_they_are_clear(tmp_path, header, variants, languages):
    unit = "".join(f'<tuv xml:lang="{code}"><seg>x</seg></tuv>' for code in variants)
    text = f"<tmx><header {header}/><body><tu>{unit}</tu></body></tmx>"
    (tmp_path / "x.tmx").write_text(text)
    assert container_languages(tmp_path / "x.tmx") == languages
    assert container_languages(tmp_path) == languages


def test_only_tmx_files_say_their_languages(tmp_path):
    (tmp_path / "x.tsv").write_text("a\tb\n")
    assert container_languages(tmp_path / "x.tsv") is None
    assert container_languages(tmp_path / "absent.tmx") is None


def test_tmx_segments_lose_their_codes_and_line_breaks(tmp_path):
    segment = 'Press <bpt i="1">&lt;b&gt;</bpt>OK<ept i="1">&lt;/b&gt;</ept>\n<hi>now</hi>&#33;'
    unit = (
        f'<tu>\n<tuv lang="en"><seg>{segment}</seg></tuv><tuv lang="de"><seg>Jetzt</seg></tuv></tu>'
    )
    (tmp_path / "x.tmx").write_text(f"<tmx><body>\n{unit}</body></tmx>")
    corpus = CorpusConfig(source=("x.tmx",))
    assert [pair[:2] + pair[3:] for pair in read_pairs(corpus, "en", "de", tmp_path)] == [
        ("Press OK now!", "Jetzt", 2)
    ]


@pytest.mark.parametrize("nested", [False, True])
def test_parquet_is_read_by_column(tmp_path, monkeypatch, nested):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"de": target, "en": source or None} for source, target in PAIRS]
    table = pyarrow.Table.from_pylist(
        [{"id": 1, "translation": row} for row in rows] if nested else rows
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    monkeypatch.setattr("transduce.data.readers.parquet._ROWS", 3)
    pairs = list(read_pairs(CorpusConfig(source=("x.parquet",)), "en", "de", tmp_path))
    assert [pair[:2] for pair in pairs] == PAIRS
    assert [pair.line for pair in pairs] == [1, 2, 3, 4]


def test_globs_are_sorted_and_matched_up(tmp_path):
    for part in ("10", "09", "11"):
        (tmp_path / f"part{part}.en").write_text(f"en {part}\n")
        (tmp_path / f"part{part}.de").write_text(f"de {part}\n")
    pairs = read(tmp_path, "part*.en", target=("part*.de",))
    assert pairs == [(f"en {part}", f"de {part}") for part in ("09", "10", "11")]
    (tmp_path / "part12.en").write_text("en 12\n")
    with pytest.raises(
        DataError,
        match=r"part\*\.en matches 4 files but part\*\.de matches 3; they must be parallel",
    ):
        read(tmp_path, "part*.en", target=("part*.de",))


def test_a_name_with_brackets_is_not_a_glob_if_it_exists(tmp_path):
    (tmp_path / "x[1].tsv").write_text("a\tb\n")
    assert corpus_files(CorpusConfig(source=("x[1].tsv",)), tmp_path) == [(tmp_path / "x[1].tsv",)]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("no.en", "x.de", "no.en does not exist; expected a text file"),
        ("no*.en", "x.de", "no*.en matches no file"),
        ("folder", "x.de", "folder is a folder; expected a text file"),
        ("x.de", "", "x.de holds one side only; name its parallel file too"),
        (
            "latin.en",
            "x.de",
            "latin.en:2 is not UTF-8 but looks like ISO-8859-1; convert the (uncompressed) file with: iconv",
        ),
        (
            "mixed.en",
            "x.de",
            "mixed.en:2 looks like ISO-8859-1 in a file that is UTF-8 elsewhere; drop such lines",
        ),
        ("wide.en", "x.de", "wide.en:1 is not UTF-8 but looks like UTF-16LE"),
        ("huge.en", "x.de", "huge.en has a line of more than 64 MiB"),
        ("long.en", "x.de", "x.de has 2 lines but {base}/long.en has 1,000; they must be parallel"),
    ],
)
def test_what_cannot_be_read_gets_one_clear_line(tmp_path, source, target, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "x.de").write_bytes(lines(["eins", "zwei"]))
    (tmp_path / "latin.en").write_bytes("one\ncafé\n".encode("latin-1"))
    (tmp_path / "mixed.en").write_bytes("naïve café\n".encode() + "café\n".encode("latin-1"))
    (tmp_path / "wide.en").write_bytes("one\ntwo\n".encode("utf-16-le"))
    (tmp_path / "long.en").write_bytes(lines(["word"] * 1000))
    if source == "huge.en":
        with (tmp_path / "huge.en").open("wb") as file:
            file.truncate(80 << 20)  # zeros without a line end, at no cost on disk
    with pytest.raises(DataError) as caught:
        read(tmp_path, source, target=(target,) if target else ())
    assert message.format(base=tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pipe_can_be_read(tmp_path):
    os.mkfifo(tmp_path / "x.en")
    (tmp_path / "x.de").write_bytes(lines(["eins", "zwei"]))
    writer = threading.Thread(
        target=(tmp_path / "x.en").write_bytes,
        args=(gzip.compress(lines(["one", "two", "three"])),),
    )
    writer.start()
    with pytest.raises(
        DataError, match=r"x\.de has 2 lines but .*x\.en has 3; they must be parallel"
    ):
        read(tmp_path, "x.en", target=("x.de",))
    writer.join()


def test_what_is_not_utf8_passes_through_if_asked(tmp_path):
    (tmp_path / "x.en").write_bytes(b"caf\xe9\n")
    (tmp_path / "x.de").write_bytes(b"ok\n")
    assert read(tmp_path, "x.en", target=("x.de",), strict=False) == [("caf\udce9", "ok")]


def test_line_ends_and_byte_order_marks_are_taken_off_and_told(tmp_path):
    (tmp_path / "x.en").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\r\n")
    (tmp_path / "x.de").write_bytes(b"eins\nzwei\r\ndrei\n")
    corpus = CorpusConfig(source=("x.en",), target=("x.de",))
    [chunk] = read_chunks(corpus, "en", "de", tmp_path)
    assert (chunk.sources, chunk.targets) == (["one", "two", "three\r"], ["eins", "zwei", "drei"])
    names = [(remark.rule, remark.file[-4:], remark.line, remark.times) for remark in chunk.remarks]
    assert names == [
        ("byte-order-mark", "x.en", 1, 1),
        ("crlf", "x.en", 1, 3),
        ("crlf", "x.de", 2, 1),
    ]


line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=20)


@settings(max_examples=200, deadline=None)
@given(pairs=st.lists(st.tuples(line, line), max_size=8), final_newline=st.booleans())
def test_any_unicode_text_is_read_back_exactly(tmp_path_factory, pairs, final_newline):
    base = tmp_path_factory.mktemp("any")
    # A file's first U+FEFF is a mark and a line's last \r a part of its end: not text, by convention.
    pairs = [tuple(text.rstrip("\r").lstrip("\ufeff") for text in pair) for pair in pairs]
    # An empty last line is one only if it ends.
    final_newline = final_newline or not pairs or "" in pairs[-1]
    for column, language in enumerate(("en", "de")):
        data = "\n".join(pair[column] for pair in pairs) + "\n" * (final_newline and pairs != [])
        (base / f"x.{language}").write_bytes(data.encode())
        assume(not wide_encoding(data.encode()))  # NUL at every second place is UTF-16 indeed
    assert read(base, "x.en", target=("x.de",)) == pairs


def test_blocks_of_any_size_give_the_same_lines(tmp_path, monkeypatch):
    texts = [f"{n} " + "ü" * (n % 40) for n in range(500)]
    (tmp_path / "x.en").write_bytes("\r\n".join(texts).encode())
    (tmp_path / "x.de").write_bytes(lines(texts[::-1]))
    for size in (1, 2, 3, 7, 64, 1000):
        monkeypatch.setattr("transduce.data.readers.compression.BLOCK", size)
        assert read(tmp_path, "x.en", target=("x.de",)) == list(
            zip(texts, texts[::-1], strict=True)
        )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_memory_does_not_grow_with_the_file(tmp_path, suffix):
    """The peak of a fresh process over 5 MB and over 100 MB of text."""
    script = """
        import re, sys
        from pathlib import Path
        from transduce.config import CorpusConfig
        from transduce.data.readers.corpus import read_chunks
        corpus = CorpusConfig(source=(sys.argv[1],), target=(sys.argv[1],))
        print(sum(len(chunk) for chunk in read_chunks(corpus, "en", "de", Path())))
        print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
    """
    megabyte = COMPRESS[suffix](b"A line of text, of fifty bytes or thereabouts now.\n" * 20_000)
    peaks = []
    for repeats in (5, 100):
        path = tmp_path / f"{repeats}.en{suffix}"
        path.write_bytes(megabyte * repeats)
        command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
        result = subprocess.run(
            command, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True
        )
        count, peak = map(int, result.stdout.split())
        assert count == 20_000 * repeats
        peaks.append(peak / 1024)
    assert peaks[1] < peaks[0] + 20


@pytest.mark.parametrize("encoding", ["ebcdic-nope", "utf-7", "idna", "shift_jis", "utf-32"])
def test_a_tmx_file_in_an_encoding_that_cannot_be_read_is_one_line(encoding, tmp_path):
    path = tmp_path / "x.tmx"
    path.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?><tmx></tmx>'.encode())
    corpus = CorpusConfig(source=(str(path),))
    with pytest.raises(DataError, match="declares an encoding that cannot be read"):
        list(read_chunks(corpus, "en", "de", Path()))


def test_a_pipe_without_a_writer_and_a_device_do_not_hold_the_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(compression, "PIPE_SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="a pipe to which nothing was written for"):
        list(compression.blocks(tmp_path / "pipe"))
    with pytest.raises(DataError, match="/dev/urandom is a device; expected a text file"):
        list(compression.blocks(Path("/dev/urandom")))


def test_a_pipe_with_a_writer_is_read_to_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    text = b"one line\n" * 100_000
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(text,))
    writer.start()
    assert b"".join(compression.blocks(tmp_path / "pipe")) == text
    writer.join()
