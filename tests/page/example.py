"""Answers of a server that has no model: plausible data in the format of the HTTP interface."""

import base64
import math
import re

import numpy as np

LAYERS, HEADS = 6, 8
GERMAN = {
    "the": "das", "animal": "Tier", "didn't": "überquerte", "cross": "nicht", "street": "Straße",
    "because": "weil", "it": "es", "was": "war", "too": "zu", "tired": "müde", "wide": "breit",
    "hello": "hallo", "world": "Welt", "good": "guten", "morning": "Morgen",
}  # fmt: skip


def sentences_of(text):
    return [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]


def words_of(sentence):
    return re.findall(r"[\w'-]+|[^\w\s]", sentence)


def german(word):
    translated = GERMAN.get(word.lower(), word)
    return translated.capitalize() if word[:1].isupper() else translated


def join_words(words):
    return re.sub(r" ([^\w\s])", r"\1", " ".join(words))


def pieces_of(words):
    """Long words are two tokens, and the end of the sentence is the last token."""
    tokens = []
    for number, word in enumerate(words):
        cut = len(word) if len(word) < 7 else len(word) // 2
        for part in (word[:cut], word[cut:]):
            if part:
                mark = "\u2581" if part == word[:cut] and word[:1].isalnum() else ""
                tokens.append(
                    {"id": hash_of(part), "text": part, "piece": mark + part, "word": number}
                )
    return [*tokens, {"id": 2, "text": "</s>", "piece": "</s>", "word": None}]


def hash_of(text):
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(text)) % 30_000 + 10


def translation_of(sentence, without=()):
    words = [german(word) for word in words_of(sentence)]
    if without:
        words = [word for word in words if word != "nicht"]
    return join_words(words)


def encode(weights):
    data = np.rint(weights * 65535).astype("<u2").tobytes()
    return {"shape": list(weights.shape), "data": base64.b64encode(data).decode()}


def attention_of(kind, queries, keys, focus):
    """Heads of several kinds: the previous token, the same, the next, one far away, and broad ones."""
    random = np.random.default_rng(len(kind) + queries * 100 + keys)
    rows = np.arange(queries)[:, None] * (keys / queries)
    columns = np.arange(keys)[None, :]
    scores = np.zeros((LAYERS, HEADS, queries, keys))
    for layer in range(LAYERS):
        for head in range(HEADS):
            shift = (-1, 0, 1, None, 0, -2, 2, None)[(head + layer) % HEADS]
            noise = random.normal(0, 0.7, (queries, keys))
            sharp = 0.5 + layer * 0.35 + random.random()
            near = 0 if shift is None else -np.abs(columns - rows - shift) * sharp
            far = 3 * (columns == focus) if shift is None else 0
            scores[layer, head] = near + far + noise
    if kind == "decoder":
        scores[..., columns > np.arange(queries)[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def measures_of(attention):
    measures = []
    for kind, weights in attention.items():
        queries, keys = weights.shape[-2:]
        distance = np.abs(np.arange(queries)[:, None] - np.arange(keys)[None, :])
        for layer in range(LAYERS):
            for head in range(HEADS):
                rows = weights[layer, head]
                share = [
                    float(np.mean([np.diagonal(rows, shift).sum() / queries]))
                    for shift in (-1, 0, 1)
                ]
                entropy = -(rows * np.log(np.maximum(rows, 1e-12))).sum(-1).mean()
                measures.append(
                    {
                        "head": f"{kind}.{layer + 1}.{head + 1}",
                        "kind": kind,
                        "layer": layer + 1,
                        "index": head + 1,
                        "distance": round(float((rows * distance).sum(-1).mean()), 4),
                        "entropy": round(float(entropy), 4),
                        "previous": round(share[0], 4),
                        "next": round(share[2], 4),
                        "same": round(share[1], 4),
                        "punctuation": round(float(rows[:, -2:].sum(-1).mean()), 4),
                        "end": round(float(rows[:, -1].mean()), 4),
                        "aligned": round(share[1], 4) if kind == "cross" else None,
                    }
                )
    return measures


def steps_of(target):
    random = np.random.default_rng(len(target))
    steps = []
    for place, token in enumerate(target):
        others = [other for other in target if other["id"] != token["id"]][:9]
        top = 0.35 + 0.6 * random.random()
        rest = random.dirichlet(np.ones(len(others))) * (1 - top) if others else []
        shares = [top, *sorted(rest, reverse=True)]
        candidates = [
            {"id": other["id"], "text": other["text"], "probability": round(float(share), 5)}
            for other, share in zip([token, *others], shares, strict=True)
        ]
        token["probability"] = candidates[0]["probability"]
        entropy = -sum(share * math.log(max(share, 1e-12)) for share in shares)
        steps.append(
            {"candidates": candidates, "entropy": round(entropy, 4), "chosen": token["id"]}
        )
        assert place < len(target)
    return steps


def beam_of(target, translation, size=4):
    nodes = [
        {
            "parent": None,
            "id": None,
            "text": "",
            "step": 0,
            "log_prob": 0.0,
            "state": "kept",
            "best": True,
            "reason": "",
        }
    ]
    best, others = 0, []
    for step, token in enumerate(target, start=1):
        parents = [best, *others]
        total = nodes[best]["log_prob"] + math.log(token["probability"])
        state = "ended" if token["text"] == "</s>" else "kept"
        nodes.append(
            {
                "parent": best,
                "id": token["id"],
                "text": token["text"],
                "step": step,
                "log_prob": round(total, 4),
                "state": state,
                "best": True,
                "reason": "",
            }
        )
        best, others = len(nodes) - 1, []
        for rank, parent in enumerate(parents[: size - 1]):
            nodes.append(
                {
                    "parent": parent,
                    "id": 100 + rank,
                    "text": ("ein", "der", "so")[rank],
                    "step": step,
                    "log_prob": round(total - 1 - rank, 4),
                    "state": "kept" if rank < 2 and state == "kept" else "pruned",
                    "best": False,
                    "reason": ""
                    if rank < 2
                    else f"rank {rank + 2} of the step; the beam keeps {size}",
                }
            )
            if nodes[-1]["state"] == "kept":
                others.append(len(nodes) - 1)
            else:
                nodes[-1]["reason"] = f"rank {size + rank} of the step; the beam keeps {size}"
    return {
        "size": size,
        "nodes": nodes,
        "hypotheses": [{"node": best, "text": translation, "score": -0.4}],
    }


def inspection_of(text, sentence=0, without=(), name="example"):
    sentences = sentences_of(text)
    source_words = words_of(sentences[sentence])
    translation = translation_of(sentences[sentence], without)
    target_words = words_of(translation)
    source, target = pieces_of(source_words), pieces_of(target_words)
    steps = steps_of(target)
    S, T = len(source), len(target)
    attention = {
        "encoder": attention_of("encoder", S, S, 1),
        "decoder": attention_of("decoder", T, T, 0),
        "cross": attention_of("cross", T, S, S - 1),
    }
    norms = {
        "encoder": [
            [round(1 + layer * 0.5 + place % 3, 3) for place in range(S)]
            for layer in range(LAYERS + 1)
        ],
        "decoder": [
            [round(1 + layer * 0.5 + place % 3, 3) for place in range(T)]
            for layer in range(LAYERS + 1)
        ],
    }
    notices = (
        []
        if len(sentences) == 1
        else [f"The text has {len(sentences)} sentences; number {sentence + 1} is shown"]
    )
    return {
        "version": 1,
        "model": {
            "name": name,
            "source_language": "en",
            "target_language": "de",
            "encoder_layers": LAYERS,
            "decoder_layers": LAYERS,
            "heads": HEADS,
            "d_model": 512,
        },
        "sentences": sentences,
        "sentence": sentence,
        "text": sentences[sentence],
        "translation": translation,
        "score": -0.8,
        "notices": notices,
        "without": list(without),
        "full_translation": translation_of(sentences[sentence]) if without else None,
        "source": {"words": source_words, "tokens": source},
        "target": {"words": target_words, "tokens": target},
        "alignment": [[place, place] for place in range(min(len(source_words), len(target_words)))],
        "attention": {kind: encode(weights) for kind, weights in attention.items()},
        "residual_norms": norms,
        "steps": steps,
        "beam": beam_of(target, translation),
        "measures": measures_of(attention),
    }


def sentence_answer(source, before, options):
    text = translation_of(source)
    answer = {
        "source": source,
        "text": text,
        "score": -0.8,
        "before": before,
        "n_best": [{"text": text, "score": -0.8}],
    }
    for number in range(1, options.get("n_best", 1)):
        other = text.replace("Tier", "Vieh") if number == 1 else f"{text} ({number})"
        answer["n_best"].append({"text": other, "score": -0.8 - number})
    if options.get("alignments"):
        words = words_of(source)
        answer |= {
            "source_words": words,
            "target_words": words_of(text),
            # A word can have several links, and the two directions differ.
            "alignment": [[place, place] for place in range(len(words))]
            + [[5, 4]] * (len(words) > 5),
        }
    if options.get("confidences"):
        tokens = pieces_of(words_of(text))
        shares = [0.97, 0.9, 0.65, 0.99, 0.32]
        answer["tokens"] = [
            {"text": token["piece"], "probability": shares[place % len(shares)]}
            for place, token in enumerate(tokens)
        ]
    return answer


def translation_answer(options):
    text = options["text"]
    answers, end = [], 0
    for source in sentences_of(text):
        start = text.index(source, end)
        answers.append(sentence_answer(source, text[end:start], options))
        end = start + len(source)
    whole = "".join(answer["before"] + answer["text"] for answer in answers)
    notices = ["The text is long; the last part was cut"] if len(text) > 9_000 else []
    translation = {
        "text": whole,
        "score": -0.8,
        "n_best": answers[0]["n_best"] if len(answers) == 1 else [{"text": whole, "score": -0.8}],
        "notices": notices,
        "sentences": answers,
    }
    return {"model": "example", "translations": [translation]}
