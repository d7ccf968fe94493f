"""Sequence-level knowledge distillation: a small student learns what a large teacher writes."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transduce.config import CorpusConfig, Recipe
from transduce.data.text_folder import RECIPE, whole_file
from transduce.distillation.synthesis import RECORD, Synthesis, synthesize, unique_sources
from transduce.errors import ConfigError, DataError
from transduce.evaluation.test_set import read_sets
from transduce.presets import preset as find_preset
from transduce.recipe import adjusted, apply_overrides, follow_tokenizer, load_recipe, to_toml
from transduce.storage.disk import check_writable
from transduce.storage.lock import lock_work_folder
from transduce.training.run import Run
from transduce.training.run_folder import check_folder, note_teacher
from transduce.training.train import train
from transduce.translation.translator import Translator


@dataclass(frozen=True)
class Distillation:
    """The text that the teacher wrote, and the run of the student."""

    text: Synthesis
    run: Run


def distil(
    teacher: str | Path,
    recipe: str | Path,
    out: str | Path,
    *,
    student: str = "student",
    overrides: Sequence[str] = (),
    more_text: Iterable[Path] = (),
    beam_size: int | None = None,
    device: str | None = None,
    processes: int = 1,
) -> Distillation:
    """Let a teacher translate the training text of a recipe, and train a student on the result.

    A call that was interrupted continues where it stopped.

    Args:
        teacher: The bundle or the run of the teacher.
        recipe: The recipe whose source text is translated. Its validation and test sets are also
            those of the student.
        out: The folder for the text, the student's recipe and its run.
        student: The preset of the student.
        overrides: Settings of the student to change, such as "model.N_decoder=1".
        more_text: More files in the source language, without translations.
        beam_size: The beam of the teacher; by default that of its recipe.
        device: Such as "cuda" or "cpu"; by default a GPU if there is one.
        processes: How many processes translate; one trains.
    """
    out = Path(out)
    base = Path(recipe).parent
    settings = load_recipe(str(recipe))
    if not settings.data.corpora:
        raise ConfigError(f"{recipe} names no training text; expected [[data.corpora]]")
    _check_out(out, Path(recipe))
    new = student_recipe(settings, base, out, student, overrides)
    check_folder(out / "run", new)

    search = functools.partial(adjusted, beam_size=beam_size)
    translator = Translator(teacher, device=device, search=search)
    languages = (settings.data.source_language, settings.data.target_language)
    teacher_data = translator.recipe.data
    teacher_languages = (teacher_data.source_language, teacher_data.target_language)
    if languages != teacher_languages:
        raise ConfigError(
            f"{recipe} is for {'-'.join(languages)}, but the teacher translates "
            f"{'-'.join(teacher_languages)}; use a teacher for the same languages"
        )

    with lock_work_folder(out, "distil"):
        sources = unique_sources(settings, base, more_text)
        text = synthesize(
            translator, sources, out / "text", "distilled", processes=processes, device=device
        )
        assert translator.bundle is not None
        note_teacher(out / "run", translator.bundle)
        del translator  # the memory of the GPU is for the student
        with whole_file(out / RECIPE) as file:
            file.write(to_toml(new).encode())
        return Distillation(text, train(out / RECIPE, run=out / "run", device=device))


def _check_out(out: Path, recipe: Path) -> None:
    """Refuse a folder that cannot be written, or whose recipe is not that of a student."""
    check_writable(out, "choose another folder")
    path = out / RECIPE
    is_begun = (out / "text" / RECORD).exists()
    if path.exists() and (not is_begun or path.samefile(recipe)):
        raise ConfigError(
            f"{path} is not the recipe of a student and would be overwritten; choose another folder"
        )


def student_recipe(
    recipe: Recipe, base: Path, out: Path, student: str, overrides: Sequence[str] = ()
) -> Recipe:
    """Return the recipe of a student that learns from the text in `out`."""
    languages = (recipe.data.source_language, recipe.data.target_language)
    files = [f"text/distilled.{language}" for language in languages]
    corpus = CorpusConfig(name="distilled", source=(files[0],), target=(files[1],))
    new = find_preset(student)
    # The student sees the text as the teacher's recipe normalizes it.
    tokenizer = replace(
        new.data.tokenizer,
        normalize_punctuation=recipe.data.tokenizer.normalize_punctuation,
    )
    data = replace(
        recipe.data,
        corpora=(corpus,),
        validation=_moved(recipe.data.validation, base, out),
        test=_moved(recipe.data.test, base, out),
        tokenizer=tokenizer,
    )
    changed = follow_tokenizer(apply_overrides(replace(new, data=data), overrides))
    if (changed.data.source_language, changed.data.target_language) != languages:
        raise ConfigError(
            f"a student has the languages of its teacher, {'-'.join(languages)}; leave out "
            "data.source_language and data.target_language"
        )
    return changed


def read_held_out(recipe: Recipe, base: Path) -> tuple[list[str], list[str]]:
    """Return sources and references of the test sets, or else of the validation sets."""
    data = recipe.data
    corpora = data.test or data.validation
    if not corpora:
        raise DataError("the recipe has neither [[data.test]] nor [[data.validation]]; add one")
    return read_sets(corpora, data, base)


def _moved(corpora: Iterable[CorpusConfig], base: Path, out: Path) -> tuple[CorpusConfig, ...]:
    """Return corpora whose paths start from another folder."""
    moved = []
    for corpus in corpora:
        source = tuple(os.path.relpath(base / path, out) for path in corpus.source)
        target = tuple(os.path.relpath(base / path, out) for path in corpus.target)
        moved.append(replace(corpus, source=source, target=target))
    return tuple(moved)
