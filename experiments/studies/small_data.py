"""With 1,500 real sentence pairs, what do noise, BPE-dropout and R-Drop bring once the plain model overfits?"""

import random

import torch

from experiments.harness import Study
from experiments.tasks import SIZES, encode, fit, mean_loss, multi30k, stream, translation_loss
from transformer_lib.data.batching import Batch, collate
from transformer_lib.data.tokenizer import BOS, PAD, Tokenizer
from transformer_lib.decoding.greedy import translate
from transformer_lib.metrics import bleu
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.loss import r_drop_loss
from transformer_lib.training.transforms import BPEDropout, SpellingNoise, misspell

SIZE = 32  # pairs in a batch
MARKS = (2, 5, 10, 15, 20, 30)  # the epochs after which a model is tested


def sides(pairs):
    """Sources and targets."""
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def photos(seed, pieces, longest=12):
    """Tokenizers, and short captions of photographs: 1,500 to train on, drawn by the seed, and 500 to tune and to test on."""
    sets = [multi30k(split, "de", "en") for split in ("train", "val", "test_2016_flickr")]
    sets = [[pair for pair in pairs if len(pair.source.split()) <= longest] for pairs in sets]
    train = random.Random(seed).sample(sets[0], min(1500, len(sets[0])))
    tokenizers = [Tokenizer.train(texts, pieces) for texts in sides(train)]
    return tokenizers, train, sets[1][:500], sets[2][:500]


def cut_anew(source, target):
    """BPE-dropout as in the paper: each time, every sentence is cut at random, on both sides."""
    sides = [BPEDropout(tokenizer, dropout=0.1, share=1.0) for tokenizer in (source, target)]

    def change(example, rng):
        source, target = (side((part, ()), rng)[0] for side, part in zip(sides, example, strict=True))
        return source, [BOS, *target]

    return change


def changed(batch, transform, rng):
    """The batch with other spellings, or cut into other subwords."""
    rows = [[[token for token in row if token != PAD] for row in part.tolist()] for part in batch]
    return collate([transform(example, rng) for example in zip(*rows, strict=True)])


def inverse_root(update, budget):
    """A warm-up of 100 updates, then the inverse square root, which doesn't know where the training ends."""
    return min(update / 100, (100 / update) ** 0.5)


def measure(seed, budget, rate, transform=None, r_drop=False):
    """Losses, and BLEU of 500 new sentences, clean and with one typing error in each, after several epochs."""
    torch.set_flush_denormal(True)
    (tokenizers, *pairs, test), rng, numbers = photos(seed, 2000 if budget > 1 else 300), random.Random(seed), {}
    train, valid = (encode(some, *tokenizers) for some in pairs)
    options = {"dropout": 0.2, "tie_embeddings": "target", "norm_first": True}
    model = Transformer(TransformerConfig(*map(len, tokenizers), **options, **SIZES))
    updates = -(-len(train) // SIZE)  # in an epoch

    def test_at(epoch):
        (sources, references), slips = sides(test), random.Random(seed)
        numbers[f"valid at {epoch}"] = mean_loss(model, valid)
        wrong = [misspell(text, slips) for text in sources]
        for name, texts in (("clean", sources), ("misspelled", wrong)):
            written = translate(model, texts, *tokenizers, max_length=60)
            numbers[f"{name} at {epoch}"] = bleu(written, references).score
        model.train()

    def watched():
        for update, batch in enumerate(stream(train, SIZE, seed)):
            if update and update % updates == 0 and update // updates in MARKS:
                test_at(update // updates)
            yield changed(batch, transform(*tokenizers), rng) if transform else batch

    def loss(model, batch):
        if r_drop:
            return r_drop_loss(model, Batch(batch.source, batch.target)).mean
        return translation_loss(model, batch, smoothing=0.1)

    fit(model, loss, watched(), rate, budget * updates, inverse_root)
    test_at(budget)
    return numbers


ARMS = {
    "plain": {},
    "R-Drop": {"r_drop": True},
    "noise": {"transform": lambda source, target: SpellingNoise(source, typo=0.3)},
    "BPE-dropout": {"transform": cut_anew},
}
STUDY = Study(
    chapter="translation/training",
    equal="1,500 pairs of at most 12 words from Multi30k, German to English, 2,000 subwords, batches of 32, dropout 0.2, smoothing 0.1, Adam, clipping at 1, learning rate 0.008 after a warm-up of 100 updates and its inverse square root from then on, 500 sentences to validate and 500 to test",
    arms={name: {"rate": 0.008} | settings for name, settings in ARMS.items()},
    measure=measure,
    metric="BLEU",
    budget=30,
    unit="epochs",
    smoke=1,
    seeds=range(1),
    findings={},
)
