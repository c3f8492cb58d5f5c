"""The language of metrics: names of languages without spaces, scripts, and what each metric makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import sacrebleu
from configs import built, composed

from seq2seq_attn.metric.bleu import BLEU, TOKENIZERS, default_scorer, tokenizer_of
from seq2seq_attn.metric.distinct import Distinct
from seq2seq_attn.metric.language import UNSPACED, is_unspaced, language_code, metric_language, with_language
from seq2seq_attn.metric.rouge import ROUGE
from seq2seq_attn.metric.ter import TER
from seq2seq_attn.text import unspaced_language

TEXTS = {
    "zh": "我们明天去公园里玩。",
    "ja": "私たちは明日、公園で遊びます。",
    "th": "พรุ่งนี้เราจะไปสวนสาธารณะ",
    "lo": "ມື້ອື່ນພວກເຮົາຈະໄປສວນ",
    "km": "ថ្ងៃស្អែកយើងនឹងទៅសួន",
    "my": "မနက်ဖြန်ပန်းခြံကိုသွားမယ်",
    "bo": "སང་ཉིན་ང་ཚོ་འགྲོ་གི་ཡིན།",
}
SPACED = [
    "Demain, nous irons au parc.",
    "내일 우리는 공원에 갑니다.",
    "Завтра мы пойдём в парк.",
    "कल हम पार्क जाएँगे।",
    "",
    "!?",
]


@pytest.mark.parametrize("code", TEXTS)
def test_the_script_tells_a_language_without_spaces(code: str) -> None:
    assert unspaced_language([TEXTS[code]]) == code
    assert unspaced_language([TEXTS[code], "", "OK"]) == code
    assert unspaced_language([TEXTS[code], *["a text of Latin letters, of many words"] * 9]) is None


def test_texts_with_spaces_have_none() -> None:
    assert [unspaced_language([text]) for text in SPACED] == [None] * len(SPACED)
    assert unspaced_language([]) is None
    assert unspaced_language(["L'enseigne dit 北京烤鸭."]) is None
    assert unspaced_language(["他用Python写了一个程序。"]) == "zh"
    assert unspaced_language([TEXTS["zh"]] * 9 + ["の"]) == "zh"  # a name within Chinese text


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("zh", ["zh", "zh-TW", "zho_Hant", "cn", "cmn", "yue", "wuu", "lzh", "Chinese"]),
        ("ja", ["ja", "jp", "jpn_Jpan", "Japanese"]),
        ("ko", ["ko", "kor", "Korean"]),
        ("th", ["th", "tha", "Thai"]),
        ("km", ["km", "khm", "Khmer"]),
        ("lo", ["lo", "lao", "Lao"]),
        ("my", ["my", "mya", "Burmese"]),
        ("bo", ["bo", "bod", "Tibetan"]),
        (None, ["fr", "text", "zhou", "", None]),
    ],
)
def test_a_language_has_its_names(code: str | None, names: list[str | None]) -> None:
    assert [language_code(name) for name in names] == [code] * len(names)
    assert [is_unspaced(name) for name in names] == [code not in (None, "ko")] * len(names)


def test_every_language_without_spaces_has_another_tokenizer_than_13a() -> None:
    assert set(TEXTS) == UNSPACED <= set(TOKENIZERS)


def test_the_name_counts_where_it_is_of_such_a_language_and_else_the_script() -> None:
    assert metric_language("fr", SPACED) == "fr"
    assert metric_language("text", [TEXTS["zh"]]) == "zh"
    assert metric_language(None, [TEXTS["th"]]) == "th"
    assert metric_language("ja", [TEXTS["zh"]]) == "ja"
    assert metric_language("zh-TW", SPACED) == "zh-TW"


def test_only_options_that_are_left_to_the_language_follow_it() -> None:
    chinese = [TEXTS["zh"]]
    assert with_language({"tokenize": "auto", "language": "fr"}, chinese) == {"tokenize": "auto", "language": "zh"}
    for options in (
        {"tokenize": "13a", "language": "fr"},
        {"tokenize": "auto"},
        {"tokenize": "auto", "language": 5},
        5,
    ):
        assert with_language(options, chinese) is options


@pytest.mark.parametrize("language", ["th", "Thai", "km", "lo", "my", "bo"])
def test_bleu_of_a_script_without_a_tokenizer_is_of_characters(language: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "seq2seq_attn"):
        metric = BLEU(lowercase=False, tokenize="auto", language=language)
    assert caplog.messages == [
        f"BLEU tokenizes {language} by sacreBLEU's char; metric.bleu.tokenize chooses another tokenizer"
    ]
    text = TEXTS[language_code(language) or ""]
    metric.update([text[:-1] + "x"], [[text]])
    assert 50 < float(metric.compute()) < 100
    assert "|tok:char|" in metric.signature()


def test_japanese_without_mecab_is_scored_by_characters_and_not_as_0(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = sacrebleu.BLEU

    def without_mecab(*, tokenize: str, **options: Any) -> sacrebleu.BLEU:
        if tokenize.endswith("mecab"):
            raise RuntimeError("pip install it")
        return real(tokenize=tokenize, **options)

    without_mecab.TOKENIZERS = real.TOKENIZERS  # type: ignore[attr-defined]
    monkeypatch.setattr(sacrebleu, "BLEU", without_mecab)
    assert tokenizer_of("jp") == "char"
    assert caplog.messages == [
        "BLEU tokenizes jp by characters (char), also in the validations, whose BLEU chooses best.ckpt unless monitor "
        "names another figure: pip install 'sacrebleu[ja]' for ja-mecab before the training, or set "
        "metric.bleu.tokenize"
    ]
    assert default_scorer("ja").sentence_score("私は明日行きます。", ["私は今日行きます。"]).score > 20
    assert tokenizer_of("ko") == "13a"  # which has spaces
    assert "BLEU tokenizes ko as 13a does, by blanks and punctuation, " in caplog.text


def ter(text: str, reference: str, *, language: str | None, **options: Any) -> tuple[float, str]:
    given: dict[str, Any] = {"normalized": "auto", "asian_support": "auto", "no_punct": False, "case_sensitive": False}
    metric = TER(**given | options, language=language)
    metric.update([text], [[reference]])
    return float(metric.compute()), metric.signature()


@pytest.mark.parametrize("language", ["zh", "Chinese", "cn"])
def test_ter_of_chinese_counts_characters(language: str) -> None:
    figure, signature = ter("我们明天去。", "我们今天去。", language=language)
    assert figure == pytest.approx(100 / 6)
    assert "|norm:yes|punct:yes|asian:yes|" in signature
    theirs = sacrebleu.TER(normalized=True, asian_support=True).sentence_score("我们明天去。", ["我们今天去。"]).score
    assert figure == theirs


@pytest.mark.parametrize("language", ["fr", "ko", "text", None])
def test_ter_of_a_language_with_spaces_is_sacrebleus_default(language: str | None) -> None:
    found, signature = ter("Nous irons demain.", "Nous y irons, demain.", language=language)
    assert found == sacrebleu.TER().sentence_score("Nous irons demain.", ["Nous y irons, demain."]).score
    assert "|norm:no|punct:yes|asian:no|" in signature


def test_given_options_of_ter_come_before_the_language() -> None:
    figure, signature = ter("我们明天去。", "我们今天去。", language="zh", normalized=False, asian_support=False)
    assert (figure, "|norm:no|punct:yes|asian:no|" in signature) == (100.0, True)


def test_ter_warns_of_a_script_that_it_cannot_split(caplog: pytest.LogCaptureFixture) -> None:
    _, signature = ter(TEXTS["th"], TEXTS["th"], language="th")
    assert "|norm:no|punct:yes|asian:no|" in signature
    assert caplog.messages == [
        "TER counts words between blanks, which th lacks, so that a sentence is about one word; chrF compares "
        "characters"
    ]


def test_words_of_rouge_and_distinct_follow_the_language_where_it_has_no_spaces() -> None:
    for language, tokenize in (("zh", "zh"), ("th", "char"), ("fr", "words"), ("ko", "words"), (None, "words")):
        rouge = ROUGE(variant="rouge1", tokenize="auto", language=language)
        assert f"|tok:{tokenize}|" in rouge.signed
        assert Distinct(n=1, tokenize="auto", language=language).signed == f"n:1|tok:{tokenize}"
    chinese = ROUGE(variant="rouge1", tokenize="auto", language="zh")
    assert chinese.f1("我们学习", ["我们工作"]) == pytest.approx(50.0)
    assert "|tok:words|" in ROUGE(variant="rouge1", tokenize="words", language="zh").signed


def test_metrics_of_a_corpus_called_chinese_are_of_chinese() -> None:
    config = composed("metric=[ter,rouge,distinct]", "data.target_language=zh").metric
    metrics = {name: built(options) for name, options in config.items()}
    metrics["ter"].update(["我"], [["我"]])
    assert "|asian:yes|" in metrics["ter"].signature()
    assert {metrics[name].signed.partition("tok:")[2][:2] for name in metrics if name != "ter"} == {"zh"}
