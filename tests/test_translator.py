"""From text to text: order, scores, unknown words, streaming, attention, saving; and what is refused."""

import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from threading import Barrier

import pytest
import torch
from jaxtyping import TypeCheckError
from runs import run_folder

import transformer_lib.translation.translator as module
from transformer_lib.decoding.beam_search import SearchConfig
from transformer_lib.models.bahdanau import BahdanauSeq2Seq
from transformer_lib.models.gpt import GPTConfig
from transformer_lib.models.recurrent import RecurrentConfig
from transformer_lib.models.registry import build_model
from transformer_lib.training.checkpoints import from_eight_bits, load_tensors, load_weights, to_eight_bits
from transformer_lib.translation.cli import main
from transformer_lib.translation.translator import (
    TextPreparation,
    Translator,
    UnknownWordWarning,
    find_pretrained,
)


def load(model="gru", **given):
    return Translator.from_pretrained(run_folder(model), device="cpu", **given)


def captions():
    return Translator.from_pretrained("captions-en-de", device="cpu")


def test_translation_keeps_order_empty_lines_and_mode():
    translator = captions()
    lines = ["a dog is running in the park", "", "the cat", "   ", "zebra crossing 🦓", "the cat"]
    together = translator.translate(lines, beam_size=2, max_length=12)
    assert together[1] == together[3] == "" and together[2] == together[5] and len({*together}) == 4
    for training_mode in (True, False):
        translator.model.train(training_mode)
        assert translator.translate(lines[::-1], beam_size=2, max_length=12) == together[::-1]
        assert translator.model.training is training_mode
    assert translator.translate([]) == []


def test_the_best_translations_come_with_scores_in_order():
    translator, texts = load("transformer"), ["a dog is running in the park", "", "the cat"]
    best = translator.search(texts, beam_size=4, n_best=3, max_length=12)
    assert translator.translate(texts, beam_size=4, max_length=12) == [one[0].text for one in best]
    for one in (best[0], best[2]):
        assert len({t.text for t in one}) == 3
        assert [t.score for t in one] == sorted((t.score for t in one), reverse=True)
        assert all(t.log_probability < 0 for t in one)
    assert [t.text for t in best[1]] == ["", "", ""]
    flat = translator.search(texts[:1], SearchConfig(beam_size=4, length_penalty=0.0, max_length=12))[0][0]
    assert flat.score == pytest.approx(flat.log_probability)
    long = translator.search(texts[:1], min_length=9, max_length=9, beam_size=2)[0][0]
    assert len(translator.target_tokenizer.encode(long.text)) >= 8


def test_a_stream_is_the_translation_word_by_word():
    long = "the dog does not cross the street because it is too tired"
    for text in (long, "A cat", " "):
        pieces = list(captions().stream(text))
        assert "".join(pieces) == captions().translate([text], beam_size=1)[0]
        assert len(pieces) > 8 or text != long


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 3, "beam_size": 4, "n_best": 2},
        {"min_length": 17},
        {"repetition_penalty": 0.2, "length_penalty": 1.0},
        {"max_ratio": 0.7, "min_length": 3, "normalization": "mean"},
    ],
)
def test_a_stream_obeys_the_settings_of_its_translator(options):
    shipped, text = captions(), "The dog does not cross the street because it is too tired."
    own = Translator(
        shipped.model,
        shipped.source_tokenizer,
        shipped.target_tokenizer,
        text=shipped.text,
        decoding=SearchConfig(**{"beam_size": 1} | options),
    )
    (expected,) = own.translate([text], beam_size=1, n_best=1)
    assert expected != shipped(text)
    assert "".join(own.stream(text)) == expected
    given = {name: value for name, value in options.items() if name not in ("beam_size", "n_best")}
    assert "".join(shipped.stream(text, **given)) == shipped.translate([text], beam_size=1, **given)[0]
    assert "".join(shipped.stream(text, own.decoding)) == expected
    with pytest.raises(ValueError, match="beam_size=3: only greedy search"):
        next(shipped.stream(text, beam_size=3))


CONTRADICTIONS = [
    ({"min_length": 20, "max_length": 5}, "min_length=20 is more than max_length=5"),
    ({"min_length": 9, "max_ratio": 2.0}, "room for at most 8 tokens, but min_length=9"),  # four source tokens
    (
        {"min_length": 2000, "max_length": 5000, "max_ratio": 1000.0},
        "room for at most 1024 tokens, but min_length=2000",
    ),
]


@pytest.mark.parametrize(("options", "message"), CONTRADICTIONS)
def test_limits_that_contradict_each_other_are_refused_at_every_door(options, message, tmp_path, capsys):
    shipped, text = captions(), ["a dog runs"]
    for call in (shipped.translate, shipped.search):
        with pytest.raises(ValueError, match=message):
            call(text, beam_size=2, **options)
    with pytest.raises(ValueError, match=message):
        next(shipped.stream(text[0], **options))
    typed = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", f"{value}")]
    (tmp_path / "texts").write_text("a dog runs\n")
    assert main(["translate", "captions-en-de", str(tmp_path / "texts"), *typed]) == 1
    assert message in capsys.readouterr().err
    if options["min_length"] != 9:  # which contradicts the ratio for short sentences only
        others = [["export", "captions-en-de", "--output", str(tmp_path / "x")], ["evaluate", "captions-en-de"]]
        for command in others[: 1 if "max_ratio" in options else 2]:  # it searches, but only behind 24,000 captions
            assert main([*command, *typed]) == 1
            assert message in capsys.readouterr().err
        assert not (tmp_path / "x").exists()
        with pytest.raises(ValueError, match=message):
            parts = shipped.model, shipped.source_tokenizer, shipped.target_tokenizer
            Translator(*parts, decoding=SearchConfig(**options))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["the model", "a layer"])
def test_a_compiled_model_translates_and_is_saved_like_the_one_inside(part, tmp_path):
    shipped, text = captions(), ["the dog is sleeping"]
    model = deepcopy(shipped.model)
    if part == "the model":
        model = torch.compile(model, backend="eager")
    else:
        model.encoder.layers[0] = torch.compile(model.encoder.layers[0], backend="eager")
    parts = shipped.source_tokenizer, shipped.target_tokenizer
    own = Translator(model, *parts, text=shipped.text, decoding=shipped.decoding)
    if part == "the model":  # a compiled layer would be traced, which strict mode cannot be
        assert own.search(text) == shipped.search(text) and list(own.stream(text[0])) == list(shipped.stream(text[0]))
    assert own.config() == shipped.config()
    for precision in ("float32", "float16"):
        folder = own.save_pretrained(tmp_path / precision, precision=precision)
        again = Translator.from_pretrained(folder, device="cpu")
        for name, tensor in again.model.state_dict().items():
            torch.testing.assert_close(tensor, shipped.model.state_dict()[name], atol=1e-3, rtol=1e-3)
    weights = {name: tensor + 1 for name, tensor in shipped.model.state_dict().items()}
    load_weights(own.model, weights, "somewhere")
    for one, other in zip(own.model.state_dict().values(), weights.values(), strict=True):
        assert torch.equal(one, other)


def test_with_limits_that_contradict_each_other_a_line_is_bad(tmp_path, capsys):
    (tmp_path / "texts").write_text("a dog runs\n\nthe dog does not cross the street because it is too tired\n")
    words = ["translate", "captions-en-de", str(tmp_path / "texts"), "--min-length", "9", "--max-ratio", "2"]
    assert main([*words, "--skip-bad"]) == 0
    out, err = capsys.readouterr()
    assert "line 1: left empty, it has room for at most 8 tokens, but min_length=9" in err
    first, blank, third, rest = out.split("\n")
    assert first == blank == rest == "" and len(third.split()) >= 8


def test_one_sentence_is_translated_by_a_call():
    translator = load("transformer")
    for text in ("", "  the\u2028cat "):
        assert [translator(text, max_length=4)] == translator.translate([text], max_length=4)
    assert translator("the cat", SearchConfig(beam_size=1)) == translator("the cat", beam_size=1)
    with pytest.warns(UnknownWordWarning, match="does not know zebra"):
        captions()("The zebra is sleeping.")


def test_words_that_the_model_does_not_know_are_told():
    translator = captions()
    translator.known = None
    with pytest.warns(UnknownWordWarning, match="the model does not know zebra, quagga"):
        translator.translate(["The zebra is sleeping.", "the quagga"])
    found = captions().search(["The zebra is sleeping.", "the dog"])
    assert [best[0].unknown for best in found] == [("zebra",), ()]


def test_averaged_weights_come_first_and_others_can_be_asked_for():
    folder = run_folder("transformer")
    for weights, file in ((None, "averaged"), ("best", "best"), ("epoch-2", "epoch-2")):
        expected = load_tensors(folder / f"{file}.safetensors")[0]
        model = load("transformer", weights=weights).model
        assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    for weights, message in (("epoch-9", r"epoch-9\.safetensors"), ("last", "is for going on")):
        with pytest.raises(ValueError, match=message):
            load("transformer", weights=weights)


def test_it_searches_as_its_folder_says_unless_told_otherwise(tmp_path):
    translator, texts = load("transformer"), ["a dog is running in the park"]
    assert translator.decoding == SearchConfig()  # a run says nothing yet
    translator.decoding = SearchConfig(beam_size=2, length_penalty=-2.0, max_length=7)
    folder = translator.save_pretrained(tmp_path / "x", notes={})
    again = Translator.from_pretrained(folder, device="cpu")
    assert again.decoding == translator.decoding
    named = load("transformer").search(texts, beam_size=2, length_penalty=-2.0, max_length=7)
    assert again.search(texts) == named == again.search(texts, SearchConfig(2, -2.0, 7))
    assert again.search(texts, length_penalty=0.0)[0][0].score == pytest.approx(
        again.search(texts, length_penalty=0.0)[0][0].log_probability
    )


def spied(monkeypatch):
    """The shapes of the sources that reach the search."""
    shapes, found = [], module.beam_search
    monkeypatch.setattr(
        module,
        "beam_search",
        lambda model, source, *rest: shapes.append(tuple(source.shape)) or found(model, source, *rest),
    )
    return shapes


def test_blank_lines_never_reach_the_model(monkeypatch):
    shapes = spied(monkeypatch)
    written = load().translate(["", "the cat", " \t"], max_length=5)
    assert len(shapes) == 1 and shapes[0][0] == 1 and written[0] == written[2] == ""


def test_a_long_line_makes_a_batch_of_its_own(monkeypatch):
    shapes = spied(monkeypatch)
    texts = ["the cat"] * 7 + ["the cat " * 20] + ["a dog"] * 6
    found = captions().translate(texts, beam_size=2, max_tokens=24, max_length=5)
    assert sorted(shapes) == [(1, 3), (1, 41), (4, 3), (4, 3), (4, 3)]  # 12 tokens at most, but for the long one
    assert found == captions().translate(texts, beam_size=2, max_length=5)


def test_a_line_longer_than_the_positions_is_refused_before_anything_is_translated(monkeypatch):
    translator = captions()
    monkeypatch.setattr(module, "beam_search", None)
    with pytest.raises(ValueError, match=r"texts\[2\] has 1201 tokens, more tokens than the 1024"):
        translator.translate(["the cat", "", "the dog " * 600])
    assert translator.refusal("the cat") is None and "1201" in translator.refusal("the dog " * 600)


# ---------------------------------------------------------------- attention


def test_attention_is_what_the_model_attends_to():
    translator = captions()
    translator.model.train()
    looks = translator.attention("A dog is running.", "ein Hund rennt")
    assert translator.model.training
    assert looks.source == ["a", "dog", "is", "running", "<eos>"] and looks.target == ["ein", "Hund", "rennt", "<eos>"]
    assert looks.cross.shape == (4, 4, 4, 5)
    assert looks.encoder.shape == (4, 4, 5, 5) and looks.decoder.shape == (4, 4, 4, 4)
    for weights in (looks.cross, looks.encoder, looks.decoder):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert looks.decoder.triu(1).abs().max() == 0
    own = translator.attention("a dog is running")
    assert " ".join(own.target[:-1]) == translator.translate(["a dog is running"])[0]


def aligned():
    tokenizers = load().source_tokenizer, load().target_tokenizer
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    return Translator(BahdanauSeq2Seq(RecurrentConfig(*sizes, 8, 8)), *tokenizers)


def test_attention_of_a_recurrent_model_is_one_head_of_one_layer():
    looks = aligned().attention("a dog is running", "ein Hund rennt")
    rows = len(looks.target)
    assert looks.cross.shape == (1, 1, rows, len(looks.source)) and looks.encoder is None and looks.decoder is None
    torch.testing.assert_close(looks.cross.sum(-1), torch.ones(1, 1, rows))


# ---------------------------------------------------------------- saving


def test_a_translator_is_saved_and_loaded(tmp_path):
    translator = captions()
    folder = translator.save_pretrained(tmp_path / "mine", notes={"about": "a test"})
    again = Translator.from_pretrained(folder, device="cpu")
    assert again.text == TextPreparation("captions", "en", "de") and again.model.config == translator.model.config
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, translator.model.state_dict()[name])
    assert again.translate(["The cat."]) == translator.translate(["The cat."])
    assert (folder / "weights.safetensors").stat().st_size < 4.1 * sum(p.numel() for p in again.model.parameters())
    half = translator.save_pretrained(tmp_path / "half", precision="float16")
    assert (half / "weights.safetensors").stat().st_size < 2.1 * sum(p.numel() for p in again.model.parameters())
    with pytest.raises(ValueError, match="is not empty"):
        translator.save_pretrained(folder)
    with pytest.raises(TypeError, match="precision='float16'"):
        translator.save_pretrained(tmp_path / "old", half=True)
    with pytest.raises(Exception, match="int4"):
        translator.save_pretrained(tmp_path / "old", precision="int4")


def test_eight_bits_of_a_matrix_and_of_its_transpose():
    weight = torch.arange(9.0).view(3, 3)
    again = from_eight_bits(to_eight_bits({"one": weight, "turned": weight.T}))
    torch.testing.assert_close(again["turned"].T, again["one"], atol=0.05, rtol=0)


@pytest.mark.parametrize(("make", "dtype"), [(captions, torch.float32), (aligned, torch.bfloat16)])
def test_eight_bits_are_off_by_half_a_step_at_most(make, dtype, tmp_path):
    translator = make()
    with torch.no_grad():
        first = next(translator.model.parameters())
        first[0] = 0  # a row of zeros has no scale of its own
        first[1] *= 1e-3  # and a row of small numbers its own small steps
    translator.model.to(dtype)
    folder = translator.save_pretrained(tmp_path / "small", precision="int8")
    again = Translator.from_pretrained(folder, device="cpu")
    before, after = translator.model.state_dict(), again.model.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        rows, found = tensor.float(), after[name]
        bound = rows.abs().amax(-1, keepdim=True) / 253 if rows.dim() > 1 else 1e-3 * rows.abs()
        assert ((rows - found).abs() <= bound + 1e-7).all(), name
    half = translator.save_pretrained(tmp_path / "half", precision="float16")
    small, large = ((one / "weights.safetensors").stat().st_size for one in (folder, half))
    assert small < 0.9 * large and (make is aligned or small < 0.6 * large)  # narrow rows have many scales
    twice = again.save_pretrained(tmp_path / "twice", precision="int8")
    for name, tensor in Translator.from_pretrained(twice, device="cpu").model.state_dict().items():
        torch.testing.assert_close(tensor, after[name], rtol=1e-6, atol=0)


def test_a_folder_of_ones_own_comes_before_a_shipped_translator(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="captions-en-de"):
        find_pretrained("no-such-model")
    monkeypatch.chdir(tmp_path)
    assert find_pretrained("multi30k-en-de/").parent.name == "pretrained"
    shutil.copytree(run_folder(), tmp_path / "captions-en-de")
    assert find_pretrained("captions-en-de").resolve() == tmp_path / "captions-en-de"


WEIGHTS, CONFIG = "best.safetensors", "config.json"
DAMAGES = {  # a file, what is replaced in it ("": all), by what; numbers: of its bytes, so many are left
    "weights cut": (WEIGHTS, "", 1000, "not a readable checkpoint"),
    "weights gone": (WEIGHTS, "", 0, "not a readable checkpoint"),
    "config cut": (CONFIG, "", 20, "not the configuration of a translator"),
    "config of another kind": (CONFIG, "", "[1, 2]", "not the configuration"),
    "deep config": (CONFIG, "", "[" * 100_000, "not the configuration"),
    "no source": (CONFIG, '"source": "source.json"', '"x": 1', "tokenizers"),
    "a tokenizer that is no name": (CONFIG, '"source": "source.json"', '"source": null', "tokenizers.source"),
    "far too wide": (CONFIG, '"d_hidden": 32', '"d_hidden": 10000000000', "not the one"),
    "far too deep": (CONFIG, '"n_layers": 1', '"n_layers": 10000000', "not the one"),
    "text of another kind": (CONFIG, '"raw"', '"rot13"', "text.kind"),
    "no way to decode": (CONFIG, '"decoding": {', '"decoding": null, "notes": {', "decoding"),
    "an endless beam": (CONFIG, '"beam_size": 5', '"beam_size": "5"', "decoding.beam_size"),
    "vocabulary cut": ("source.json", "", 50, "source.json"),
    "another piece": ("target.json", '"pieces": ["', '"pieces": ["q', "not the vocabulary"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_files_are_refused(case, tmp_path):
    name, old, new, message = DAMAGES[case]
    path = shutil.copytree(run_folder(), tmp_path / "copy") / name
    content = path.read_bytes()
    if isinstance(new, int):
        path.write_bytes(content[:new])
    else:
        path.write_bytes(content.replace(old.encode() or content, new.encode()))
    with pytest.raises(ValueError, match=message):
        Translator.from_pretrained(path.parent, device="cpu")


def language_model(translator):
    """One that reads and writes with a single stack, and the same vocabularies."""
    model = build_model("gpt", GPTConfig(translator.source_tokenizer.vocab_size, d_model=8, n_heads=2, n_layers=1))
    return Translator(model.eval(), translator.source_tokenizer, translator.source_tokenizer)


REFUSED = {
    "a number among texts": (lambda t: t.translate(["the cat", 5]), r"texts\[1\] is 5"),
    "a number for a sentence": (lambda t: t.attention("the cat", 5), r"texts\[1\] is 5"),
    "more than the beam": (lambda t: t.search(["a"], beam_size=2, n_best=3), "n_best=3 is more than beam_size=2"),
    "no length": (lambda t: t.translate([""], max_length=0), "max_length"),
    "no penalty": (lambda t: t.translate(["a"], length_penalty=float("nan")), "length_penalty"),
    "an option that is none": (lambda t: t.translate(["a"], alpha=1.0), "alpha"),
    "nothing": (lambda t: t.attention(" "), "empty sentence"),
    "no attention": (lambda t: t.attention("the cat"), "has no attention to show.*align"),
    "a single stack": (lambda t: language_model(t).attention("the cat", "a dog"), "has no attention to show.*align"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_translated_is_named(case):
    call, message = REFUSED[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call(load())
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))


def test_threads_share_a_translator():
    translator = captions()
    sentences = ["The dog is sleeping.", "A cat.", "The small dog is running.", "A boy is playing."]
    alone = [translator.attention(text, text) for text in sentences]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: translator.attention(text, text), sentences * 5))
    for one, other in zip(together, alone * 5, strict=True):
        assert torch.equal(one.cross, other.cross)
    translator.model.train()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda text: translator.translate([text]), sentences * 3))
    assert translator.model.training


def test_translators_do_not_wait_for_each_other(monkeypatch):
    both, found = Barrier(2, timeout=10), module.beam_search
    monkeypatch.setattr(module, "beam_search", lambda *given: (both.wait(), found(*given))[1])
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda translator: translator("The cat."), [captions(), captions()])
    assert one == other


def test_a_stream_never_changes_the_mode_of_the_model():
    translator = captions()
    translator.model.train()
    with pytest.raises(ValueError, match="in training mode"):
        next(translator.stream("The dog is sleeping."))
    assert translator.model.training


def test_many_full_stops_take_no_time():
    started = time.process_time()
    captions().text.prepare("." * 200_000 + "a", captions().source_tokenizer)
    assert time.process_time() - started < 5


def test_nothing_is_left_of_a_translator_that_cannot_be_saved(tmp_path):
    translator = aligned()
    with pytest.raises(Exception, match=r"serialize|JSON"):
        translator.save_pretrained(tmp_path / "x", notes={"x": object()})
    with torch.no_grad():
        next(translator.model.parameters()).fill_(1e6)
    with pytest.raises(ValueError, match="not finite in half precision"):
        translator.save_pretrained(tmp_path / "x", precision="float16")
    with pytest.raises(ValueError, match="choose an empty folder"):
        translator.save_pretrained("")
    assert not (tmp_path / "x").exists()


STORED = {
    "captions-en-de": ("The dog is sleeping.", "Der Hund schläft."),
    "multi30k-en-de": ("Two dogs are playing in the snow.", "Zwei Hunde spielen im Schnee."),
    "multi30k-de-en": ("Zwei Hunde spielen im Schnee.", "Two dogs play in the snow."),
    "multi30k-en-fr": ("Two dogs are playing in the snow.", "Deux chiens jouent dans la neige."),
}


@pytest.mark.parametrize("name", STORED)
def test_shipped_translators_write_what_they_always_wrote(name):
    source, expected = STORED[name]
    assert Translator.from_pretrained(name, device="cpu").translate([source]) == [expected]


def test_the_way_of_a_sentence_is_short():
    """Functions and modules of the library between a text and its translation, and calls beside the search."""
    translator, calls = captions(), []

    def note(frame, event, _):
        if event == "call" and "/transformer_lib/" in frame.f_code.co_filename:
            calls.append((frame.f_code.co_filename.rsplit("/", 1)[1], frame.f_code.co_name))

    def translate():
        sys.setprofile(note)
        try:
            translator.translate(["the dog sleeps"])
        finally:
            sys.setprofile(None)

    translate()
    doubting, translator.known = len(calls), None
    calls.clear()
    translate()
    assert 0 < doubting - len(calls) <= 20  # what it takes to doubt a translation
    assert len(calls) <= 500 and len(set(calls)) <= 60 and len({file for file, _ in calls}) <= 12
    assert sum(file in ("translator.py", "tokenizer.py") for file, _ in calls) <= 80
