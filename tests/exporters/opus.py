"""Folders like those of OPUS-MT: a SentencePiece model per language, other ids in vocab.json, random weights."""

import functools
import io
import json

import sentencepiece
import torch

from transduce.corpora.phrases import phrases


@functools.cache
def pairs():
    return phrases("en", "de", 1500)["train"]


@functools.cache
def spm(side, kind, size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(pair[side] for pair in pairs()),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        minloglevel=2,
    )
    return model.getvalue()


def names_of(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(index) for index in range(3, processor.vocab_size())]


def folder(path, *, kind="unigram", codes=(), orphans=3, special=("</s>", "<unk>"), **settings):
    """Write such a folder. As in real ones, vocab.json lacks some pieces of the source."""
    import transformers

    path.mkdir(parents=True)
    models = [spm(side, kind, 260) for side in (0, 1)]
    source, target = map(names_of, models)
    missing = [piece for piece in source if piece not in target][:orphans]
    known = [*(piece for piece in source if piece not in missing), *target]
    # Not the order of either model.
    others = sorted({*known}, key=lambda piece: (len(piece), piece[::-1]))
    names = [*special, *others, *codes, "<pad>"]
    separate = settings.get("share_encoder_decoder_embeddings") is False
    pad = len(names) - 1
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (path / name).write_bytes(model)
    for name in ("vocab.json", "target_vocab.json")[: 1 + separate]:
        # Of the same size, for Marian has one id for padding, in another order.
        if name == "target_vocab.json":
            names = [*special, *reversed(others), *codes, "<pad>"]
        (path / name).write_text(
            json.dumps({piece: index for index, piece in enumerate(names)}), encoding="utf-8"
        )
    (path / "tokenizer_config.json").write_text(
        json.dumps({"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}),
        encoding="utf-8",
    )
    torch.manual_seed(3)
    end = names.index("</s>")
    config = transformers.MarianConfig(
        **{
            "vocab_size": len(names), "decoder_vocab_size": len(names), "d_model": 32, "encoder_layers": 2,
            "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48, "activation_function": "swish", "scale_embedding": True, "pad_token_id": pad,
            "decoder_start_token_id": pad, "eos_token_id": end, "forced_eos_token_id": end,
            "max_position_embeddings": 128, "init_std": 0.2, **settings,
        }
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # biases and norms off their starting point, so that they matter
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    model.final_logits_bias.normal_()
    model.generation_config = transformers.GenerationConfig(
        num_beams=6, bad_words_ids=[[pad]], pad_token_id=pad, eos_token_id=end, decoder_start_token_id=pad,
        forced_eos_token_id=end, max_length=128,
    )  # fmt: skip
    model.save_pretrained(path)
    return path
