"""Finished pieces of tokenised text as one store."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from transduce.config import DataConfig
from transduce.data.inputs import Inputs
from transduce.data.store import FORMAT, token_type
from transduce.data.tokenising import SIDES
from transduce.data.tokenizer import Tokenizer
from transduce.data.writer import RaggedWriter, write_file, write_manifest
from transduce.errors import DataError


def assemble(
    folder: Path,
    data: DataConfig,
    inputs: Inputs,
    tokenizers: Mapping[str, Tokenizer],
    pieces: Mapping[str, Mapping[str, Sequence[Path]]],
    read: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> None:
    """Write the store into a folder that does not count as one before its manifest is there.

    Args:
        folder: Made anew.
        data: The settings the pieces were made with.
        inputs: What they were made from.
        tokenizers: By side; the target's alone if it is joint.
        pieces: By section and corpus, the finished pieces in order.
        read: By section and corpus, what cleaning counted: {"read": pairs, "kept": pairs, "dropped": {reason: pairs}}.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files: dict[str, dict[str, Any]] = {}
    for side, tokenizer in tokenizers.items():
        write_file(folder / f"{side}.model", tokenizer.to_bytes())
        files[f"{side}.model"] = {"bytes": len(tokenizer.to_bytes()), "sha256": tokenizer.fingerprint}
    types = {side: token_type(tokenizers.get(side, tokenizers["target"]).vocab_size) for side in SIDES}
    sections: dict[str, dict[str, Any]] = {}
    for section, corpora in pieces.items():
        train = section == "train"
        variants = data.tokenizer.variants if train and data.tokenizer.sampling else 1
        kinds = types if train else types | {f"{side}.text": "u1" for side in SIDES}
        with ExitStack() as stack:
            writers = {
                kind: stack.enter_context(RaggedWriter(folder, f"{section}.{kind}", dtype))
                for kind, dtype in kinds.items()
            }
            sections[section] = _append_all(corpora, read[section], writers, variants)
        for writer in writers.values():
            files |= writer.entries
    if not any(about["pairs"] for about in sections["train"]["corpora"].values()):
        dropped = sum(about["kept"] for about in read["train"].values())
        raise DataError(
            f"no training pair is left: all {dropped:,} have more than {data.max_tokens} tokens on a side; "
            "raise data.max_tokens"
        )
    about = {
        "format": FORMAT,
        "fingerprint": inputs.fingerprint,
        "languages": [data.source_language, data.target_language],
        "joint": data.tokenizer.joint,
        "tokenizer": {side: tokenizer.fingerprint for side, tokenizer in tokenizers.items()},
    }
    write_manifest(folder, about | {"sections": sections, "inputs": asdict(inputs), "files": files})


def _append_all(
    corpora: Mapping[str, Sequence[Path]],
    read: Mapping[str, Mapping[str, Any]],
    writers: Mapping[str, RaggedWriter],
    variants: int,
) -> dict[str, Any]:
    """Copy the pieces of a section into the store; what the manifest says of it."""
    about = {name: _Counted(read[name]) for name in corpora}
    for variant in range(variants):
        for name, paths in corpora.items():
            for path in paths:
                about[name].add(_append(path, writers, variant), variant)
    return {
        "corpora": {name: counted.counts for name, counted in about.items()},
        "variants": variants,
        "longest": max((counted.longest for counted in about.values()), default=0),
    }


class _Counted:
    """What the manifest says of a corpus."""

    def __init__(self, cleaned: Mapping[str, Any]) -> None:
        self.counts: dict[str, Any] = {
            "read": cleaned["read"],
            "dropped": dict(cleaned["dropped"]),
            "pairs": 0,
            "source_tokens": 0,
            "target_tokens": 0,
        }
        self.longest = 0

    def add(self, piece: Mapping[str, Any], variant: int) -> None:
        self.longest = max(self.longest, *(int(piece[side].max(initial=0)) for side in SIDES))
        if variant == 0:
            self.counts["pairs"] += len(piece["source"])
            for side in SIDES:
                self.counts[f"{side}_tokens"] += int(piece[side].sum())
            if piece["too_many_tokens"]:
                dropped = self.counts["dropped"]
                dropped["too-many-tokens"] = dropped.get("too-many-tokens", 0) + int(piece["too_many_tokens"])


def _append(path: Path, writers: Mapping[str, RaggedWriter], variant: int) -> dict[str, Any]:
    """Copy a piece into the store; its lengths."""
    with np.load(path, allow_pickle=False) as arrays:
        found: dict[str, Any] = {"too_many_tokens": arrays["too_many_tokens"]}
        for kind, writer in writers.items():
            name = kind if kind.endswith("text") else f"{kind}.{variant}"
            found[kind] = arrays[f"{name}.lengths"]
            writer.extend(arrays[f"{name}.values"], found[kind])
    return found
