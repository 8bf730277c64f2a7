"""How fast is the library beside PyTorch's and Hugging Face's, if all get the same sentences in the same batches?"""

import os
from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.benchmark import Timer

from experiments.harness import Finding, Study
from experiments.statistics import ratio
from experiments.tasks import Rows, pad, translation_loss
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.beam_search import beam_search
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.models.convert import to_hf
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.loss import chunked_loss

SMOKE = bool(os.environ.get("SMOKE"))
WORDS, LENGTH, LAYERS = (200, 3, 1) if SMOKE else (5000, 20, 3)
SIZES = {
    "d_model": 128,
    "n_heads": 4,
    "d_ff": 512,
    "n_encoder_layers": LAYERS,
    "n_decoder_layers": LAYERS,
    "tie_embeddings": "all",
}


class PyTorch(nn.Module):
    """`nn.Transformer` with what a translator needs around it, as its users write it."""

    def __init__(self):
        super().__init__()
        self.table, self.positions = nn.Embedding(WORDS, 128), nn.Embedding(64, 128)
        nn.init.normal_(self.table.weight, std=128**-0.5)
        self.body = nn.Transformer(128, 4, LAYERS, LAYERS, 512, 0.1, batch_first=True)

    def forward(self, source, target):
        inputs = (self.table(x) * 128**0.5 + self.positions.weight[: x.shape[1]] for x in (source, target))
        future = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf()
        masks = {"src_key_padding_mask": source == PAD, "memory_key_padding_mask": source == PAD}
        return F.linear(self.body(*inputs, tgt_mask=future, tgt_is_causal=True, **masks), self.table.weight)


class HuggingFace(nn.Module):
    """Marian's model with our weights."""

    def __init__(self, ours):
        super().__init__()
        self.marian = to_hf(ours)

    def forward(self, source, target):
        inputs = {"input_ids": source, "attention_mask": (source != PAD).long(), "decoder_input_ids": target}
        return self.marian(**inputs, use_cache=False).logits

    def write(self, source, beams):
        """At most LENGTH tokens for each sentence."""
        inputs = {"input_ids": source, "attention_mask": (source != PAD).long()}
        options = {"do_sample": False, "num_beams": beams, "max_new_tokens": LENGTH, "min_new_tokens": LENGTH}
        return self.marian.generate(**inputs, **options)


@lru_cache(1)
def models():
    """The three, built once in a process; ours and Hugging Face's have the same weights."""
    torch.manual_seed(0)
    ours = Transformer(TransformerConfig(WORDS, WORDS, **SIZES))
    return {"library": ours, "PyTorch": PyTorch(), "Hugging Face": HuggingFace(ours)}


def sentences(count, draw):
    """Random words: sentences of 4 to 30 of them, targets as long as their sources."""
    lengths = torch.randint(4, 31, (count,), generator=draw).tolist()
    rows = [torch.randint(4, WORDS, (n,), generator=draw).tolist() for n in lengths]
    return Rows(pad([*row, EOS] for row in rows), pad([BOS, *row, EOS] for row in rows))


def work(kind, library, order, rows):
    """What is timed: all sentences once, in batches of 32."""
    model, lengths = models()[library], (rows.source != PAD).sum(1)
    picked = lengths.argsort(stable=True) if order == "sorted" else torch.arange(len(rows))
    batches = [rows.take(group) for group in picked.split(32)]
    if kind == "training":
        adam = torch.optim.Adam(model.train().parameters(), lr=1e-5)

        def update(batch):
            adam.zero_grad()
            if library == "library":  # its trainer never holds all logits at once
                hidden = model.hidden(batch.target[:, :-1], model.encode(batch.source)).flatten(0, 1)
                chunked_loss(summed, hidden, model.output, batch.target[:, 1:].flatten()).backward()
            else:
                translation_loss(model, batch, reduction="sum").backward()
            adam.step()

        return lambda: [update(batch) for batch in batches]
    model.eval()
    if library == "Hugging Face":
        return lambda: [model.write(batch.source, 5 if kind == "beam" else 1) for batch in batches]
    if kind == "beam":
        return lambda: [beam_search(model, batch.source, max_length=LENGTH, min_length=LENGTH) for batch in batches]
    return lambda: [greedy_decode(model, batch.source, max_length=LENGTH, min_length=LENGTH) for batch in batches]


def summed(logits, target):
    """Cross-entropy in nats, not averaged."""
    return F.cross_entropy(logits, target, ignore_index=PAD, reduction="sum")


def measure(seed, budget, kind, library, order):
    """Milliseconds for each sentence, the median of `budget` passes; one thread."""
    rows = sentences(4 if SMOKE else 96, torch.Generator().manual_seed(seed))
    f = work(kind, library, order, rows)
    f()
    times = [Timer("f()", globals={"f": f}).timeit(1).median for _ in range(budget)]
    return {"milliseconds": 1000 * sorted(times)[budget // 2] / len(rows)}


def arms():
    """Each work by each library; nobody decodes with `nn.Transformer`, which has no search."""
    table = {}
    for kind, libraries in (("training", models_of), ("greedy", models_of[::2]), ("beam", models_of[::2])):
        for library in libraries:
            for order in ("sorted", "as they come"):
                table[f"{kind}, {library}, {order}"] = {"kind": kind, "library": library, "order": order}
    return table


def against(kind, peer, order="sorted"):
    """How many times as long a peer takes."""
    return ratio("milliseconds", f"{kind}, {peer}, {order}", f"{kind}, library, {order}")


models_of = ("library", "PyTorch", "Hugging Face")
STUDY = Study(
    chapter="translation/decoding",
    equal="sentences, batches of 32, sizes, one thread, float32, 20 tokens written for each; in turns, in one process",
    arms=arms(),
    measure=measure,
    metric="milliseconds a sentence",
    budget=3,
    unit="passes over 96 sentences",
    smoke=1,
    seeds=range(5),
    each="round",
    findings={
        "training": Finding(
            "An update takes about as long as with PyTorch's own module.", against("training", "PyTorch"), "low > 0.8"
        ),
        "training-hf": Finding("And as with Hugging Face's.", against("training", "Hugging Face"), "low > 0.8"),
        "greedy": Finding(
            "Greedy decoding is at least as fast as Hugging Face's.", against("greedy", "Hugging Face"), "low > 1"
        ),
        "beam": Finding(
            "Beam search is at least as fast as Hugging Face's.", against("beam", "Hugging Face"), "low > 1"
        ),
        "sorting": Finding(
            "Batches of similar length make Hugging Face's training faster too.",
            ratio("milliseconds", "training, Hugging Face, as they come", "training, Hugging Face, sorted"),
            "low > 1.1",
        ),
    },
)
