"""Fine-tune a translator of ``real_translators.py`` on the score of whole sentences.

Cross-entropy judges one token at a time, with the right beginning given. Minimum risk
training samples whole translations from the model itself, scores each by its sentence
BLEU, and moves probability to the better ones.

    python benchmarks/minimum_risk.py --start runs/b --output runs/c --updates 1000

It goes on from the averaged weights of a run, or from a translator that was exported (the shipped ones too:
``--start transformer_lib/pretrained/multi30k-en-de``).
"""

import argparse
import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from real_translators import FastStep, Run, RunConfig, score, translate
from sacrebleu.metrics.bleu import BLEU
from score_translators import load_exported
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.batching import batches
from transformer_lib.data.files import write_atomically
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.sampling import sample
from transformer_lib.training.checkpoints import save_tensors


def expected_risk(
    log_probability: Tensor,
    risk: Tensor,
    counted: Tensor,
    sharpness: float = 0.005,
) -> Tensor:
    """The mean risk of some translations, weighted by how probable the model finds them.

    The probabilities of the K candidates of a sentence are sharpened or flattened by an
    exponent, and scaled to sum to one.

    Args:
        log_probability: of each candidate, B x K, in nats.
        risk: of each candidate, B x K; low is good.
        counted: False for a candidate that stands in its row a second time.
        sharpness: the exponent.

    Returns:
        A scalar.

    Source: Shen et al. (2016), eqs. 11 and 12.
    """
    scaled = (sharpness * log_probability).masked_fill(~counted, -torch.inf)
    return (scaled.softmax(dim=1) * risk).sum(dim=1).mean()


def first_of_each(candidates: Sequence[Sequence[int]]) -> list[bool]:
    """Whether each candidate is met for the first time.

    Args:
        candidates: token ids.

    Returns:
        One answer for each.
    """
    known: set[tuple[int, ...]] = set()
    answers = []
    for candidate in map(tuple, candidates):
        answers.append(candidate not in known)
        known.add(candidate)
    return answers


class RiskStep:
    """One update's loss: expected risk of sampled translations, and cross-entropy.

    Args:
        run: whose model is tuned.
        n_samples: translations drawn for each sentence.
        sharpness: see ``expected_risk``.
        entropy_weight: of the cross-entropy of the reference, which keeps the model from
            drifting.
    """

    def __init__(
        self,
        run: Run,
        n_samples: int = 8,
        sharpness: float = 0.005,
        entropy_weight: float = 0.3,
    ) -> None:
        self.run, self.n_samples, self.sharpness = run, n_samples, sharpness
        self.entropy_weight = entropy_weight
        self.fast = FastStep(run.model, run.config.smoothing)
        self.fast.dropout = 0.0  # the probabilities of the model that will be used
        self.metric = BLEU(effective_order=True)

    def draw(self, source: Tensor, target: Tensor) -> tuple[list[list[int]], list[str]]:
        """Sample translations; the reference is one of the candidates.

        Args:
            source: B x S token ids.
            target: B x T1 token ids of the references.

        Returns:
            B K candidates closed by EOS, and the B references as text.
        """
        width = self.n_samples
        longest = int(1.3 * target.shape[1]) + 5
        drawn = sample(
            self.run.model,
            source.repeat_interleave(width - 1, dim=0),
            max_length=longest,
        ).tolist()
        references = [[t for t in row[1:] if t != PAD] for row in target.tolist()]
        candidates = []
        for index, reference in enumerate(references):
            candidates.append(reference)
            for row in drawn[index * (width - 1) : (index + 1) * (width - 1)]:
                candidates.append([t for t in row if t != PAD])
        decode = self.run.tokenizer.decode
        return candidates, [decode(reference) for reference in references]

    def loss(self, source: Tensor, target: Tensor) -> tuple[Tensor, float]:
        """The loss of one batch.

        Args:
            source: B x S token ids.
            target: B x T1 token ids of the references.

        Returns:
            The loss, and the mean sentence BLEU of what was sampled.
        """
        rows, width = len(source), self.n_samples
        candidates, references = self.draw(source, target)
        decode = self.run.tokenizer.decode
        scores = torch.tensor(
            [
                self.metric.sentence_score(decode(ids), [references[i // width]]).score
                for i, ids in enumerate(candidates)
            ]
        ).view(rows, width)
        counted = torch.tensor([first_of_each(candidates[i * width : (i + 1) * width]) for i in range(rows)])
        opened = [torch.tensor([BOS, *ids]) for ids in candidates]
        forced = pad_sequence(opened, batch_first=True, padding_value=PAD)
        hidden = self.fast.hidden([source.repeat_interleave(width, dim=0)], forced[:, :-1])
        after = forced[:, 1:]
        there = after != PAD
        table = self.run.model.output.weight.to(hidden.dtype)
        log_p = (hidden[there] @ table.t()).float().log_softmax(-1)
        chosen = log_p.gather(1, after[there][:, None])[:, 0]
        per_token = torch.zeros(after.shape).masked_scatter(there, chosen)
        log_probability = per_token.sum(1).view(rows, width)
        risk = expected_risk(log_probability, 1 - scores / 100, counted, self.sharpness)
        reference_tokens = there.view(rows, width, -1)[:, 0].sum()
        entropy = -log_probability[:, 0].sum() / reference_tokens
        return risk + self.entropy_weight * entropy, float(scores[:, 1:].mean())


def begin(start: Path) -> Run:
    """The run to go on with, its averaged weights in its model.

    Args:
        start: folder of a run, or of an exported translator.

    Returns:
        The run.
    """
    if (start / "last.safetensors").exists():
        run = Run.load(start)
        weights = run.average
    else:
        model, tokenizer, told = load_exported(start)
        training = told["training"]
        run = Run(start, RunConfig.from_notes(training["config"]), tokenizer)
        run.epoch, run.step, run.log = training["epoch"], training["step"], training["log"]
        weights = [parameter.detach().float() for parameter in model.parameters()]
        for average, weight in zip(run.average, weights, strict=True):
            average.copy_(weight)
    for parameter, weight in zip(run.parameters, weights, strict=True):
        parameter.data.copy_(weight)
    return run


def tune(
    start: Path,
    output: Path,
    updates: int,
    rate: float,
    max_tokens: int,
    every: int,
    sharpness: float = 0.005,
    entropy_weight: float = 0.3,
) -> None:
    """Fine-tune, and write the averaged weights whenever they were measured.

    Args:
        start: folder of a run, or of an exported translator.
        output: folder to write.
        updates: how many.
        rate: learning rate, which falls to zero.
        max_tokens: of the references of a batch.
        every: updates between two measurements on the validation set.
        sharpness: see ``expected_risk``.
        entropy_weight: see ``RiskStep``.
    """
    run = begin(start)
    run.folder, step = output, RiskStep(run, sharpness=sharpness, entropy_weight=entropy_weight)
    optimizer = torch.optim.Adam(run.parameters, betas=(0.9, 0.98), fused=True)
    run.tokenizer.save(output / "tokenizer.json")
    examples = [
        ([*s, EOS], [BOS, *t, EOS])
        for s, t in zip(
            *(run.tokenizer.encode_batch([getattr(p, side) for p in run.train_pairs]) for side in ("source", "target")),
            strict=True,
        )
    ]
    order = list(batches(examples, max_tokens, run.config.seed, 0))
    random.Random(run.config.seed).shuffle(order)
    total, started = 0.0, time.perf_counter()
    for number in range(1, updates + 1):
        batch = order[(number - 1) % len(order)]
        loss, reward = step.loss(batch.source, batch.target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(run.parameters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - (number - 1) / updates)
        optimizer.step()
        weights = [parameter.detach() for parameter in run.parameters]
        torch._foreach_lerp_(run.average, weights, 0.01)
        total += reward
        if number % every == 0 or number == updates:
            pairs = run.validation_pairs
            found = translate(run.averaged_model(), run.tokenizer, [p.source for p in pairs], 5)
            scores = score(found, [p.target for p in pairs], run.config.target)
            line = {"risk_updates": number, "reward": round(total / every, 3)}
            line |= {f"validation_{n}": round(s["value"], 2) for n, s in scores.items()}
            line["seconds"] = round(time.perf_counter() - started, 1)
            run.log.append(line)
            notes = {
                "config": asdict(run.config),
                "epoch": run.epoch,
                "step": run.step,
            }
            tensors = dict(zip(run.names, run.average, strict=True))
            save_tensors(output / "average.safetensors", tensors, notes)
            text = "".join(json.dumps(entry) + "\n" for entry in run.log)
            write_atomically(output / "log.jsonl", text.encode())
            print(json.dumps(line), flush=True)
            total = 0.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: None for those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--start", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--max-tokens", type=int, default=500)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--sharpness", type=float, default=0.005)
    parser.add_argument("--entropy-weight", type=float, default=0.3)
    options = parser.parse_args(arguments)
    torch.set_flush_denormal(True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    tune(**vars(options))


if __name__ == "__main__":
    main()
