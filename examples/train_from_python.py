"""Train from Python: a recipe of your own, records as a table, and a translator at the end.

python examples/train_from_python.py [FOLDER]
"""

import sys
from pathlib import Path

import digits

import transduce


def main(folder: Path = Path("runs/examples/train")) -> None:
    # A recipe is a frozen value; a TOML file says the same, and `transduce.train` takes its path too.
    recipe = digits.recipe(folder / "text")
    print(recipe)

    # Callbacks see every record of metrics.jsonl as it is written; one that returns True ends the run.
    def perfect(record: dict) -> bool:
        return record["kind"] == "validation" and record["bleu"] > 99.9

    run = transduce.train(recipe, run=folder / "run", device="cpu", callbacks=[perfect])
    print(run)  # in a notebook, a table

    # The records are rows: pandas.DataFrame(run.metrics()), or pandas.read_json("metrics.jsonl", lines=True).
    for row in run.metrics()[-3:]:
        print(f"step {row['step']}: loss {row['loss']:.3f}, {row['target_tokens_per_second']:,.0f} tokens/s")

    # The best model translates; what it has never seen, it has to spell out.
    for translation in run.translator(device="cpu").translate(["4 0 7", "1 2 3 4 5", "9 9 9"]):
        print(translation.text, f"(score {translation.score:.3f})")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
