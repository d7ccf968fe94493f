"""`transduce translate`: line for line, from anywhere to anywhere."""

import codecs
import io
import json
import os
import random
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.cli.commands import run
from transduce.config import SearchConfig
from transduce.data.readers.compression import blocks
from transduce.errors import InputError
from transduce.translation import messages, streams
from transduce.translation.streams import Format, arriving
from transduce.translation.translator import Translator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def translate(bundle, monkeypatch, capsysbinary):
    """Run the command on bytes of standard input: exit status, output, messages."""

    def command(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = run(
            ["translate", "--model", str(bundle.path), "--device", "cpu", "--beam", "1", *arguments]
        )
        captured = capsysbinary.readouterr()
        return status, captured.out, captured.err.decode()

    return command


def test_a_text_is_translated(translate):
    status, out, err = translate("in 98 weeks")
    assert (status, err) == (0, "")
    assert out.endswith(b"\n")
    assert len(out) > 1


def test_a_note_says_that_lines_are_not_split_into_sentences(translate, monkeypatch):
    note = "each line is translated as one sentence; to split lines into sentences: pip install"
    assert note not in translate("in 98 weeks")[2]
    monkeypatch.setitem(sys.modules, "sentencex", None)
    assert note in translate("in 98 weeks")[2]


def test_a_note_says_that_the_name_of_a_file_was_translated(translate, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    note = "the text is the name of a file; to translate what is in it: --input news.en"
    assert note not in translate("news.en")[2]
    (tmp_path / "news.en").write_text("in 98 weeks\n")
    assert note in translate("news.en")[2]
    # No file can have such a name.
    assert translate("in 98 weeks " * 400)[0] == 0


def test_progress_is_shown_within_a_long_line(translate, monkeypatch):
    shown = []
    monkeypatch.setattr(
        streams.Progress, "show", lambda self: shown.append((self.bytes, self.lines))
    )
    monkeypatch.setattr(streams, "LONG_LINE", 20)
    text = b"in 98 weeks. in 7 days. on Monday.\n"
    translate(stdin=text)
    assert shown == [(12, 0), (12 + 10, 0), (12 + 10 + 10, 0), (len(text), 1)]


def test_any_word_is_a_text(translate, bundle):
    """This includes names in Python and the empty text."""
    translator = Translator(bundle, engine="torch", device="cpu", search=SearchConfig(beam_size=1))
    for word in ("None", "True", "()", "7"):
        assert translate("--engine", "torch", word) == (
            0,
            f"{translator.translate(word).text}\n".encode(),
            "",
        )
    assert translate("", stdin=b"in 98 weeks") == (0, b"\n", "")


def test_models_named_one_after_the_other_decide_together(translate, bundle):
    # And once in the fixture.
    twice = translate("--model", str(bundle.path), "--scores", "in 98 weeks")
    once = translate("--engine", "torch", "--scores", "in 98 weeks")
    assert json.loads(twice[1])["text"] == json.loads(once[1])["text"]
    status, _, err = translate(
        "--model", str(bundle.path), "--engine", "ctranslate2", "in 98 weeks"
    )
    assert (status, err.count("\n")) == (2, 1)
    assert "2 models are an ensemble" in err


def test_standard_input_is_translated_line_for_line(translate):
    lines = b"in 98 weeks\n\n  \n3:48 PM\nin 98 weeks\n"
    status, out, err = translate(stdin=lines)
    assert (status, err) == (0, "")
    translated = out.decode().split("\n")
    assert len(translated) == 6
    assert translated[0] == translated[4]
    assert translated[1:3] == ["", "  "]
    assert translated[0] + "\n" == translate("in 98 weeks")[1].decode()


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-32-le", codecs.BOM_UTF32_LE),
    ],
)
@pytest.mark.parametrize("blocks_of", [1, 10_000])
def test_line_ends_and_the_encoding_stay(translate, monkeypatch, encoding, mark, blocks_of):
    german = translate("in 98 weeks")[1].decode().strip()
    text = "in 98 weeks\r\n\n\r\n\u2028\rin 98 weeks\n\u20ac\nin 98 weeks"
    stdin = mark + text.encode(encoding)
    parts = [stdin[start : start + blocks_of] for start in range(0, len(stdin), blocks_of)]
    monkeypatch.setattr(streams, "_blocks", lambda source: iter(parts))
    expected = mark + text.replace("in 98 weeks", german).encode(encoding)
    assert translate() == (0, expected, "")
    # JSON is our own format.
    status, out, _ = translate("--scores")
    assert (status, out[:1], out.count(b"\n"), out.count(b"\r")) == (0, b"{", 6, 0)


def test_control_characters_stay(translate):
    assert translate(stdin=b"\0\x1b\n\x1c\x1f\n")[1] == b"\0\x1b\n\x1c\x1f\n"
    out = translate(stdin=b"in\0 98 weeks\x1f3:48 PM\x07\n")[1].decode()
    assert [mark for mark in out if ord(mark) < 32] == ["\0", "\x1f", "\x07", "\n"]


def test_text_in_utf16_that_cannot_be_read_is_named(translate):
    damaged = codecs.BOM_UTF16_LE + "in 98 weeks\n\ud800\n".encode("utf-16-le", "surrogatepass")
    expected = "stdin:2 is not UTF-16-LE; convert it, or go on with --errors replace"
    assert translate(stdin=damaged) == (2, codecs.BOM_UTF16_LE, f"transduce: {expected}\n")
    status, out, _ = translate("--errors", "replace", stdin=damaged)
    assert (status, out.decode("utf-16").split("\n")[1:]) == (0, ["\ufffd", ""])
    status, _, err = translate(stdin="in 98 weeks\n".encode("utf-16-le"))
    assert (status, err.count("\n")) == (2, 1)
    assert "stdin:1 is not UTF-8 but looks like UTF-16LE; convert the" in err


MESSAGE = "{n, plural,\n  one {# file}\n  other {# files}\n}"


@pytest.mark.parametrize("blocks_of", [1, 7, 10_000])
def test_the_lines_of_an_icu_message_are_one_text(translate, monkeypatch, blocks_of):
    stdin = f"in 98 weeks\n{MESSAGE} in 98 weeks\nin 98 weeks\n".encode()
    parts = [stdin[start : start + blocks_of] for start in range(0, len(stdin), blocks_of)]
    monkeypatch.setattr(streams, "_blocks", lambda source: iter(parts))
    status, out, err = translate()
    assert (status, err) == (0, "")
    first, *message, last = out.decode().splitlines()
    assert len(message) == 4
    assert "\n".join(message).count(MESSAGE) == 1
    assert first == last


def test_a_message_that_never_ends_holds_back_few_lines_and_changes_none(translate):
    lines = [b"{n, plural,", *[b"in 98 weeks"] * 300]
    portions = list(messages.whole_messages([line] for line in lines))
    assert [line for portion in portions for line in portion] == lines
    assert max(map(len, portions)) <= messages.MOST_LINES + 1
    status, out, _ = translate(stdin=b"\n".join(lines[:120]))
    assert (status, len(out.splitlines())) == (0, 120)


def test_a_message_that_the_model_does_not_keep_is_copied(translate, monkeypatch):
    plain = Translator.translate

    def lose(self, texts, **options):
        return [
            replace(result, text=result.text.replace("\n", " "))
            for result in plain(self, texts, **options)
        ]

    monkeypatch.setattr(Translator, "translate", lose)
    status, out, err = translate(stdin=f"{MESSAGE} in 98 weeks\n".encode())
    assert (status, out.decode()) == (0, f"{MESSAGE} in 98 weeks\n")
    assert "line 1: the model has not kept the message; it was copied" in err


def test_files_go_in_and_out(translate, tmp_path):
    (tmp_path / "in.txt").write_text("in 98 weeks\n3:48 PM\n")
    source, target = str(tmp_path / "in.txt"), str(tmp_path / "out.txt")
    assert translate("--input", source, "--output", target) == (0, b"", "")
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 2
    status, _, err = translate("--input", source, "--output", source)
    assert status == 2
    assert "is both the input and the output" in err
    status, _, err = translate("--input", str(tmp_path / "none.txt"))
    assert status == 2
    assert "none.txt does not exist" in err
    status, _, err = translate("--input", source, "--output", str(tmp_path / "none" / "out.txt"))
    assert (status, (tmp_path / "none").exists()) == (2, False)
    assert "none is not a folder; create it first" in err


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_files_are_compressed_as_their_names_say(translate, tmp_path, suffix):
    texts, packed, again = tmp_path / "in.txt", tmp_path / f"out{suffix}", tmp_path / "out.txt"
    texts.write_text("in 98 weeks\n")
    assert translate("--input", str(texts), "--output", str(packed))[0] == 0
    plain = translate("in 98 weeks")[1]
    assert packed.read_bytes() != plain == b"".join(blocks(packed))
    assert translate("--input", str(packed), "--output", str(again))[0] == 0
    assert again.read_bytes() == translate(plain.decode().strip("\n"))[1]


def test_a_device_is_written_to_and_not_replaced(translate, tmp_path):
    (tmp_path / "in.txt").write_text("in 98 weeks\n")
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert translate("--input", str(tmp_path / "in.txt"), "--output", str(pipe))[0] == 0
    assert os.read(reader, 1000) == translate("in 98 weeks")[1]
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_program_that_waits_for_each_answer_gets_it(bundle):
    command = [
        sys.executable,
        "-m",
        "transduce",
        "translate",
        "--model",
        bundle.path,
        "--engine",
        "torch",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        never = threading.Timer(60, process.kill)
        never.start()
        for line in (b"in 98 weeks\n", b"\n", b"3:48 PM\nin 98 weeks\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answers = [process.stdout.readline() for _ in range(line.count(b"\n"))]
            assert all(map(bytes.strip, answers)) == bool(line.strip())
        process.stdin.close()
        assert (process.stdout.read(), process.wait()) == (b"", 0)
        never.cancel()


def test_much_input_is_translated_many_lines_at_a_time():
    lines = [b"%d" % number for number in range(10_000)]
    chunks = list(arriving([b"\n".join(lines)]))
    assert b"".join(line for chunk in chunks for line in chunk) == b"\n".join(lines)
    assert [len(chunk) for chunk in chunks[:7]] == [16, 32, 64, 128, 256, 512, 1024]
    assert max(map(len, chunks)) == 1024


def test_lines_before_one_that_cannot_be_read_are_translated(translate):
    line = translate("in 98 weeks")[1]
    status, out, err = translate(stdin=b"in 98 weeks\n" * 20 + b"in \xff98 weeks\nin 98 weeks\n")
    assert (status, out) == (2, 20 * line)
    assert "stdin:21 is not UTF-8" in err


def test_bytes_that_are_not_utf8_name_their_line(translate):
    status, out, err = translate(stdin=b"in 98 weeks\nin \xff98 weeks\n")
    assert status == 2
    assert err == (
        "transduce: stdin:2 is not UTF-8 (byte 0xff at 4); convert it, or go on with --errors replace\n"
    )
    status, out, err = translate("--errors", "replace", stdin=b"in 98 weeks\nin \xff98 weeks\n")
    assert (status, out.count(b"\n"), err) == (0, 2, "")


def test_bytes_of_a_text_that_are_not_utf8_are_treated_as_those_of_a_line(translate):
    text = os.fsdecode(b"in \xff98 weeks")
    status, out, err = translate(text)
    assert (status, out) == (2, b"")
    assert (
        err
        == "transduce: the text is not UTF-8 (byte 0xff at 4); convert it, or go on with --errors replace\n"
    )
    line = translate("--errors", "replace", stdin=b"in \xff98 weeks\n")
    assert translate("--errors", "replace", text) == line


def test_lines_end_at_newlines_alone():
    blocks = ["a\u2028b\x0cc", "\rd\ne"]
    lines = [line.decode() for chunk in arriving(map(str.encode, blocks)) for line in chunk]
    assert lines == ["a\u2028b\x0cc\rd\n", "e"]
    text, chance = b"one\n\ntwo two two\nthree\n\n\nfour", random.Random(1)
    for _ in range(50):
        cuts = sorted(chance.choices(range(len(text)), k=8))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        lines = [line for chunk in arriving(parts) for line in chunk]
        assert lines == text.splitlines(keepends=True)


def test_a_long_line_takes_time_by_its_length():
    start = time.process_time()
    ((line,),) = arriving([b"x" * 2**16] * 2**9)
    assert len(line) == 2**25
    # And not a sum over all that was read so far, for each block.
    assert time.process_time() - start < 3


def test_details_come_as_one_json_object_a_line(translate):
    status, out, _ = translate(
        "--beam", "4", "--nbest", "2", "--alignments", stdin=b"in 98 weeks\n\n"
    )
    assert status == 0
    first, second = map(json.loads, out.decode().splitlines())
    assert len(first["n_best"]) == 2
    assert first["n_best"][0]["text"] == first["text"]
    assert first["sentences"][0]["alignment"].keys() == {"source", "target", "links"}
    assert first["sentences"][0]["tokens"][-1][0] == "</s>"
    assert (second["text"], second["sentences"]) == ("", [])
    assert "alignment" not in json.loads(translate("--scores", "in 98 weeks")[1])["sentences"][0]


def test_several_translations_are_written_however_they_were_asked_for(translate):
    asked = translate("--beam", "4", "--nbest", "3", "in 98 weeks")
    assert len(json.loads(asked[1])["n_best"]) == 3
    assert translate("--beam", "4", "--search", "n_best=3", "in 98 weeks") == asked


def test_a_column_is_translated_and_the_others_kept(translate):
    status, out, _ = translate("--column", "2", stdin=b"1\tin 98 weeks\tx\n2\t\ty\n")
    rows = [line.split("\t") for line in out.decode().splitlines()]
    assert status == 0
    assert [(row[0], row[2]) for row in rows] == [("1", "x"), ("2", "y")]
    assert rows[0][1] != "in 98 weeks"
    status, out, err = translate(
        "--column", "2", stdin=b"\n1\tin 98 weeks\n \nin 98 weeks\n2\tin 98 weeks\n"
    )
    lines = ["", f"1\t{rows[0][1]}", " ", "in 98 weeks", f"2\t{rows[0][1]}"]
    assert (status, out.decode().splitlines()) == (0, lines)
    assert "stdin:4 has 1 column separated by tabs; expected at least 2" in err


def test_the_search_can_be_told_how(translate):
    line = b"The price rose by 88.8%.\n"
    assert translate("--prefix", "Der Preis", stdin=line)[1].startswith(b"Der Preis")
    sample = ["--search", "temperature=2.0", "--search", "top_k=50"]
    samples = {
        translate(*sample, "--search", f"seed={seed}", stdin=line)[1] for seed in (1, 1, 2, 3)
    }
    assert len(samples) == 3
    tokens = json.loads(translate("--search", "max_length=2", "--scores", stdin=line)[1])[
        "sentences"
    ][0]["tokens"]
    assert len(tokens) <= 3


def test_a_line_that_was_cut_is_named(translate):
    status, out, err = translate(stdin=b"in 98 weeks\n" + b"one, " * 300 + b"\n")
    assert (status, out.count(b"\n")) == (0, 2)
    assert err.startswith('transduce: line 2: the sentence "one, one,')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nbest", "3", "text"], "search.n_best is 3, but a beam of 1"),
        (["--input", "x", "text"], "give either the text or these options"),
        (
            ["in", "98", "weeks"],
            'the text is 3 separate words; put it in quotes: "in 98 weeks"',
        ),
        (["--column", "0"], "columns are counted from 1"),
        (["--model", "/nowhere", "text"], "/nowhere"),
    ],
)
def test_a_mistake_is_one_line(translate, arguments, message):
    status, out, err = translate(*arguments)
    assert (status, out) == (2, b"")
    assert message in err
    assert err.count("\n") == 1


def test_json_and_columns_exclude_each_other():
    with pytest.raises(InputError, match="cannot be combined with JSON output"):
        Format(column=1, json=True)
