"""The commands about better and smaller models: back-translation, distillation, compression."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from transduce.cli.arguments import Command, Help
from transduce.cli.options import Beam, Device, Model
from transduce.cli.training import stop_status
from transduce.errors import ConfigError, InputError, MissingExtra

Processes: TypeAlias = Annotated[
    int, Help("processes that translate; several keep a GPU busy, one uses all cores of a CPU")
]


def backtranslate(
    model: Annotated[
        Path,
        Help("a model that translates back, from the target language to the source language"),
    ],
    text: Annotated[
        tuple[Path, ...], Help("text in the target language, one sentence per line", value="FILE")
    ],
    *,
    out: Annotated[Path, Help("the new folder", value="FOLDER")],
    tag: Annotated[
        str, Help("what is written before each sentence, to tell it from real text; '' for none")
    ] = "<bt>",
    beam: Beam = None,
    device: Device = None,
    processes: Processes = 1,
) -> None:
    """Make parallel text from text in the target language alone.

    The model translates it back into the source language. If the command is interrupted, start it
    again: it continues.

    Examples:
        transduce backtranslate runs/de-en news.de --out synthetic
        transduce backtranslate runs/de-en news.de.xz --out synthetic --beam 1
        transduce backtranslate runs/de-en news.de --out synthetic --processes 4
    """
    _check_processes(processes)
    if not text:
        raise InputError("the text is missing; name at least one file in the target language")
    import functools

    from transduce.distillation.synthesis import read_texts, synthesize
    from transduce.recipe import adjusted, toml_value
    from transduce.translation.translator import Translator

    translator = Translator(
        model, device=device, search=functools.partial(adjusted, beam_size=beam)
    )
    texts = read_texts(text, translator.recipe.data)
    made = synthesize(
        translator, texts, out, "back-translated", tag=tag, processes=processes, device=device
    )
    print(f"{made.pairs:,} pairs, {made.dropped:,} dropped; add them to the recipe of your model:")
    print("\n[[data.corpora]]")
    # Relative paths would start from the folder of the recipe.
    print(f"source = {toml_value((str(made.translations.absolute()),))}")
    print(f"target = {toml_value((str(made.inputs.absolute()),))}")


def distil(
    teacher: Annotated[Path, Help("the large model (teacher): a bundle or a run", value="MODEL")],
    recipe: Annotated[Path, Help("the recipe whose training text the teacher translates")],
    overrides: Annotated[
        tuple[str, ...],
        Help("settings of the student, such as model.N_decoder=1", value="SETTING=VALUE"),
    ] = (),
    *,
    out: Annotated[Path, Help("folder for the text and the student", value="FOLDER")],
    student: Annotated[str, Help("the preset of the student", value="PRESET")] = "student",
    more_text: Annotated[
        tuple[Path, ...],
        Help("more text in the source language; can be repeated", value="FILE"),
    ] = (),
    beam: Beam = None,
    device: Device = None,
    processes: Processes = 1,
) -> None:
    """Train a small model on the translations of a large one.

    The teacher translates the training text of the recipe, the student learns from it, and a table
    compares both. If the command is interrupted, start it again: it continues.

    Examples:
        transduce distil runs/en-de en-de.toml --out runs/small
        transduce distil runs/en-de en-de.toml training.steps=20000 --out runs/small
        transduce distil runs/en-de en-de.toml --out runs/small --processes 4
    """
    _check_processes(processes)
    from transduce.distillation.comparison import compare, print_comparison
    from transduce.distillation.distil import distil as distil_model
    from transduce.distillation.distil import read_held_out
    from transduce.recipe import load_recipe

    settings = load_recipe(str(recipe))
    sources, references = read_held_out(settings, recipe.parent)
    made = distil_model(
        teacher,
        recipe,
        out,
        student=student,
        overrides=overrides,
        more_text=more_text,
        beam_size=beam,
        device=device,
        processes=processes,
    )
    if status := stop_status(made.run):
        print("the training was interrupted; start the command again", file=sys.stderr)
        sys.exit(status)
    models = {"teacher": teacher, "student": made.run.path}
    print_comparison(compare(models, sources, references, device=device))
    print(f"next: transduce compress {shlex.quote(str(made.run.path))} --out small-int8")


def _check_processes(processes: int) -> None:
    if processes < 1:
        raise InputError(f"--processes is {processes}; expected at least 1")


def compress(
    model: Model,
    *,
    out: Annotated[Path, Help("the new bundle", value="FOLDER")],
    precision: Annotated[
        Literal["int8", "bf16", "float16"], Help("how each weight is stored")
    ] = "int8",
    shortlist: Annotated[
        Path | None,
        Help(
            "write only the tokens that the target text of this recipe needs, which is faster in "
            "CTranslate2 (default: all tokens)",
            value="RECIPE",
        ),
    ] = None,
    source: Annotated[
        Path | None, Help("sentences to measure with (default: generated phrases)")
    ] = None,
    reference: Annotated[Path | None, Help("their translations (default: no BLEU)")] = None,
    device: Device = None,
) -> None:
    """Write a model in fewer bytes; compare quality, size and speed.

    With --shortlist, the table shows the new model with its shortlist and without.

    Examples:
        transduce compress runs/en-de --out en-de-int8
        transduce compress runs/small/run --out int8 --shortlist en-de.toml
        transduce compress runs/en-de --out int8 --source test.en --reference test.de
    """
    from transduce.distillation.comparison import compare, print_comparison
    from transduce.distillation.compress import compress as compress_model
    from transduce.evaluation.test_set import read_test_set
    from transduce.storage.installed import find_bundle
    from transduce.translation.benchmark import read_sentences
    from transduce.translation.translator import Translator

    # Read the test set before the work. Without phrases, the model is written but not compared.
    sources: list[str] = []
    references: list[str] = []
    no_phrases = ""
    if reference and not source:
        raise InputError("--reference is given without --source; give both")
    if source and reference:
        translator = Translator(model, device=device)
        sources, references = read_test_set(translator, source, reference)
    else:
        try:
            _, sources = read_sentences(model, source, 64, option="--source")
        except (MissingExtra, ConfigError) as error:
            if source:
                raise
            no_phrases = str(error)

    # The new bundle may have the name of the old one, and hide one of the package.
    original = find_bundle(model)
    compressed = compress_model(original, out, precision, shortlist=shortlist)
    if no_phrases:
        print(f"wrote {out}; it is not compared: {no_phrases}")
        return
    old_name, new_name = model.name, out.name
    if old_name in ("", new_name):
        old_name, new_name = str(original), str(out)
    models = {old_name: original, new_name: compressed}
    whole = f"{new_name}, all tokens"
    if shortlist:
        models[whole] = compressed
    measured = compare(models, sources, references, device=device, without_shortlist=[whole])
    print_comparison(measured)


COMMANDS: dict[str, Command] = {
    "backtranslate": backtranslate,
    "distil": distil,
    "compress": compress,
}
