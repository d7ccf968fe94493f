"""A SentencePiece model in the order of another vocabulary, and back: what a Marian folder keeps in two places.

A Marian folder has a SentencePiece model for each language, which knows how text is cut, and vocab.json, which knows
ids. Ours is one SentencePiece model whose ids are the vocabulary's. Pieces of the other language are in it only for
their ids: no text is ever cut into them, and the target's can still be read. One thing is not as in Marian, which takes
two strange letters in a row for one unknown piece: here each is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from transduce.errors import require

NEVER = -1e9  # the score of a piece that no text is cut into
UNKNOWN_PENALTY = 10.0  # how far below the rarest piece SentencePiece puts an unknown letter
_SPACE_MARK = "\u2581"
# The target language at the beginning of a source, as >>deu<<.
_CODE = re.compile(rf"{_SPACE_MARK}?(>>.+<<)")
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5  # SentencePiece's types


def arrange(model: bytes, names: Sequence[str], side: Literal["source", "target"]) -> bytes:
    """The model with exactly these pieces in this order: the end of a sentence, unknown, ..., padding."""
    proto = _parse(model)
    own = {
        piece.piece: piece
        for piece in proto.pieces
        if piece.type not in (_UNKNOWN, _CONTROL, _UNUSED)
    }
    last = len(names) - 1
    rare = min(piece.score for piece in own.values()) - UNKNOWN_PENALTY
    del proto.pieces[:]
    for index, name in enumerate(names):
        if index in (0, 1, last):
            proto.pieces.add(piece=name, score=0, type=_UNKNOWN if index == 1 else _CONTROL)
        elif code := _CODE.fullmatch(name):  # SentencePiece puts its mark of a space before a text
            kind = _USER_DEFINED if side == "source" else _UNUSED
            proto.pieces.add(piece=_SPACE_MARK + code[1], score=0, type=kind)
        elif name in own:
            proto.pieces.append(own[name])
        elif len(name) == 1:
            # A letter that this model has never seen, but vocab.json has: Marian looks it up there.
            proto.pieces.add(piece=name, score=rare, type=_NORMAL)
        else:
            # A target's is UNUSED, for CONTROL pieces are not shown. A source's is CONTROL, for byte-pair encoding
            # merges through UNUSED ones.
            proto.pieces.add(
                piece=name, score=NEVER, type=_CONTROL if side == "source" else _UNUSED
            )
    trainer = proto.trainer_spec
    trainer.eos_piece, trainer.unk_piece, trainer.pad_piece = names[0], names[1], names[last]
    trainer.eos_id, trainer.unk_id, trainer.pad_id, trainer.bos_id = 0, 1, last, -1
    trainer.vocab_size = len(names)
    return bytes(proto.SerializeToString(deterministic=True))


def separate(model: bytes) -> tuple[list[str], bytes]:
    """Back: the names in a vocabulary, and the model with the pieces that a text can be cut into."""
    proto = _parse(model)
    names = [_CODE.sub(r"\1", piece.piece) for piece in proto.pieces]
    kept = [
        piece
        for index, piece in enumerate(proto.pieces)
        if index in (0, 1, len(names) - 1)
        or not (piece.type in (_CONTROL, _UNUSED) or _CODE.fullmatch(piece.piece))
    ]
    if len(kept) == len(names):
        return names, model
    del proto.pieces[:]
    proto.pieces.extend(kept)
    proto.trainer_spec.pad_id, proto.trainer_spec.vocab_size = len(kept) - 1, len(kept)
    return names, bytes(proto.SerializeToString(deterministic=True))


def is_code(piece: str) -> bool:
    """Whether a piece names the target language at the beginning of a source."""
    return _CODE.fullmatch(piece) is not None


def cut_into(model: bytes) -> list[str]:
    """The pieces that a text can be cut into."""
    return [
        piece.piece
        for piece in _parse(model).pieces
        if piece.type not in (_UNKNOWN, _CONTROL, _UNUSED)
    ]


def _parse(model: bytes) -> Any:
    require("google.protobuf", extra="export")
    proto = require("sentencepiece.sentencepiece_model_pb2", extra="export").ModelProto()
    proto.ParseFromString(model)
    return proto
