"""Text is text: letters composed or decomposed, marks and line separators make no difference, at no door."""

import shutil
import sys
import unicodedata
from types import SimpleNamespace

import pytest
import torch
from test_page_translator import ask_node

from transformer_lib.data.batching import encode_pairs
from transformer_lib.data.corpus import read_pairs, tokenize_corpus
from transformer_lib.data.multi30k import moses_detokenize, moses_tokenize
from transformer_lib.data.text import one_line
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.greedy import translate
from transformer_lib.metrics import bleu, exact_match
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.translation.evaluation import bleu_interval
from transformer_lib.translation.run import TrainOptions, load_corpus
from transformer_lib.translation.translator import Translator, find_pretrained

COMPOSED = ["Ein Mädchen läuft über die Straße.", "Zwei Hunde spielen draußen im größten Café."]
FORMS = {
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "with a byte-order mark": lambda text: f"\ufeff{text}",
    "on two lines": lambda text: text.replace(" ", "\n", 1),
    "with a line separator": lambda text: text.replace(" ", "\u2028", 1) + "\u2029",
    "with NEL and a carriage return": lambda text: text.replace(" ", "\x85", 1).replace(" ", "\r", 1),
    "with NUL": lambda text: f"{text}\0",
    "with what nobody sees": lambda text: f"\u200e{text[:2]}\u00ad{text[2:]}\u2060".replace(" ", "\u200b", 1),
}
WORDS = Tokenizer.train(COMPOSED, level="word")


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def odd(request):
    """The two sentences in another form."""
    return [request.param(text) for text in COMPOSED]


@pytest.mark.parametrize("name", ["multi30k-de-en", "captions-en-de"])
def test_every_form_is_translated_alike_at_every_door_of_a_translator(name, odd):
    translator = Translator.from_pretrained(name, device="cpu")
    found, expected = (translator.search(texts, beam_size=2) for texts in (odd, COMPOSED))
    assert found == expected and odd != COMPOSED
    ready = [translator.prepare(text) for text in COMPOSED]
    assert [translator.prepare(text) for text in odd] == ready
    shouted = [text.replace("\n", " ") for text in odd]
    assert translator.search(shouted, prepared=True) == translator.search(COMPOSED, prepared=True)
    maps = [translator.attention(text, text) for text in (odd[0], COMPOSED[0])]
    assert maps[0].source == maps[1].source and torch.equal(maps[0].cross, maps[1].cross)


def test_every_form_is_translated_alike_by_the_short_function(odd):
    found = Translator.from_pretrained("multi30k-de-en", device="cpu")
    parts = found.source_tokenizer, found.target_tokenizer
    assert translate(found.model, odd, *parts) == translate(found.model, COMPOSED, *parts)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
@pytest.mark.parametrize("name", ["multi30k-de-en", "captions-en-de"])
def test_every_form_is_translated_alike_in_the_page(name, odd):
    folder = str(find_pretrained(name))
    found, expected = (ask_node(folder=folder, jobs=texts, options={"beamSize": 1}) for texts in (odd, COMPOSED))
    assert [one["text"] for one in found] == [one["text"] for one in expected]


def test_every_form_scores_alike(odd):
    for one, other in ((odd, COMPOSED), (COMPOSED, odd)):
        assert bleu(one, other).score == pytest.approx(100)
        assert bleu(one, [[text, text] for text in other]).score == pytest.approx(100)
        assert bleu_interval(one, other)[0] == pytest.approx(100)
    decomposed = [unicodedata.normalize("NFD", text) for text in COMPOSED]
    assert exact_match(decomposed, COMPOSED) == exact_match([f"\ufeff{text}" for text in COMPOSED], decomposed) == 1
    assert [moses_tokenize(text, "de") for text in odd] == [moses_tokenize(text, "de") for text in COMPOSED]
    assert [moses_detokenize(text, "de") for text in odd] == COMPOSED


def test_every_form_is_trained_on_alike(odd, tmp_path):
    pairs = [(text, text) for text in odd]
    assert encode_pairs(pairs, WORDS, WORDS) == encode_pairs(zip(COMPOSED, COMPOSED, strict=True), WORDS, WORDS)
    one, other = (
        tokenize_corpus(x, WORDS, WORDS, tmp_path / str(i))
        for i, x in enumerate([pairs, [*zip(COMPOSED, COMPOSED, strict=True)]])
    )
    assert one.fingerprint == other.fingerprint
    with pytest.raises(ValueError, match="expected a sentence"):
        encode_pairs([("\ufeff", "a")], WORDS, WORDS)


@pytest.mark.parametrize("form", [name for name in FORMS if name not in ("on two lines", "with NUL")])
def test_a_file_of_any_form_holds_the_same_pairs(form, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes("".join(f"{FORMS[form](text)}\t{FORMS[form](text)}\r\n" for text in COMPOSED).encode())
    assert list(read_pairs(path)) == [(text, text) for text in COMPOSED]


# ---------------------------------------------------------------- what a model writes


@pytest.mark.parametrize("letter", ["\n", "\r", "\t", "\0", "\u2028", "\x85"])
def test_one_segment_is_one_line_whatever_the_model_writes(letter, monkeypatch):
    tokenizer = Tokenizer.train(["ab"], 260)
    model = Transformer(TransformerConfig(260, 260, 8, 2, 1, 1, 8)).eval()
    translator = Translator(model, tokenizer, tokenizer)
    assert tokenizer.decode(tokenizer.encode(f"x{letter}y")) == f"x{letter}y"  # the tokenizer is exact
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: f"x{letter}y")
    for prepared in (True, False):
        assert translator.search(["ab"], beam_size=1, max_length=2, prepared=prepared)[0][0].text == "x y"


def test_one_line_is_the_same_line_again():
    assert one_line("\u200b\u00ad\u200e\u200f\u2060\ufeff\0") == ""  # nothing that anybody could read
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            line = one_line(f"a {chr(code)}\u0308 b")
            assert one_line(line) == line and len(line.splitlines()) == 1 and unicodedata.is_normalized("NFC", line)


# ---------------------------------------------------------------- files as they are published

ANKI = "Go.\tGeh.\tCC-BY 2.0 (France) Attribution: tatoeba.org #2877272 (CM) & #8597805 (Roujin)\n"
TATOEBA = "1276\tLet's try something.\t77\tLass uns etwas versuchen!\n"


def test_files_of_anki_and_tatoeba_are_read(tmp_path):
    path = tmp_path / "deu.txt"
    path.write_text(ANKI + TATOEBA + "a dog\tein Hund\t\n", encoding="utf-8")
    pairs = [("Go.", "Geh."), ("Let's try something.", "Lass uns etwas versuchen!"), ("a dog", "ein Hund")]
    assert list(read_pairs(path)) == pairs


def test_other_columns_get_advice_that_works(tmp_path):
    path = tmp_path / "three.tsv"
    path.write_text("".join(f"dog {n}\tHund {n}\tchien {n}\n" for n in range(50)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 1: expected two texts.*3 columns: keep two \(cut -f1,2\)"):
        load_corpus(TrainOptions(data=str(path)))


# ---------------------------------------------------------------- languages are named


def published(monkeypatch, rows):
    asked = ("me/it", "x", "train")
    module = SimpleNamespace(load_dataset=lambda *name, split: rows if (*name, split) == asked else [])
    monkeypatch.setitem(sys.modules, "datasets", module)


@pytest.mark.parametrize("nested", [True, False])
def test_a_data_set_is_read_by_its_languages(nested, monkeypatch):
    texts = [{"de": f"Nummer {n}", "en": f"number {n}", "fr": f"numéro {n}"} for n in range(80)]
    published(
        monkeypatch,
        [{"id": str(n), "translation": row} if nested else {"id": str(n), **row} for n, row in enumerate(texts)],
    )
    for source, target, expected in (("en", "de", ("number", "Nummer")), ("de", "en", ("Nummer", "number"))):
        corpus = load_corpus(TrainOptions(data="hf:me/it:x", source=source, target=target))
        for first, second in corpus.train:
            assert (first.split()[0], second.split()[0]) == expected and first.split()[1] == second.split()[1]
        assert {(one.source.split()[0], one.target.split()[0]) for one in corpus.test} == {expected}
    for source, target in (("en", "es"), ("xx", "yy"), (None, None), ("en", None)):
        with pytest.raises(ValueError, match=r"has (id, )?de, en, fr, not texts in .*--source and --target"):
            load_corpus(TrainOptions(data="hf:me/it:x", source=source, target=target))
