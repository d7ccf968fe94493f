"""The command that repeats the experiments of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from transduce.cli.arguments import Command, Help

Part = Literal["table1", "table2", "table3", "table4", "figures", "claims", "report"]


def paper(
    part: Annotated[
        Part,
        Help(
            "table1, table2, table3, table4, figures, claims, or report, which shows all results",
            value="PART",
        ),
    ],
    corpus: Annotated[
        str | None,
        Help("a recipe file or the name of a corpus; for table4, a folder of bracketed trees"),
    ] = None,
    overrides: Annotated[
        tuple[str, ...],
        Help(
            "settings to change in every row, such as training.tokens_per_step=50000",
            value="SETTING=VALUE",
        ),
    ] = (),
    *,
    out: Annotated[
        Path, Help("folder of the results, one JSON file per row (default: paper)", value="FOLDER")
    ] = Path("paper"),
    budget: Annotated[
        float, Help("share of the paper's steps, warm-up and averaging (default: 1)", value="SHARE")
    ] = 1.0,
    rows: Annotated[
        tuple[str, ...],
        Help(
            "rows to run, such as base A-h1, or a group such as A (default: all)",
            value="ROW",
            several=True,
        ),
    ] = (),
    seed: Annotated[int, Help("seed of the training; its rows stand beside the others")] = 1,
    model: Annotated[
        Path | None,
        Help("for figures and claims: a trained model or run (default: none)", value="MODEL"),
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        Help("for --dry-run: target tokens per second of the first row (default: not known)"),
    ] = None,
    dry_run: Annotated[bool, Help("say what each row would cost, and train nothing")] = False,
    device: Annotated[
        Literal["cpu", "cuda"] | None, Help("where to run (default: a GPU if there is one)")
    ] = None,
) -> None:
    """Reproduce a table, the figures or the claims of the paper.

    Trained rows that are done are kept, and a row that was interrupted continues: start the same
    command again.

    Examples:
        transduce paper table3 en-de.toml --budget 0.1 --dry-run
        transduce paper table3 en-de.toml --budget 0.1 --rows base A
        transduce paper report
    """
    from transduce.paper.command import Options, run_part

    # Settings and a recipe that follow --rows directly are read as rows.
    settings = tuple(word for word in rows if "=" in word)
    recipes = [word for word in rows if word.endswith(".toml") and "=" not in word]
    if corpus is None and recipes:
        corpus = recipes[0]
    options = Options(
        out=out,
        corpus=corpus,
        overrides=(*overrides, *settings),
        rows=tuple(word for word in rows if word not in (*settings, corpus)),
        budget=budget,
        seed=seed,
        model=model,
        tokens_per_second=tokens_per_second,
        dry_run=dry_run,
        device=device,
    )
    run_part(part, options)


COMMANDS: dict[str, Command] = {"paper": paper}
