"""One trainer for every model, whose runs resume to the bit.

Chapter: Training.
"""

__all__ = ["rate_factor", "Trainer"]

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from transformer_lib.data.batching import Batch
from transformer_lib.models.loss import Loss, add_up
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.distributed import process, total
from transformer_lib.training.run_state import RunState, skipping


def rate_factor(step: int, config: TrainingConfig, total: int) -> float:
    """The learning rate at update ``step`` of ``total``, as a share of the highest.

    Updates count from 1.

    Source: Vaswani et al. (2017), eq. 3.
    """
    warmup = max(config.warmup, 1)
    if step < warmup:
        return step / warmup
    factor = 1.0
    if config.schedule == "inverse-sqrt":
        factor = math.sqrt(warmup / step)
    if config.schedule == "linear":
        factor = (total + 1 - step) / (total + 1 - warmup)
    if config.cooldown:
        fall = config.cooldown * total / config.epochs
        factor *= min(1.0, (total + 1 - step) / (fall + 1))
    return max(0.0, factor)


class Trainer(RunState):
    """Trains a model from the weights it has, and can be stopped and resumed.

    A resumed run ends as if it had never been stopped, on a CPU to the bit. The folder keeps
    ``last.safetensors`` (all it takes to go on), ``best.safetensors`` (the weights
    with the lowest validation loss), ``epoch-N.safetensors`` and their mean
    ``averaged.safetensors``, and ``log.jsonl``. In a process group, all processes
    make one update together.
    """

    def update(self, group: Sequence[Batch]) -> Tensor:
        """One update with the mean gradient over some batches; their mean loss.

        Over all target tokens; of several processes, each sees its share of the loss.
        """
        self.model.train()
        self.seed_dropout()
        n_tokens = total(sum(batch.n_tokens for batch in group))[0]
        share = process()[1] / n_tokens  # processes average their gradients
        loss = torch.zeros((), device=self.device)
        for batch in self.in_turn(group):
            part = self.batch_loss(batch).sum * share
            part.backward()
            loss += part.detach()
        clip = self.config.clip or math.inf
        norm = nn.utils.clip_grad_norm_(self.parameters, clip)
        bad = self.record(loss / share, int(n_tokens), norm)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = self.learning_rate()
        with skipping(self.optimizer, bad):
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.advance(len(group))
        return loss

    def batch_loss(self, batch: Batch) -> Loss:
        """The loss of a batch, in the precision of the configuration."""
        bfloat16 = self.config.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bfloat16):
            return self.objective(batch.to(self.device, non_blocking=True))

    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        config, progress = self.config, self.progress
        peak = config.learning_rate
        if peak is None:
            peak = (self.model.config.d_model * config.warmup) ** -0.5
        factor = rate_factor(progress.step + 1, config, self.total)
        return peak * progress.lr_scale * factor

    def fit(
        self,
        report: Callable[[str], None] | None = None,
        save_every: int = 500,
        progress_bar: bool = False,
        watch: Callable[[Tensor], bool | None] | None = None,
    ) -> bool:
        """Train to the end; False if the run was stopped early.

        Ctrl-C, SIGTERM and ``watch`` stop a run, which saves it if it has a folder.

        Args:
            report: gets a line for every epoch.
            watch: gets the mean loss of every update, and may return True to stop.
        """
        with self.running() as interrupt:
            while not self.finished():
                for group in self.groups(progress_bar):
                    loss = self.update(group)
                    stop = bool(watch and watch(loss)) or interrupt.requested
                    if self.stopping(stop, save_every):
                        return False
                line = self.close_epoch(self.evaluate())
                if report:
                    report(line)
        self.average_epochs()
        return True

    @torch.no_grad()
    def evaluate(self) -> float:
        """The mean validation loss per target token, in nats.

        With the averaged weights, if there are any.
        """
        losses = []
        with self.averaged():
            self.model.eval()
            for batch in self.validation_batches:
                batch = batch.to(self.device, non_blocking=True)
                losses.append(self.objective(batch))
        loss, n_tokens = total(*add_up(losses))
        return loss / n_tokens
