"""BLEU counts the words of a language, also where no spaces are between them."""

import pytest
import sacrebleu

from transduce.evaluation.breakdown import score_by_length
from transduce.evaluation.output import length_ratio
from transduce.evaluation.scores import score
from transduce.evaluation.words import tokenization

CHINESE = ["他昨天在北京买了三本书。", "我们喜欢喝茶，也喜欢咖啡 (OK)。"]  # noqa: RUF001
OTHER_CHINESE = ["他昨天在北京买了两本书。", "我们喜欢喝茶，也喜欢牛奶 (OK)。"]  # noqa: RUF001
JAPANESE = ["私は昨日、東京で本を三冊買いました。", "コーヒーよりお茶が好きです。"]
THAI = ["เมื่อวานเขาซื้อหนังสือสามเล่มที่กรุงเทพ", "เราชอบดื่มชา"]


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (
            [
                "He bought three books.",
                "Wir trinken gern Tee.",
                "Мы любим чай.",
                "우리는 차를 좋아합니다.",
            ],
            "13a",
        ),
        (["The sign says 北京."], "13a"),
        (["3 + 4 = 7", "!"], "13a"),
        (CHINESE, "zh"),
        (JAPANESE, "char"),
        (THAI, "char"),
    ],
)
def test_the_script_of_the_references_says_what_a_word_is(references, expected):
    assert tokenization(references) == expected


def test_chinese_is_scored_as_sacrebleu_does_it_for_chinese():
    scores = score(OTHER_CHINESE, CHINESE, ter=True)
    assert scores.bleu.value == sacrebleu.corpus_bleu(OTHER_CHINESE, [CHINESE], tokenize="zh").score
    assert scores.bleu.value > 50
    assert "tok:zh" in scores.bleu.signature
    assert "tok:zh+compounds-split" in scores.tokenized_bleu.signature
    assert scores.ter is not None
    assert scores.ter.value < 30


def test_lengths_are_counted_in_characters_where_there_are_no_spaces():
    assert length_ratio([text[:6] for text in JAPANESE], JAPANESE) == pytest.approx(12 / 32)
    (group,) = score_by_length(CHINESE, CHINESE, CHINESE)
    assert group.name == "11-20"
    assert group.bleu == pytest.approx(100)
