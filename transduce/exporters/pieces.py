"""Conversion between the tokenizer files of a Marian folder and of a bundle.

A Marian folder has a SentencePiece model for each language, which splits text into pieces, and
vocab.json, which has the ids. A bundle has SentencePiece models whose ids are those of the
vocabulary. Pieces of the other language are in it only for their ids: no text is split into them,
but those of the target can be decoded. One thing differs from Marian, which takes two unknown
letters in a row for one unknown piece: here each is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from transduce.data.tokenizer import SPACE_MARK
from transduce.errors import require

NEVER = -1e9  # the score of a piece into which no text is split
UNKNOWN_PENALTY = 10.0  # how far below the rarest piece SentencePiece scores an unknown letter
# The code of a target language at the beginning of a source, such as >>deu<<.
_CODE = re.compile(rf"{SPACE_MARK}?(>>.+<<)")
# SentencePiece's types of pieces.
_NORMAL = 1
_UNKNOWN = 2
_CONTROL = 3
_USER_DEFINED = 4
_UNUSED = 5


def arrange(model: bytes, names: Sequence[str], side: Literal["source", "target"]) -> bytes:
    """Return the model with exactly these pieces, in this order.

    The first two are the end of a sentence and the unknown piece, the last one is padding.
    """
    proto = _parse(model)
    own = {piece.piece: piece for piece in proto.pieces if _is_text(piece)}
    last = len(names) - 1
    rare = min(piece.score for piece in own.values()) - UNKNOWN_PENALTY
    # Pieces of the other language. In a target they are UNUSED, since CONTROL pieces are not
    # decoded. In a source they are CONTROL, since byte-pair encoding merges through UNUSED ones.
    foreign_type = _CONTROL if side == "source" else _UNUSED
    code_type = _USER_DEFINED if side == "source" else _UNUSED

    del proto.pieces[:]
    for index, name in enumerate(names):
        code = _CODE.fullmatch(name)
        if index in (0, 1, last):
            proto.pieces.add(piece=name, score=0, type=_UNKNOWN if index == 1 else _CONTROL)
        elif code:
            # SentencePiece puts a space mark before a text.
            proto.pieces.add(piece=SPACE_MARK + code[1], score=0, type=code_type)
        elif name in own:
            proto.pieces.append(own[name])
        elif len(name) == 1:
            # A letter that is not in this model but in vocab.json, where Marian looks it up.
            proto.pieces.add(piece=name, score=rare, type=_NORMAL)
        else:
            proto.pieces.add(piece=name, score=NEVER, type=foreign_type)

    trainer = proto.trainer_spec
    trainer.eos_piece = names[0]
    trainer.unk_piece = names[1]
    trainer.pad_piece = names[last]
    trainer.eos_id = 0
    trainer.unk_id = 1
    trainer.pad_id = last
    trainer.bos_id = -1
    trainer.vocab_size = len(names)
    return bytes(proto.SerializeToString(deterministic=True))


def separate(model: bytes) -> tuple[list[str], bytes]:
    """Return the names in a vocabulary, and the model with only the pieces of text.

    This is the inverse of `arrange`.
    """
    proto = _parse(model)
    names = [_CODE.sub(r"\1", piece.piece) for piece in proto.pieces]
    special = (0, 1, len(names) - 1)
    kept = []
    for index, piece in enumerate(proto.pieces):
        is_foreign = piece.type in (_CONTROL, _UNUSED) or _CODE.fullmatch(piece.piece)
        if index in special or not is_foreign:
            kept.append(piece)
    if len(kept) == len(names):
        return names, model
    del proto.pieces[:]
    proto.pieces.extend(kept)
    proto.trainer_spec.pad_id = len(kept) - 1
    proto.trainer_spec.vocab_size = len(kept)
    return names, bytes(proto.SerializeToString(deterministic=True))


def is_code(piece: str) -> bool:
    """Return whether a piece is the code of a target language."""
    return _CODE.fullmatch(piece) is not None


def cut_into(model: bytes) -> list[str]:
    """Return the pieces into which a text can be split."""
    return [piece.piece for piece in _parse(model).pieces if _is_text(piece)]


def _is_text(piece: Any) -> bool:
    return piece.type not in (_UNKNOWN, _CONTROL, _UNUSED)


def _parse(model: bytes) -> Any:
    require("google.protobuf", extra="export")
    proto = require("sentencepiece.sentencepiece_model_pb2", extra="export").ModelProto()
    proto.ParseFromString(model)
    return proto
