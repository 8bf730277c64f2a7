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
# text and tokenizers
texts | captions.translate('the cat')
text | captions(['the cat'])
text | captions(None)
texts | captions.translate(5)
texts | captions.translate([5])
texts | captions.translate(None)
surrogate | captions.translate([chr(0xd800)])
n_best | captions.translate(['a dog'], n_best=3)
config | captions.translate(['a dog'], 3)
config | captions.translate(['a dog'], {'beam_size': 3})
beam_size | captions.translate(['a dog'], beam_size=0)
beam_size | captions.translate(['a dog'], beam_size='5')
length_penalty | captions.translate(['a dog'], length_penalty=500)
text | tokenizer.encode(None)
texts | Tokenizer.train('one text', level='word')
vocab_size | Tokenizer.train(['a b'], '9')
id | tokenizer.decode([-1])
id | tokenizer.decode([99])

# batches, ids and masks
max_tokens | list(batches(examples, 1))
pairs | encode_pairs(['ab'], tokenizer, tokenizer)
pairs.0. is .'en' | encode_pairs([{'en': 'a dog', 'de': 'ein Hund'}], tokenizer, tokenizer)
pairs.1. is 5, expected | encode_pairs([('a', 'b'), 5], tokenizer, tokenizer)
token id | transformer(source + 50, target)
token id | transformer(source, target + 50)
mask | attention(x, x, x, torch.ones(3, 3))
expected .B, H, T, S. | MultiHeadAttention(8, 2)(x, mask=torch.ones(2, 3).bool())
layer.x, memory. for layer.x, memory, memory. | MultiHeadAttention(8, 2)(x, x, x)
MultiHeadAttention makes queries, keys and values itself | MultiHeadAttention(8, 2)(x, x, x[:, :2])
3 keys and 2 values | attention(x, x, x[..., :2, :])
pair up | transformer(source, target[:1])


# preferences: shapes that PyTorch would stretch
shapes differ | dpo_loss(torch.zeros(3), torch.zeros(3, 1), torch.zeros(3), torch.zeros(3))
shapes differ | dpo_loss(torch.zeros(3), torch.zeros(3), torch.zeros(1), torch.zeros(3))
shapes differ | grpo_loss(row, row, row[:1], torch.zeros(3), row.bool())
shapes differ | grpo_loss(row, row, row, torch.zeros(3, 1), row.bool())
shapes differ | grpo_loss(row, row, row, torch.zeros(1), row.bool())
shapes differ | grpo_loss(row, row, row, torch.zeros(3), row.bool()[:, :1])
start | answer_log_probs(GPT(GPTConfig(9, 8, 2, 1)), source, 0)
# settings
d_model | TransformerConfig(9, 9, d_model=0)
n_heads | Transformer(TransformerConfig(9, 9, d_model=8, n_heads=3))
dropout | TransformerConfig(9, 9, dropout=1.0)
beam_size | SearchConfig(beam_size=True)
n_best | SearchConfig(beam_size=2, n_best=3)
length_penalty | SearchConfig(length_penalty=float('nan'))
epochs | TrainingConfig(epochs=1.5)
learning_rate | TrainingConfig(learning_rate=float('nan'))
data | load_corpus(TrainOptions(data='no such file'))
source | TrainOptions(source='../../x')
n_captions | TrainOptions(n_captions=1)
d_ff | TrainOptions(model='gru', model_options={'d_ff': 64})
speed | TrainOptions(training={'speed': 64})
preset | TrainOptions(model='gru', preset='tiny')
languages | TrainOptions(source='de', target='de')

# files and checkpoints
x.json | Tokenizer.load(write('x.json', deep))
config.json | Translator.from_pretrained(run(config=deep))
config.json | Translator.from_pretrained(run(config='[]'))
config.json.*model | Translator.from_pretrained(run(model=None))
config.json.*text | Translator.from_pretrained(run(text='no'))
config.json.*decoding | Translator.from_pretrained(run(decoding=[]))
config.json.*decoding | Translator.from_pretrained(run(decoding={'beam_size': 0}))
config.json.*tokenizers | Translator.from_pretrained(run(tokenizers={'source': None, 'target': 'target.json'}))
not the vocabulary | Translator.from_pretrained(run(sha256={'source.json': '0'}))
has shape | Translator.from_pretrained(run(model={'name': 'transformer', 'config': {'source_vocab_size': 466, 'target_vocab_size': 538, 'tie_embeddings': 'target'}}))
unknown | Translator.from_pretrained(run(model={'name': 'x' * 10**6, 'config': {}}))
going on | Translator.from_pretrained(run(), weights='last')
no options | read_options(run(options=None))
device | Translator.from_pretrained('captions-en-de', device='meta')
no-such-model | Translator.from_pretrained('no-such-model')
choose an empty folder | captions.save_pretrained('')
NaN|nan | load_weights(transformer, {name: tensor * float('nan') for name, tensor in transformer.state_dict().items()}, 'x')

# models
unknown | build_model('unknown', {})
config | build_model('gru', None)
d_modle | build_model('gru', {'d_modle': 8})
config is LlamaConfig, expected GPTConfig | build_model('gpt-lm', LlamaConfig(9, 8, 2, 1, n_kv_heads=1))
taken | register_model('gru', SearchConfig, torch.nn.Linear)
config_class | register_model('x', dict, torch.nn.Linear)
config_class | register_model('x', SearchConfig(), torch.nn.Linear)
model_class | register_model('x', SearchConfig, dict)
model_class | register_model('x', SearchConfig, len)
no name | model_name(torch.nn.Linear(1, 1))
ids, the model | Translator(transformer, tokenizer, Tokenizer.train(['a b'], level='word'))
model | Translator(None, tokenizer, tokenizer)
"""


def surroundings() -> dict[str, object]:
    """The names that the calls use."""
    import torch

    import transformer_lib

    torch.manual_seed(0)
    folder, package = Path(tempfile.mkdtemp()), Path(transformer_lib.__file__).parent
    names: dict[str, Any] = {"torch": torch}
    for path in package.rglob("*.py"):
        if not path.stem.startswith("__") and path.parent.name not in ("plain", "student"):
            module = ".".join(["transformer_lib", *path.relative_to(package).with_suffix("").parts])
            names |= vars(importlib.import_module(module))
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

    return {
        **names,
        "x": torch.randn(2, 3, 8), "source": torch.tensor([[5, 6, 2], [4, 2, 0]]), "target": torch.tensor([[1, 5], [1, 4]]),
        "transformer": names["Transformer"](small), "tokenizer": tokenizer, "examples": examples, "folder": folder,
        "write": write, "run": run, "deep": "[" * 100_000, "row": torch.zeros(3, 4),
        "captions": names["Translator"].from_pretrained("captions-en-de", device="cpu"),
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
