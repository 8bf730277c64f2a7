"""What do the four translators of the museum cost: processor time to train on a sentence pair, and to translate it?"""

import os
import time
from itertools import islice

import torch

from experiments.harness import Study
from transformer_lib.data.batching import batches, encode_pairs
from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.translation.translator import Translator

SMOKE = bool(os.environ.get("SMOKE"))
MODELS = {"one vector": "one-vector", "Bahdanau": "bahdanau", "Luong": "luong", "Transformer": "transformer"}
WORK = {"training": 0, "greedy": 1, "beam of 5": 5}


def train(translator, pairs, seed):
    """Processor seconds of the ladder's updates on some sentence pairs; how many there were."""
    words = translator.source_tokenizer, translator.target_tokenizer
    model = translator.model.train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)
    chosen = list(islice(batches(encode_pairs(pairs, *words), 300 if SMOKE else 2000, seed), 2 if SMOKE else 9))
    for number, batch in enumerate(chosen):
        if number == 1:  # the first one warms up
            begin = time.process_time()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model.loss(batch, smoothing=0.1).mean
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return time.process_time() - begin, sum(map(len, chosen[1:]))


def translate(translator, pairs, seed, beams):
    """Processor seconds for every fifth sentence, others for each seed; how many there were."""
    texts = [pair.source for pair in pairs][seed % 5 :: 5]
    translator.translate(texts[:8], beam_size=beams)  # warms up
    begin = time.process_time()
    translator.translate(texts, beam_size=beams)
    return time.process_time() - begin, len(texts)


def measure(seed, budget, model, beams):
    """Milliseconds a sentence of one thread, which other work on the machine changes little."""
    translator = Translator.from_pretrained(f"multi30k-de-en-{model}", device="cpu")
    turned = (Pair(pair.target, pair.source) for pair in make_captions(60, seed=0))
    parts = (translator, [*turned] if SMOKE else load_multi30k("test_2016_flickr", "de", "en"), seed)
    seconds, sentences = translate(*parts, beams) if beams else train(*parts)
    return {"milliseconds": 1000 * seconds / sentences}


STUDY = Study(
    chapter="translation/translating_real_sentences",
    equal="the test set of 2016, one thread; eight updates on batches of 2,000 tokens in bfloat16, or every fifth sentence in sorted batches in float32; processor time, in turns, in one process",
    arms={
        f"{work}, {name}": {"model": model, "beams": beams}
        for work, beams in WORK.items()
        for name, model in MODELS.items()
    },
    measure=measure,
    metric="milliseconds a sentence",
    budget=1,
    unit="passes",
    smoke=1,
    seeds=range(3),
    each="round",
    findings={},
)
