"""Fine-tune a model on new text, and hand it over to another runtime, compared on the way.

python examples/fine_tune_and_export.py [FOLDER]
"""

import sys
from dataclasses import replace
from pathlib import Path

import digits

import transduce
from transduce.errors import MissingExtra


def main(folder: Path = Path("runs/examples/fine-tune")) -> None:
    # A model that has only seen up to five digits.
    general = transduce.train(digits.recipe(folder / "text"), run=folder / "general", device="cpu")

    # New text: longer numbers. The bundle's model and tokenizer are kept; only the weights go on learning.
    recipe = digits.recipe(folder / "text", steps=150)
    longer = digits.write_pairs(folder / "text", "longer", 1000, longest=9, seed=3)
    test = digits.write_pairs(folder / "text", "test", 100, longest=9, seed=4)
    recipe = replace(recipe, data=replace(recipe.data, corpora=(longer,), validation=(test,)))
    tuned = transduce.train(recipe, run=folder / "tuned", start_from=general.path, device="cpu")

    # How good each is on the new domain: sacreBLEU, with its signature.
    sources, references = (Path(file).read_text().splitlines() for file in (test.source[0], test.target[0]))
    for run in (general, tuned):
        found = [one.text for one in run.translator(device="cpu").translate(sources)]
        bleu = transduce.score(found, references).bleu
        print(f"{run.path.name:<8} BLEU {bleu.value:5.1f}  {bleu.signature}")

    # Two ONNX graphs and the tokenizer; other targets are "ctranslate2", "huggingface" and "argos".
    try:
        print(transduce.export(tuned.path, folder / "onnx", to="onnx"))
    except MissingExtra as error:
        print(f"not exported: {error}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
