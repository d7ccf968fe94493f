"""A first recipe for the user's own parallel text: `transduce new FOLDER`.

The text decides the preset and the size of the vocabulary. The recipe that is written explains each
setting, so that it can be edited without other documentation.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from transduce.config import CorpusConfig, Recipe
from transduce.data.cleaning import langid
from transduce.data.pairs import Chunk
from transduce.data.readers.compression import is_compressed, plain_suffix
from transduce.data.readers.corpus import container_languages, read_chunks
from transduce.data.suggestions import (
    PRESET_SIZES,
    SAMPLE,
    Statistics,
    suggest_preset,
    suggest_vocabulary,
)
from transduce.data.text_folder import RECIPE, whole_file
from transduce.errors import ConfigError, DataError, MissingExtra
from transduce.presets import preset as find_preset
from transduce.recipe import toml_value

Say = Callable[[str], None]
Files = tuple[Path, ...]  # (source, target), or one file with both languages

MOST_HELD_OUT = 1_000
MOST_STEPS_UP = 3  # a path that climbs further is written as an absolute path

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


def write_starter(
    folder: Path,
    source: Path,
    target: Path | None,
    *,
    validation: tuple[Path, Path] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    preset: str | None = None,
    say: Say,
) -> Path:
    """Write a commented recipe for parallel text into a folder, and return the recipe's path.

    Args:
        folder: The folder of the recipe; it is created if it does not exist.
        source: The source text, or a file with both languages (TSV, JSONL, TMX, Parquet), or a
            folder of such files.
        target: The target text, line by line; None if `source` has both languages.
        validation: The source and target text to validate on. If None, the last pairs of the
            training text are held out: new files of both parts are written into the folder.
        source_language: The code of the source language; by default from the file or its name.
        target_language: The code of the target language, likewise.
        preset: The preset to start from; by default chosen by the number of pairs.
        say: Called with a line of text for each finding or file.
    """
    path = folder / RECIPE
    if path.exists():
        raise ConfigError(
            f"{path} already exists and is not overwritten; choose another folder, or delete it"
        )
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; choose a folder for the recipe")
    if preset is not None:
        find_preset(preset)  # a wrong name is an error before the text is read

    # Look at the text.
    files: Files = (source,) if target is None else (source, target)
    languages = _languages(files, source_language, target_language)
    statistics = _count(files, languages)
    say(
        f"{_names(files)}: {statistics.pairs:,} pairs, {languages[0]} to {languages[1]}, "
        f"about {statistics.words_per_sentence:.0f} words per sentence"
    )

    # Choose the model.
    preset = preset or suggest_preset(statistics.pairs)
    vocab_size = suggest_vocabulary(statistics)
    say(f"preset {preset}, vocabulary of {vocab_size:,} pieces")

    # Validation text: the user's, or the end of the training text.
    validation_files: Files
    if validation is None:
        files, validation_files = _hold_out(folder, files, languages, statistics.pairs, say)
    else:
        validation_files = validation
        _count(validation_files, languages)

    text = _recipe_text(folder, languages, files, validation_files, preset, vocab_size)
    with whole_file(path) as file:
        file.write(text.encode())
    return path


# ------------------------------------------------------------------------------------- Languages


def _languages(files: Files, source: str | None, target: str | None) -> tuple[str, str]:
    """Return the language codes: as given, from the names of the files, or from the text."""
    for given in (source, target):
        if given is not None and not CODE.fullmatch(given):
            raise ConfigError(f"{given!r} is not a language code; expected one such as en or pt-BR")
    if source and target:
        return source, target

    guesses = _languages_from_names(files) or container_languages(files[0])
    guesses = guesses or _languages_from_text(files)
    languages = (source or guesses[0], target or guesses[1])
    if languages[0] == languages[1]:
        raise DataError(
            f"both sides of {_names(files)} look like {languages[0]!r}; "
            "pass --source-language and --target-language"
        )
    return languages


def _languages_from_names(files: Files) -> tuple[str, str] | None:
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

    first = next(_read(files, ("source", "target")), None)
    if first is None:
        raise DataError(f"{_names(files)} has no text; expected one sentence per line")
    header = (first.sources[0].lower(), first.targets[0].lower())
    if LANGUAGE_CODES.issuperset(header):
        return header
    try:
        source, target = (langid.identify("\n".join(side)) for side in _sides(first))
    except MissingExtra:
        raise DataError(
            f"the name of {files[0]} does not end in a language code such as .en; {advice}"
        ) from None
    return source, target


def _sides(chunk: Chunk, sentences: int = 200) -> tuple[Sequence[str], Sequence[str]]:
    return chunk.sources[:sentences], chunk.targets[:sentences]


# --------------------------------------------------------------------------------------- The text


def _read(files: Files, languages: tuple[str, str]) -> Iterator[Chunk]:
    paths = [str(file) for file in files]
    corpus = CorpusConfig(source=paths[:1], target=paths[1:])  # type: ignore[arg-type]
    return read_chunks(corpus, *languages, Path())


def _count(files: Files, languages: tuple[str, str]) -> Statistics:
    """Count the pairs of a text, and the words and characters of its first pairs."""
    pairs = 0
    total_words = 0
    words: set[str] = set()
    for chunk in _read(files, languages):
        if pairs < SAMPLE:
            for text in (*chunk.sources, *chunk.targets):
                found = text.split()
                total_words += len(found)
                words.update(found)
            sampled = pairs + len(chunk)
        pairs += len(chunk)
    if pairs == 0 or total_words == 0:
        raise DataError(f"{_names(files)} has no text; expected one sentence per line")
    characters = set().union(*words)
    return Statistics(pairs, total_words / (2 * sampled), len(words), len(characters))


def _names(files: Files) -> str:
    return " and ".join(map(str, files))


def _hold_out(
    folder: Path, files: Files, languages: tuple[str, str], pairs: int, say: Say
) -> tuple[Files, Files]:
    """Write the last pairs to one pair of files and the others to another; return both."""
    # Two percent, but not fewer than 100 pairs where there are enough.
    held_out = min(MOST_HELD_OUT, max(pairs // 50, min(100, pairs // 10)))
    if held_out == 0:
        raise DataError(
            f"{_names(files)} has {pairs} pairs, too few to hold out some for validation; "
            "add text, or pass --valid-source and --valid-target"
        )
    training, validation = _free_names(folder, languages)
    with ExitStack() as stack:
        training_files = [stack.enter_context(whole_file(path)) for path in training]
        validation_files = [stack.enter_context(whole_file(path)) for path in validation]
        written = 0
        for chunk in _read(files, languages):
            for pair in zip(chunk.sources, chunk.targets, strict=True):
                outputs = training_files if written < pairs - held_out else validation_files
                for file, text in zip(outputs, pair, strict=True):
                    # A cell of JSON or Parquet may contain line breaks.
                    file.write(text.replace("\n", " ").encode() + b"\n")
                written += 1
    say(
        f"the last {held_out:,} pairs are held out for validation: {_names(validation)}; "
        f"the other {pairs - held_out:,} are copied to {_names(training)}"
    )
    return training, validation


def _free_names(folder: Path, languages: tuple[str, str]) -> tuple[Files, Files]:
    """Return names for training and validation text that no file in the folder has."""
    suffixes = languages if languages[0] != languages[1] else ("source", "target")
    for number in count(1):
        ending = "" if number == 1 else f"-{number}"
        training = tuple(folder / f"train{ending}.{suffix}" for suffix in suffixes)
        validation = tuple(folder / f"valid{ending}.{suffix}" for suffix in suffixes)
        if not any(path.exists() for path in (*training, *validation)):
            return training, validation
    raise AssertionError("numbers do not end")


# ------------------------------------------------------------------------------------- The recipe


def _recipe_text(
    folder: Path,
    languages: tuple[str, str],
    training: Files,
    validation: Files,
    preset: str,
    vocab_size: int,
) -> str:
    """Return the recipe as TOML with a comment for each setting."""
    recipe = find_preset(preset)
    source, target = map(toml_value, languages)
    run = shlex.quote(f"runs/{folder.resolve().name}")
    return f"""\
# How to train a model that translates from {languages[0]} to {languages[1]}.
#
#   transduce doctor recipe.toml       shows problems in the text
#   transduce train recipe.toml        trains; the same command resumes a run that was stopped
#   transduce translate --model {run} "A sentence."
#
# A setting can be changed for one run: transduce train recipe.toml training.steps=1000
# `transduce schema` describes every setting. Paths are relative to the folder of this file.

# Where all other settings come from: "tiny" for up to {PRESET_SIZES["tiny"]:,} pairs, "small" for
# up to {PRESET_SIZES["small"]:,}, "base" (the paper's model) or "big" for more.
preset = "{preset}"

[data]
source_language = {source}  # the language to translate from
target_language = {target}  # the language to translate to

# Training text. Repeat this block for each further corpus.
[[data.corpora]]
{_corpus_lines(folder, training)}
# weight = 2.0  # draw this corpus twice as often as its size suggests

# Text that measures progress during training. It must not be part of the training text.
[[data.validation]]
{_corpus_lines(folder, validation)}

# Text for the final score. Its sentences are removed from the training text.
# [[data.test]]
# source = ["test.{languages[0]}"]
# target = ["test.{languages[1]}"]

[data.tokenizer]
vocab_size = {vocab_size}  # number of word pieces: few for little text, 32000 for much
# joint = false  # separate vocabularies, for languages with different scripts; needs model.sharing

# [data.clean]
# off = ["length-ratio"]  # cleaning rules to switch off; `transduce doctor` lists what they drop

{_model_lines(recipe)}"""


def _corpus_lines(folder: Path, files: Files) -> str:
    paths = [toml_value((_relative(file, folder),)) for file in files]
    if len(paths) == 1:
        return f"source = {paths[0]}  # a file with both languages"
    return (
        f"source = {paths[0]}  # one sentence per line\n"
        f"target = {paths[1]}  # the translation of each line"
    )


def _model_lines(recipe: Recipe) -> str:
    model = recipe.model
    training = recipe.training
    return f"""\
# The values below are those of the preset. Remove the # in front of one to change it.

[model]
# N = {model.N}  # layers of the encoder and of the decoder
# d_model = {model.d_model}  # size of the vector of each token
# p_drop = {model.p_drop}  # dropout: raise it if validation gets worse while training gets better
# sharing = "two-way"  # needed with data.tokenizer.joint = false

[training]
# steps = {training.steps}  # number of training steps
# tokens_per_step = {training.tokens_per_step}  # batch size, in tokens of each language
# validate_every = {training.validate_every}  # steps between validations
# save_every = {training.save_every}  # steps between checkpoints
# patience = 5  # stop after 5 validations in a row without a better score
# until = "bleu=25"  # stop at this validation score
# precision = "float32"  # the default is bf16 on a GPU that has it
# seed = {training.seed}  # another seed gives a slightly different model

[search]
# beam_size = {recipe.search.beam_size}  # hypotheses of beam search; 1 is fastest
"""


def _relative(file: Path, folder: Path) -> str:
    """Return a path from the recipe to a file: relative if it is near, else absolute."""
    path = file.resolve()
    relative = Path(os.path.relpath(path, folder.resolve()))
    is_near = relative.parts.count("..") <= MOST_STEPS_UP
    return str(relative if is_near else path)
