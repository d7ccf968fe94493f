"""Table 4: constituency parsing as sequence transduction (§6.3), from words to brackets.

The parser writes one XX for each word, so it must see where words begin and end: each word is a
token of its own, and a rare one is UNK, as in Vinyals et al. (2015).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from transduce.config import CleanConfig, CorpusConfig, DataConfig, TokenizerConfig
from transduce.data.cleaning.rules import RULES
from transduce.data.readers.compression import plain_suffix
from transduce.data.text_folder import whole_file
from transduce.data.tokenizer import SPACE_MARK
from transduce.errors import ConfigError, DataError
from transduce.paper.bracket_score import score_brackets
from transduce.paper.budget import changed_recipe, with_the_papers_rate
from transduce.paper.experiment import Row
from transduce.paper.page import Section, Table
from transduce.paper.reference import TABLE_4
from transduce.paper.results import (
    Result,
    decimal,
    find_result,
    load_results,
    remarks,
    result_path,
)
from transduce.paper.trees import Tree, linearize, read_trees
from transduce.presets import PARSER
from transduce.translation.translator import Translator

PART = "table4"
ROW = "parser"
SPLITS = ("train", "valid", "test")
SUFFIXES = (".trees", ".mrg", ".parse", ".ptb", ".txt")
UNKNOWN = "UNK"
LEAST_COUNT = 2  # a word that the training trees have less often is unknown
SPECIAL_TOKENS = 3  # the end of a sentence, SentencePiece's unknown token, and padding
# Words that SentencePiece does not take for words.
RESERVED = ("<unk>", "<s>", "</s>", "<pad>")


@dataclass(frozen=True)
class Treebank:
    """Trees for training, validation and test."""

    train: list[Tree]
    valid: list[Tree]
    test: list[Tree]

    @cached_property
    def brackets(self) -> frozenset[str]:
        """All tokens of linearized trees."""
        trees = [*self.train, *self.valid, *self.test]
        return frozenset(token for tree in trees for token in linearize(tree).split())

    @cached_property
    def known_words(self) -> frozenset[str]:
        """The most frequent words; each is a token, as far as the paper's vocabulary reaches."""
        words = (word for tree in self.train for word in tree.words())
        counts = Counter(word for word in words if _is_plain(word))
        most = PARSER.data.tokenizer.vocab_size - len(self.brackets) - SPECIAL_TOKENS - 1
        return frozenset(word for word, count in counts.most_common(most) if count >= LEAST_COUNT)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of all trees."""
        digest = hashlib.sha256()
        for split in SPLITS:
            trees: list[Tree] = getattr(self, split)
            for tree in trees:
                digest.update(f"{split} {' '.join(tree.words())} {linearize(tree)}\n".encode())
        return digest.hexdigest()

    def sentence(self, tree: Tree) -> str:
        """Return the words of a tree as the parser reads them."""
        words = [word if word in self.known_words else UNKNOWN for word in tree.words()]
        return " ".join(words)

    def tokenizer(self) -> TokenizerConfig:
        """Return the settings of a vocabulary with every token of the training trees."""
        tokens = {token for tree in self.train for token in self.sentence(tree).split()}
        tokens |= {token for tree in self.train for token in linearize(tree).split()}
        size = len(tokens) + SPECIAL_TOKENS
        return TokenizerConfig(kind="word", vocab_size=size, character_coverage=1.0)


def read_treebank(folder: Path) -> Treebank:
    """Read a folder of bracketed trees.

    Files or folders whose names begin with train, valid (or dev) and test are these splits. Without
    such names, every tenth tree of all files is for validation and another tenth for test.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; expected a folder of bracketed trees")
    files = [path for path in sorted(folder.rglob("*")) if plain_suffix(path) in SUFFIXES]
    files = [path for path in files if path.is_file()]
    if not files:
        raise DataError(
            f"{folder} has no trees; expected files such as train.trees or wsj_0001.mrg"
        )
    splits = {split: _of_split(folder, files, split) for split in SPLITS}
    if all(splits.values()):
        return _without_leaks(splits["train"], splits["valid"], splits["test"])
    if splits["valid"] or splits["test"]:
        # To mix them with all others would train on the test set.
        missing = [split for split in SPLITS if not splits[split]]
        raise DataError(
            f"{folder} has no trees for {' and '.join(missing)}; expected files whose names begin "
            "with train, valid and test, or with none of them"
        )
    trees = [tree for path in files for tree in read_trees(path)]
    if len(trees) < 10:
        raise DataError(f"{folder} has {len(trees)} trees; expected at least 10")
    rest = [tree for number, tree in enumerate(trees) if number % 10 not in (3, 7)]
    return _without_leaks(rest, trees[3::10], trees[7::10])


def _without_leaks(train: list[Tree], valid: list[Tree], test: list[Tree]) -> Treebank:
    """Return a treebank whose training trees are not among the others."""
    held_out = {*valid, *test}
    return Treebank([tree for tree in train if tree not in held_out], valid, test)


def write_text(treebank: Treebank, folder: Path) -> None:
    """Write the words and the brackets of all trees as parallel text."""
    for split in SPLITS:
        trees: list[Tree] = getattr(treebank, split)
        words, brackets = _files(folder, split)
        _write_lines(words, [treebank.sentence(tree) for tree in trees])
        _write_lines(brackets, [linearize(tree) for tree in trees])


def text_settings(treebank: Treebank, folder: Path) -> DataConfig:
    """Return the settings of the text that `write_text` writes into a folder."""
    corpora: dict[str, tuple[CorpusConfig, ...]] = {}
    for split in SPLITS:
        words, brackets = _files(folder, split)
        corpora[split] = (CorpusConfig(source=(str(words),), target=(str(brackets),)),)
    return DataConfig(
        source_language="en",
        target_language="brackets",
        corpora=corpora["train"],
        validation=corpora["valid"],
        test=corpora["test"],
        tokenizer=treebank.tokenizer(),
        # The rules are for translations. `read_treebank` has removed the trees of the test set.
        clean=CleanConfig(off=tuple(RULES)),
    )


def row(
    folder: Path,
    out: Path,
    *,
    budget: float,
    seed: int,
    overrides: Sequence[str],
    dry_run: bool = False,
) -> Row:
    """Return the experiment: train the parser on the text of a treebank.

    The text is written into `out`, unless this is a dry run.
    """
    treebank = read_treebank(folder)
    name = ROW if seed == 1 else f"{ROW}-seed{seed}"
    _check_trees(treebank, folder, out, name)
    text = out / PART / "text"
    if not dry_run:
        write_text(treebank, text)
    data = text_settings(treebank, text)
    recipe = with_the_papers_rate(changed_recipe(PARSER, data, budget, overrides), budget)
    recipe = replace(recipe, training=replace(recipe.training, seed=seed))
    return Row(
        part=PART,
        name=name,
        recipe=recipe,
        corpus=str(folder),
        budget=budget,
        measure=lambda translator: {
            "parsing": parsing_scores(translator, treebank),
            "trees": treebank.fingerprint,
        },
    )


def _is_plain(word: str) -> bool:
    """Return whether a word can be a token."""
    return word not in RESERVED and SPACE_MARK not in word


def _check_trees(treebank: Treebank, folder: Path, out: Path, name: str) -> None:
    """Refuse a result of other trees: their text lies in the same folder, so settings are equal."""
    done = find_result(out, PART, name)
    if done is not None and done.numbers.get("trees") != treebank.fingerprint:
        raise ConfigError(
            f"{result_path(out, PART, name)} was measured with other trees than those that are in "
            f"{folder} now; use another folder with --out, or delete the file and its run"
        )


def parsing_scores(translator: Translator, treebank: Treebank) -> dict[str, float]:
    """Parse the test sentences and compare with their trees."""
    # Words are not split into sentences and have no markup, so they go to the engine directly.
    reader, writer = translator.tokenizers
    sentences = [treebank.sentence(tree) for tree in treebank.test]
    found = translator.engine.search(reader.encode_batch(sentences), translator.search)
    outputs = [writer.decode(hypotheses[0].ids) for hypotheses in found]
    score = score_brackets(outputs, treebank.test)
    return {
        "sentences": score.sentences,
        "malformed": score.malformed,
        "exact": score.exact,
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
    }


def section(out: Path, commit: str) -> Section:
    """Return what is known so far of Table 4."""
    results = load_results(out, PART)
    lines = [_line(name, result, commit) for name, result in results.items()]
    if not results:
        lines.append([ROW, *[""] * 7, "missing"])
    head = ("ours", "sentences", "precision", "recall", "F1", "exact", "malformed", "perplexity",
            "note")  # fmt: skip
    papers = [[name, f"{f1:.1f}"] for name, f1 in TABLE_4.items()]
    paragraphs = [
        "Labelled bracket F1 on the test trees, punctuation and TOP left out. Output that is no "
        "tree of its sentence is malformed and finds nothing. The paper's numbers are for section "
        "23 of the Wall Street Journal after training on 40,000 sentences."
    ]
    tables = [Table(head, lines), Table(("paper, WSJ only", "F1"), papers)]
    return Section("Table 4: constituency parsing", paragraphs, tables)


def _line(name: str, result: Result, commit: str) -> list[str]:
    scores = result.numbers["parsing"]
    return [
        name,
        f"{scores['sentences']:,}",
        f"{scores['precision']:.1f}",
        f"{scores['recall']:.1f}",
        f"{scores['f1']:.1f}",
        f"{scores['exact']:,}",
        f"{scores['malformed']:,}",
        decimal(result.numbers["perplexity"]),
        remarks(result, commit),
    ]


def _of_split(folder: Path, files: Sequence[Path], split: str) -> list[Tree]:
    names = ("valid", "dev") if split == "valid" else (split,)
    trees: list[Tree] = []
    for path in files:
        if any(part.startswith(names) for part in path.relative_to(folder).parts):
            trees += read_trees(path)
    return trees


def _files(folder: Path, split: str) -> tuple[Path, Path]:
    """Return the files with the words and the brackets of a split."""
    return folder / f"{split}.words", folder / f"{split}.brackets"


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    with whole_file(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
