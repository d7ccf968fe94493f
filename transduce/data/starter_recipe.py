"""The text of a first recipe, with a comment for each setting: it needs no other documentation."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from transduce.config import Recipe
from transduce.data.guess_languages import Files
from transduce.data.suggestions import PRESET_SIZES
from transduce.presets import preset as find_preset
from transduce.recipe import toml_value

MOST_STEPS_UP = 3  # a path that climbs further is written as an absolute path


def recipe_text(
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
    paths = [toml_value((relative_path(file, folder),)) for file in files]
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
# precision = "float32"  # the default is bf16 on a GPU or CPU that has it
# seed = {training.seed}  # another seed gives a slightly different model

[search]
# beam_size = {recipe.search.beam_size}  # hypotheses of beam search; 1 is fastest
"""


def relative_path(file: Path, folder: Path) -> str:
    """Return a path from the recipe to a file: relative if it is near, else absolute."""
    path = file.resolve()
    relative = Path(os.path.relpath(path, folder.resolve()))
    is_near = relative.parts.count("..") <= MOST_STEPS_UP
    return str(relative if is_near else path)
