"""The Lightning module: a training step, a validation and a test of a translation model."""

from __future__ import annotations

import math
import sys
import time
from contextlib import nullcontext
from functools import partial
from typing import Any, final

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision, Precision
from pytorch_lightning.utilities import GradClipAlgorithmType
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seq2seq_attn.batch import Batch
from seq2seq_attn.checkpoint.load import FORMAT
from seq2seq_attn.checkpoint.run_length import Position, run_length
from seq2seq_attn.decoder.decoder import Decoded
from seq2seq_attn.distributed.collectives import gather_from_ranks, others_wait
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import named_arguments
from seq2seq_attn.metric.aer import AER
from seq2seq_attn.metric.average_lagging import average_lagging, tokens_read, waiting_patterns
from seq2seq_attn.metric.chosen_metric import ChosenMetric
from seq2seq_attn.metric.text_metric import TextMetric
from seq2seq_attn.metric.token_mean import TokenMean
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble
from seq2seq_attn.nn.precision import as_autocast
from seq2seq_attn.optimizer.muon import hidden_matrices
from seq2seq_attn.search.search import Search, TargetVocabulary
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.ensemble_loss import ensemble_cross_entropy
from seq2seq_attn.training.guided_alignment import GuidedAlignment
from seq2seq_attn.training.loss import Loss, label_smoothed_cross_entropy
from seq2seq_attn.training.parameter_groups import parameter_groups, without_parameters
from seq2seq_attn.training.r_drop import r_drop_cross_entropy, twice
from seq2seq_attn.training.reinforce import Reinforce, drawn_loss
from seq2seq_attn.training.scheduled_sampling import ScheduledSampling
from seq2seq_attn.training.token_dropout import drop_tokens
from seq2seq_attn.training.update_mean import UpdateMean

MEANS = ("loss", "nll", "accuracy")  # over target tokens; beside the text metrics


@final
class TranslationModule(pl.LightningModule):
    """Logs `train/loss`, and `loss`, `ppl`, `accuracy` and every other metric under `val/` and each test set's name.

    Losses are nats per target token, end token included; `ppl` is exp of the unsmoothed one, `accuracy` the
    share of tokens that the model ranks first, given the reference up to there. A language model also has
    `nats_per_token`, `bits_per_token` and `bits_per_character`, in which each line has one character for its end; a
    simultaneous translation has `average_lagging`, a mean over sentences.

    All of them, and the gradients, are means over the tokens of every process, and `train/loss` over those of all
    batches that an update accumulates: n processes, or n accumulated batches, train as one batch of all their
    sentences would. Figures of evaluation are the same to the last digit, however many processes share the batches.

    Args:
        model: an ensemble can be tested, but not trained.
        metrics: text metrics, and the alignment error rate, by name, copied for every set that is scored.
        optimizer, scheduler: partials; a scheduler that names `total_steps` is given the run's length, and an
            optimizer that names `hidden_matrices` those of the model. None where nothing is trained.
        config: plain dict from which the model was built; it goes into the checkpoint, and so does the
            tokenizer, so that a checkpoint alone is enough to translate.
        translates: whether sentences are translated and scored by the metrics; False for one-sided text, which has
            losses alone.
        scheduled_sampling: which tokens the decoder reads in training; None: the true ones.
        guided_alignment: the loss of a batch's links, which is logged as `alignment_loss`; None: there is none.

    Attributes:
        translations: hypothesis by row, for each test set scored; of all processes, once the test is over.
        figures, signatures: of all metrics and of the text metrics, by set and name, as last computed.
        parent: what identifies the checkpoint that the first weights are from; None: they were drawn.
        resumed_at: where a resumed run continues.
        first_groups: options of the optimizer's groups before the first update, with those of the schedule.
        decode_seconds, entropy: of the test sets: time spent in the search, of the slowest process, and the mean
            entropy of a target token's attention, in nats, of all processes; NaN before a test.
    """

    model: Any  # as the argument; what trains it reads parts that an ensemble lacks

    def __init__(
        self,
        *,
        model: EncoderDecoder | Ensemble,
        tokenizer: SentencePieceTokenizer,
        search: Search,
        metrics: dict[str, ChosenMetric],
        test_names: list[str],
        label_smoothing: float,
        config: dict[str, Any],
        optimizer: partial[Any] | None = None,
        scheduler: partial[Any] | None = None,
        r_drop_alpha: float = 0.0,
        token_dropout: dict[str, float] | None = None,
        guided_alignment: GuidedAlignment | None = None,
        translates: bool = True,
        scheduled_sampling: ScheduledSampling | None = None,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.search = model, tokenizer, search
        self.optimizer, self.scheduler = optimizer, scheduler
        self.label_smoothing, self.config = label_smoothing, config
        self.r_drop_alpha, self.token_dropout = r_drop_alpha, token_dropout or {"source": 0.0, "target": 0.0}
        self.scheduled_sampling = scheduled_sampling
        self.guided_alignment, self.alignment_loss = guided_alignment, TokenMean()
        self.translates = translates
        means = MEANS if model.reads_source else (*MEANS, "bits_per_character")
        self.waiting = waiting_patterns(model) if translates else []
        lagging = ("average_lagging",) if self.waiting else ()
        self.metrics = nn.ModuleDict(
            {
                stage: nn.ModuleDict(
                    {name: TokenMean() for name in means}
                    | {n: m.clone() for n, m in metrics.items() if stage in test_names or not m.scores_whole_test}
                    | {name: TokenMean() for name in lagging}
                )
                for stage in ["val", *test_names]
            }
        )
        self.test_names = test_names
        self.tested: list[str] = []  # of them, so far
        self.attention_entropy = TokenMean()
        self.entropy = math.nan
        self.resumed_at: Position | None = None
        self.planned_steps: int | float | None = None  # of a schedule, once it is made
        self.first_groups: list[dict[str, Any]] = []
        self.reinforce = Reinforce(momentum=0.9)
        self.update_mean = UpdateMean()
        self.translations: dict[str, dict[int, str]] = {}
        self.decode_seconds = 0.0
        self.figures: dict[str, dict[str, float]] = {}
        self.signatures: dict[str, dict[str, str]] = {}
        self.validated_step = -1
        self.parent: dict[str, Any] | None = None

    def on_train_start(self) -> None:
        """Log at least once an epoch and a training, however few updates it has."""
        trainer: Any = self.trainer
        updates = [-(-trainer.num_training_batches // trainer.accumulate_grad_batches), trainer.max_steps]
        trainer.log_every_n_steps = min(trainer.log_every_n_steps, *(number for number in updates if number > 0))

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Forget a stop that `trainer.min_epochs` or `min_steps` has put off, so that early stopping decides anew.

        Lightning would stop once they are reached, whatever has improved until then. Private of Lightning 2.6.6.
        """
        trainer: Any = self.trainer
        trainer.should_stop = trainer.should_stop and trainer.fit_loop._can_stop_early

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        batch = self.training_batch(batch)
        loss, decoded = self.loss(batch)
        accumulated = self.trainer.accumulate_grad_batches
        begin = batch_idx % accumulated == 0
        alignment = None if decoded.alignment_loss is None else decoded.alignment_loss.sum()
        self.update_mean.add(loss.smoothed, loss.tokens, self.parameters(), begin=begin, alignment=alignment)
        self.log("train/loss", self.update_mean.mean(), batch_size=loss.tokens)
        divisor = self.update_mean.divisor(accumulated)
        drawn = drawn_loss(self.reinforce, batch, loss.loss_by_token, decoded)
        mean = loss.smoothed / divisor
        if alignment is not None:
            assert self.guided_alignment is not None
            self.log("train/alignment_loss", self.update_mean.alignment_mean(), batch_size=loss.tokens)
            mean = mean + self.guided_alignment.weight * alignment / divisor
        return mean if drawn is None else mean + drawn / divisor

    def training_batch(self, batch: Batch) -> Batch:
        """Return what a training step reads: the batch, for R-Drop twice, with the tokens that are replaced."""
        batch = twice(batch) if self.r_drop_alpha > 0 else batch
        if self.scheduled_sampling is not None:
            batch = self.scheduled_sampling.replace_tokens(batch, self.model, self.global_step)
        tokenizer = self.tokenizer
        return drop_tokens(
            batch, self.token_dropout, unk_id=tokenizer.unk_id, kept=(tokenizer.bos_id, tokenizer.eos_id)
        )

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clip as Lightning does, which refuses a fused optimizer with bfloat16 too, where no scaler is in the way."""
        precision: Any = self.trainer.precision_plugin
        if not isinstance(precision, MixedPrecision) or not gradient_clip_val:
            return self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        if precision.scaler is None:
            how = GradClipAlgorithmType(gradient_clip_algorithm or "norm")
            return Precision.clip_gradients(precision, optimizer, gradient_clip_val, how)
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            raise UserError(
                f"trainer.precision={precision.precision} scales gradients, and a fused optimizer knows their size too "
                "late to clip them; use optimizer.fused=false, or trainer.precision=bf16-mixed"
            )
        return self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Free the gradients after the step, before the next batch's activations take memory."""
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        optimizer.zero_grad()

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Log the learning rate of an update that is logged, and its epoch."""
        if (self.trainer.global_step + 1) % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            self.log("lr", optimizer.param_groups[0]["lr"], batch_size=1)
            self._log_epoch()

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Log the epoch of the update that a time limit makes the last: its figures are logged whatever its number."""
        if self.trainer.should_stop:
            self._log_epoch()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if len(batch) > 0:
            self._evaluate(batch, "val")

    def on_validation_epoch_end(self) -> None:
        self._log_metrics("val")
        trainer: Any = self.trainer
        if "val" in trainer.datamodule.links:
            self.log("val/alignment_loss", self.alignment_loss.compute())
            self.alignment_loss.reset()
        self.validated_step = self.trainer.global_step
        self.lower_rate()

    def on_test_start(self) -> None:
        self.translations = {name: {} for name in self.test_names}
        self.tested = []
        self.decode_seconds = 0.0
        self.attention_entropy.reset()

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        if len(batch) == 0:
            return
        name = self.test_names[dataloader_idx]
        hypotheses, decoded = self._evaluate(batch, name, need_weights=self.translates)
        if not self.translates:
            return
        self.translations[name] |= dict(zip(batch.index.tolist(), hypotheses, strict=True))
        for slot, weights in decoded.weights.items():
            if slot.startswith("cross/"):
                entropy = torch.special.entr(weights.float()).sum(-1).mean(1)
                self.attention_entropy.update(entropy[batch.target_mask])

    def on_test_epoch_end(self) -> None:
        shares = gather_from_ranks((self.translations, self.decode_seconds))
        self.decode_seconds = max(seconds for _, seconds in shares)
        self.entropy = float(self.attention_entropy.compute())
        for name in self.test_names:
            self.translations[name] = {
                row: text for translations, _ in shares for row, text in translations[name].items()
            }
            self._score_whole_test(name)
            self._log_metrics(name)
            self.tested.append(name)

    def translate(self, batch: Batch) -> list[list[int]]:
        """Return the token ids of the search's translations of a batch; an empty source has the empty one."""
        if batch.source.is_cuda:
            torch.cuda.synchronize()  # what is still to do of the loss is no part of the search
        started = time.perf_counter()
        hypotheses = self.search(self.model, batch.source, batch.source_mask, TargetVocabulary.of(self.tokenizer))
        self.decode_seconds += time.perf_counter() - started
        is_text = (batch.source_lengths > 1).tolist()  # beside the end token
        return [best.token_ids if text else [] for text, (best, *_) in zip(is_text, hypotheses, strict=True)]

    @property
    def epoch_number(self) -> int:
        """The number, from 1, of the epoch that is being trained or was trained last.

        Lightning's `current_epoch` counts from 0, and is one higher after a last epoch that `max_steps` cuts short, but
        not after this run was resumed.
        """
        trainer: Any = self.trainer
        return int(trainer.fit_loop.epoch_progress.current.started)

    def stage_metrics(self, stage: str) -> dict[str, Any]:
        """Return the metrics by name: the means, then the others."""
        metrics: Any = self.metrics[stage]
        return dict(metrics.items())

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the groups of what is trained, with the options that the optimizer has for them alone."""
        assert self.optimizer is not None
        return parameter_groups(self.model, self.config.get("parameter_groups", []), self.optimizer)

    def configure_optimizers(self) -> Any:
        assert self.optimizer is not None
        assert self.scheduler is not None
        groups = self.parameter_groups()
        if "hidden_matrices" in named_arguments(self.optimizer):
            matrices = [matrix for matrix in hidden_matrices(self.model) if matrix.requires_grad]
            if not matrices:
                raise UserError(
                    "optimizer=muon finds no matrix of a linear or recurrent layer to train; use optimizer=adamw"
                )
            optimizer = self.optimizer(groups[0]["params"], hidden_matrices=matrices)
        else:
            optimizer = self.optimizer(groups)
        if "total_steps" in named_arguments(self.scheduler):
            self.planned_steps = run_length(self.trainer, self.resumed_at)
            assert math.isfinite(self.planned_steps)  # any other run is refused
            scheduler = self.scheduler(optimizer, total_steps=self.planned_steps)
        else:
            scheduler = self.scheduler(optimizer)
        self.first_groups = [without_parameters(group) for group in optimizer.param_groups]
        if isinstance(scheduler, ReduceLROnPlateau):  # Lightning counts epochs, and `lower_rate` counts validations
            how = {"scheduler": scheduler, "monitor": self.config["monitor"], "frequency": sys.maxsize}
        else:
            how = {"scheduler": scheduler, "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": how}

    def lower_rate(self) -> None:
        """Give the figure of a validation within training to a plateau schedule; all ranks take that of the first.

        The checkpoints of this validation are written afterwards, so they include it.
        """
        trainer: Any = self.trainer
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        for followed in trainer.lr_scheduler_configs:
            if isinstance(followed.scheduler, ReduceLROnPlateau):
                figure = float(trainer.callback_metrics[followed.monitor])
                followed.scheduler.step(trainer.strategy.broadcast(figure))

    @property
    def total_steps(self) -> int | float:
        """The updates of the whole run, for which its schedule was made."""
        return run_length(self.trainer, self.resumed_at) if self.planned_steps is None else self.planned_steps

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["format"] = FORMAT
        checkpoint["config"] = self.config
        checkpoint["tokenizer"] = self.tokenizer.get_state()
        if self.parent is not None:
            checkpoint["parent"] = self.parent

    def loss(self, batch: Batch, need_weights: bool = False, count_correct: bool = False) -> tuple[Loss, Decoded]:
        """Return the loss of a batch and the decoder's output."""
        if isinstance(self.model, Ensemble):
            members: Any = list(self.model.members)
            return ensemble_cross_entropy(members, batch, self.label_smoothing, need_weights=need_weights)
        guide = None
        if batch.links is not None and self.guided_alignment is not None:
            guide = self.guided_alignment.guide(self.model, batch)
        decoded = self.model(
            batch.source, batch.source_mask, batch.target_input, need_weights=need_weights, guide=guide
        )
        # Padding is left out before the output layer, which is half of an update's work.
        hidden, target = decoded.hidden[batch.target_mask], batch.target_output[batch.target_mask]
        hidden = as_autocast(hidden)  # that of a LayerNorm is in float32 on a GPU
        output = self.model.output
        layer = (hidden, output.weight, output.bias, target, self.label_smoothing)
        if self.training and self.r_drop_alpha > 0:
            return r_drop_cross_entropy(*layer, self.r_drop_alpha), decoded
        loss = label_smoothed_cross_entropy(*layer, count_correct=count_correct)
        return loss, decoded

    def _evaluate(self, batch: Batch, stage: str, need_weights: bool = False) -> tuple[list[str], Decoded]:
        """Read and translate a batch, and update the metrics; return the translations and the decoder's output."""
        loss, decoded = self.loss(batch, need_weights, count_correct=True)
        if decoded.alignment_loss is not None:
            self.alignment_loss.update(decoded.alignment_loss.sum() / loss.tokens, weight=loss.tokens)
        token_ids = self.translate(batch) if self.translates else []
        hypotheses = self.tokenizer.decode_target(token_ids) if self.translates else []
        self._update_metrics(stage, batch, loss, token_ids, hypotheses)
        return hypotheses, decoded

    def _update_metrics(
        self, stage: str, batch: Batch, loss: Loss, token_ids: list[list[int]], hypotheses: list[str]
    ) -> None:
        """Give a batch to all metrics but those that want a whole test set at once.

        Args:
            token_ids, hypotheses: its translations; empty if sentences are not translated.
        """
        assert loss.correct is not None
        correct = loss.correct.double()  # or the quotient would have torch's default type: 8 bits in bf16-true
        sums = dict(zip(MEANS, (loss.smoothed, loss.nll, correct), strict=True))
        trainer: Any = self.trainer
        split = trainer.datamodule.corpus.splits[stage]
        references = [split.references[i] for i in batch.index.tolist()]
        for name, metric in self.stage_metrics(stage).items():
            if name in MEANS:
                metric.update(sums[name] / loss.tokens, weight=loss.tokens)
            elif name == "bits_per_character":
                characters = sum(len(split.targets[i]) + 1 for i in batch.index.tolist())
                metric.update(loss.nll / math.log(2) / characters, weight=characters)
            elif name == "average_lagging" and self.waiting:
                metric.update(self._lagging(batch.source_lengths.tolist(), token_ids))
            elif isinstance(metric, TextMetric) and not metric.scores_whole_test:
                metric.update(hypotheses, references)

    def _lagging(self, source_lengths: list[int], token_ids: list[list[int]]) -> Tensor:
        """Return the Average Lagging of each translation; its end token counts, as that of the source does."""
        pairs = zip(source_lengths, token_ids, strict=True)
        laggings = [average_lagging(tokens_read(self.waiting, n, len(target) + 1), n) for n, target in pairs]
        return torch.tensor(laggings, dtype=torch.float64)

    def _score_whole_test(self, name: str) -> None:
        """Give all sentences of a test set to the metrics that want them at once, on the first rank; others wait."""
        trainer: Any = self.trainer
        rows, split = sorted(self.translations[name]), trainer.datamodule.corpus.splits[name]
        metrics = [one for one in self.stage_metrics(name).values() if isinstance(one, TextMetric)]
        metrics = [metric for metric in metrics if metric.scores_whole_test]
        with others_wait() if metrics else nullcontext():
            for metric in metrics if trainer.is_global_zero else ():
                hypotheses = [self.translations[name][row] for row in rows]
                metric.update(hypotheses, [split.references[row] for row in rows], [split.sources[row] for row in rows])

    def _log_metrics(self, stage: str) -> None:
        # If training validates on a share, the whole set is tested as "val", which is no point of that curve.
        logger = False if stage == "val" and self.trainer.testing else None
        shown = ("val/loss", self.config.get("monitor"))
        figures, signatures = self.figures.setdefault(stage, {}), self.signatures.setdefault(stage, {})
        if logger is None:
            self._log_epoch()
        for name, metric in self.stage_metrics(stage).items():
            if isinstance(metric, TextMetric) and metric.scores_whole_test and not self.trainer.testing:
                continue  # of the test of the whole validation set
            if isinstance(metric, AER):
                metric.update(self.model, self.tokenizer, self.config)
            value = metric.compute()
            if isinstance(metric, TextMetric):
                signatures[name] = metric.signature()
            for figure, number in self._figures(name, value).items():
                figures[figure] = float(number)
                self.log(f"{stage}/{figure}", number, prog_bar=f"{stage}/{figure}" in shown, logger=logger)
            metric.reset()

    def _figures(self, name: str, value: Tensor) -> dict[str, Tensor]:
        """Return what is logged of a metric, by name."""
        if name != "nll":
            return {name: value}
        per_token = {} if self.model.reads_source else {"nats_per_token": value, "bits_per_token": value / math.log(2)}
        return {"ppl": value.exp()} | per_token

    def _log_epoch(self) -> None:
        """Log the epoch, which Lightning would otherwise add with a count from 0."""
        self.log("epoch", float(self.epoch_number), batch_size=1)
