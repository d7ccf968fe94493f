"""Table 4: trees become sequences and back, brackets are scored as evalb does, nothing crashes."""

import random
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.cli.commands import run
from transduce.errors import DataError
from transduce.paper.bracket_score import score_brackets
from transduce.paper.results import find_result
from transduce.paper.table4 import read_treebank
from transduce.paper.trees import Span, Tree, linearize, read_trees, spans_of, spans_of_text

LABELS = st.sampled_from(["S", "NP", "VP", "PRT", "ADVP"])
TAGS = st.sampled_from(["NN", "VB", ",", ".", "``"])
LEAVES = st.builds(lambda tag: Tree(tag, word="w"), TAGS)
NODES = st.recursive(
    LEAVES,
    lambda inner: st.builds(Tree, LABELS, st.lists(inner, min_size=1, max_size=3).map(tuple)),
)
TREES = st.builds(Tree, LABELS, st.lists(NODES, min_size=1, max_size=4).map(tuple))
TOKENS = st.sampled_from(["(S", ")S", "(NP", ")NP", "XX", "(", ")", "word"])


def read(text, tmp_path):
    path = tmp_path / "some.trees"
    path.write_text(text, encoding="utf-8")
    return list(read_trees(path))


def test_trees_lose_traces_function_tags_and_their_outermost_bracket(tmp_path):
    text = """( (S (NP-SBJ-1 (DT The) (NN cat)) (VP (VBD sat) (SBAR (-NONE- 0)
        (S (NP (-NONE- *)))) (-LRB- -LRB-)) (. .)) )
    (TOP (NP=2 (NN x)))"""
    first, second = read(text, tmp_path)
    assert linearize(first) == "(S (NP XX XX )NP (VP XX XX )VP XX )S"
    assert first.words() == ["The", "cat", "sat", "(", "."]
    assert linearize(second) == "(NP XX )NP"


@pytest.mark.parametrize("text", ["(S (NN a)", "a (S (NN b))", "(S (NN a)) )", "(S (NN a b c))"])
def test_files_that_are_no_trees_are_named(text, tmp_path):
    with pytest.raises(DataError, match=r"some\.trees has a"):
        read(text, tmp_path)


@given(TREES)
def test_brackets_are_read_back_as_the_tree_they_came_from(tree):
    words = len(list(tree.leaves()))
    assert sorted(spans_of_text(linearize(tree), words)) == sorted(spans_of(tree))
    assert spans_of_text(linearize(tree), words + 1) is None


@given(st.lists(TOKENS, max_size=12), st.integers(0, 6))
def test_any_output_is_a_tree_of_all_words_or_malformed(tokens, words):
    spans = spans_of_text(" ".join(tokens), words)
    if spans is not None:
        assert max(spans, key=lambda span: span.end - span.start).end == words
        assert all(span.start < span.end for span in spans)
        assert tokens.count("XX") == words


@given(TREES)
def test_a_perfect_parse_scores_100_and_a_malformed_one_finds_nothing(tree):
    perfect = score_brackets([linearize(tree)], [tree])
    assert (perfect.exact, perfect.malformed) == (1, 0)
    assert perfect.f1 == (100.0 if perfect.expected else 0.0)
    broken = score_brackets(["(S"], [tree])
    assert (broken.malformed, broken.f1, broken.expected) == (1, 0.0, perfect.expected)


def test_f1_by_hand(tmp_path):
    """Gold: S(0,4), NP(0,2), VP(2,4), NP(3,4); the period does not count."""
    (gold,) = read("(S (NP (DT a) (NN b)) (VP (VB c) (NP (NN d))) (. .))", tmp_path)
    given_parse = "(S (NP XX XX )NP (VP XX (PP XX )PP XX )VP )S"
    score = score_brackets([given_parse], [gold])
    # S, NP and VP are right (the period inside VP changes nothing), PP is wrong, NP is missing.
    assert (score.matched, score.found, score.expected) == (3, 4, 4)
    assert score.f1 == pytest.approx(75.0)


def test_particles_are_adverbs_and_equal_brackets_count_twice(tmp_path):
    (gold,) = read("(VP (VB give) (PRT (RP up)))", tmp_path)
    assert score_brackets(["(VP XX (ADVP XX )ADVP )VP"], [gold]).f1 == 100
    (double,) = read("(NP (NP (NN a)))", tmp_path)
    assert spans_of(double) == [Span("NP", 0, 1)] * 2
    assert score_brackets(["(NP XX )NP"], [double]).recall == 50


def grammar(draw):
    noun = f"(NP (DT the) (NN {''.join(draw.choices('abcdef', k=4))}))"
    if draw.random() < 0.5:
        return f"(S {noun} (VP (VBD slept)) (. .))"
    return f"(S {noun} (VP (VBD saw) (NP (DT a) (NN bird))) (. .))"


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("treebank")
    draw = random.Random(1)
    for split, count in (("train", 120), ("valid", 6), ("test", 6)):
        trees = [grammar(draw) for _ in range(count)]
        (folder / f"{split}.trees").write_text("\n".join(trees), encoding="utf-8")
    return folder


def test_a_parser_is_trained_and_scored_on_any_folder_of_trees(treebank, tmp_path, capsys):
    small = ["model.N=1", "model.d_model=32", "model.d_ff=32"]
    words = ["paper", "table4", str(treebank), *small, "training.tokens_per_step=400"]
    options = ["--out", str(tmp_path), "--budget", "0.00001", "--device", "cpu"]
    words += ["model.h=2", "search.max_length=8", "search.beam_size=2"]
    assert run([*words, *options]) == 0
    scores = find_result(tmp_path, "table4", "parser").numbers["parsing"]
    assert scores["sentences"] == 6
    assert "malformed" in scores
    assert "| parser | 6 |" in (tmp_path / "report.md").read_text(encoding="utf-8")

    # The result belongs to these trees, wherever they are, and not to others.
    words[2] = str(treebank.parent / ".." / treebank.parent.name / treebank.name)
    assert run([*words, *options]) == 0
    other = shutil.copytree(treebank, tmp_path / "other")
    text = (tmp_path / "table4" / "text" / "train.words").read_bytes()
    (other / "train.trees").write_text("(S (NP (PRP It)) (VP (VBZ works)))", encoding="utf-8")
    words[2] = str(other)
    assert run([*words, *options]) == 2
    message = f"was measured with other trees than those that are in {other} now"
    assert message in capsys.readouterr().err
    assert (tmp_path / "table4" / "text" / "train.words").read_bytes() == text


def test_a_parser_reads_each_word_as_one_token_and_rare_words_as_unknown(tmp_path):
    trees = ["(NP (NNP Mr.) (NNP Smith))", "(NP (NNP Mr.) (NN dog))", "(NP (DT the) (NN dog))"]
    # SentencePiece would not take these for words.
    trees += ["(NP (NN <unk>) (NN \u2581))", "(NP (NN <unk>) (NN \u2581) (NN Mr.))"]
    (tmp_path / "train.trees").write_text("\n".join(trees), encoding="utf-8")
    (tmp_path / "valid.trees").write_text("(NP (NNP Mr.) (NNP Jones))", encoding="utf-8")
    (tmp_path / "test.trees").write_text(trees[2], encoding="utf-8")
    treebank = read_treebank(tmp_path)
    assert len(treebank.train) == 4  # a tree of the test set is no training tree
    assert treebank.known_words == {"Mr."}
    sentences = [treebank.sentence(tree) for tree in treebank.train]
    assert sentences == ["Mr. UNK", "Mr. UNK", "UNK UNK", "UNK UNK Mr."]
    # Mr. and UNK, the brackets "(NP", ")NP" and XX, and three tokens that are no words.
    assert treebank.tokenizer().vocab_size == 2 + 3 + 3


def test_a_dry_run_of_table4_writes_nothing(treebank, tmp_path, capsys):
    out = tmp_path / "paper"
    words = ["paper", "table4", str(treebank), "--out", str(out), "--dry-run"]
    assert run(words) == 0
    assert run([*words, "--rows", "base"]) == 2
    assert "parser" in capsys.readouterr().out
    assert not out.exists()


def test_a_folder_without_splits_is_divided(tmp_path):
    draw = random.Random(2)
    for number in range(3):
        trees = [grammar(draw) for _ in range(10)]
        (tmp_path / f"wsj_{number}.mrg").write_text("\n".join(trees), encoding="utf-8")
    found = read_treebank(tmp_path)
    assert (len(found.train), len(found.valid), len(found.test)) == (24, 3, 3)


def test_splits_may_be_folders_and_test_trees_are_never_mixed_in(tmp_path):
    draw = random.Random(3)
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        trees = [grammar(draw) for _ in range(20)]
        (tmp_path / split / "00.mrg").write_text("\n".join(trees), encoding="utf-8")
    with pytest.raises(DataError, match="has no trees for valid; expected files whose names begin"):
        read_treebank(tmp_path)
    (tmp_path / "dev.mrg").write_text(grammar(draw), encoding="utf-8")
    found = read_treebank(tmp_path)
    assert (len(found.valid), len(found.test)) == (1, 20)


def test_a_folder_without_trees_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no trees; expected files such as train\.trees"):
        read_treebank(tmp_path)


def test_brackets_that_cross_are_malformed():
    assert spans_of_text("(S (NP XX )NP )S", 1) == [Span("NP", 0, 1), Span("S", 0, 1)]
    assert spans_of_text("(S (NP XX )S )NP", 1) is None
    assert spans_of_text("(S XX )S (S XX )S", 2) is None
    assert spans_of_text("(S (NP )NP XX )S", 1) is None
    assert spans_of_text("", 0) is None
