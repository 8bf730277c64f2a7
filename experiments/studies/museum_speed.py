"""What do the four translators of the museum cost: processor time to translate a sentence with a beam of five?"""

import time

from experiments.harness import Study
from experiments.tasks import multi30k
from transformer_lib.translation.translator import Translator

MODELS = {"one vector": "one-vector", "Bahdanau": "bahdanau", "Luong": "luong", "Transformer": "transformer"}


def measure(seed, budget, model):
    """Milliseconds a sentence of one thread, which other work on the machine changes less than the time on the clock."""
    translator = Translator.from_pretrained(f"multi30k-de-en-{model}", device="cpu")
    texts = [pair.source for pair in multi30k("test_2016_flickr", "de", "en")][seed % 5 :: 5]
    translator.translate(texts[:8], beam_size=5)  # warms up
    begin = time.process_time()
    translator.translate(texts, beam_size=5)
    return {"milliseconds": 1000 * (time.process_time() - begin) / len(texts)}


STUDY = Study(
    chapter="translation/translating_real_sentences",
    equal="every fifth sentence of the test set of 2016, others for each seed, in sorted batches, one thread, float32; processor time, in turns, in one process",
    arms={f"beam of 5, {name}": {"model": model} for name, model in MODELS.items()},
    measure=measure,
    metric="milliseconds a sentence",
    budget=1,
    unit="passes",
    smoke=1,
    seeds=range(3),
    findings={},
)
