"""What a wider beam brings and costs: BLEU and length of a shipped translator, for several beams.

    python benchmarks/beam_width.py [--model multi30k-en-de-moses] [--record results/beam-width.json]

The validation part of Multi30k is translated with each beam, without a length penalty and with one. Beside BLEU stand
the length of the translations as a share of the references', the share of empty translations, and search errors:
sentences for which another beam of the table has met a translation that the model finds more likely. There is one
trained model, so the interval is over sentences: a paired bootstrap of 1,000 samples, against the beam of 4. Last,
the best 8 of a beam of 8 are ranked anew with the coverage penalty of Wu et al. (2016).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
from intervals import difference
from sacrebleu.metrics import BLEU

from transformer_lib.data.batching import collate
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.search import Hypothesis, beam_search
from transformer_lib.models.multi_head import record_attention
from transformer_lib.translation.evaluation import run_metadata
from transformer_lib.translation.options import load_corpus, read_options
from transformer_lib.translation.translator import Translator, find_pretrained

BEAMS = (1, 2, 4, 8, 16)
ALPHAS = (0.0, 1.0)
BETAS = (0.0, 0.1, 0.2, 0.4, 0.8)
REFERENCE = 4


class Task:
    """The translator, the sentences in batches of similar length, and how translations are scored."""

    def __init__(self, name: str) -> None:
        folder = find_pretrained(name)
        self.name, options = folder.name, read_options(folder)
        self.translator = Translator.from_pretrained(folder, device="cpu")
        corpus = load_corpus(options, self.translator.text)
        self.tokenizer = self.translator.target_tokenizer
        tokenizers = self.translator.source_tokenizer, self.tokenizer
        kept = corpus.encoded("validation", tokenizers, 10**9)
        self.sources = [source for _, (source, _) in kept]
        self.right = [pair.target for pair, _ in kept]
        self.lengths = [len(self.tokenizer.encode(text)) + 1 for text in self.right]
        self.metric = BLEU(tokenize="none" if self.translator.text.kind != "raw" else "13a")
        self.order = sorted(range(len(kept)), key=lambda index: len(self.sources[index]))

    def search(self, beam: int, alpha: float, n_best: int = 1) -> list[list[Hypothesis]]:
        """The best translations of every sentence; at most 60 tokens longer than its source."""
        found: list[list[Hypothesis]] = [[] for _ in self.sources]
        size = max(1, 512 // beam)
        for start in range(0, len(self.order), size):
            chosen = self.order[start : start + size]
            source = collate([(self.sources[index], [BOS, EOS]) for index in chosen]).source
            best = beam_search(
                self.translator.model,
                source,
                beam_size=beam,
                length_penalty=alpha,
                n_best=n_best,
                max_length=min(100, source.shape[1] + 60),
            )
            for index, hypotheses in zip(chosen, best, strict=True):
                found[index] = hypotheses
        return found

    def bleu(self, written: list[str]) -> float:
        return self.metric.corpus_score(written, [self.right]).score

    def difference(self, ours: list[str], theirs: list[str]) -> list[float]:
        """95 % of the differences of BLEU, over samples of the sentences."""
        return difference(ours, theirs, self.right, self.metric)

    def texts(self, best: list[Hypothesis]) -> list[str]:
        return [self.tokenizer.decode(hypothesis.tokens) for hypothesis in best]

    @torch.no_grad()
    def coverage(self, source: list[int], hypotheses: list[Hypothesis]) -> list[float]:
        """Of each hypothesis: the sum over source words of log min(attention received, 1), averaged over heads."""
        rows = [(source, [BOS, *hypothesis.tokens]) for hypothesis in hypotheses]
        batch = collate(rows)
        model = self.translator.model.eval()
        with record_attention(model) as maps:
            model(batch.source, batch.target_input)
        cross = [weights[0] for name, weights in maps.items() if "cross" in name]
        weights = torch.stack(cross).mean(dim=(0, 2))  # (N, T, S)
        there = (batch.target_input != PAD)[:, :, None]
        received = (weights * there).sum(dim=1).clamp(max=1)
        return received.log().sum(dim=1).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="multi30k-en-de-moses", help="a name, or the folder of a training")
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    task = Task(given.model)
    n, wanted = len(task.sources), sum(task.lengths)
    found: dict[tuple[float, int], list[Hypothesis]] = {}
    rows: list[dict[str, Any]] = []
    widest: list[float] = [-math.inf] * n
    for beam in BEAMS:
        for alpha in ALPHAS:
            found[alpha, beam] = [best[0] for best in task.search(beam, alpha)]
            widest = [max(a, h.log_probability) for a, h in zip(widest, found[alpha, beam], strict=True)]
            best = found[alpha, beam]
            bleu = task.bleu(task.texts(best))
            length = sum(len(hypothesis.tokens) for hypothesis in best) / wanted
            print(json.dumps({"beam": beam, "alpha": alpha, "bleu": bleu, "length": length}), flush=True)
    for (alpha, beam), best in found.items():
        texts = task.texts(best)
        reference = task.texts(found[alpha, REFERENCE])
        missed = sum(top - h.log_probability > 1e-3 for top, h in zip(widest, best, strict=True))
        rows.append(
            {
                "beam": beam,
                "alpha": alpha,
                "bleu": round(task.bleu(texts), 2),
                "difference": task.difference(texts, reference),
                "relative_length": round(sum(len(h.tokens) for h in best) / wanted, 4),
                "empty": sum(len(h.tokens) == 1 for h in best),
                "log_probability": round(sum(h.log_probability for h in best) / n, 3),
                "search_errors": round(100 * missed / n, 1),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    eight = task.search(8, 1.0, n_best=8)
    covered = [task.coverage(source, best) for source, best in zip(task.sources, eight, strict=True)]
    again = []
    plain = task.texts([best[0] for best in eight])
    for beta in BETAS:
        chosen = [
            max(zip(best, scores, strict=True), key=lambda pair: pair[0].score + beta * pair[1])[0]
            for best, scores in zip(eight, covered, strict=True)
        ]
        texts = task.texts(chosen)
        again.append(
            {
                "beta": beta,
                "bleu": round(task.bleu(texts), 2),
                "difference": task.difference(texts, plain),
                "relative_length": round(sum(len(h.tokens) for h in chosen) / wanted, 4),
                "other_choice": sum(a is not b[0] for a, b in zip(chosen, eight, strict=True)),
            }
        )
        print(json.dumps(again[-1]), flush=True)
    if given.record is not None:
        content = {
            **run_metadata(f"python benchmarks/beam_width.py --model {given.model} --record {given.record}", [0]),
            "title": "BLEU and length for several beams",
            "data": f"the {n:,} sentences of the validation part of Multi30k",
            "notes": f"{task.name}; {task.metric.get_signature()}; difference: 95 % of a paired bootstrap over "
            f"sentences against the beam of {REFERENCE} (coverage: against beta = 0)",
            "rows": rows,
            "coverage": again,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
