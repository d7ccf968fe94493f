"""Subtitles: times stay, a cue of two lines is one text."""

import pytest

from tests.translation.documents.samples import capitals, job
from transduce.errors import InputError
from transduce.translation.documents.subtitles import translate_subtitles

SRT = """1
00:00:01,000 --> 00:00:02,500
this is one long sentence
over two lines

2
00:00:03,000 --> 00:00:04,000 X1:1
{\\an8}<i>above</i>

3
00:00:05,000 --> 00:00:06,000
- who is it?
- me.

4
00:00:07,000 --> 00:00:08,000

5
00:00:09,000 --> 00:00:10,000
the end"""


def translated(text, translate=capitals, name="a.srt"):
    return translate_subtitles(job(text.encode(), name, translate)).decode()


def test_only_the_text_of_cues_changes():
    expected = SRT
    for text in (
        "this is one long sentence",
        "over two lines",
        "above",
        "who is it?",
        "me.",
        "the end",
    ):
        expected = expected.replace(text, text.upper())
    assert " ".join(translated(SRT).split()) == " ".join(expected.split())
    assert translated(SRT).count("\n") == SRT.count("\n")


def test_a_cue_is_one_text_and_a_dialogue_is_several():
    seen = []
    translated(SRT, lambda texts: seen.extend(texts) or texts)
    assert seen == [
        "this is one long sentence over two lines", "<i>above</i>", "who is it?", "me.", "the end",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["who is it?", "- me."], ["who is it?", "me."]),
        (["- who is it", "now, please?", "- me."], ["who is it now, please?", "me."]),
        (["<i>who is it?</i>", "<i>\u2013 me.</i>"], ["<i>who is it?</i>", "<i>\u2013 me.</i>"]),
        (["it is cold:", "-5 degrees"], ["it is cold: -5 degrees"]),
        (["-how cold?", "-5 degrees"], ["how cold?", "5 degrees"]),
    ],
)
def test_the_dash_of_a_speaker_stays_at_the_start_of_its_line(lines, texts):
    seen = []
    cue = "\n".join(["1", "00:00:01,000 --> 00:00:02,000", *lines, ""])
    assert translated(cue, lambda texts: seen.extend(texts) or texts) == cue
    assert seen == texts


def test_lines_are_balanced_and_tags_have_no_width():
    cue = "1\n00:00:01,000 --> 00:00:02,000\na b\nc d\n"
    text = '<font color="#ffffff">Sehr</font> geehrte Damen und Herren'
    lines = translated(cue, lambda _: [text]).splitlines()[2:]
    assert lines == ['<font color="#ffffff">Sehr</font> geehrte', "Damen und Herren"]


def test_control_characters_are_no_spaces():
    cue = "1\n00:00:01,000 --> 00:00:02,000\na\0b <i x>c</i>\n"
    assert translated(cue, lambda texts: texts) == cue


def test_one_line_that_becomes_too_long_gets_a_second():
    cue = "1\n00:00:01,000 --> 00:00:02,000\nshort\n"
    lines = translated(cue, lambda _: ["wort " * 10 + "ende"]).splitlines()[2:]
    assert len(lines) == 2
    assert max(map(len, lines)) <= 42


def test_line_ends_and_the_byte_order_mark_stay():
    data = b"\xef\xbb\xbf" + SRT.replace("\n", "\r\n").encode()
    result = translate_subtitles(job(data, "a.srt"))
    assert result.startswith(b"\xef\xbb\xbf1\r\n")
    assert result.count(b"\r\n") == result.count(b"\n") == SRT.count("\n")
    assert translated(SRT.replace("\n", "\r")) == translated(SRT).replace("\n", "\r")


def test_notes_styles_and_settings_of_webvtt_stay():
    vtt = "WEBVTT - title\n\nNOTE a note\n\nSTYLE\n::cue { color: red }\n\nid\n00:01.000 --> 00:02.000 align:start\n<v Bob>good day\n"
    assert translated(vtt, name="a.vtt") == vtt.replace("good day", "GOOD DAY")


@pytest.mark.parametrize("text", ["", "WEBVTT\n", "\n"])
def test_a_file_without_cues_stays(text):
    assert translated(text, lambda texts: texts) == text


def test_cues_without_a_blank_line_between_them_are_told_apart():
    text = "1\n00:00:01,000 --> 00:00:02,000\none\n2\n00:00:03,000 --> 00:00:04,000\ntwo\n"
    assert translated(text) == text.upper()


def test_another_file_is_refused():
    with pytest.raises(InputError, match=r"a\.srt has no times"):
        translated("no subtitles")
    with pytest.raises(InputError, match="not UTF-8"):
        translate_subtitles(job(b"\xe9", "a.srt"))
