"""How fast is the library beside PyTorch's and Hugging Face's, if all get the same sentences in the same batches?"""

from copy import deepcopy
from functools import lru_cache, partial
from timeit import repeat

import torch
from torch import nn
from torch.nn import functional as F

from experiments.harness import Check, Finding, Study, plain
from experiments.statistics import ratio
from experiments.tasks import SMOKE, Rows, pad, summed_loss
from transformer_lib.data.batching import Batch
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.beam_search import beam_search
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.models.convert import to_hf
from transformer_lib.models.loss import translation_loss
from transformer_lib.models.transformer import Transformer, TransformerConfig


class Peer(nn.Module):
    """Another library's model, called as ours are; it reads the source only beside the target."""

    def encode(self, source):
        return source

    def forward(self, source, target):
        return self.output(self.hidden(target, source))


class PyTorch(Peer):
    """`nn.Transformer` with what a translator needs around it, and dropout and norms where the others have them."""

    def __init__(self, words, layers, width):
        super().__init__()
        self.output, self.positions = nn.Linear(width, words, bias=False), nn.Embedding(128, width)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        self.body = nn.Transformer(width, width // 32, layers, layers, 4 * width, 0.1, batch_first=True)
        self.body.encoder.norm = self.body.decoder.norm = None
        for part in self.body.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0  # of the weights
            elif hasattr(part, "linear1"):
                part.dropout = nn.Identity()  # after the activation

    def embed(self, tokens):
        """Words and positions."""
        table = self.output.weight
        words = F.embedding(tokens, table) * table.shape[1] ** 0.5
        return F.dropout(words + self.positions.weight[: tokens.shape[1]], 0.1, self.training)

    def hidden(self, target, source):
        """The last vectors of the decoder."""
        future = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf()
        masks = {"src_key_padding_mask": source == PAD, "memory_key_padding_mask": source == PAD}
        masks |= {"tgt_mask": future, "tgt_is_causal": True}
        return self.body(self.embed(source), self.embed(target), **masks)


class HuggingFace(Peer):
    """Marian's model with our weights."""

    def __init__(self, ours):
        super().__init__()
        self.marian = to_hf(ours)
        self.output = self.marian.lm_head

    def hidden(self, target, source, model=None):
        """The last vectors of the decoder, or what the whole model puts out."""
        inputs = {"input_ids": source, "attention_mask": (source != PAD).long()}
        return (model or self.marian.model)(**inputs, decoder_input_ids=target, use_cache=False)[0]

    def forward(self, source, target):
        return self.hidden(target, source, self.marian)

    def write(self, source, beams, length, lean):
        """So many tokens for each sentence. `lean`: no token ends a sentence, so that none has to be forbidden."""
        inputs = {"input_ids": source, "attention_mask": (source != PAD).long()}
        options = {"do_sample": False, "num_beams": beams, "max_new_tokens": length}
        options |= {} if lean else {"min_new_tokens": length}
        self.marian.generation_config.eos_token_id = None if lean else EOS
        with torch.inference_mode(lean):
            return self.marian.generate(**inputs, **options)


@lru_cache(1)
def models(words, layers, width):
    """The three, built once in a process; ours and Hugging Face's have the same weights."""
    torch.manual_seed(0)
    sizes = {"d_model": width, "n_heads": width // 32, "d_ff": 4 * width}
    sizes |= {"n_encoder_layers": layers, "n_decoder_layers": layers, "tie_embeddings": "all"}
    ours = Transformer(TransformerConfig(words, words, **sizes))
    return {"library": ours, "PyTorch": PyTorch(words, layers, width), "Hugging Face": HuggingFace(ours)}


def sentences(count, words, apart, draw):
    """Sentences of 4 to 30 random words, with targets that are longer or shorter by at most `apart`."""
    lengths = torch.randint(4, 31, (count,), generator=draw)
    others = lengths + torch.randint(-apart, apart + 1, (count,), generator=draw)
    some = partial(torch.randint, 4, words, generator=draw)
    sides = [[some((n,)).tolist() for n in side] for side in (lengths, others)]
    return Rows(pad([*row, EOS] for row in sides[0]), pad([BOS, *row, EOS] for row in sides[1]))


def update(model, adam, lean, batch):
    """One of Adam's. Our trainer never holds all logits at once; if `lean`, its peers don't either."""
    adam.zero_grad()
    loss = translation_loss if lean or isinstance(model, Transformer) else summed_loss
    loss(model, batch).sum.backward()
    adam.step()


def work(kind, model, length, lean):
    """What is done with a batch."""
    if kind == "training":
        model = deepcopy(model).train()  # what is decoded stays as it was
        adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=lean or None)
        return partial(update, model, adam, lean)
    model.eval()
    if isinstance(model, HuggingFace):
        return lambda batch: model.write(batch.source, 5 if kind == "beam" else 1, length, lean)
    search = beam_search if kind == "beam" else greedy_decode
    return lambda batch: search(model, batch.source, max_length=length, min_length=length)


SIZES = (5000, 3, 128)  # words, layers and width


def measure(seed, budget, kind, library, order, batch=32, apart=0, sizes=SIZES, length=20, lean=False):
    """Milliseconds for each sentence, the median of `budget` passes over all batches; one thread.

    `lean`: the peers as fast as they can be.
    """
    count, length, sizes = (4, 3, (200, 1, 64)) if SMOKE else (96, length, sizes)
    rows = sentences(count, sizes[0], apart, torch.Generator().manual_seed(seed))
    picked = torch.arange(count)
    if order == "sorted":
        picked = (rows.source != PAD).sum(1).argsort(stable=True)
    batches = [Batch(*rows.take(group)) for group in picked.split(batch)]
    run = work(kind, models(*sizes)[library], length, lean)
    _, *times = repeat(lambda: [run(one) for one in batches], number=1, repeat=budget + 1)  # warms up
    return {"milliseconds": 1000 * sorted(times)[budget // 2] / count}


def against(kind, peer, order="sorted"):
    """How many times as long a peer takes."""
    return ratio("milliseconds", f"{kind}, {peer}, {order}", f"{kind}, library, {order}")


STUDY = Study(
    chapter="translation/decoding",
    equal="sentences of 4 to 30 random words, batches of 32, sorted by length unless an arm says otherwise, three plus three layers of width 128, 5,000 words, dropout, Adam, one thread, float32, exactly 20 tokens written for each sentence, weights (for decoding); in turns, in one process",
    arms={
        f"{kind}, {library}, {order}": {"kind": kind, "library": library, "order": order}
        for kind in ("training", "greedy", "beam")
        for library in ("library", "PyTorch", "Hugging Face")
        for order in ("sorted", "as they come")
        if kind == "training" or library != "PyTorch"  # `nn.Transformer` has no search
    },
    measure=measure,
    metric="milliseconds a sentence",
    budget=3,
    unit="passes over 96 sentences",
    smoke=1,
    findings={
        "training": Finding(
            "On one processor core, the library's training update takes at most a quarter longer than one with PyTorch's `nn.Transformer` of the same size.",
            against("training", "PyTorch"),
            ("low", ">", 0.8),
            line="On one core, code written to be read trains about as fast as PyTorch's own Transformer.",
        ),
        "beam": Finding(
            "On one processor core, the library's beam search with five beams takes less time than that of Hugging Face's Marian model with the same weights, if all translations have the same number of tokens.",
            against("beam", "Hugging Face"),
            ("low", ">", 1),
            line="On one core, our beam search takes less time than Hugging Face's for the same number of tokens.",
            earlier="The same sentence about greedy search fell, with larger models and with long outputs. Without its last part, this one fell, too: with a length penalty of 2, our search goes on for longer.",
        ),
        "sorting": Finding(
            "On one processor core, training Hugging Face's Marian model on sentences of 4 to 30 words takes at least a tenth longer in mixed batches than in batches of similar length.",
            ratio("milliseconds", "training, Hugging Face, as they come", "training, Hugging Face, sorted"),
            ("low", ">", 1.1),
            line="On sentences of 4 to 30 words, training takes at least a tenth longer in mixed batches than in batches of similar length.",
            earlier="“Twice as fast as Hugging Face” compared sorted batches with mixed ones.",
        ),
    },
)

SPEED = [a for a in plain(STUDY) if "sorted" in a or a == "training, Hugging Face, as they come"]
CHECKS = {
    "larger": Check(
        "a model four times as wide (512, with sixteen heads) and batches of 48; rounds 100 to 105, one pass each after one to warm up",
        ("training", "beam", "sorting"),
        range(100, 106),
        {name: {} for name in SPEED},
        budget=1,
        settings={"sizes": (5000, 3, 512), "batch": 48},
    ),
    "lean": Check(
        "the others as fast as they can be: they too compute the loss in chunks and without padding, and Hugging Face decodes in inference mode and needn't forbid the end of a sentence; Adam is fused for all. Also 1,000 words, batches of 8, targets that are longer or shorter than their sources by up to four words, 40 tokens written, and the turns in reverse; rounds 200 to 207, the median of three passes",
        ("training", "beam", "sorting"),
        range(200, 208),
        {name: {} for name in reversed(SPEED)},
        settings={"sizes": (1000, 3, 128), "batch": 8, "apart": 4, "length": 40, "lean": True},
    ),
}
