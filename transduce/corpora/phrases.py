"""Generate a corpus: dates, times, numbers, money and quantities in two languages.

Every random value is written in both languages by `phrase_values`, so that translations are exact,
and each source has one translation.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from random import Random
from string import Formatter

from transduce.corpora.lockfile import Lock
from transduce.corpora.phrase_values import KINDS, Say
from transduce.corpora.phrasebook import BARE, SENTENCES, TOUCH_UPS
from transduce.data.text_folder import RECIPE, whole_file, write_recipe
from transduce.errors import ConfigError

Pair = tuple[str, str]

LANGUAGES = tuple(SENTENCES)
MAX_PAIRS = 1_000_000
# Some rules of cleaning are off, since the pairs are correct: a number may be one word in one
# language and seven in another, and 3:30 PM is 15:30.
SETTINGS = """
[data.clean]
off = ["length-ratio", "numbers", "wrong-language"]

[data.tokenizer]
vocab_size = 1000
split_digits = true

[model]
p_drop = 0.0

[training]  # the mapping is exact and never repeats: nothing to smooth, nothing to drop
steps = 900
tokens_per_step = 1500
schedule = "cosine"
warmup_steps = 100
learning_rate = 0.002
eps_ls = 0.0
report_every = 50
validate_every = 300
validation_sentences = 200
save_every = 300
average_checkpoints = 1

[search]
beam_size = 1
"""


def phrases(
    source_language: str, target_language: str, pairs: int = 50_000, seed: int = 1
) -> dict[str, list[Pair]]:
    """Return different pairs, divided into train, valid and test.

    No text occurs twice on a side, so that no split has a sentence of another.
    """
    known = ", ".join(LANGUAGES)
    for language in (source_language, target_language):
        if language not in LANGUAGES:
            raise ConfigError(f"phrases has no language {language!r}; known: {known}")
    if source_language == target_language:
        raise ConfigError(
            f"phrases needs two languages but got {source_language!r} twice; known: {known}"
        )
    if not 10 <= pairs <= MAX_PAIRS:
        raise ConfigError(f"phrases was asked for {pairs:,} pairs; expected 10 to {MAX_PAIRS:,}")

    unique: list[Pair] = []
    seen_sources: set[str] = set()
    seen_targets: set[str] = set()
    for source, target in _draw(Random(seed), source_language, target_language):
        source_key = _key(source)
        target_key = _key(target)
        if source == target or source_key in seen_sources or target_key in seen_targets:
            continue
        seen_sources.add(source_key)
        seen_targets.add(target_key)
        unique.append((source, target))
        if len(unique) == pairs:
            break

    # Hold out the first pairs: later on, kinds with few values (times, ordinals) are used up.
    held_out = min(1_000, pairs // 10)
    return {
        "train": unique[2 * held_out :],
        "valid": unique[:held_out],
        "test": unique[held_out : 2 * held_out],
    }


def write_phrases(
    folder: Path, source_language: str, target_language: str, pairs: int = 50_000, seed: int = 1
) -> Path:
    """Write the splits as train.en, train.de, ..., and return the path of the recipe for them.

    The recipe is written last: where there is one, the text is complete.
    """
    splits = phrases(source_language, target_language, pairs, seed)
    languages = (source_language, target_language)
    names = [f"{split}.{language}" for split in splits for language in languages]
    Lock(folder).claim([*names, RECIPE])
    (folder / RECIPE).unlink(missing_ok=True)
    for split, examples in splits.items():
        for side, language in enumerate(languages):
            with whole_file(folder / f"{split}.{language}") as file:
                file.writelines(f"{pair[side]}\n".encode() for pair in examples)
    corpora = {split: (split,) for split in splits}
    return write_recipe(folder, languages, corpora, preset="tiny", settings=SETTINGS)


def _key(text: str) -> str:
    """Return what texts have in common that differ only in case, spaces or punctuation."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _draw(random: Random, source_language: str, target_language: str) -> Iterator[Pair]:
    """Yield pairs without end, with repetitions. The values do not depend on the languages."""
    templates = {language: _templates(language) for language in SENTENCES}
    slots = [_slots(template) for template in templates["en"]]
    while True:
        number = random.randrange(len(slots))
        values = {slot: KINDS[slot](random) for slot in slots[number]}
        source = _fill(templates[source_language][number], values, source_language)
        target = _fill(templates[target_language][number], values, target_language)
        yield source, target


def _templates(language: str) -> list[str]:
    """Return the values that are used alone, and the sentences."""
    bare = [f"{{{kind}}}" for kind in BARE.split()]
    return bare + [line.strip() for line in SENTENCES[language].split("\n")]


def _slots(template: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(template) if name]


def _fill(template: str, values: dict[str, Say], language: str) -> str:
    """Return a sentence with its values, in correct grammar."""
    text = template.format_map({slot: say(language) for slot, say in values.items()})
    text = text.replace("\u202f", " ").replace("\xa0", " ")  # the space on a keyboard
    for pattern, correction in TOUCH_UPS.get(language, ()):
        text = re.sub(pattern, correction, text)
    return text
