import re

import pytest
from sacrebleu import DATASETS

from transduce.cli.commands import run
from transduce.corpora.catalogue import ENTRIES, find, listing
from transduce.errors import ConfigError

TEXTS = [
    (entry, part, text) for entry in ENTRIES for part in entry.parts for text in entry.texts(part)
]


def test_every_entry_can_be_trained_validated_and_tested():
    for entry in ENTRIES:
        assert {part.split for part in entry.parts} == {"train", "valid", "test"}, entry.name
        assert entry.licence
        assert entry.about


def test_names_tell_everything_apart():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert len({part.name for part in entry.parts}) == len(entry.parts)
        for part in entry.parts:
            english, other = entry.texts(part)
            assert english != other


def test_one_file_name_stands_for_one_address_in_all_the_catalogue():
    addresses = {}
    for _, _, text in TEXTS:
        assert addresses.setdefault(text.file_name, text.address) == text.address


def test_addresses_are_secure_and_complete():
    for _, _, text in TEXTS:
        assert re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", text.address)
        assert re.fullmatch(r"[\w./-]*", text.member)
        assert re.fullmatch(r"[\w.-]+", text.file_name)


def test_an_archive_has_a_member_and_a_text_has_none():
    for _, _, text in TEXTS:
        assert bool(text.member) == text.file_name.endswith((".tgz", ".tar", ".tar.gz", ".zip")), (
            text
        )


def test_the_papers_corpora_have_the_papers_sizes():
    assert find("wmt14-en-de").pairs == 4_520_620  # §5.1: about 4.5 million
    assert find("wmt14-en-fr").pairs > 36_000_000  # §5.1: 36M, after cleaning
    assert find("wmt14-en-de").vocab_size == 37_000


@pytest.mark.parametrize("other", ["de", "fr"])
@pytest.mark.parametrize(
    ("year", "known_as"), [(2012, "wmt12"), (2013, "wmt13"), (2014, "wmt14/full")]
)
def test_news_test_sets_are_those_of_sacrebleu(other, year, known_as):
    entry = find(f"wmt14-en-{other}")
    (part,) = [part for part in entry.parts if part.name == f"newstest{year}"]
    texts, known = entry.texts(part), DATASETS[known_as]
    assert [text.member for text in texts] == list(known.langpairs[f"en-{other}"])
    assert [text.address.replace("www.", "") for text in texts] == known.data * 2


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(
        ConfigError, match=r"'wmt14-ende'; did you mean wmt14-en-de\? transduce data list shows all"
    ):
        find("wmt14-ende")
    with pytest.raises(ConfigError, match=r"''; transduce data list"):
        find("")


def test_one_corpus_is_listed_with_its_addresses_pairs_and_licence(capsys):
    assert run(["data", "list", "wmt14-en-de"]) == 0
    shown = capsys.readouterr().out
    entry = find("wmt14-en-de")
    assert entry.licence in shown
    for part in entry.parts:
        assert f"{part.split:5}  {part.name}" in shown
        assert f"{part.pairs:,}" in shown
        assert all(text.address in shown for text in entry.texts(part))
    assert run(["data", "list", "phrases"]) == 0
    assert "made here, not fetched" in capsys.readouterr().out
    assert run(["data", "list", "wmt"]) == 2


def test_the_list_has_a_line_for_every_corpus():
    lines = listing().split("\n")
    assert len(lines) == len(ENTRIES) + 2
    assert lines[1].startswith("phrases ")
    for entry, line in zip(ENTRIES, lines[2:], strict=True):
        assert line.startswith(f"{entry.name} ")
        assert entry.licence in line
