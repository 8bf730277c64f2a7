"""What do the four translators of the museum cost: processor time to train on a sentence pair, and to translate it?"""

import time
from itertools import islice

import torch

from experiments.harness import Study
from experiments.studies.decoding_speed import pairs
from transformer_lib.data.batching import batches, encode_pairs
from transformer_lib.translation.translator import Translator

MODELS = {"one vector": "one-vector", "Bahdanau": "bahdanau", "Luong": "luong", "Transformer": "transformer"}
WORK = {"training": 0, "greedy": 1, "beam of 5": 5}


def train(translator, seed):
    """Processor seconds of eight of the ladder's updates; how many sentence pairs they learned from."""
    model = translator.model.train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)

    def update(batch):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model.loss(batch, smoothing=0.1).mean
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    encoded = encode_pairs(pairs(), translator.source_tokenizer, translator.target_tokenizer)
    chosen = list(islice(batches(encoded, 2000, seed), 8))
    update(chosen[0])  # warms up
    begin = time.process_time()
    for batch in chosen:
        update(batch)
    return time.process_time() - begin, sum(map(len, chosen))


def translate(translator, seed, beams):
    """Processor seconds for every fifth sentence, others for each seed; how many there were."""
    texts = [pair.source for pair in pairs()][seed % 5 :: 5]
    translator.translate(texts[:8], beam_size=beams)  # warms up
    begin = time.process_time()
    translator.translate(texts, beam_size=beams)
    return time.process_time() - begin, len(texts)


def measure(seed, budget, model, beams):
    """Milliseconds a sentence of one thread, which other work on the machine changes little."""
    translator = Translator.from_pretrained(f"multi30k-de-en-{model}", device="cpu")
    seconds, sentences = translate(translator, seed, beams) if beams else train(translator, seed)
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
    findings={},
)
