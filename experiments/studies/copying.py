"""Can one vector hold eight words, in a model of the museum's size?"""

import torch

from experiments.harness import Study
from experiments.tasks import Rows, fit, rise, translation_loss
from transformer_lib.data.tokenizer import BOS, EOS
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq

WORDS, LENGTH, FIRST = 1000, 8, 4  # how many there are, how many stand in a row, and the first one's id


def sequences(generator, n):
    """Rows of random words: as a source, and as a target that is the same."""
    words = torch.randint(FIRST, FIRST + WORDS, (n, LENGTH), generator=generator)
    begin, end = (torch.full((n, 1), token) for token in (BOS, EOS))
    return Rows(torch.cat([words, end], 1), torch.cat([begin, words, end], 1))


def measure(seed, budget, rate):
    """Of new rows, the percentage of words that come back in their places, and of rows without any error."""
    torch.set_flush_denormal(True)
    generator = torch.Generator().manual_seed(seed)
    size = FIRST + WORDS
    model = RecurrentSeq2Seq(RecurrentConfig(size, size, d_model=128, d_hidden=256, dropout=0.0))
    batches = (sequences(generator, 64) for _ in range(budget))
    fit(model, translation_loss, batches, rate, budget, rise(100))
    source = sequences(generator, 500).source
    written = greedy_decode(model, source, max_length=LENGTH + 1)
    right = torch.nn.functional.pad(written, (0, LENGTH))[:, :LENGTH] == source[:, :LENGTH]
    return {"words": 100 * right.double().mean().item(), "rows": 100 * right.all(1).double().mean().item()}


STUDY = Study(
    chapter="history/learning_to_align",
    equal="an encoder-decoder with one vector, of the museum's size (widths 128 and 256, no dropout), which gives back eight words drawn at random from 1,000; 64 new rows in a batch; greedy search",
    arms={"one vector": {"rate": 0.004}},
    measure=measure,
    metric="% of the words that come back",
    budget=4000,
    smoke=2,
    seeds=range(1),
    findings={},
)
