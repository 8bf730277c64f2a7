"""What a translator knows, and when it is doubted: the same by library, command and page."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from runs import TINY, begin, options, run_folder

from experiments.pages import ask_node
from experiments.pages.visitors import MESSAGES, answers, load_visitors
from transformer_lib import Translator, pretrained_names
from transformer_lib.translation import export
from transformer_lib.translation.cli import main
from transformer_lib.translation.export import export_run
from transformer_lib.translation.known import FILE, DoubtWarning, Known, UnknownWordWarning, doubt, near
from transformer_lib.translation.run import load_corpus
from transformer_lib.translation.translator import find_pretrained

SOURCE = (
    "the is a dog playing i think believe it can t cat in house please what s he people man we to into "
    + 20 * "ab"
    + "s"
)
RANK = {word: rank for rank, word in enumerate(SOURCE.split())}
KNOWN = Known(RANK, frozenset(["der", "hund", "spielt", "ein", "zwei", "uhr", "um", "tisch", "katze"]), -0.8, -0.6)


@pytest.mark.parametrize(
    ("text", "translation", "certainty", "certain", "signs"),
    [
        ("The dog is playing.", "Der Hund spielt.", -0.1, None, ()),
        ("The dog is playing.", "Der Hund spielt.", -0.7, False, ("less sure",)),
        ("The dog is playing.", "Der Hund spielt.", -0.9, True, ("least sure",)),
        ("The dog is playing.", "Der Hund spalt.", -0.1, True, ("invented",)),
        ("The dog is playing it.", "Der playing Hund", -0.1, None, ()),  # a word of the sentence is not invented
        ("A dog can think.", "Um zwei Uhr ein Tisch um zwei Uhr", -0.1, True, ("repeated",)),
        ("The dog, the dog!", "Der Hund, der Hund!", -0.1, None, ()),  # as the sentence does
        ("A dog? I think.", "Der Hund? Der Hund spielt.", -0.1, None, ()),  # in two sentences, as there are two
        ("A dog can think.", "Der Hund. Der Hund spielt.", -0.1, True, ("repeated",)),
        ("A dog? I think.", "Der Hund? Um zwei Uhr, um zwei Uhr.", -0.1, True, ("repeated",)),
        ("The zebra is playing.", "Der Hund spielt.", -0.1, False, ("rare",)),
        ("The zebra is playing.", "Der Hund spalt.", -0.9, True, ("least sure", "invented", "rare")),
        ("Zebra quagga", "Der Hund", -0.1, True, ("unknown",)),
        ("Der Hund spielt", "Der Hund", -0.1, True, ("unknown", "language")),
        ("?! 42", "Der Hund", -0.1, True, ("no words",)),
    ],
)
def test_signs(text: str, translation: str, certainty: float, certain: bool | None, signs: tuple[str, ...]) -> None:
    found = doubt(KNOWN, text, translation, certainty)
    assert (found.certain if found else None) is certain and (found.signs if found else ()) == signs
    if found:
        assert found.text.startswith("This is probably wrong." if certain else "Look twice.")
    unlimited = replace(KNOWN, wrong=None, unsure=None)
    again = doubt(unlimited, text, translation, certainty)
    assert (again.signs if again else ()) == tuple(sign for sign in signs if not sign.endswith("sure"))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("The dog is playng.", "The dog is playing."),
        ("The dgo is playing.", "The dog is playing."),  # swapped
        ("The cag is playing", ""),  # three letters have too many neighbours
        ("A houuse, please", "A house, please"),
        ("A hoase, please", "A house, please"),
        ("i cant beleive it", "i can't believe it"),
        ("Whats in it", "What's in it"),
        ("HOUSS IN THE HOUSE", "HOUSE IN THE HOUSE"),
        ("We think Pleade is a dog", ""),  # a name
        ("It is. Pleade think", "It is. Please think"),
        ("beleive playng zebra", ""),  # with a third unknown word nobody knows what was meant
        ("beleive playng", "believe playing"),
    ],
)
def test_did_you_mean(typed: str, meant: str) -> None:
    found = doubt(KNOWN, typed, "Der Hund")
    assert (found.meant if found else "") == meant
    assert bool(meant) == (found is not None and "Did you mean" in found.text)


def test_every_slip_leads_back_and_the_more_frequent_word_wins() -> None:
    for word in ("playing", "believe", "please"):
        slips = [word[:3] + "x" + word[3:], word[:3] + word[4:], word[:3] + "x" + word[4:]]
        slips += [word[:3] + word[4] + word[3] + word[5:]] if word[3] != word[4] else []
        assert {near(slip, KNOWN) for slip in slips} == {word}, slips
    for first, second in (("house", "cause"), ("cause", "house")):
        assert near("hause", Known({first: 0, second: 1}, frozenset())) == first
    assert near("", KNOWN) == near("x", KNOWN) == near("zzzzz", KNOWN) == ""


def test_a_word_of_more_than_forty_letters_takes_no_time() -> None:
    started, known = time.process_time(), Known({"a" * 40: 0}, frozenset())
    assert near("a" * 39, known) == near("a" * 38 + "ba", known) == "a" * 40
    assert near("a" * 41, known) == near("a" * 10**6, known) == ""
    assert time.process_time() - started < 1


def test_what_node_says_of_an_error_is_told() -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        ask_node(folder="nowhere", jobs=["a"])
    assert "nowhere/" in refused.value.__notes__[0]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("known")
    KNOWN.save(folder / FILE)
    return folder


def test_the_page_doubts_as_the_library_on_anything(small: Path) -> None:
    rng = random.Random(0)
    pool = f"{SOURCE} Der Hund spalt playng Zebra beleive cant ALLE x² İ ǅ 你好 dgo whats o'clock two_dogs".split()
    pool += ["u\u0308ber", "hu\xadnd", ".", "!?", "…", "\u200b", "z" * 50, "\t"]
    pool += ["ab" * 20, "ab" * 20 + "x"]  # which no word is near to: it would have 41 letters
    pool += ["İto"]  # more words in lower case than it seems
    pool += ["ho\u0600use", "می\u200cخو", "\u2800", ".\x1e", "!\ufeffA", "\ufff9dog", "dg\U0001d420", "\U0001d421og"]
    cases: list[list[Any]] = []
    for _ in range(3000):
        text, translation = (" ".join(rng.choices(pool, k=rng.randrange(9))) for _ in range(2))
        text = text.upper() if rng.random() < 0.1 else text
        cases.append([text, translation, rng.choice([-0.1, -0.6, -0.7, -0.9])])
    found = ask_node(folder=str(small), doubts=cases)
    for case, (_, theirs) in zip(cases, found, strict=True):
        ours = doubt(KNOWN, *case)
        assert theirs == (asdict(ours) | {"signs": [*ours.signs]} if ours else None), case


@pytest.mark.slow
def test_page_library_and_scorer_say_the_same_to_a_hundred_visitors() -> None:
    translator = Translator.from_pretrained("everyday-en-de", device="cpu")
    texts = [visitor.text for visitor in load_visitors()]
    pages = ask_node(
        folder=str(find_pretrained("everyday-en-de")), doubts=[[text] for text in texts], options={"beamSize": 5}
    )
    library = [best for (best,) in translator.search(texts)]
    for text, (written, page), best, scored in zip(texts, pages, library, answers(translator, texts), strict=True):
        why = best.doubt
        refused = [kind for sign, kind in MESSAGES.items() if why and sign in why.signs]
        assert (written is None) == bool(refused) == bool(scored.message), text
        assert page == (asdict(why) | {"signs": [*why.signs]} if why else None), text
        assert refused or (written == best.text == scored.translation), text
        assert refused or scored.warned == ("" if why is None else "wrong" if why.certain else "look"), text


# ---- the library ----


def test_every_shipped_translator_says_what_it_knows() -> None:
    for name in pretrained_names():
        known = Known.load(find_pretrained(name) / FILE)
        assert len(known.source) >= 500 and len(known.target) >= 500
        assert known.wrong is not None and known.unsure is not None and -3 < known.wrong <= known.unsure < 0, name


def captions() -> Translator:
    return Translator.from_pretrained("captions-en-de", device="cpu")


def test_it_warns_once_a_sentence_and_of_at_most_five() -> None:
    translator = captions()
    with pytest.warns(UnknownWordWarning, match="does not know zebra, so it guesses.*The zebra is") as caught:
        translator.translate(["The dog is sleeping.", "The zebra is sleeping."])
    assert len(caught) == 1
    with pytest.warns(UnknownWordWarning, match="probably wrong. The model does not know bonjour, mes, amis"):
        translator("Bonjour mes amis")
    with pytest.warns(DoubtWarning) as caught:
        translator.translate([f"The zebra is {x}." for x in ["sleeping"] * 7])
    assert len(caught) == 6 and "2 more" in str(caught[-1].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert translator("The dog is sleeping.") == "Der Hund schläft." and translator("") == ""
        (best,) = translator.search(["the zebra is sleeping"], prepared=True)[0]
    assert best.doubt is None


def test_a_folder_without_it_loads_and_is_as_quiet_as_before(tmp_path: Path) -> None:
    folder = shutil.copytree(find_pretrained("everyday-en-de"), tmp_path / "old")
    (folder / FILE).unlink()
    old, new = (Translator.from_pretrained(one, device="cpu") for one in (folder, "everyday-en-de"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = old.search(["Bonjour mes amis"])
        assert old.translate(["Bonjour mes amis"]) == [before[0][0].text]
    after = new.search(["Bonjour mes amis"])
    assert before == [[replace(one, doubt=None) for one in after[0]]] and after[0][0].doubt.certain  # type: ignore[union-attr]
    (folder / FILE).write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="does not say what a translator knows"):
        Translator.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize("more", [[], ["--json"], ["--scores"], ["--n-best", "2"]])
def test_the_command_warns_on_standard_error_alone(more: list[str], tmp_path: Path, capfd: Any) -> None:
    old = shutil.copytree(find_pretrained("captions-en-de"), tmp_path / "old")
    (old / FILE).unlink()
    lines = tmp_path / "lines.txt"
    lines.write_text("The dog is sleeping.\nThe cat is sleping.\n\nBonjour mes amis\n", encoding="utf-8")
    out, told = [], []
    for folder in (old, "captions-en-de"):
        assert main(["translate", str(folder), str(lines), "--device", "cpu", *more]) == 0
        found = capfd.readouterr()
        out.append(found.out)
        told.append([line for line in found.err.splitlines() if ", line " in line])
    assert out[0] == out[1] and len(told[1]) == 2
    where = f"{lines}, line "
    assert told[1][0].startswith(f"{where}2: ")
    assert told[1][0].endswith("The model does not know sleping, so it guesses. Did you mean “sleeping”?")
    assert told[1][1].startswith(f"{where}4: This is probably wrong. The model does not know bonjour, mes, amis.")


def test_an_exported_run_knows_what_it_has_read(tmp_path: Path) -> None:
    target = export_run(run_folder("transformer"), tmp_path / "own")
    known = Known.load(target / FILE)
    assert known == Translator.from_pretrained(target, device="cpu").known
    assert "dog" in known.source and "hund" in known.target and known.wrong is None  # too few to say how sure it is
    assert Known.load(export_run(target, tmp_path / "again") / FILE) == known
    elsewhere = shutil.copytree(run_folder("transformer"), tmp_path / "run")
    config = json.loads((elsewhere / "config.json").read_text(encoding="utf-8"))
    config["options"]["data"] = str(tmp_path / "gone.tsv")
    (elsewhere / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert not (export_run(elsewhere, tmp_path / "bare") / FILE).exists()


def test_doubt_is_measured_with_the_exported_search_on_what_the_model_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(export, "learn", lambda one, pairs, texts: seen.append((one, texts)))
    plan = options("transformer", skip_bad=True, model_options=TINY | {"max_length": 28}, training={"epochs": 1})
    assert begin(plan, tmp_path / "run").trainer.fit()
    export_run(tmp_path / "run", tmp_path / "own", repetition_penalty=1.5)
    ((translator, texts),) = seen
    assert translator.decoding.repetition_penalty == 1.5
    all_of_it = [pair.source for pair in load_corpus(plan).validation]
    assert texts == [text for text in all_of_it if not translator.refusal(text)] and 0 < len(texts) < len(all_of_it)


FAMOUS = """
Attention is all you need.
Aufmerksamkeit ist alles, was du brauchst.
The animal didn't cross the street because it was too tired.
Das Tier überquerte die Straße nicht, weil es zu müde war.
The animal didn't cross the street because it was too wide.
Das Tier überquerte die Straße nicht, weil sie zu breit war.
The trophy doesn't fit into the suitcase because it is too big.
Der Pokal passt nicht in den Koffer, weil er zu groß ist.
We sat on the bank of the river.
Wir saßen am Ufer des Flusses.
I went to the bank to get some money.
Ich ging zur Bank, um Geld zu holen.
To be or not to be, that is the question.
Sein oder Nichtsein, das ist hier die Frage.
A man is riding a bicycle.
Ein Mann fährt Fahrrad.
A robot is writing a poem.
Ein Roboter schreibt ein Gedicht.
Neural networks learn from data.
Neuronale Netze lernen aus Daten.
The quick brown fox jumps over the lazy dog.
Der schnelle braune Fuchs springt über den faulen Hund.
I see the dog. The dog sees me.
Ich sehe den Hund. Der Hund sieht mich.
"""


def test_the_sentences_that_readers_of_this_book_type_are_right() -> None:
    typed, right = FAMOUS.strip().splitlines()[::2], FAMOUS.strip().splitlines()[1::2]
    found = [one for (one,) in Translator.from_pretrained("everyday-en-de", device="cpu").search(typed)]
    assert [one.text for one in found] == right and not any(one.doubt for one in found)
