"""model=lm: the decoder alone, trained on the next token of one-sided text, measured in nats and bits, and sampled."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from configs import CONF, attentions_at_once, built, compose_train, composed
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from one_sided import run_on_text, write_text
from shared_folder import shared_folder

from seq2seq_attn.checkpoint.load import Loaded, load
from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation.evaluate import evaluate
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.training.check_config import check_config

SIZES = ["model.source_vocab_size=17", "model.target_vocab_size=17", "model.embedding_dim=16", "model.decoder.dim=16"]
GREEDY = {"name": "greedy", "limits": {"max_length": 9}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        run_on_text(folder / "run", write_text(folder), "model=lm")

    return shared_folder(tmp_path_factory, "language_model", make) / "run"


def log_probs(model: EncoderDecoder, read: list[int]) -> torch.Tensor:
    nothing = torch.zeros(1, 0)
    decoded = model(nothing.long(), nothing.bool(), torch.tensor([read]))
    return model.logits(decoded.hidden)[0].log_softmax(-1).detach()


def texts_of_test(loaded: Loaded) -> list[str]:
    return list(instantiate(loaded.config["data"], _convert_="all").load().splits["test"].targets)


@pytest.mark.usefixtures("quiet")
def test_its_figures_are_those_of_the_probability_of_every_test_line(run: Path) -> None:
    found, loaded = json.loads((run / "results.json").read_text()), load(str(run))
    texts = texts_of_test(loaded)
    nats = tokens = 0.0
    for ids in loaded.tokenizer.encode_target(texts):  # one by one, so that padding plays no role
        written = torch.tensor([*ids, loaded.tokenizer.eos_id])
        nats -= float(log_probs(loaded.model, [loaded.tokenizer.bos_id, *ids]).gather(-1, written[:, None]).sum())
        tokens += len(written)
    expected = {
        "nats_per_token": nats / tokens,
        "loss": nats / tokens,
        "ppl": math.exp(nats / tokens),
        "bits_per_token": nats / tokens / math.log(2),
        "bits_per_character": nats / sum(len(text) + 1 for text in texts) / math.log(2),
    }
    assert texts
    assert {name: found[f"test/{name}"] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert not list(run.glob("translations*"))


def test_it_has_no_encoder_and_one_vocabulary(run: Path) -> None:
    loaded = load(str(run))
    assert loaded.model.embed_source is loaded.model.embed_target
    assert loaded.tokenizer.source_vocab_size == loaded.tokenizer.target_vocab_size == 40
    assert {name.split(".")[0] for name, _ in loaded.model.named_parameters()} == {"embed_target", "decoder", "output"}


def test_a_line_is_continued_as_token_by_token_from_whole_passes(run: Path) -> None:
    translator, loaded = Translator.load(run, device="cpu"), load(str(run))
    ids = loaded.tokenizer.encode_target(["the cat"])[0]
    best = translator.translate(["the cat", ""], search=GREEDY)
    while len(ids) < 9:
        scores = log_probs(loaded.model, [loaded.tokenizer.bos_id, *ids])[-1]
        scores[[loaded.tokenizer.pad_id, loaded.tokenizer.bos_id, loaded.tokenizer.unk_id]] = -math.inf
        if int(scores.argmax()) == loaded.tokenizer.eos_id:
            break
        ids.append(int(scores.argmax()))
    assert best[0].text == loaded.tokenizer.decode_target([ids])[0]
    assert best[0].text.startswith("the cat")
    assert best[1].tokens  # an empty line is continued freely


def test_coverage_of_a_source_is_refused(run: Path) -> None:
    search = {"name": "beam", "coverage_penalty": 0.2}
    with pytest.raises(UserError, match=r"^search.coverage_penalty=0.2 needs attention to a source, and a language "):
        Translator.load(run, device="cpu").translate(["my old"], search=search)


def test_samples_depend_on_the_line_and_not_on_its_batch(run: Path) -> None:
    translator = Translator.load(run, device="cpu")
    search = {"name": "sampling", "limits": {"max_length": 20}}
    both = translator.translate(["my old", "we like"], search=search)
    alone = translator.translate(["we like"], search=search)
    assert both[1].text == alone[0].text
    assert both[0].text.removeprefix("my old") != both[1].text.removeprefix("we like")
    with pytest.raises(UserError, match="continues the texts themselves"):
        translator.translate(["a"], prefixes=["b"])


@pytest.mark.parametrize("attention", attentions_at_once())
def test_any_causal_attention_serves_and_no_token_sees_a_later_one(attention: str) -> None:
    model = built(composed("model=lm", f"attention={attention}", *SIZES).model).eval()
    tokens = torch.randint(4, 17, (6,), generator=torch.Generator().manual_seed(1)).tolist()
    changed = [*tokens[:4], (tokens[4] - 3) % 13 + 4, tokens[5]]
    assert changed != tokens
    torch.testing.assert_close(log_probs(model, tokens)[:4], log_probs(model, changed)[:4], rtol=0, atol=1e-5)


def test_what_needs_two_sides_is_refused() -> None:
    refused = {
        ("metric=[bleu]",): "metric.bleu compares translations with references",
        ("guided_alignment.links=eflomal",): "guided_alignment.links needs two sides",
    }
    for overrides, message in refused.items():
        with pytest.raises(UserError, match=message):
            check_config(compose_train("model=lm", *overrides))
    config = OmegaConf.to_container(composed("model=transformer", *SIZES).model, resolve=True)
    for part in ({"encoder": None}, {"decoder": config["decoder"] | {"cross_attention": None}}):
        with pytest.raises(
            InstantiationException, match=r"need each other: the model has (no .* attends|an .* does not attend)"
        ):
            built(OmegaConf.create(config | part))


@pytest.mark.usefixtures("quiet")
def test_without_a_test_no_figure_of_a_validation_is_a_result(tmp_path: Path) -> None:
    run_on_text(tmp_path / "run", write_text(tmp_path), "model=lm", "trainer.limit_test_batches=0", "val_sentences=3")
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [name for name in found if "/" in name] == []


@pytest.mark.usefixtures("quiet")
def test_text_without_a_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="data=text has no translations to learn"):
        run_on_text(tmp_path / "run", write_text(tmp_path))


@pytest.mark.usefixtures("quiet")
def test_an_evaluation_has_the_figures_of_the_run_and_no_translations(run: Path, tmp_path: Path) -> None:
    given = [f"ckpt_path={run}", f"paths.run_dir={tmp_path}", f"paths.cache_dir={run.parent / 'cache'}", "device=cpu"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        configs = [compose("evaluate", [*given, "choices.data=null"]) for _ in range(2)]
        searching = compose("evaluate", [*given, "choices.data=null", "search=beam"])
    with pytest.raises(UserError, match="search= would change nothing"):
        evaluate(searching)
    (tmp_path / "translations.tsv").write_text("mine")
    report, _ = (evaluate(config)["splits"]["test"] for config in configs)
    assert (tmp_path / "translations.tsv").read_text() == "mine"
    found = json.loads((run / "results.json").read_text())
    for name in ("ppl", "bits_per_token", "bits_per_character"):
        assert report[name] == pytest.approx(found[f"test/{name}"], rel=1e-5)
    assert "length_ratio" not in report
