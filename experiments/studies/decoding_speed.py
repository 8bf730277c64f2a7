"""How fast does a trained translator decode beside CTranslate2 and Hugging Face with its weights, until sentences end?"""

import tempfile
import time
from functools import lru_cache

import torch

from experiments.harness import Check, Finding, Study
from experiments.statistics import ratio
from experiments.tasks import SMOKE, multi30k, pad
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.beam_search import beam_search
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.metrics import bleu
from transformer_lib.models.families import FAMILIES
from transformer_lib.translation.translator import Translator

NAME = "multi30k-de-en"
LONGEST = 6 if SMOKE else 50  # tokens of a translation


@lru_cache(1)
def translator():
    """A translator that comes with the library."""
    return Translator.from_pretrained(NAME, device="cpu")


@torch.no_grad()
def hugging_face(ours):
    """M2M100, whose layers begin with a norm as ours do, with our weights."""
    import transformers

    c = ours.config
    sizes = {"vocab_size": c.target_vocab_size, "d_model": c.d_model, "max_position_embeddings": c.max_length}
    for side, layers in (("encoder", c.n_encoder_layers), ("decoder", c.n_decoder_layers)):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": c.n_heads, f"{side}_ffn_dim": c.d_ff}
    ids = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    config = transformers.M2M100Config(**sizes, **ids, activation_function=c.activation, scale_embedding=True)
    theirs = transformers.M2M100ForConditionalGeneration(config).eval()
    tensors = theirs.state_dict()
    for name, parameter in ours.named_parameters():
        names = FAMILIES["marian"].their_names(name.replace("coder.norm", "coder.layer_norm"))
        for other, part in zip(names, parameter.chunk(len(names)), strict=True):
            tensors[other].copy_(part)
    for side in (theirs.model.encoder, theirs.model.decoder):
        side.embed_positions.weights = torch.cat([torch.zeros(PAD + 1, c.d_model), ours.target_positions.table.float()])
        side.embed_positions.make_weights = lambda *sizes: None  # long enough
    return theirs


def ctranslate2(ours):
    """A translator of CTranslate2 with our weights, in float32."""
    import ctranslate2 as package
    from ctranslate2.converters.transformers import M2M100Loader

    theirs = hugging_face(ours)
    spec = M2M100Loader().get_model_spec(theirs)
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = ours.target_positions.table.numpy()
    words = list(map(str, range(ours.config.target_vocab_size)))
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = str(BOS), str(EOS), "3"
    spec.config.decoder_start_token = str(BOS)
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        return package.Translator(folder, device="cpu", inter_threads=1, intra_threads=1, compute_type="float32")


@lru_cache(4)
def engine(kind, early=False):
    """From rows of source ids, as many as come, and the width of a beam to rows of target ids; `early` is Hugging Face's."""
    ours = translator().model
    if kind == "CTranslate2":
        theirs = ctranslate2(ours)

        def search(rows, beams):
            limits = {"max_decoding_length": LONGEST, "suppress_sequences": [[str(PAD)], [str(BOS)]]}
            found = theirs.translate_batch([list(map(str, row)) for row in rows], beam_size=beams, **limits)
            return [list(map(int, one.hypotheses[0])) for one in found]

    elif kind == "Hugging Face":
        theirs = hugging_face(ours)

        def search(rows, beams):
            source = pad(rows)
            options = {"num_beams": beams, "max_new_tokens": LONGEST, "do_sample": False, "early_stopping": early}
            with torch.inference_mode():
                found = theirs.generate(input_ids=source, attention_mask=(source != PAD).long(), **options)
            return found[:, 1:].tolist()

    else:
        ours = Translator.from_pretrained(NAME, device="cpu").model.to(getattr(torch, kind)).eval()
        options = {"length_penalty": 1.0, "normalization": "mean", "max_length": LONGEST}

        def search(rows, beams):
            if beams == 1:
                return greedy_decode(ours, pad(rows), max_length=LONGEST).tolist()
            return beam_search(ours, pad(rows), beam_size=beams, **options).tokens[:, 0].tolist()

    return search


def measure(seed, budget, kind, beams=4, batch=64, part="test_2016_flickr", early=False, at_most=1000):
    """Milliseconds a sentence, and BLEU, of every fifth batch of similar length, or every fiftieth sentence, others for each seed.

    Sources of more than `at_most` tokens are left out. It is processor time of one thread, which other work on the machine changes less than the time on the clock.
    """
    encode = translator().source_tokenizer.encode
    encoded = ((pair, [*encode(pair.source), EOS]) for pair in multi30k(part, "de", "en"))
    pairs, rows = zip(*(one for one in encoded if len(one[1]) <= at_most), strict=True)
    order, batch = sorted(range(len(rows)), key=lambda i: len(rows[i])), 2 if SMOKE else batch
    groups = [order[first : first + batch] for first in range(0, len(order), batch)]
    groups = groups[seed % 5 :: 5 if batch > 1 else 50][: 1 if SMOKE else None]
    search, written = engine(kind, early), {}
    search([rows[i] for i in groups[0]], beams)  # warms up
    begin = time.process_time()
    for group in groups:
        written |= zip(group, search([rows[i] for i in group], beams), strict=True)
    seconds = time.process_time() - begin
    texts = [translator().target_tokenizer.decode(row) for row in written.values()]
    score = bleu(texts, [pairs[i].target for i in written]).score
    return {"milliseconds": 1000 * seconds / len(written), "bleu": score}


ENGINES = {
    "library": "float32",
    "library in bfloat16": "bfloat16",
    "CTranslate2": "CTranslate2",
    "Hugging Face": "Hugging Face",
}
WORK = {"greedy": {"beams": 1}, "beam of 4": {}, "one at a time": {"beams": 1, "batch": 1}}


def against(work, peer):
    """How many times as long a peer takes."""
    return ratio("milliseconds", f"{work}, {peer}", f"{work}, library")


STUDY = Study(
    chapter="translation/decoding",
    equal="a translator that comes with the library (multi30k-de-en: 5 + 3 pre-norm layers, width 128, 6,000 tokens) and its weights; the test set of 2016, in batches of 64 of similar length, or one sentence at a time; scores divided by the number of tokens, at most 50 tokens, one thread, float32 unless an arm says otherwise; processor time, in turns, in one process",
    arms={
        f"{work}, {name}": {"kind": kind} | settings
        for work, settings in WORK.items()
        for name, kind in ENGINES.items()
    },
    measure=measure,
    metric="milliseconds a sentence",
    budget=1,
    unit="passes",
    smoke=1,
    seeds=range(5),
    findings={
        "beam": Finding(
            "For a beam of 4, Hugging Face's M2M100 takes at least 1.1 times as long as the library on one processor core with AVX2 or newer instructions. Both have the same weights and divide scores by the number of tokens, a batch holds 16 different sentences or more, each sentence gets one translation, and none is cut off.",
            against("beam of 4", "Hugging Face"),
            ("low", ">", 1.1),
            line="With the same translator, a length penalty of 1, and batches of 16 different sentences or more, Hugging Face's code takes at least 1.1 times as long as ours for a beam of four.",
            earlier="We had aimed for “at least twice as long”. “At least 1.5 times” was true of batches of 64, but not of batches of 16. Further checks found cases where even 1.1 is too much, so the sentence now excludes them: a length penalty of 2, where our search goes on for longer, four translations of each sentence, and processors without AVX2.",
        ),
    },
)

OURS_AND_THEIRS = [f"{work}, {name}" for work in ("greedy", "beam of 4") for name in ("library", "Hugging Face")]
CHECKS = {
    "small-batches": Check(
        "batches of 16 sentences rather than 64, so that more of the time is spent around the arithmetic; ten rounds, 100 to 109, rather than five",
        ("beam",),
        range(100, 110),
        {name: {"batch": 16} for name in OURS_AND_THEIRS},
    ),
    "large-batches": Check(
        "batches of 200 sentences rather than 64, so that most of the time is arithmetic; ten rounds, 200 to 209, rather than five",
        ("beam",),
        range(200, 210),
        {name: {"batch": 200} for name in OURS_AND_THEIRS},
    ),
    "other-sentences": Check(
        "the validation set in batches of 16 sentences, rather than the test set of 2016 in batches of 64; ten rounds, 300 to 309, rather than five",
        ("beam",),
        range(300, 310),
        {name: {"batch": 16, "part": "val"} for name in OURS_AND_THEIRS},
    ),
    "first-four": Check(
        "Hugging Face's beam stops as soon as four translations have ended (early_stopping=True of its generate); batches of 16 sentences of the validation set; ten rounds, 500 to 509",
        ("beam",),
        range(500, 510),
        {name: {} for name in OURS_AND_THEIRS} | {"beam of 4, Hugging Face": {"early": True}},
        settings={"batch": 16, "part": "val"},
    ),
    "short-captions": Check(
        "training captions of at most nine tokens, in batches of 64, rather than the test set of 2016; ten rounds, 600 to 609",
        ("beam",),
        range(600, 610),
        {name: {} for name in OURS_AND_THEIRS},
        settings={"part": "train", "at_most": 9},
    ),
}
