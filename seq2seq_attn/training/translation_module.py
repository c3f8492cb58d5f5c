"""The Lightning module: a training step, a validation and a test of a translation model."""

from __future__ import annotations

import math
import sys
import time
from functools import partial
from typing import Any, final

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision, Precision
from pytorch_lightning.utilities import GradClipAlgorithmType
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seq2seq_attn.batch import Batch
from seq2seq_attn.checkpoint.load import FORMAT
from seq2seq_attn.checkpoint.run_length import Position, run_length
from seq2seq_attn.decoder.decoder import Decoded
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import named_arguments
from seq2seq_attn.metric.aer import AER
from seq2seq_attn.metric.average_lagging import waiting_patterns
from seq2seq_attn.metric.chosen_metric import ChosenMetric
from seq2seq_attn.metric.token_mean import TokenMean
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble, members_of
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
from seq2seq_attn.training.scores import Scores
from seq2seq_attn.training.token_dropout import drop_tokens
from seq2seq_attn.training.update_mean import UpdateMean


@final
class TranslationModule(pl.LightningModule):
    """Logs `train/loss`, in nats per target token, and the figures of `Scores` under `val/` and each test set's name.

    That loss and the gradients are means over the tokens of every process and of all batches that an update
    accumulates: n processes, or n accumulated batches, train as one batch of all their sentences would.

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
        scores: what validations and tests have found.
        parent: what identifies the checkpoint that the first weights are from; None: they were drawn.
        resumed_at: where a resumed run continues.
        first_groups: options of the optimizer's groups before the first update, with those of the schedule.
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
        waiting = waiting_patterns(model) if translates else []
        self.scores = Scores(metrics, test_names, reads_source=model.reads_source, waiting=waiting)
        self.test_names = test_names
        self.resumed_at: Position | None = None
        self.planned_steps: int | float | None = None  # of a schedule, once it is made
        self.first_groups: list[dict[str, Any]] = []
        self.reinforce = Reinforce(momentum=0.9)
        self.update_mean = UpdateMean()
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
        self._log_scores("val")
        trainer: Any = self.trainer
        if "val" in trainer.datamodule.links:
            self.log("val/alignment_loss", self.alignment_loss.compute())
            self.alignment_loss.reset()
        self.validated_step = self.trainer.global_step
        self.lower_rate()

    def on_test_start(self) -> None:
        self.scores.start_test()

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        if len(batch) == 0:
            return
        name = self.test_names[dataloader_idx]
        hypotheses, decoded = self._evaluate(batch, name, need_weights=self.translates)
        if self.translates:
            self.scores.keep(name, batch, hypotheses, decoded)

    def on_test_epoch_end(self) -> None:
        trainer: Any = self.trainer
        self.scores.gather()
        for name in self.test_names:
            split = trainer.datamodule.corpus.splits[name]
            self.scores.score_whole_set(name, split, is_first=trainer.is_global_zero)
            self._log_scores(name)
            self.scores.tested.append(name)

    def translate(self, batch: Batch) -> list[list[int]]:
        """Return the token ids of the search's translations of a batch; an empty source has the empty one."""
        if batch.source.is_cuda:
            torch.cuda.synchronize()  # what is still to do of the loss is no part of the search
        started = time.perf_counter()
        hypotheses = self.search(self.model, batch.source, batch.source_mask, TargetVocabulary.of(self.tokenizer))
        self.scores.decode_seconds += time.perf_counter() - started
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
            members = members_of(self.model)
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
        """Read, translate and score a batch; return the translations and the decoder's output."""
        loss, decoded = self.loss(batch, need_weights, count_correct=True)
        if decoded.alignment_loss is not None:
            self.alignment_loss.update(decoded.alignment_loss.sum() / loss.tokens, weight=loss.tokens)
        token_ids = self.translate(batch) if self.translates else []
        hypotheses = self.tokenizer.decode_target(token_ids) if self.translates else []
        trainer: Any = self.trainer
        self.scores.update(stage, batch, trainer.datamodule.corpus.splits[stage], loss, token_ids, hypotheses)
        return hypotheses, decoded

    def _log_scores(self, stage: str) -> None:
        """Log the figures of a validation or a test, which is over."""
        is_test = bool(self.trainer.testing)
        # If training validates on a share, the whole set is tested as "val", which is no point of that curve.
        logger = False if stage == "val" and is_test else None
        if logger is None:
            self._log_epoch()
        shown = ("val/loss", self.config.get("monitor"))
        for metric in self.scores.metrics_of(stage).values():
            if isinstance(metric, AER):
                metric.update(self.model, self.tokenizer, self.config)
        for name, figure in self.scores.compute(stage, is_test=is_test).items():
            self.log(f"{stage}/{name}", figure, prog_bar=f"{stage}/{name}" in shown, logger=logger)

    def _log_epoch(self) -> None:
        """Log the epoch, which Lightning would otherwise add with a count from 0."""
        self.log("epoch", float(self.epoch_number), batch_size=1)
