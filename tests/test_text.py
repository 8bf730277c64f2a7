"""Text is text: letters composed or decomposed, marks and line separators make no difference, at no door."""

import sys
import unicodedata
from types import SimpleNamespace

import pytest
import torch

from experiments.pages import ask_node
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
    "isolated, as in a chat": lambda text: f"\u2068{text}\u2069",
    "embedded, with variation selectors": lambda text: f"\u202a{text[:1]}\ufe0f{text[1:]}\u202c\ufe0e",
    "with tags, a joiner and a control character": lambda text: f"{text[:3]}\u200d\x07{text[3:]}\U000e0041\u200c",
    "with blanks of Braille and of Hangul": lambda text: (
        text.replace(" ", "\u2800", 1).replace(" ", "\u3164") + "\uffa0"
    ),
    "with what nobody sees": lambda text: f"\u200e{text[:2]}\u00ad{text[2:]}\u2060".replace(" ", "\u200b", 1),
}
WORDS = Tokenizer.train(COMPOSED, level="word")
SAME = list(zip(COMPOSED, COMPOSED, strict=True))
EVERY = [unicodedata.category(chr(code)) for code in range(0x110000)]
ASSIGNED = [chr(code) for code, kind in enumerate(EVERY) if kind not in ("Cn", "Cs", "Co")]
IGNORABLE = (  # Default_Ignorable_Code_Point, Unicode 16: DerivedCoreProperties.txt
    "AD 34F 61C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 "
    "1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
)
PARTS = (part.partition("-") for part in IGNORABLE.split())
INVISIBLE = [
    *(one for one in ASSIGNED if unicodedata.category(one) in ("Cc", "Cf")),
    *(chr(code) for first, _, last in PARTS for code in range(int(first, 16), int(last or first, 16) + 1)),
    "\u2800",
]


def in_every_form(text):
    """All of these things at once."""
    for change in FORMS.values():
        text = change(text)
    return text


ODD = [in_every_form(text) for text in COMPOSED]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_text(form):
    """And so it is at every door, all forms together, as the tests below say."""
    assert [one_line(FORMS[form](text)) for text in COMPOSED] == COMPOSED


@pytest.mark.parametrize("name", ["multi30k-de-en", "captions-en-de"])
def test_every_form_is_translated_alike_at_every_door_of_a_translator(name):
    translator = Translator.from_pretrained(name, device="cpu")
    found, expected = (translator.search(texts, beam_size=2) for texts in (ODD, COMPOSED))
    assert found == expected
    ready = [translator.prepare(text) for text in COMPOSED]
    assert [translator.prepare(text) for text in ODD] == ready
    shouted = [text.replace("\n", " ") for text in ODD]
    assert translator.search(shouted, prepared=True) == translator.search(COMPOSED, prepared=True)
    maps = [translator.attention(text, text) for text in (ODD[0], COMPOSED[0])]
    assert maps[0].source == maps[1].source and torch.equal(maps[0].cross, maps[1].cross)


def test_every_form_is_translated_alike_by_the_short_function():
    found = Translator.from_pretrained("multi30k-de-en", device="cpu")
    parts = found.source_tokenizer, found.target_tokenizer
    assert translate(found.model, ODD, *parts) == translate(found.model, COMPOSED, *parts)


@pytest.mark.parametrize("name", ["multi30k-de-en", "captions-en-de"])
def test_every_form_is_translated_alike_in_the_page(name):
    folder = str(find_pretrained(name))
    found, expected = (ask_node(folder=folder, jobs=texts, options={"beamSize": 1}) for texts in (ODD, COMPOSED))
    assert [one["text"] for one in found] == [one["text"] for one in expected]


@pytest.mark.parametrize("where", ["in front", "at the end", "around", "between words", "in a word"])
def test_what_nobody_sees_is_no_text(where):
    blank = {"\0", "\u200b", "\u2800", "\u3164", "\uffa0"}  # which look like a space, or stand for one
    for one in INVISIBLE:
        odd = {
            "in front": f"{one}Zwei Hunde",
            "at the end": f"Zwei Hunde{one}",
            "around": f"{one}Zwei Hunde{one}",
            "between words": f"Zwei {one}Hunde",
            "in a word": f"Zwei Hun{one}de",
        }[where]
        space = where == "in a word" and (one in blank or one.isspace())
        assert one_line(odd) == ("Zwei Hun de" if space else "Zwei Hunde"), hex(ord(one))


@pytest.mark.parametrize(
    "text",
    [
        "می‌خواهم",  # Persian: without the joiner, two letters run together
        "अर्‍थ",  # a half form of Devanagari
        "അവന്‍",  # a chillu of Malayalam, at the end of a word
        "👩‍🔬 und 👨‍👩‍👧",  # one picture each
        "۝٣ \u0600١",  # signs drawn around digits
    ],
)
def test_what_changes_how_letters_look_stays(text):
    assert one_line(text) == text
    assert one_line(f"\u2067{text}\u2069\ufe0f") == one_line("\u2060".join(text)) == text
    assert one_line(text.replace("\u200c", "\u200c\u200c\u200d")) == text


def test_a_vocabulary_is_learned_from_what_can_be_seen():
    changes = str, "\u202a{}\u202c".format, FORMS["decomposed"]
    seen, odd, apart = (Tokenizer.train([*map(change, COMPOSED)] * 3, 300) for change in changes)
    assert seen == odd == apart
    assert odd.decode(odd.encode("\u202aa\u202c")) == "\u202aa\u202c"  # and it can still write any text


def test_the_page_reads_every_character_as_python_does():
    private = ["\ue000", "\U0010fffd"]
    texts = [
        text
        for one in [*ASSIGNED, *private]
        for text in (f"a{one}b", f"{one}\u200d\u06cc{one}\u200c\u0661{one}1 ❤{one}🔥")
    ]
    assert ask_node(prepare={"kind": "raw", "capitals": "keep"}, texts=texts) == [*map(one_line, texts)]


def test_every_form_scores_alike():
    for one, other in ((ODD, COMPOSED), (COMPOSED, ODD)):
        assert bleu(one, other).score == pytest.approx(100)
        assert bleu(one, [[text, text] for text in other]).score == pytest.approx(100)
        assert bleu_interval(one, other)[0] == pytest.approx(100)
    assert exact_match(ODD, COMPOSED) == exact_match(COMPOSED, ODD) == 1
    assert [moses_tokenize(text, "de") for text in ODD] == [moses_tokenize(text, "de") for text in COMPOSED]
    assert [moses_detokenize(text, "de") for text in ODD] == COMPOSED


def test_every_form_is_trained_on_alike(tmp_path):
    pairs = list(zip(ODD, ODD, strict=True))
    assert encode_pairs(pairs, WORDS, WORDS) == encode_pairs(SAME, WORDS, WORDS)
    one, other = (tokenize_corpus(x, WORDS, WORDS, tmp_path / str(i)) for i, x in enumerate([pairs, SAME]))
    assert one.fingerprint == other.fingerprint
    with pytest.raises(ValueError, match="expected a sentence"):
        encode_pairs([("\ufeff", "a")], WORDS, WORDS)


def test_a_file_of_any_form_holds_the_same_pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    for form in FORMS.keys() - {"on two lines", "with NUL"}:
        path.write_bytes("".join(f"{FORMS[form](text)}\t{FORMS[form](text)}\r\n" for text in COMPOSED).encode())
        assert list(read_pairs(path)) == SAME, form


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
    assert one_line("".join(INVISIBLE)) == ""  # nothing that anybody could read
    for one in ASSIGNED:
        line = one_line(f"a {one}\u0308 b")
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
    texts.append({"de": None, "en": "number 80", "fr": "numéro 80"})  # not translated: left out
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
        with pytest.raises(ValueError, match=r"has (id, )?de, en, fr, not texts in .*choose two as source and target"):
            load_corpus(TrainOptions(data="hf:me/it:x", source=source, target=target))
