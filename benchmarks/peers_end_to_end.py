"""From text to text beside the peers: a part of ``peers.py``, which runs it.

The same trained weights translate the 1,000 German captions of Multi30k's test of 2016 in every library: ours reads
them from its folder, Hugging Face and CTranslate2 get them converted. Everybody's text is prepared by the same rules
of Moses, and the translations are compared before anything is timed.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from side_by_side import Row, compare, turns
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from marian import marian_model

from transformer_lib.data.multi30k import load_multi30k, moses_detokenize, moses_tokenize
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.convert import from_marian, to_marian
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.translation.translator import Translator

NAME = "multi30k-de-en-moses"  # post-norm layers, as Marian's
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
Translate = Callable[[list[str]], list[str]]


# ------------------------------------------------------------------ the same weights elsewhere


def their_model(ours: nn.Module) -> nn.Module:
    """Hugging Face's model with the weights of ours; they come back unchanged."""
    config = ours.config
    layers = config.n_encoder_layers, config.n_decoder_layers
    sizes = config.target_vocab_size, config.d_model, config.n_heads, layers, config.d_ff, config.max_length
    theirs = marian_model(*sizes, init_std=0.02)
    theirs.load_state_dict(to_marian(ours), strict=False)  # what is left out: the sinusoids
    back = from_marian(theirs.config.to_dict(), theirs.state_dict()).state_dict()
    for name, tensor in ours.state_dict().items():
        if not torch.equal(tensor, back[name]):
            raise ValueError(f"{name} did not come back as it was")
    return theirs


def their_tokenizer(ours: Tokenizer) -> Any:
    """Hugging Face's fast tokenizer with our vocabulary, as ``AutoTokenizer`` would load it."""
    from tokenizers import Tokenizer as Fast
    from tokenizers import decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {piece: i for i, piece in enumerate([*SPECIAL, *ours.pieces])}
    fast = Fast(models.BPE(ids, list(ours.merges)))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    fast.decoder = decoders.ByteLevel()
    fast.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=fast, clean_up_tokenization_spaces=False, **names)


def ctranslate2_folder(theirs: nn.Module, names: list[str], path: Path, kind: str) -> Path:
    """The weights of a Marian model in the format of CTranslate2, which is written in C++."""
    from ctranslate2.converters.transformers import MarianMTLoader

    loader, theirs = MarianMTLoader(), copy.deepcopy(theirs)  # the conversion may write over the weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.config.normalize_before = theirs.config.normalize_embedding = False
        # Marian's own loader cuts the table's last row, where its padding stands; ours is the first
        spec = super(MarianMTLoader, loader).get_model_spec(theirs)
    spec.decoder.start_from_zero_embedding = False
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    path.mkdir(parents=True)
    spec.save(str(path))
    return path


# ------------------------------------------------------------------ text to text


def captions() -> list[str]:
    """The German side of Multi30k's test of 2016."""
    return [pair.source for pair in load_multi30k("test_2016_flickr", "de", "en")]


def our_translate(translator: Translator, beams: int) -> Translate:
    """Ours, as its users call it; beams of all libraries stop when as many hypotheses are finished as they are wide."""
    options = {"length_penalty": 1.0, "normalization": "mean", "stop": "full"} if beams > 1 else {}
    return lambda texts: translator.translate(texts, beam_size=beams, **options)


def their_translate(theirs: nn.Module, tokenizer: Any, beams: int, rows: int = 32) -> Translate:
    """Hugging Face's ``generate`` on so many sentences at a time, in the order in which they come."""
    options = {"num_beams": beams, "do_sample": False, "max_new_tokens": 100}
    options |= {"length_penalty": 1.0, "early_stopping": True} if beams > 1 else {}

    @torch.inference_mode()
    def translate(texts: list[str]) -> list[str]:
        found: list[str] = []
        for first in range(0, len(texts), rows):
            prepared = [moses_tokenize(text, "de") for text in texts[first : first + rows]]
            read = tokenizer(prepared, padding=True, return_tensors="pt")
            written = theirs.generate(input_ids=read["input_ids"], attention_mask=read["attention_mask"], **options)
            found += tokenizer.batch_decode(written, skip_special_tokens=True)
        return [moses_detokenize(text, "en") for text in found]

    return translate


def ctranslate2_translate(folder: Path, names: list[str], tokenizer: Any, beams: int, kind: str) -> Translate:
    """CTranslate2, which sorts sentences by their length as ours does."""
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1, inter_threads=1, compute_type=kind)
    places = {name: place for place, name in enumerate(names)}
    options = {"beam_size": beams, "max_decoding_length": 100, "length_penalty": 1}

    def translate(texts: list[str]) -> list[str]:
        read = tokenizer([moses_tokenize(text, "de") for text in texts])["input_ids"]
        rows = [[names[token] for token in row] for row in read]
        found = translator.translate_batch(rows, max_batch_size=4000, batch_type="tokens", **options)
        written = [[places[name] for name in one.hypotheses[0]] for one in found]
        return [moses_detokenize(text, "en") for text in tokenizer.batch_decode(written, skip_special_tokens=True)]

    return translate


def everybody(folder: Path) -> tuple[Translator, Callable[[int], dict[str, Translate]], Translate]:
    """Ours, the peers that are installed for a beam, and Hugging Face's, sentence after sentence."""
    translator = Translator.from_pretrained(NAME, device="cpu")
    theirs, tokenizer = their_model(translator.model), their_tokenizer(translator.source_tokenizer)
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))

    def peers(beams: int) -> dict[str, Translate]:
        found = {"Hugging Face, batches of 32": their_translate(theirs, tokenizer, beams)}
        try:
            for kind in ("float32", "int8"):
                if not (folder / kind).exists():
                    ctranslate2_folder(theirs, names, folder / kind, kind)
                made = ctranslate2_translate(folder / kind, names, tokenizer, beams, kind)
                found[f"CTranslate2 (C++), {kind}"] = made
        except ImportError:
            pass
        return found

    return translator, peers, their_translate(theirs, tokenizer, 1, rows=1)


def in_percent(ours: list[str], theirs: list[str]) -> float:
    """How many sentences both translated to the same text."""
    return 100 * sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)


def check_same(peer: str, ours: list[str], theirs: list[str]) -> None:
    """Refuse to time a peer that does other work; weights of eight bits may choose other words."""
    same = in_percent(ours, theirs)
    print(f"{peer}: {same:.1f} percent of the translations are ours", flush=True)
    if same < 99 and "int8" not in peer:
        raise ValueError(f"{peer} translates {same:.0f} percent of the sentences alike: it does other work")


def text_to_text(repeats: int) -> Iterator[Row]:
    """1,000 captions from text to text; then 100 of them, which Hugging Face gets one after the other."""
    texts = captions()
    with tempfile.TemporaryDirectory() as folder:
        translator, peers_of, singly = everybody(Path(folder))
        for beams, name in ((1, "greedy"), (4, "beam of 4")):
            mine, peers = our_translate(translator, beams), peers_of(beams)
            written = mine(texts)
            for peer, translate in peers.items():
                check_same(peer, written, translate(texts))
            work = {peer: lambda translate=translate: translate(texts) for peer, translate in peers.items()}
            times = turns(lambda mine=mine: mine(texts), work, repeats)
            yield from compare(f"1,000 sentences, {name}", "sentences/s", len(texts), times)
        few, mine = texts[:100], our_translate(translator, 1)
        check_same("Hugging Face, one at a time", mine(few), singly(few))
        times = turns(lambda: mine(few), {"Hugging Face, one at a time": lambda: singly(few)}, min(repeats, 3))
        yield from compare("100 sentences, greedy", "sentences/s", len(few), times)


# ------------------------------------------------------------------ from a fresh process

FIRST = {
    "ours": """
import sys
from transformer_lib import Translator
translator = Translator.from_pretrained(sys.argv[1], device="cpu")
print(translator.search([sys.argv[2]], prepared=True, beam_size=1)[0][0].text)
""",
    "Hugging Face": """
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
read = tokenizer([sys.argv[2]], return_tensors="pt")
written = model.generate(
    input_ids=read["input_ids"], attention_mask=read["attention_mask"], max_new_tokens=100, num_beams=1
)
print(tokenizer.batch_decode(written, skip_special_tokens=True)[0])
""",
}
TOLD = "\nimport time\nprint(time.process_time())"


def processor_seconds(code: str, *words: str) -> tuple[float, str]:
    """The processor time of a fresh program, from its first instruction on, and what it printed."""
    asked = [sys.executable, "-W", "ignore", "-c", code + TOLD, *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    *printed, seconds = done.stdout.splitlines()
    return float(seconds), "\n".join(printed)


def first_translation(repeats: int) -> Iterator[Row]:
    """From a fresh process to the first translation: imports, loading the weights, one sentence."""
    sentence = moses_tokenize(captions()[0], "de")
    with tempfile.TemporaryDirectory() as folder:
        translator = Translator.from_pretrained(NAME, device="cpu")
        their_model(translator.model).save_pretrained(folder)
        their_tokenizer(translator.source_tokenizer).save_pretrained(folder)
        times: dict[str, list[float]] = {name: [] for name in FIRST}
        written = set()
        for _ in range(repeats):
            for name, code in FIRST.items():
                seconds, text = processor_seconds(code, NAME if name == "ours" else folder, sentence)
                times[name].append(seconds)
                written.add(text.strip())
    if len(written) > 1:
        raise ValueError(f"the first translations differ: {written}")
    yield from compare("first translation, from a fresh process", "starts/s", 1, times)


# ------------------------------------------------------------------ faster products


def packed(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """A layer whose weights were put once into the order in which oneDNN reads them."""
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)
    bias = layer.bias
    return lambda inputs: torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")


def eight_bits(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """PyTorch's dynamic quantization: weights of eight bits, each row with its scale; inputs as they come."""
    quantization = torch.ao.quantization
    config = quantization.per_channel_dynamic_qconfig
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = quantization.quantize_dynamic(nn.Sequential(layer), {nn.Linear: config}, dtype=torch.qint8)
    return lambda inputs: small(inputs)  # a module would be registered and not called


def with_products(model: nn.Module, make: Callable[[nn.Linear], Callable[[Tensor], Tensor]]) -> nn.Module:
    """A copy of a model in which ``make`` computes every product with weights; for inference only."""
    model = copy.deepcopy(model).requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            bias, whole = module.in_proj_bias is not None, module.in_proj_weight
            ends = [sum(module.widths[:part]) for part in range(4)]
            made = {}
            for first, last in ((0, 3), (0, 1), (1, 3)):
                rows = slice(ends[first], ends[last])
                layer = nn.Linear(whole.shape[1], ends[last] - ends[first], bias=bias)
                layer.weight = nn.Parameter(whole[rows], requires_grad=False)
                if bias:
                    layer.bias = nn.Parameter(module.in_proj_bias[rows], requires_grad=False)
                made[first, last] = make(layer)

            def project(inputs: Tensor, first: int, last: int, module=module, made=made) -> list[Tensor]:
                parts = made[first, last](inputs).split(module.widths[first:last], dim=-1)
                return [part.unflatten(2, (module.n_heads, -1)).transpose(1, 2) for part in parts]

            module._project = project
        elif isinstance(module, nn.Linear):
            module.forward = make(module)
    return model


def small_weights(repeats: int) -> Iterator[Row]:
    """The shipped translator from text to text with those products, and what its BLEU becomes."""
    import sacrebleu

    pairs = load_multi30k("test_2016_flickr", "de", "en")
    texts, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    plain = Translator.from_pretrained("multi30k-de-en", device="cpu")
    tokenizers = plain.source_tokenizer, plain.target_tokenizer
    for name, make in (("weights of 8 bits", eight_bits), ("weights packed by oneDNN", packed)):
        model = with_products(plain.model, make)
        other = Translator(model, *tokenizers, text=plain.text, decoding=plain.decoding)
        for beams, search in ((1, "greedy"), (5, "beam of 5")):
            written = [one.translate(texts, beam_size=beams) for one in (other, plain)]
            scores = [sacrebleu.corpus_bleu(found, [references]).score for found in written]
            both = lambda one, beams=beams: lambda: one.translate(texts, beam_size=beams)  # noqa: E731
            times = turns(both(other), {"as it is": both(plain)}, min(repeats, 3))
            what = f"{name}, shipped translator, {search}"
            yield from compare(what, "sentences/s", len(texts), times)
            yield {
                "measured": f"BLEU with {what}",
                "peer": "as it is",
                "unit": "BLEU",
                "ours": round(scores[0], 2),
                "theirs": round(scores[1], 2),
                "times_as_fast": round(scores[0] / scores[1], 3),
                "quartiles": [],
            }
