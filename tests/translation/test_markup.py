"""Everything that is protected comes back exactly once and balanced, whatever the model and the alignment do."""

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.translation import markup
from transduce.translation.markup import protect
from transduce.translation.markup_patterns import PROTECTED, find
from transduce.translation.restore import needs_alignment, restore, restore_words
from transduce.translation.tag_tree import words

WORDS = st.sampled_from(
    ["house", "Ärger", "12", "x", "世", "界", "مرحبا", "हिन्दी", ",", ".", "(", "😀", "X7", "q"]
)
PLACEHOLDERS = st.sampled_from(
    [
        *(
            "%s",
            "%d",
            "%1$s",
            "%(n)s",
            "{name}",
            "{}",
            "{0:.2f}",
            "{{ y }}",
            "${v}",
            "&nbsp;",
            "&#8217;",
        ),
        *(
            "%%",
            "%'d",
            "{ name }",
            "$name",
            "$_x1",
            "{n, plural, one {# file} other {{m} files}}",
            "{d, date, short}",
        ),
        *("https://a.example/b_(c)?d=e#f", "www.example.org", "jane.doe+x@example.com"),
    ]
)
SPACE = st.sampled_from(["", " ", "  "])
LEAVES = st.one_of(
    WORDS, PLACEHOLDERS, st.sampled_from(["<br/>", "<img src='a.png'>", "<!-- note -->"])
)


def elements(children):
    return st.builds(
        lambda name, inside: f"<{name}>{''.join(inside)}</{name}>",
        st.sampled_from(["b", "i", "a"]),
        st.lists(st.one_of(children, SPACE), max_size=4),
    )


def numbered(text):
    """Each element with a name of its own, so that no two can be mistaken for each other."""
    opened, names = [], itertools.count(1)

    def name(match):
        if not match[1]:
            opened.append(f"t{next(names)}")
        return f"<{match[1]}{opened.pop() if match[1] else opened[-1]}>"

    return re.sub(r"<(/?)[bia]>", name, text)


TEXTS = (
    st.lists(st.one_of(st.recursive(LEAVES, elements, max_leaves=12), SPACE), max_size=8)
    .map("".join)
    .map(numbered)
)
ANY_TAGS = st.lists(
    st.one_of(LEAVES, SPACE, st.sampled_from(["<b>", "</b>", "<i>", "</i>"])), max_size=12
).map("".join)
LINKS = st.lists(st.tuples(st.integers(-2, 12), st.integers(-2, 12)), max_size=15)


@st.composite
def translated(draw, text):
    """What a model might make of the plain text: any words, with stand-ins lost, copied, doubled or spelt apart."""
    stand_ins = [span.stand_in for span in protect(text).spans if span.stand_in]
    copy = st.sampled_from(stand_ins or [""])
    copies = (
        [copy, copy.map(str.lower), copy.map(lambda word: re.sub("([A-Z]+)", r"\1 ", word))]
        if stand_ins
        else []
    )
    return " ".join(
        draw(st.lists(st.one_of(WORDS.filter(lambda word: word != "X7"), *copies), max_size=10))
    )


def kept(text):
    return sorted(text[start:end] for start, end in find(text))


def parents(text):
    """The element directly around each element; None if the tags are not balanced."""
    opened, around = [""], {}
    for slash, name in re.findall(r"<(/?)(t\d+)>", text):
        if not slash:
            around[name] = opened[-1]
            opened.append(name)
        elif opened.pop() != name:
            return None
    return around if opened == [""] else None


def squeezed(text):
    return "".join(text.split())


@settings(deadline=None, max_examples=400)
@given(text=st.one_of(TEXTS, ANY_TAGS), links=LINKS, data=st.data())
def test_every_span_comes_back_once_and_no_word_is_lost(text, links, data):
    protected = protect(text)
    translation = data.draw(translated(text))
    restored = restore(translation, protected, links)
    assert sorted(span.text for span in protected.spans) == kept(text)
    without = restored
    for span in sorted(protected.spans, key=lambda span: -len(span.text)):
        assert span.text in without
        without = without.replace(span.text, " ", 1)
    stand_ins = "|".join(
        rf"(?<![0-9A-Za-z]){span.stand_in[0]} ?{span.stand_in[1:]}\b"
        for span in protected.spans
        if span.stand_in
    )
    left = re.sub(stand_ins, "", translation, flags=re.IGNORECASE) if stand_ins else translation
    assert squeezed(without) == squeezed(left)


@settings(deadline=None, max_examples=400)
@given(placeholders=st.lists(PLACEHOLDERS, min_size=1, max_size=12), links=LINKS, data=st.data())
def test_nothing_of_a_stand_in_is_left_however_badly_it_was_copied(placeholders, links, data):
    protected = protect(" word ".join(placeholders))
    name = protected.spans[0].stand_in[0]
    words = [data.draw(st.sampled_from(["Haus", f"{name}0", name, "und"]))]
    for span in protected.spans:
        copy, number = span.stand_in, span.stand_in[1:]
        forms = [
            copy,
            "",
            number,
            name,
            f"{copy} {copy}",
            f"haus{copy}",
            f"{name} {number}",
            f"{copy}{copy}",
            f"{copy}x",
        ]
        words.append(data.draw(st.sampled_from(forms)))
    translation = " und ".join(data.draw(st.permutations(words)))
    restored = restore(translation, protected, links)
    for placeholder in sorted(placeholders, key=len, reverse=True):
        assert placeholder in restored
        restored = restored.replace(placeholder, " ", 1)
    assert not re.search("[0-9QXZ]", restored)


@settings(deadline=None, max_examples=200)
@given(text=st.one_of(TEXTS, ANY_TAGS), links=LINKS, data=st.data())
def test_an_alignment_counts_the_words_that_are_in_the_result(text, links, data):
    protected = protect(text)
    words = protected.plain.split()
    for span in protected.spans:
        words += data.draw(st.sampled_from([[], [span.stand_in, span.stand_in], ["X", "3"]]))
    restored = restore_words(" ".join(data.draw(st.permutations(words))), protected, links)

    # The words are found in the text one after the other.
    end = 0
    for word in restored.words:
        end = restored.text.index(word, end) + len(word)

    # A placeholder is a word once, and linked to itself.
    source = protected.words()
    for source_word, target_word in restored.links:
        placeholders = {span.text for span in protected.spans if span.stand_in}
        if {source[source_word], restored.words[target_word]} & placeholders:
            assert source[source_word] == restored.words[target_word]


def test_an_alignment_beside_lost_and_doubled_placeholders():
    protected = protect("Hello {name} , see {place} now")
    restored = restore_words(
        "X1 X1 Hallo , siehe jetzt", protected, [(0, 2), (2, 3), (3, 4), (5, 5)]
    )
    assert restored.text == "{name} Hallo , siehe {place} jetzt"
    assert restored.words == ("{name}", "Hallo", ",", "siehe", "{place}", "jetzt")
    assert restored.links == ((0, 1), (1, 0), (2, 2), (3, 3), (4, 4), (5, 5))


@settings(deadline=None, max_examples=400)
@given(text=TEXTS, links=LINKS, data=st.data())
def test_what_is_nested_stays_nested_under_any_alignment(text, links, data):
    restored = restore(data.draw(translated(text)), protect(text), links)
    assert parents(restored) == parents(text) is not None


@settings(deadline=None, max_examples=400)
@given(text=TEXTS, cut=st.integers(0, 20), links=st.tuples(LINKS, LINKS), data=st.data())
def test_tags_around_two_sentences_stay_balanced_when_each_is_translated_alone(
    text, cut, links, data
):
    places = [0, *(end for _, end in find(text)), len(text)]
    cut = places[cut % len(places)]
    halves = [text[:cut], text[cut:]]
    done = [
        restore(data.draw(translated(half)), protect(half), some)
        for half, some in zip(halves, links, strict=True)
    ]
    assert parents("".join(done)) is not None


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            WORDS.filter(lambda word: word not in ",.("),
            PLACEHOLDERS,
            st.sampled_from(
                [
                    "<b>big</b>",
                    "<b>x</b>世",
                    "end</u>",
                    "<s>start",
                    "<i>very <b>big {x}</b> one</i>",
                    "a<br/>b",
                    "H<sub>2</sub>O",
                    "un<b>be<i>liev</i></b>able",
                    "<b>W</b>orld",
                    "C<sub>6</sub>H<sub>12</sub>O<i>6</i>",
                    "AT&amp;T",
                    "{a}{b}",
                    "({x}).",
                ]
            ),
        ),
        max_size=8,
    ).map(" ".join)
)
def test_a_translation_into_the_same_words_gives_the_text_back(text):
    protected = protect(text)
    links = [(word, word) for word in range(len(words(protected.plain)))]
    assert restore(protected.plain, protected, links) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Hello <b>world</b>!", "Hello world!"),
        ("Hi {name}, you have %d <a href='x'>new</a> ones.", "Hi X1, you have X2 new ones."),
        ("one<br/>two", "one two"),
        ("un<b>believ</b>able", "unbelievable"),
        ("See https://en.example.org/Foo_(bar).", "See X1."),
        ("(www.example.org)", "(X1)"),
        ("看https://example.org/a。谢谢", "看X1。谢谢"),
        ("X1 and {a}", "X1 and Q1"),
        ("1 < 2 and 3 > 2, 50% sure, 5 % s", "1 < 2 and 3 > 2, 50% sure, 5 % s"),
        ("{not a placeholder}", "{not a placeholder}"),
        ("{n, plural, one {# file} other {# files}} in { dir }", "X1 in X2"),
        ("{n,select,a{{x,plural,one{# y}other{z}}}other{}} left", "X1 left"),
        (r"First line\nsecond \"line\".\nEnd", "First line X1 second X2 line X3.X4 End"),
        (r"C:\new\table.txt, src\main\test and D:\ too", "X1, X2 and X3 too"),
        ("100%% of %'d for $name and ${x}, US$5 or $5", "100 X1 of X2 for X3 and X4, US$5 or $5"),
    ],
)
def test_the_model_sees_plain_text(text, plain):
    assert protect(text).plain == plain


@pytest.mark.parametrize(
    ("text", "translation", "links", "expected"),
    [
        (
            "a <b>red</b> house",
            "une maison rouge",
            [(0, 0), (1, 2), (2, 1)],
            "une maison <b>rouge</b>",
        ),
        ("<p>One two.</p>", "Eins zwei.", [(0, 1)], "<p>Eins zwei.</p>"),
        ("<b>one</b> <i>two</i>", "zwei eins", [(0, 1), (1, 0)], "<i>zwei</i> <b>eins</b>"),
        (
            "a <b>b c</b> d",
            "A B x C D",
            [(0, 0), (1, 1), (2, 3), (3, 4), (1, 4)],
            "A <b>B x C</b> D",
        ),  # a stray link
        (
            "a <b>c 7</b>",
            "A 7. C",
            [(0, 0), (2, 1), (0, 2), (1, 3)],
            "A <b>7. C</b>",
        ),  # a mark does not cut it
        (
            "see {x} now",
            "jetzt sehen",
            [(0, 1), (1, 1), (2, 0)],
            "jetzt {x} sehen",
        ),  # the model lost it
        ("see {x} now", "siehe X1 X1 jetzt", [], "siehe {x} jetzt"),  # the model doubled it
        ("see {x} now", "siehe 1 jetzt", [], "siehe {x} jetzt"),  # only its number was copied
        (
            "see 1 of {x} now",
            "siehe 1 jetzt",
            [(0, 0), (2, 1)],
            "siehe 1 {x} jetzt",
        ),  # a number of the source's own
        ("see {x} now", "siehe X jetzt", [], "siehe {x} jetzt"),
        ("see {x} to go", "siehe X1 , um zu gehen .", [], "siehe {x}, um zu gehen ."),
        ("see {x} to go", "siehe X1 ,5 ...", [], "siehe {x} ,5 ..."),
        ("see {x} 2 times", "siehe X12 mal", [], "siehe {x}2 mal"),
        ("see {x} now", "siehe X7 jetzt", [(1, 1)], "siehe {x} jetzt"),
        ("50%% of %s", "X2 zu 50 X1", [], "%s zu 50%%"),  # of these, one is filled
        ("%s of %d", "X2 von X1", [], "%s von %d"),  # filled by order, which therefore stays
        ("%1$s of %2$d", "X2 von X1", [], "%2$d von %1$s"),
        ("see {x}", "sehen", [], "sehen {x}"),
        (
            "see {x} now",
            "sehen jetzt",
            [(0, 0), (2, 1)],
            "sehen {x} jetzt",
        ),  # behind the word before it
        ("a b <br/>", "B A", [(0, 1), (1, 0)], "B A <br/>"),  # what came last comes last
        ("a <x/> b", "A B", [(0, 0), (1, 1)], "A <x/> B"),  # with the spaces that it had
        ("a <x/>b", "A B", [(0, 0), (1, 1)], "A <x/>B"),
        ("a<x/> b", "A B", [(0, 0), (1, 1)], "A<x/> B"),  # as a footnote stands
        ("a b<x/> c.", "A C B.", [(0, 0), (1, 2), (2, 1), (3, 3)], "A C B<x/>."),
        ("<!-- c --> a  b", "A B", [(0, 0), (1, 1)], "<!-- c --> A B"),
        (
            "<b>{x}</b> is here",
            "hier ist X1",
            [(0, 0)],
            "hier ist <b>{x}</b>",
        ),  # a copy is a sure link
        (
            "<b>one</b> <i>two</i>",
            "A B C",
            [(1, 0)],
            "<b>A</b> <i></i>B C",
        ),  # two want the same word
        ("a <s></u>x", "b c", [(0, 0), (1, 1)], "b <s></u>c"),  # halves of pairs keep their order
        ("你<b>好</b>", "hello", [(1, 0)], "<b>hello</b>"),
        ("<b>x</b>", "", [], "<b></b>"),
        ("on H<s>2</s>O", "H2O dazu", [(0, 1), (1, 0)], "H<s>2</s>O dazu"),
        ("a house<s>1</s>", "ein Haus1", [(0, 0), (1, 1)], "ein Haus<s>1</s>"),
        (
            "C<a>6</a>H<b>12</b>O<i>6</i> so",
            "also C6H12O6",
            [(0, 1), (1, 0)],
            "also C<a>6</a>H<b>12</b>O<i>6</i>",
        ),
        ("<a>m</a><b>c</b><i>2</i> so", "so mc2", [(0, 1), (1, 0)], "so <a>m</a><b>c</b><i>2</i>"),
        ("a <b>w</b>orld", "eine welt", [(0, 0), (1, 1)], "eine <b>w</b>elt"),
        ("the house<b>s</b>", "die Häuser", [(0, 0), (1, 1)], "die <b>Häuser</b>"),
        ("<i>a H</i>2O", "ein H2O", [(0, 0), (1, 1)], "<i>ein H</i>2O"),
    ],
)
def test_spans_go_where_the_alignment_says(text, translation, links, expected):
    assert restore(translation, protect(text), links) == expected


def test_tags_that_cross_have_no_partner():
    assert [span.partner for span in protect("<b><i>x</b></i><br><u>y</u>").spans] == [
        2,
        -1,
        0,
        -1,
        -1,
        6,
        5,
    ]


def test_text_that_is_only_markup_need_not_be_translated():
    assert not protect("<b>{name}</b> — https://example.org").has_text
    assert protect("<b>{name}</b>: yes").has_text


def test_a_depth_that_no_recursion_survives_is_kept():
    text = "<b>" * 5000 + "deep" + "</b>" * 5000
    assert restore("tief", protect(text), [(0, 0)]) == text.replace("deep", "tief")


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "a@",
        "<!--",
        "<a ",
        "<a",
        "<a x='",
        "<a class=",
        "<%",
        "<?",
        "='\"",
        "{",
        "{{a",
        "%0",
        "%",
        "0",
        "&a",
        "http://",
        "http://(",
        "www.",
        "(",
        ".",
        "{n,plural,",
        "{n,plural,{}",
        "$",
        "$a",
        "{ ",
        "\\",
        "\\a",
        "a-",
    ],
)
def test_no_text_is_slow_to_look_through(part):
    for text in (
        part * 50_000,
        "%" + part * 50_000,
        "x@" + part * 50_000,
        "<!--" + part * 50_000,
        "http://" + part * 50_000,
    ):
        start = time.process_time()
        find(text)
        assert time.process_time() - start < 2  # some milliseconds; minutes if it were quadratic


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("in  98\u00a0 weeks", "in 98 weeks"),
        ("Sunday, <x/> September 16", "Sunday, September 16"),
        ("<!-- c --> 12 kilometers <br/>", "12 kilometers"),
        ("<b> a </b> b", "a b"),
        ("see  {x}  now", "see X1 now"),
        ("a\u00a0b", "a b"),  # few texts have hard spaces
    ],
)
def test_a_model_sees_no_more_than_one_space(text, plain):
    assert protect(text).plain == plain


SIGNS = [
    *"<>*~@{}$%&\\`:][()/.#;!-_=01a ",
    "www.",
    "Www.",
    "WWW.",
    "://",
    "\u00a0",
    "\u202f",
    "x" * 199,
    "-y",
]


@settings(max_examples=300, derandomize=True)
@given(st.lists(st.sampled_from(SIGNS), max_size=12).map("".join))
def test_a_text_that_is_passed_over_has_nothing_to_protect(text):
    expected = [match.span() for match in PROTECTED.finditer(text)]
    assert find(text) == expected
    assert bool(protect(text).spans) == bool(expected)


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("Hello.", "Hallo.", False),
        ("Hello {name}.", "Hallo X1.", False),
        ("Hello {name}.", "Hallo.", True),
        ("<b>Hello</b> {name}.", "Hallo X1.", True),
    ],
)
def test_an_alignment_is_needed_for_tags_and_for_stand_ins_that_were_not_copied(
    text, translation, expected
):
    protected = protect(text)
    assert needs_alignment(translation, protected) == expected
    if not expected:  # then it makes no difference
        results = {restore(translation, protected, links) for links in ((), [(0, 1)], [(1, 0)])}
        assert len(results) == 1


@pytest.mark.parametrize("sign", ["**", "~~"])
def test_a_prefix_has_no_signs_of_markdown_that_are_put_back_anyway(sign):
    source = markup.protect(f"{sign}Two{sign} words.")
    assert markup.as_searched(f"{sign}Zwei{sign} W", source) == "Zwei W"


def test_the_words_of_a_source_are_its_own_and_not_the_terms_of_a_glossary():
    found = protect("The bank <b>of</b> %d", markup.Glossary({"bank": "Sparkasse"}))
    assert found.words() == ("The", "bank", "of", "%d")
