"""One trainer for every model, whose runs resume to the bit.

Chapter: Training.
"""

__all__ = ["Trainer", "rate_factor"]

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from transformer_lib.data.batching import Batch, Example
from transformer_lib.data.files import write_atomically
from transformer_lib.models.loss import Loss, add_up
from transformer_lib.models.seq2seq import Seq2Seq, plain_names, unwrapped
from transformer_lib.training.checkpoints import average_run, load_tensors, load_weights, save_tensors
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.distributed import process, share, total, whole, whole_weights
from transformer_lib.training.loss import r_drop_loss
from transformer_lib.training.run_state import (
    Interrupt,
    LossFunction,
    Objective,
    Progress,
    completed,
    fingerprint,
    own_loss,
    own_random_state,
    parallel,
    plain,
    settings_of,
    skipping,
    steady,
)
from transformer_lib.training.transforms import Transform, batch_loader


def rate_factor(step: int, config: TrainingConfig, total: int) -> float:
    """The learning rate at update ``step`` of ``total``, as a share of the highest.

    Updates count from 1.

    Source: Vaswani et al. (2017), eq. 3.
    """
    warmup = max(config.warmup, 1)
    factor = 1.0
    if step < warmup:
        factor = step / warmup
    elif config.schedule == "inverse-sqrt":
        factor = math.sqrt(warmup / step)
    elif config.schedule == "linear":
        factor = (total + 1 - step) / (total + 1 - warmup)
    if config.cooldown:
        fall = min(config.cooldown, config.epochs) * total / config.epochs
        factor *= min(1.0, (total + 1 - step) / (fall + 1))
    return max(0.0, factor)


class Trainer:
    """Trains a model from the weights it has, and can be stopped and resumed.

    A resumed run ends as if it had never been stopped, on a CPU to the bit. The folder keeps ``last.safetensors`` (all
    it takes to go on), ``best.safetensors`` (the weights with the lowest validation loss), ``epoch-N.safetensors`` and
    their mean ``averaged.safetensors``, and ``log.jsonl``. In a process group, all processes make one update together,
    and only rank 0 writes.

    Args:
        loss: returns the sum over the target tokens of a batch, and their number; None for ``model.loss``, or for
            R-Drop if the configuration asks for it.
        transforms: what changes the training examples, such as noise; see ``training.transforms``.
        optimizer: None for Adam, and with ``shard=True``. The schedule sets its learning rate.

    Raises:
        ValueError: if every parameter is frozen, the optimizer holds parameters of another model, nothing follows the
            warm-up, R-Drop would replace the model's own loss, or there is no learning rate and no ``config.d_model``.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Sequence[Example],
        validation: Sequence[Example],
        config: Any,
        folder: Path | str | None = None,
        *,
        loss: LossFunction | None = None,
        transforms: Sequence[Transform] = (),
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.model, self.config, self.progress = unwrapped(model), config, Progress()
        self.train, self.validation = train, validation
        self.folder = None if folder is None else Path(folder)
        self.device = next(model.parameters()).device
        if config.consistency and not loss and getattr(type(self.model), "loss", Seq2Seq.loss) is not Seq2Seq.loss:
            raise ValueError(f"consistency={config.consistency} would replace {type(self.model).__name__}'s own loss")
        if config.learning_rate is None and not hasattr(getattr(self.model, "config", None), "d_model"):
            raise ValueError("learning_rate=None is the paper's, for a model with config.d_model: choose a number")
        r_drop = partial(r_drop_loss, smoothing=config.smoothing, weight=config.consistency)
        default = r_drop if config.consistency else own_loss(config.smoothing)
        self.objective = parallel(Objective(model, loss or default), config)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError("every parameter is frozen")
        adam = partial(torch.optim.Adam, lr=0.0, betas=config.betas, eps=config.eps, fused=True)
        self.optimizer = optimizer or adam(self.parameters)
        self._names = {id(p): name for name, p in plain_names(dict(self.model.named_parameters())).items()}
        if any(id(p) not in self._names for p in self._held()):
            raise ValueError("the optimizer holds parameters of another model")
        self.batches = batch_loader(train, config, model, transforms, self.device, shuffle=True)
        self.validation_batches = batch_loader(validation, config, model, (), self.device)
        self.total = config.epochs * math.ceil(len(self.batches) / config.accumulate)
        if config.warmup >= self.total:
            raise ValueError(f"warmup={config.warmup} must be less than the {self.total} updates")
        # not AveragedModel, which copies the module: a sharded one cannot be copied
        self.ema = [p.detach().clone() for p in self.parameters] if config.ema else None
        self.loss = torch.zeros((), device=self.device)  # not yet in the progress
        # the first update whose gradient was not finite
        self.first_bad = torch.full_like(self.loss, math.inf)
        self.clock, self._fingerprint = time.perf_counter(), ""
        # a checksum of the configuration that the weights belong to
        self.translator: str | None = None

    def _held(self) -> list[nn.Parameter]:
        """The optimizer's parameters in its order, by which a checkpoint counts them."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    # ------------------------------------------------------------ training

    def update(self, group: Sequence[Batch]) -> Tensor:
        """One update with the mean gradient over some batches; their mean loss.

        Over all target tokens; of several processes, each sees its share of the loss.
        """
        self.model.train()
        self.model.zero_grad()  # of an update that failed, and of what the optimizer does not hold
        self.seed_dropout()
        n_tokens = total(sum(batch.n_tokens for batch in group))[0]
        share = process()[1] / n_tokens  # processes average their gradients
        loss = torch.zeros((), device=self.device)
        for batch in self.in_turn(group):
            part = self.batch_loss(batch).sum * share
            part.backward()
            loss += part.detach()
        clip = self.config.clip or math.inf
        held = set(map(id, self._held()))
        norm = nn.utils.clip_grad_norm_([p for p in self.parameters if id(p) in held], clip)
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
            peak = (self.model.config.d_model * config.warmup) ** -0.5  # type: ignore[union-attr]
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
        if save_every < 1:
            raise ValueError(f"{save_every=} must be at least 1")
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

    # ------------------------------------------------------------ during an epoch

    def groups(self, progress_bar: bool = False) -> Iterator[list[Batch]]:
        """The rest of this epoch, in groups of the batches whose gradients are added up for one update."""
        progress, data = self.progress, self.batches.dataset
        sampler: Any = self.batches.batch_sampler
        sampler.epoch = data.epoch = progress.epoch  # type: ignore[attr-defined]
        sampler.start = done = progress.batch
        label, silent = f"epoch {progress.epoch + 1}", not progress_bar or process()[0] > 0
        bar = tqdm(self.batches, label, len(sampler), False, initial=done, unit=" batches", disable=silent)
        batches = iter(bar)
        while group := list(islice(batches, self.config.accumulate)):
            yield group

    def in_turn(self, group: Sequence[Batch]) -> Iterator[Batch]:
        """The batches of an update. With DDP, processes exchange gradients only at the last of them.

        With sharding they do so at each, because none of them has room for all gradients.
        """
        for number, batch in enumerate(group, start=1):
            objective: Any = self.objective
            waits = hasattr(objective, "no_sync") and number < len(group)
            with objective.no_sync() if waits else nullcontext():
                yield batch

    def seed_dropout(self) -> None:
        """Random numbers of an update, the same when the run is resumed."""
        draw = random.Random(f"{self.config.seed} {self.progress.step} {process()[0]}")
        torch.manual_seed(draw.getrandbits(63))

    def advance(self, batches: int) -> None:
        """Count an update, and move the running average."""
        progress = self.progress
        progress.step, progress.batch = progress.step + 1, progress.batch + batches
        if self.ema is not None:
            decay = min(self.config.ema, progress.step / (progress.step + 10))
            torch._foreach_lerp_(self.ema, [p.data for p in self.parameters], 1 - decay)

    def record(self, loss: Tensor, n_tokens: int, norm: Tensor) -> Tensor:
        """Note the loss of an update; whether its gradient is not finite, in which case it must not be made.

        Raises:
            ValueError: for such an update: at once on a CPU; on a GPU, which does not wait, at the next save.
        """
        bad = ~whole(norm).isfinite()
        self.loss += loss
        update = torch.full_like(self.first_bad, self.progress.step + 1)
        self.first_bad = torch.where(bad.to(self.device), self.first_bad.minimum(update), self.first_bad)
        self.progress.tokens += n_tokens
        if (bad.device.type == "cpu" or not self.optimizer.defaults.get("fused")) and bad:
            self.flush()
        return bad

    def flush(self) -> None:
        """Read the sums from the device; this is what makes the host wait."""
        loss, first_bad = torch.stack([self.loss, self.first_bad]).tolist()
        self.progress.loss += total(loss)[0]
        self.loss.zero_()
        now = time.perf_counter()
        self.progress.seconds, self.clock = self.progress.seconds + now - self.clock, now
        if first_bad < math.inf:
            self.optimizer.zero_grad()
            raise ValueError(f"update {first_bad:.0f}: the gradient is not finite: try a lower learning rate")

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A block in which the model has its averaged weights, if there is a running average."""

        @torch.no_grad()
        def swap() -> None:
            for parameter, average in zip(self.parameters, self.ema or (), strict=False):
                current = parameter.clone()
                parameter.copy_(average)
                average.copy_(current)

        swap()
        try:
            yield
        finally:
            objective: Any = self.objective
            if hasattr(objective, "reshard"):
                objective.reshard()  # FSDP2 itself does this only after a backward pass
            swap()

    # ------------------------------------------------------------ epochs

    def finished(self) -> bool:
        """True if all epochs are done, or patience has run out."""
        patience = math.inf if self.config.patience is None else self.config.patience
        return self.progress.epoch >= self.config.epochs or self.progress.bad_epochs >= patience

    def begin(self) -> None:
        """Save before the first update, so that there is always something to resume from.

        Raises:
            ValueError: if the folder holds a run that has begun and was not resumed.
        """
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32
        self.clock = time.perf_counter()
        if self.folder is None or self.progress.step:
            return
        last = self.folder / "last.safetensors"
        if last.exists() and load_tensors(last)[1].get("progress", {}).get("step"):
            raise ValueError(f"{last} is of a run that has begun: resume(), or take another folder")
        self.save()

    @contextmanager
    def running(self) -> Iterator[Interrupt]:
        """A block in which Ctrl-C and SIGTERM are noticed, and after which random numbers go on as before."""
        self.begin()
        with Interrupt() as interrupt, own_random_state(self.device):
            yield interrupt

    def stopping(self, stop: bool, save_every: int) -> bool:
        """Whether any process wants to stop; saves then, and every so many updates."""
        stop = total(float(stop))[0] > 0
        if stop or self.progress.step % save_every == 0:
            self.save()
        return stop

    def close_epoch(self, measured: float) -> str:
        """Log an epoch, keep its weights, and slow down if the schedule says so; the line to report."""
        self.flush()
        config, progress = self.config, self.progress
        line = {
            "epoch": progress.epoch + 1,
            "updates": progress.step,
            "loss": round(progress.loss / progress.tokens, 4),
            "validation_loss": round(measured, 4),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "target_tokens_per_second": round(progress.tokens / progress.seconds),
            "seconds": round(progress.seconds, 1),
        }
        better = measured < progress.best
        progress.best = min(progress.best, measured)  # which NaN never is
        progress.bad_epochs = 0 if better else progress.bad_epochs + 1
        if config.schedule == "plateau" and not better:
            progress.lr_scale /= 2
        progress.epoch, progress.batch = progress.epoch + 1, 0
        progress.loss, progress.tokens, progress.seconds = 0.0, 0, 0.0
        progress.log.append(line)
        self._keep(line, better)
        self.clock = time.perf_counter()
        return (
            f"epoch {line['epoch']}: loss {line['loss']:.3f}, validation {measured:.3f} "
            f"(perplexity {math.exp(min(measured, 700)):.2f}), {line['target_tokens_per_second']} tokens/s, "
            f"{line['seconds']:.0f} s{'  (best)' if better else ''}"
        )

    def _keep(self, line: dict[str, Any], better: bool) -> None:
        """The files of an epoch; ``last`` comes after the rest, so that a kill in between is harmless."""
        if self.folder is None:
            return
        names = ["best"] if better else []
        if self.config.average:
            names.append(f"epoch-{self.progress.epoch}")
        with self.averaged():
            weights = whole_weights(self.model) if names else {}
            for name in names if process()[0] == 0 else ():
                notes = line | {"translator": self.translator}
                save_tensors(self.folder / f"{name}.safetensors", weights, notes)
        if process()[0] == 0:
            log = "".join(json.dumps(entry) + "\n" for entry in self.progress.log)
            write_atomically(self.folder / "log.jsonl", log.encode())
            (self.folder / "averaged.safetensors").unlink(missing_ok=True)  # of fewer epochs
        self._write(self.folder / "last.safetensors")
        for old in range(1, self.progress.epoch - self.config.average + 1) if process()[0] == 0 else ():
            (self.folder / f"epoch-{old}.safetensors").unlink(missing_ok=True)

    def average_epochs(self) -> None:
        """Average the last epochs into one file, when training has ended."""
        last, n = self.progress.epoch, self.config.average
        if self.folder is None or process()[0] > 0 or not n:
            return
        average_run(self.folder, range(max(1, last - n + 1), last + 1))

    # ------------------------------------------------------------ checkpoints

    def save(self) -> None:
        """Write all that it takes to go on exactly from here to ``last.safetensors``, if there is a folder.

        All processes of a group call it together.
        """
        self.flush()
        if self.folder is not None:
            self._write(self.folder / "last.safetensors")

    def _write(self, path: Path) -> None:
        state, plain = self.optimizer.state_dict(), {}
        tensors = {f"model/{name}": tensor for name, tensor in whole_weights(self.model).items()}
        tensors |= {f"ema/{index}": whole(tensor) for index, tensor in enumerate(self.ema or ())}
        for index, slots in state["state"].items():
            for name, value in slots.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer/{index}/{name}"] = whole(value)
                else:
                    plain[f"{index}/{name}"] = value
        notes = {"progress": asdict(self.progress), "groups": state["param_groups"], "plain": plain}
        if process()[0] == 0:
            save_tensors(path, tensors, notes | {"identity": self.identity()})

    def resume(self) -> None:
        """Go on from ``last.safetensors``.

        Raises:
            ValueError: if it cannot be read, or belongs to another model, corpus or configuration.
        """
        if self.folder is None:
            raise ValueError("folder is None: this run keeps nothing that it could resume from")
        total(0.0)  # rank 0 may still be writing
        path = self.folder / "last.safetensors"
        tensors, notes = load_tensors(path)
        identity = self.identity()
        # older versions did not note these
        stored = {name: identity[name] for name in ("translator", "choice of weights")} | notes.get("identity", {})
        configs = {"configuration": self.config, "model": getattr(self.model, "config", None)}
        for name, config in configs.items():
            stored[name] = completed(stored.get(name, {}), identity[name], config)
        if differs := [name for name in identity if stored.get(name) != identity[name]]:
            raise ValueError(f"{path} is of a run with another {' and another '.join(differs)}")
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}, "optimizer": {}}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            parts[kind][rest] = tensor
        load_weights(self.model, parts["model"], path)
        for index, average in enumerate(self.ema or ()):
            average.copy_(share(parts["ema"][str(index)], average))
        held, slots = self._held(), dict[int, dict[str, Any]]()
        # every process in the same order
        for name, value in sorted((parts["optimizer"] | notes["plain"]).items()):
            index, slot = name.split("/")
            parameter = held[int(index)]
            same = isinstance(value, Tensor) and value.shape == parameter.shape
            slots.setdefault(int(index), {})[slot] = share(value, parameter) if same else value
        self.optimizer.load_state_dict({"state": slots, "param_groups": notes["groups"]})
        self.progress = Progress(**notes["progress"])
        self.loss.zero_()
        self.first_bad.fill_(math.inf)
        for part in self.folder.glob(f"*.{'[0-9a-f]' * 32}.part") if process()[0] == 0 else ():
            part.unlink(missing_ok=True)  # what a killed process was writing

    def identity(self) -> dict[str, Any]:
        """What a checkpoint belongs to. Epochs, patience, workers, compile and shard may change when it is resumed."""
        self._fingerprint = self._fingerprint or f"{fingerprint(self.train)} {fingerprint(self.validation)}"
        free = ("epochs", "patience", "workers", "compile", "shard")
        config = getattr(self.model, "config", None)
        model = settings_of(config) or {"config": steady(config)}
        settings = {name: value for name, value in asdict(self.config).items() if name not in free}
        return {
            "configuration": plain(settings),
            "model": plain({"class": type(self.model).__name__} | model),
            "optimizer": type(self.optimizer).__name__,
            # a checkpoint numbers moments and running averages by their places in these lists
            "choice of weights": [[self._names[id(p)] for p in held] for held in (self._held(), self.parameters)],
            "corpus": self._fingerprint,
            "translator": self.translator,
        }
