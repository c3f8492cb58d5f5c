"""The precision of a translation: float32 unless another is given, and then what the model computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.plugins.precision import DoublePrecision, HalfPrecision, MixedPrecision, Precision
from tiny import SENTENCES, write_checkpoint
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.engine import TorchEngine
from seq2seq_attn.inference.precision import NAMES, precision_plugin
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.model.encoder_decoder import EncoderDecoder

CPU, GPU = torch.device("cpu"), torch.device("mps")  # for CUDA, Lightning's plugin warns where there is none
FEW = SENTENCES[:5]
BEAM = {"name": "beam", "beam_size": 3, "limits": {"max_relative_length": 1.0, "max_extra_length": 2}}
LAYERS = ("model.encoder.num_layers=1", "model.decoder.num_layers=1")


MODELS = ["rnn", "conv", "transformer"]


@pytest.fixture(scope="module", params=MODELS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tiny") / f"{request.param}.ckpt"
    return write_checkpoint(file, f"model={request.param}", *LAYERS, scale=1.0)


def members(translator: Translator) -> list[EncoderDecoder]:
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    return [engine.model] if isinstance(engine.model, EncoderDecoder) else list(engine.model.members)  # type: ignore[arg-type]


@contextmanager
def logits(translator: Translator) -> Iterator[list[Tensor]]:
    """Collect what the output layers compute."""
    seen: list[Tensor] = []
    hooks = [
        model.output.register_forward_hook(lambda _, __, output: seen.append(output)) for model in members(translator)
    ]
    yield seen
    for hook in hooks:
        hook.remove()


SEARCHES: dict[str, Any] = {
    "greedy": {"name": "greedy"},
    "beam": BEAM,
    "patient beam": BEAM | {"num_best": 3, "patience": 1.0},
    "diverse beam": {"name": "diverse_beam", "beam_size": 4, "num_groups": 2, "num_best": 2},
    "sampling": {"name": "sampling", "num_samples": 3},
    "nucleus": {"name": "sampling", "top_k": 7, "top_p": 0.5},
    "risk": {"name": "mbr"},
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("everywhere", [True, False], ids=["everywhere", "after a token"])
def test_numbers_that_overflow_are_one_sentence_in_every_search(search: str, everywhere: bool, tmp_path: Path) -> None:
    translator = Translator.load(write_checkpoint(tmp_path / "rnn.ckpt", scale=1.0), device="cpu")
    (model,), options = members(translator), SEARCHES[search] | {"limits": {"max_length": 9}}
    options = {"name": "mbr", "candidates": {"limits": {"max_length": 9}}} if search == "risk" else options
    assert translator.translate(FEW, search=options)
    if everywhere:
        model.output.bias.data[:] = torch.nan
    else:
        first = translator.tokenizer.encode_target([FEW[0]])[0][0]
        model.output.bias.data[first] = 50.0
        model.embed_target.weight.data[first] = torch.nan
    sentence = r"^the model's numbers overflow in precision=32-true; translate with another checkpoint$"
    with pytest.raises(UserError, match=sentence):
        translator.translate(FEW, search=options)
    with pytest.raises(UserError, match=sentence):
        translator.score(FEW, FEW)


def test_an_overflow_of_float16_names_the_precisions_without_one(tmp_path: Path) -> None:
    loaded = Translator.load(write_checkpoint(tmp_path / "rnn.ckpt"), device="cpu")
    (model,) = members(loaded)
    engine: Any = TorchEngine(model, loaded.tokenizer, CPU)
    engine._precision = SimpleNamespace(precision="16-true", test_step_context=nullcontext)
    model.output.bias.data[:] = torch.nan
    with pytest.raises(UserError, match=r"overflow in precision=16-true; use precision=bf16-mixed or 32-true$"):
        Translator(engine, loaded.tokenizer, loaded.config).translate(FEW)


@pytest.mark.parametrize("method", ["token_log_probs", "attention"])
def test_scores_and_maps_of_given_translations_are_computed_in_the_precision(method: str, tmp_path: Path) -> None:
    translator = Translator.load(write_checkpoint(tmp_path / "rnn.ckpt", *LAYERS), device="cpu", precision="bf16-mixed")
    (model,), kinds = members(translator), set()
    for part in model.modules():
        if isinstance(part, torch.nn.Linear):
            part.register_forward_hook(lambda _, __, output: kinds.add(output.dtype))
    getattr(translator.engine, method)([[5, 6]], [[7, 8]])
    assert kinds == {torch.bfloat16}


def test_float32_is_the_default_whatever_the_run(file: Path) -> None:
    plain, named = Translator.load(file, device="cpu"), Translator.load(file, device="cpu", precision="32-true")
    with logits(plain) as seen:
        assert plain.translate(FEW, search=BEAM) == named.translate(FEW, search=BEAM)
    assert {one.dtype for one in seen} == {torch.float32}


PRECISIONS = [
    ("bf16-mixed", torch.float32, torch.bfloat16),
    ("bf16-true", torch.bfloat16, torch.bfloat16),
    ("64-true", torch.float64, torch.float64),
]


@pytest.mark.parametrize(
    ("file", "precision", "weights", "computed"),
    [  # each model and each precision once always
        pytest.param(model, *precision, marks=[] if i == k else pytest.mark.slow)
        for i, model in enumerate(MODELS)
        for k, precision in enumerate(PRECISIONS)
    ],
    indirect=["file"],
)
def test_the_model_computes_in_the_precision_and_the_search_ranks_as_before(
    file: Path, precision: str, weights: torch.dtype, computed: torch.dtype
) -> None:
    translator = Translator.load(file, device="cpu", precision=precision)
    assert {weight.dtype for model in members(translator) for weight in model.parameters()} == {weights}
    with logits(translator) as seen:
        found = translator.translate(FEW, search=BEAM, maps=True)
    assert {one.dtype for one in seen} == {computed}
    assert torch.get_default_dtype() == torch.float32
    tolerance = 1e-6 if computed == torch.float64 else 0.05
    for text, one in zip(FEW, found, strict=True):
        assert one.log_prob == pytest.approx(log_prob(file, text, one.tokens), rel=tolerance)
        assert one.maps[0].weights.sum(-1) == pytest.approx(1.0, abs=0.02)


def log_prob(file: Path, text: str, tokens: list[str]) -> float:
    """By one pass in float64."""
    translator = Translator.load(file, device="cpu")
    (model,), tokenizer = members(translator), translator.tokenizer
    model.double()
    source = torch.tensor([[*tokenizer.encode_source([text])[0], tokenizer.eos_id]])
    target = [tokenizer.target_model.piece_to_id(token) for token in tokens]
    begun = torch.tensor([[tokenizer.bos_id, *target]])
    hidden = model(source, torch.ones_like(source, dtype=torch.bool), begun).hidden
    log_probs = model.logits(hidden)[0].log_softmax(-1)
    return log_probs.gather(-1, torch.tensor([*target, tokenizer.eos_id])[:, None]).sum().item()


@pytest.mark.parametrize(
    ("file", "precision"),
    [
        pytest.param(model, precision, marks=[] if i % 2 == k else pytest.mark.slow)
        for i, model in enumerate(MODELS)
        for k, precision in enumerate(["bf16-mixed", "bf16-true"])
    ],
    indirect=["file"],
)
def test_every_member_of_an_ensemble_computes_in_the_precision(file: Path, precision: str) -> None:
    both = Translator.load([file, file], device="cpu", precision=precision)
    with logits(both) as seen:
        (found,) = both.translate(FEW[:1], search=BEAM)
    assert {one.dtype for one in seen} == {torch.bfloat16}
    (one,) = Translator.load(file, device="cpu", precision=precision).translate(FEW[:1], search=BEAM)
    assert found.tokens == one.tokens
    assert found.log_prob == pytest.approx(one.log_prob, rel=1e-4)


def test_names_are_those_of_lightnings_trainer() -> None:
    kinds = [type(precision_plugin(name, GPU)) for name in (None, *NAMES)]
    half, mixed = [HalfPrecision], [MixedPrecision]
    assert kinds == [Precision, Precision, *mixed, *half, *mixed, *half, DoublePrecision]
    short = {"32": "32-true", 32: "32-true", "bf16": "bf16-mixed", 16: "16-mixed", "16": "16-mixed", 64: "64-true"}
    assert {name: precision_plugin(name, GPU).precision for name in short} == short


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "16", 16])
def test_float16_is_refused_on_a_cpu(precision: str | int) -> None:
    with pytest.raises(
        UserError, match=rf"^precision={precision} needs a GPU; on a CPU use precision=bf16-mixed, bf16-t"
    ):
        precision_plugin(precision, CPU)


def test_what_does_not_exist_or_is_of_the_other_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^precision=int8 does not exist; choose from: 32-true, bf16-mixed, bf16-true, "
    ):
        precision_plugin("int8", CPU)
    with pytest.raises(
        UserError, match=r"^precision=bf16-true is for engine=torch; give compute_type= instead, or lea"
    ):
        Translator.load(tmp_path, engine="ctranslate2", precision="bf16-true")
    with pytest.raises(
        UserError, match=r"^compute_type=int8 is for engine=ctranslate2; give precision= instead, or lea"
    ):
        Translator.load(tmp_path, compute_type="int8")
