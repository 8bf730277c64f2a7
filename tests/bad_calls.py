"""Calls that must be refused, each with a piece of the message it must get, as users meet them: annotations unchecked.

``python tests/bad_calls.py`` tries them all in one process and prints what came as JSON.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

# What stands in front of a call is what its message must name: a regular expression.
CALLS = """
# wrong objects for tensors
scores | attend([[1.0]], values)
values | attend(scores, None)
mask | attend(scores, values, 'yes')
queries | scaled_dot_product_attention([1.0], x, x)
keys | scaled_dot_product_attention(x, None, x)
values | scaled_dot_product_attention(x, x, 'v')
queries | explicit_attention(None, x, x)
mask | scaled_dot_product_attention(x, x, x, [[True]])
queries | soft_lookup('q', x, x)
tokens | padding_mask([[1, 0]])
tokens | padding_mask(None)
mask | combine_masks('mask', causal_mask(3))
source | gru([[5, 2]], target)
source | gru(None, target)
target | gru(source, None)
source | transformer('words', target)
target | transformer(source, [[1, 4]])
source | luong(None, target)
source|tokens | greedy_decode(gru, [[5, 2]])
source | greedy_decode(transformer, None)
source | beam_search(transformer, 'Hallo')
source|tokens | sample(gru, [5, 2])
model | greedy_decode(None, source)
model | beam_search('transformer', source)
inputs | MultiHeadAttention(8, 2)(None)
inputs | MultiHeadAttention(8, 2)([[1.0]])
memory | MultiHeadAttention(8, 2)(x, 'memory')
cache | MultiHeadAttention(8, 2)(x, cache=[])
inputs | SelfAttention(8)(None)
inputs | GRU(8, 4)('x')
x | EncoderLayer(small)(None)
memory | DecoderLayer(small)(x, None)
memory | DecoderLayer(small)(x, None, causal_mask(3))
memor | Decoder(small)(x, [])
config | Transformer({})
config | Transformer(None)
config | RecurrentSeq2Seq({'d_model': 8})
config | LuongSeq2Seq('general')
config | Trainer(gru, examples, examples, None)
model | Trainer(None, examples, examples, TrainingConfig())
model | Translator(None, tokenizer, tokenizer)
tokenizer | Translator(gru, None, tokenizer)
data | TrainOptions(data=5)
text | moses_tokenize(None, 'en')
text | moses_tokenize(['a'], 'en')
text | recipe_words(None)
pairs | encode_pairs(None, tokenizer, tokenizer)
tokenizer | encode_pairs([('a', 'b')], None, tokenizer)
tensors | save_tensors(folder / 'x.safetensors', [1], {})
tensors | save_tensors(folder / 'x.safetensors', {'a': [1.0]}, {})
weights | best_links([[0.5]])

# types and shapes of tensors
scores | attend(scores.long(), values)
values | attend(scores, values.double())
inputs | MultiHeadAttention(8, 2)(x.double())
inputs | MultiHeadAttention(8, 2)(x.long())
inputs | MultiHeadAttention(8, 2)(torch.randn(2, 3, 7))
memory | MultiHeadAttention(8, 2)(x, torch.randn(2, 3, 7))
queries | AdditiveScore(8, 8, 4)(torch.randn(3, 8), x)
keys | AdditiveScore(8, 8, 4)(x, torch.randn(2, 3, 5))
mask | GRU(8, 4)(x, torch.ones(2, 3))
mask | GRU(8, 4)(x, torch.ones(3, 3, dtype=torch.bool))
state | GRU(8, 4)(x, None, torch.zeros(3, 1, 4))
length | causal_mask(2.5)
length | causal_mask(-1)
past | causal_mask(3, 1.5)
vocab_size | embedding(0, 8)
vocab_size | embedding(-3, 8)
queries|width | explicit_attention(torch.ones(2, 3, 0), torch.ones(2, 3, 0), x)
queries|width | scaled_dot_product_attention(torch.ones(2, 3, 0), torch.ones(2, 3, 0), x)
weights | softmax_jacobian(torch.tensor(1.0))
target | sequence_loss(logits, target + 50)
target | sequence_loss(logits, target * 0 - 100)
target | sequence_loss(logits, target.float())
target | smoothed_loss(logits, target + 50)
target | smoothed_loss(logits, target * 0 - 100)
target | smoothed_loss(logits, target.float())
smoothing | smoothed_loss(logits, target, smoothing=1.5)
logits | sequence_loss(logits[0], target)
tensors|meta | save_tensors(folder / 'x.safetensors', {'a': torch.ones(2, device='meta')}, {})
tensors|sparse | save_tensors(folder / 'x.safetensors', {'a': torch.eye(2).to_sparse()}, {})
pad | padding_mask(source, pad=None)
name_or_path | Translator.from_pretrained(5)
source | gru(source + 50, target)
target | gru(source, target + 50)
source | transformer(source + 50, target)
target | transformer(source, target - 5)
source|tokens | transformer(source.float(), target)
mask | attend(scores, values, torch.ones(2, 3, 4))
mask | scaled_dot_product_attention(x, x, x, torch.ones(2, 4, dtype=torch.bool))
mask | MultiHeadAttention(8, 2)(x, mask=torch.ones(2, 3))
mask | MultiHeadAttention(8, 2)(x, mask=torch.ones(2, 3, dtype=torch.bool))
mask | MultiHeadAttention(8, 2)(x, mask=torch.ones(3, 3, dtype=torch.bool)[None, None, None])
positional | MultiHeadAttention(8, 2)(x, x, x)
rows | transformer(source, target[:1])

# numbers and flags of the wrong kind
dropout | TransformerConfig(dropout='0.1')
dropout | RecurrentConfig(9, 9, dropout='0.1')
dropout | TransformerConfig(dropout=1.0)
dropout | MultiHeadAttention(8, 2, dropout='0.1')
eps | TransformerConfig(eps='small')
eps | LayerNorm(8, eps='x')
eps | LayerNorm(8, eps=float('inf'))
eps | LayerNorm(8, eps=-1.0)
d_model | TransformerConfig(d_model=None)
d_model | RecurrentConfig(9, 9, d_model=None)
n_heads | MultiHeadAttention(8, None)
n_heads | MultiHeadAttention(8, 3)
n_heads | TransformerConfig(n_heads=2.0)
norm_first | TransformerConfig(norm_first='no')
final_norm | TransformerConfig(final_norm='no')
bias | TransformerConfig(bias='no')
bias | MultiHeadAttention(8, 2, bias='no')
output_bias | TransformerConfig(output_bias='no')
reverse_source | RecurrentConfig(9, 9, reverse_source='no')
input_feeding | LuongConfig(9, 9, input_feeding='no')
baseline | HardConfig(9, 9, baseline='no')
bidirectional | GRU(8, 4, bidirectional='no')
norm_first | TrainOptions(norm_first='no')
learning_rate | TrainingConfig(learning_rate='0.1')
learning_rate | TrainingConfig(learning_rate=float('nan'))
learning_rate | TrainingConfig(learning_rate=1e40)
betas | TrainingConfig(betas=('0.9', 0.98))
betas | TrainingConfig(betas=0.9)
smoothing | TrainingConfig(smoothing='0.1')
eps | TrainingConfig(eps='x')
clip | TrainingConfig(clip=-1.0)
clip | TrainingConfig(clip='1')
epochs | TrainingConfig(epochs=1.5)
clip | train_on(gru, [batch], optimizer, clip=-1)
clip | train_on(gru, [batch], optimizer, clip=0)
clip | train_on(gru, [batch], optimizer, clip='1')
beam_size | SearchConfig(beam_size=0)
beam_size | SearchConfig(beam_size='5')
beam_size | beam_search(transformer, source, beam_size=2.5)
length_penalty | SearchConfig(length_penalty='0.6')
length_penalty | SearchConfig(length_penalty=500)
length_penalty | SearchConfig(length_penalty=float('nan'))
length_penalty | length_normalizer(3, float('nan'))
length_penalty | length_normalizer(3, '1')
n_best | beam_search(transformer, source, n_best=6)
normalization | SearchConfig(normalization='paper')
stop | SearchConfig(stop='never')
min_length | SearchConfig(min_length=-1)
min_length | greedy_decode(gru, source, min_length='2')
repetition_penalty | greedy_decode(gru, source, repetition_penalty=0)
repetition_penalty | greedy_decode(gru, source, repetition_penalty='1')
max_length | greedy_decode(gru, source, max_length=0)
max_length | greedy_decode(gru, source, max_length='9')
prefix | greedy_decode(gru, source, prefix=[[4]])
prefix | greedy_decode(gru, source, prefix=source[:1])
prefix | greedy_decode(gru, source, prefix=source + 50)
temperature | sample(gru, source, temperature='1')
temperature | sample(gru, source, temperature=0)
temperature | sampling_probabilities(logits[0], temperature=float('nan'))
top_k | sample(gru, source, top_k='5')
top_k | sample(gru, source, top_k=0)
top_p | sample(gru, source, top_p=0)
top_p | sample(gru, source, top_p='0.9')
logits | sampling_probabilities(logits[0] * float('nan'))
logits | sampling_probabilities(logits[0] - float('inf'))
temperature | soft_lookup(x, x, x, temperature='1')
temperature | soft_lookup(x, x, x, temperature=float('nan'))
scale | scaled_dot_product_attention(x, x, x, scale='1')
window | LuongConfig(9, 9, local='m', window=0)
score | LuongConfig(9, 9, score='cosine')
estimator | HardConfig(9, 9, estimator='x')
temperature | HardConfig(9, 9, temperature='1')
temperature | HardAttention(DotScore(), temperature=0)
weights | best_links(torch.full((2, 3), float('nan')))
length|d_model | sinusoids(4, 3)
length | sinusoids(2.5, 4)
start | SinusoidalPositions(8)(x, start=1.5)
max_length|positions | SinusoidalPositions(8, 2)(x)
activation | FeedForward(8, 16, activation='tanh')
activation | TransformerConfig(activation='tanh')

# tokenizers and batches
id | tokenizer.decode([4.5])
id | tokenizer.decode(['a'])
ids | tokenizer.decode(None)
id | tokenizer.decode([[4, 5]])
ids | tokenizer.decode(source)
id | tokenizer.decode([-1])
text | tokenizer.encode(None)
text | tokenizer.encode(['a'])
texts | Tokenizer.train(None, level="word")
texts | Tokenizer.train('one text', level="word")
texts | Tokenizer.train([1, 2], level="word")
vocab_size | Tokenizer.train(['a b'], '9')
level | Tokenizer.train(['a b'], level="letters")
examples | collate(['ab'])
examples | collate(([5, 2], [1, 4, 2]))
examples | collate([([1.5, 2], [1, 4, 2])])
examples | collate([([-5, 2], [1, 4, 2])])
examples | collate([([5, 2], [4, 5])])
examples | collate([])
examples | list(batches((pair for pair in examples), 100))
max_tokens | list(batches(examples, 1))
max_tokens | list(batches(examples, '100'))
pairs | encode_pairs(['ab'], tokenizer, tokenizer)
pairs | encode_pairs([('a',)], tokenizer, tokenizer)
pairs | encode_pairs([(1, 2)], tokenizer, tokenizer)
train | Trainer(gru, [], examples, TrainingConfig())
validation | Trainer(gru, examples, [], TrainingConfig())
train|vocab | Trainer(gru, [([50, 2], [1, 4, 2])], examples, TrainingConfig())

# files and checkpoints
x.json | Tokenizer.load(write('x.json', deep))
pieces | Tokenizer.load(write('y.json', '{"format": "transformer_lib.Tokenizer", "version": 1, "level": "word", "pieces": {"a": 1}, "merges": []}'))
config.json | Translator.from_pretrained(run(config=deep))
config.json|model | Translator.from_pretrained(run(config='{"model": null}'))
config.json|model | Translator.from_pretrained(run(model=None))
config.json|text | Translator.from_pretrained(run(text='no'))
weights | Translator.from_pretrained(run(), weights='../other/averaged')
device | Translator.from_pretrained('captions-en-de', device='meta')
no-such-model | Translator.from_pretrained('no-such-model')
paths | average_checkpoints([])
paths | average_checkpoints('one')
paths|safetensors | average_checkpoints([folder / 'none.safetensors'])
weights|NaN|nan | load_weights(gru, {name: tensor * float('nan') for name, tensor in gru.state_dict().items()}, 'x')
weights|type|int | load_weights(gru, {name: tensor.long() for name, tensor in gru.state_dict().items()}, 'x')
name | fetch(DataFile('..', '../x', 'https://example.org', '0' * 64, 1))
unknown | build_model('unknown', {})
config | build_model('gru', None)
d_modle | build_model('gru', {'d_modle': 8})
source_vocab_size | build_model('gru', {})
name | register_model('gru', SearchConfig, torch.nn.Linear)
config_class | register_model('x', dict, torch.nn.Linear)
model_class | register_model('x', SearchConfig, dict)
tokenizer|vocab | Translator(transformer, tokenizer, Tokenizer.train(['a b'], level="word"))
texts | captions.translate(5)
texts | captions.translate([5])
texts | captions.translate(None)
beam_size | captions.translate(['a dog'], beam_size=0)
beam_size | captions.translate(['a dog'], beam_size='5')
length_penalty | captions.translate(['a dog'], length_penalty=500)
activation|leaky_relu | config_from_torch(torch.nn.TransformerEncoderLayer(8, 2, 16, activation=torch.nn.LeakyReLU()))
NoneType | from_torch(transformer, None)
Linear | config_from_torch(torch.nn.Linear(2, 2))
no attention to look at | attention_maps(None, [('a', 'b')], tokenizer, tokenizer)
n | make_captions(-1, 0)
n | make_captions('5', 0)
seed | make_captions(5, None)
hypotheses | bleu('a', ['a'])
hypotheses|references | bleu(['a'], [])
n_tokens | perplexity(-1.0, 0)
references | exact_match(['a'], 'a')
split | load_multi30k('training')
weights | attention_viewer('x', ['a'], ['b'])
rows | attention_viewer([[1.0]], ['a', 'b'], ['c'])
"""


def surroundings() -> dict[str, object]:
    """The names that the calls use."""
    import torch

    import transformer_lib

    torch.manual_seed(0)
    folder, package = Path(tempfile.mkdtemp()), Path(transformer_lib.__file__).parent
    names: dict[str, Any] = {"torch": torch}
    for path in package.rglob("*.py"):
        if not path.stem.startswith("__"):
            module = ".".join(["transformer_lib", *path.relative_to(package).with_suffix("").parts])
            names |= vars(importlib.import_module(module))
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": 8, "d_hidden": 8}
    small = names["TransformerConfig"](
        source_vocab_size=9, target_vocab_size=9, d_model=8, n_heads=2, n_encoder_layers=1, n_decoder_layers=1, d_ff=16
    )
    tokenizer = names["Tokenizer"].train(["a b c d e"], level="word")
    examples = [([5, 6, 2], [1, 5, 2]), ([4, 2], [1, 4, 6, 2])]

    def write(name: str, text: str) -> Path:
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    def run(config: str | None = None, **changes: object) -> Path:
        """A copy of the shipped translator of captions with another configuration."""
        place = Path(tempfile.mkdtemp()) / "run"
        shutil.copytree(package / "pretrained" / "captions-en-de", place)
        held = json.loads((place / "config.json").read_text(encoding="utf-8"))
        (place / "config.json").write_text(config or json.dumps({**held, **changes}), encoding="utf-8")
        return place

    gru = names["RecurrentSeq2Seq"](names["RecurrentConfig"](**sizes))
    return {
        **names,
        "x": torch.randn(2, 3, 8), "scores": torch.randn(2, 3, 4), "values": torch.randn(2, 4, 8),
        "source": torch.tensor([[5, 6, 2], [4, 2, 0]]), "target": torch.tensor([[1, 5], [1, 4]]),
        "logits": torch.randn(2, 2, 9), "small": small, "transformer": names["Transformer"](small), "gru": gru,
        "luong": names["LuongSeq2Seq"](names["LuongConfig"](**sizes)), "tokenizer": tokenizer, "examples": examples,
        "batch": names["collate"](examples), "optimizer": torch.optim.Adam(gru.parameters()), "folder": folder, "write": write,
        "run": run, "deep": "[" * 100_000, "captions": names["Translator"].from_pretrained("captions-en-de"),
    }  # fmt: skip


def cases() -> dict[str, str]:
    """What each call must name, by call."""
    lines = [line for line in CALLS.splitlines() if line and not line.startswith("#")]
    return {call.strip(): fragment.strip() for fragment, call in (line.split(" | ", 1) for line in lines)}


def outcome(call: str, names: dict[str, object]) -> tuple[str, str]:
    """The kind of the error, and its message; "nothing" and the value if there is none."""
    try:
        value = eval(call, dict(names))
    except BaseException as error:
        return type(error).__name__, str(error)
    return "nothing", repr(value)[:200]


if __name__ == "__main__":
    try:
        known = surroundings()
        json.dump({call: outcome(call, known) for call in cases()}, sys.stdout)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
