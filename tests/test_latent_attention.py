"""Latent attention: weights equal to loops, blind to padding, recipes mean what they say."""

import copy
import hashlib
import json
import math
import re
from collections import Counter
from functools import partial

import pytest
import small
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from small import generator
from torch import nn

import transformer_lib.data.recipes as recipes_module
from transformer_lib.data.files import DataFile
from transformer_lib.data.recipes import (
    ZAPIER,
    Recipe,
    RecipeBatch,
    RecipeCoder,
    load_zapier,
    make_recipes,
    recipe_batches,
    recipe_words,
)
from transformer_lib.data.tokenizer import EOS, PAD, UNK, Tokenizer
from transformer_lib.models.latent_attention import (
    IfThenConfig,
    IfThenModel,
    LatentAttention,
    PlainAttention,
    read_both_ways,
)
from transformer_lib.training.loop import evaluate_loss, train_on

KINDS = [(encoder, attention) for encoder in ("dictionary", "lstm") for attention in ("none", "plain", "latent")]
ALL_KINDS = pytest.mark.parametrize(("encoder", "attention"), KINDS)
LABELS = (3, 5, 2, 4)


def small_model(encoder: str = "lstm", attention: str = "latent", seed: int = 0, **changes) -> IfThenModel:
    sizes = {"d_model": 6, "d_hidden": 8, "max_length": 12, "dropout": 0.0}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = IfThenModel(IfThenConfig(13, LABELS, encoder, attention, **{**sizes, **changes}))
        for parameter in model.parameters():  # away from zero, so that nothing is equal by accident
            parameter.data.add_(0.5 * torch.randn_like(parameter))
    return model.double()


ragged = partial(small.ragged, vocab_size=13)


def labels(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.stack([torch.randint(0, count, (rows,), generator=generator(seed)) for count in LABELS], dim=1)


# ---------------------------------------------------------------- the LSTM leaves padding out


@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_reading_both_ways_is_what_each_sentence_gives_alone(lengths, seed):
    lstm = torch.nn.LSTM(3, 4, batch_first=True, bidirectional=True).double()
    inputs = torch.randn(len(lengths), max(lengths) + 1, 3, generator=generator(seed)).double()
    outputs, final = read_both_ways(lstm, inputs, torch.arange(max(lengths) + 1) < torch.tensor(lengths)[:, None])
    for row, length in enumerate(lengths):
        alone, (shown, _) = lstm(inputs[row : row + 1, :length])
        torch.testing.assert_close(outputs[row, :length], alone[0], atol=1e-12, rtol=0)
        torch.testing.assert_close(final[row], shown[:, 0].flatten(), atol=1e-12, rtol=0)
        assert not outputs[row, length:].any()


# ---------------------------------------------------------------- attention equals plain loops


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / sum(powers) for power in powers]


def dot(one: torch.Tensor, other: torch.Tensor) -> float:
    return sum(a * b for a, b in zip(one.tolist(), other.tolist(), strict=True))


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3), n_heads=st.integers(1, 3), seed=st.integers(0, 99))
@pytest.mark.slow
def test_latent_and_plain_attention_equal_loops(lengths, n_heads, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        attention = LatentAttention(4, n_heads, max_length=8).double()
    words = torch.randn(len(lengths), max(lengths), 4, generator=generator(seed)).double()
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    found = attention(words, mask)
    plain = PlainAttention(4, n_heads).double()
    plain.load_state_dict({"query": attention.query})
    torch.testing.assert_close(plain(words, mask).weights, found.latent, atol=1e-12, rtol=0)
    for row, length in enumerate(lengths):
        for head in range(n_heads):
            u, V, E = attention.query[head], attention.positions[head], words[row, :length]
            latent = softmax([dot(u, e) for e in E])
            active = [softmax([dot(V[k], e) for k in range(length)]) for e in E]  # active[s][k]
            weights = [sum(latent[s] * active[s][k] for s in range(length)) for k in range(length)]
            assert found.latent[row, head, :length].tolist() == pytest.approx(latent, abs=1e-12)
            assert found.weights[row, head, :length].tolist() == pytest.approx(weights, abs=1e-12)
            for s in range(length):
                assert found.active[row, head, :length, s].tolist() == pytest.approx(active[s], abs=1e-12)
            assert sum(found.weights[row, head].tolist()) == pytest.approx(1, abs=1e-12)
        assert not found.weights[row, :, length:].any() and not found.active[row, :, length:].any()
        assert not found.latent[row, :, length:].any()


# ---------------------------------------------------------------- the model


@ALL_KINDS
def test_padding_and_company_change_nothing(encoder, attention):
    model, lengths = small_model(encoder, attention), [1, 6, 3, 6]
    tokens = ragged(lengths)
    expected = model(tokens)
    padded = model(nn.functional.pad(tokens, (0, 3), value=PAD))
    for one, other in zip(padded, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    for row, length in enumerate(lengths):
        for one, other in zip(model(tokens[row : row + 1, :length]), expected, strict=True):
            torch.testing.assert_close(one[0], other[row], atol=1e-12, rtol=0)


@ALL_KINDS
def test_only_a_dictionary_with_plain_or_no_attention_is_blind_to_order(encoder, attention):
    model, order = small_model(encoder, attention).eval(), [2, 0, 4, 1, 3]
    tokens = torch.tensor([[4, 5, 6, 7, 8, EOS]])
    change = max(
        (one - other).abs().max().item()
        for one, other in zip(model(tokens), model(tokens[:, [*order, 5]]), strict=True)
    )
    blind = encoder == "dictionary" and attention != "latent"
    assert change < 1e-12 if blind else change > 1e-6


@ALL_KINDS
def test_each_head_is_the_classifier_of_its_own_weighted_mean(encoder, attention):
    model = small_model(encoder, attention).eval()
    tokens = ragged([5, 3])
    mask = tokens != PAD
    words = model.embedding(tokens) * mask[:, :, None]
    summary = words.sum(1)
    if encoder == "lstm":
        words, summary = read_both_ways(model.lstm, words, mask)
    outputs, seen = model.read(tokens)
    assert (seen is None) == (attention == "none")
    for row, length in enumerate((5, 3)):
        for head in range(4):
            expected = summary[row]
            if seen is not None:
                weights = seen.weights[row, head, :length]
                expected = sum(w * e for w, e in zip(weights, words[row, :length], strict=True))
                expected = expected / math.sqrt(sum(w.item() ** 2 for w in weights))
            torch.testing.assert_close(outputs[row, head], expected, atol=1e-12, rtol=0)
            logits = model.classifiers[head](expected)
            torch.testing.assert_close(model(tokens)[head][row], logits, atol=1e-12, rtol=0)
    if encoder == "dictionary":
        torch.testing.assert_close(summary[1], model.embedding.weight[tokens[1, :3]].sum(dim=0), atol=1e-12, rtol=0)


@ALL_KINDS
def test_every_parameter_learns(encoder, attention):
    model = small_model(encoder, attention)
    model.loss(RecipeBatch(ragged([5, 3]), labels(2), (0, 1))).sum.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name


def test_the_loss_is_the_sum_over_known_labels():
    model, tokens, right = small_model(), ragged([5, 3, 2]), labels(3)
    right[0, 1] = right[2, 3] = -1
    batch = RecipeBatch(tokens, right, (0, 1, 2))
    nats = [
        -torch.log_softmax(model(tokens)[head][row], -1)[right[row, head]].item()
        for row in range(3)
        for head in range(4)
        if right[row, head] >= 0
    ]
    assert batch.n_tokens == len(nats) == 10
    assert model.loss(batch).sum.item() == pytest.approx(sum(nats), rel=1e-6) and model.loss(batch).n_tokens == 10
    assert evaluate_loss(model, [batch]) == pytest.approx(sum(nats) / 10, rel=1e-6)
    assert model.double().loss(batch).sum.dtype == torch.float64
    model.float()
    nothing = RecipeBatch(tokens, torch.full_like(right, -1), (0, 1, 2))
    assert model.loss(nothing).mean == 0 and model.loss(nothing).n_tokens == nothing.n_tokens == 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 8e-2), (torch.float16, 1e-2)])
@ALL_KINDS
def test_other_precisions(dtype, tolerance, encoder, attention):
    exact, tokens = small_model(encoder, attention).eval(), ragged([6, 1, 4])
    expected = exact(tokens)
    model = copy.deepcopy(exact).to(dtype)
    found, loss = model(tokens), model.loss(RecipeBatch(tokens, labels(3), (0, 1, 2)))
    assert loss.sum.dtype == torch.float32  # in which sums are not rounded
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other, atol=tolerance * other.abs().max().item() + 1e-5, rtol=0)


@pytest.mark.parametrize("encoder", ["dictionary", "lstm"])
def test_dropout_is_for_training_only(encoder):
    model, tokens = small_model(encoder, dropout=0.5), ragged([5, 3])
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


# ---------------------------------------------------------------- the generator

CHANNELS = {
    "facebook": ("on", {"post": "post publish posts", "like": "like heart likes"}),
    "twitter": ("on", {"tweet": "tweet announce tweets", "follow": "follow watch follows"}),
    "instagram": ("on", {"post": "post publish photos", "tag": "tag mark tags"}),
    "dropbox": ("to", {"upload": "upload copy files", "share": "share link links"}),
    "evernote": ("in", {"save": "save keep notes", "tag": "tag mark tags"}),
    "youtube": ("to", {"upload": "upload copy videos", "like": "like heart likes"}),
    "slack": ("in", {"post": "post publish messages", "pin": "pin highlight pins"}),
    "trello": ("on", {"add": "add file cards", "archive": "archive close archives"}),
    "gmail": ("from", {"send": "send mail emails", "star": "star highlight stars"}),
    "spotify": ("in", {"save": "save keep songs", "play": "play watch plays"}),
}
OPENERS = r"(?:please|hello ,|my recipe :|automatically|note to self :|this one is easy :)?"
CLOSERS = r"(?:please|thanks|right away|every day|and tell nobody)?"
PHRASE = r"\w+ (?:it|a photo|a video|a link|a song|a text|something|something new|the new one) (?:on|in|to|from) \w+"
NOUN = r"\w+ \w+"
WHEN = "(?:when|whenever|if|once|after|as soon as|every time|each time)"
FORMS = [  # written anew for the test: the trigger is group T, the action group A
    rf"(?:i want to )?(?P<A>{PHRASE}) {WHEN} i (?P<T>{PHRASE})",
    rf"{WHEN} i (?P<T>{PHRASE}) (?:,|then|, i want to) (?P<A>{PHRASE})",
    rf"i (?P<T>{PHRASE}) , (?:so|now) (?P<A>{PHRASE})",
    rf"(?:never|do not) (?P<A>{PHRASE}) (?:before|until) i (?P<T>{PHRASE})",
    rf"wait until i (?P<T>{PHRASE}) , then (?P<A>{PHRASE})",
    rf"(?:from )?(?P<T>{NOUN}) (?:to|into) (?P<A>{NOUN})",
    rf"(?:to |into )?(?P<A>{NOUN}) (?:from|out of|for all) (?P<T>{NOUN})",
    rf"for all (?P<T>{NOUN}) , (?P<A>{NOUN})",
    rf"all (?P<T>{NOUN}) become (?P<A>{NOUN})",
]


def operation(words: str) -> tuple[str, str] | None:
    """Channel and function of "post it on facebook" or "facebook posts", None if it is neither."""
    first, *_, last = words.split()
    channel, word = (last, first) if last in CHANNELS else (first, last)
    if channel not in CHANNELS:
        return None
    names = [name for name, forms in CHANNELS[channel][1].items() if word in forms.split()]
    return (channel, f"{channel}.{names[0]}") if names else None


def parses(text: str) -> set[tuple[str, str, str, str]]:
    """Every program that the sentence could have."""
    found = set()
    for form in FORMS:
        match = re.fullmatch(rf"{OPENERS} ?{form} ?{CLOSERS}", text)
        if match:
            trigger, action = operation(match["T"]), operation(match["A"])
            if trigger and action:
                found.add((*trigger, *action))
    return found


@pytest.fixture(scope="module")
def recipes() -> list[Recipe]:
    return make_recipes(6000, seed=7)


@pytest.mark.slow
def test_recipes_mean_what_an_independent_reader_reads(recipes):
    for recipe in [*recipes, *make_recipes(2000, seed=7, held_out=True)]:
        assert parses(recipe.description) == {recipe.program}, recipe


def test_recipes_are_the_same_everywhere():
    texts = [
        "\n".join(
            " ".join((recipe.description, *recipe.program)) for recipe in make_recipes(300, seed, held_out=held_out)
        )
        for seed, held_out in ((0, False), (5, True))
    ]
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    assert digests == ["ac1fc835f45d67d8", "ed90b5f18ff93703"]


@pytest.mark.slow
def test_recipes_are_distinct_and_a_shorter_list_is_a_beginning(recipes):
    assert len({recipe.description for recipe in recipes}) == len(recipes) == 6000
    assert make_recipes(100, seed=7) == recipes[:100] != make_recipes(100, seed=8)


def test_every_operation_is_as_often_trigger_as_action(recipes):
    triggers, actions = Counter(r.trigger for r in recipes), Counter(r.action for r in recipes)
    assert len(triggers) == len(actions) == 20
    assert all(0.7 < triggers[name] / actions[name] < 1.4 for name in triggers)
    assert all(r.trigger_channel != r.action_channel and r.trigger.startswith(r.trigger_channel + ".") for r in recipes)


@pytest.mark.slow
def test_held_out_pairs_are_apart_in_both_orders(recipes):
    held_out = {(r.trigger, r.action) for r in make_recipes(3000, seed=1, held_out=True)}
    seen = {(r.trigger, r.action) for r in recipes}
    assert not held_out & seen and {(a, t) for t, a in held_out} == held_out
    assert {t for t, _ in seen} == {t for t, _ in held_out} | {t for t, _ in seen}
    assert len(held_out) + len(seen) == 20 * 18 and 60 < len(held_out) < 120


def test_no_bag_of_words_can_do_better_than_one_half_on_mirrored_recipes():
    by_bag: dict[tuple[str, ...], list[Recipe]] = {}
    for recipe in make_recipes(20_000, seed=3):
        by_bag.setdefault(tuple(sorted(recipe.description.split())), []).append(recipe)
    opposite = [group for group in by_bag.values() if len({recipe.program for recipe in group}) > 1]
    assert len(opposite) > 100
    for group in opposite:
        programs = {recipe.program for recipe in group}
        assert len(programs) == 2 and len({frozenset((r.trigger, r.action)) for r in group}) == 1


# ---------------------------------------------------------------- numbers for recipes

SOME = [
    Recipe("Post it, now!", "a", "a.x", "b", "b.x"),
    Recipe("now save it", "c", "c.y", "b", "b.z"),
    Recipe("Now", "a", "a.x", "d", "d.x"),
]


def test_words_are_lower_case_and_punctuation_stands_alone():
    assert recipe_words("Post it, NOW! Größe 2.0 @home_page") == [
        *("post", "it", ",", "now", "!", "größe", "2", ".", "0", "@", "home_page")
    ]
    assert recipe_words(" \n") == []


def test_the_coder_learns_from_what_it_is_given_and_from_nothing_else():
    coder = RecipeCoder.train(SOME, min_count=2)
    assert coder.words.pieces == ("now", "it") and coder.labels == (
        ("a", "c"),
        ("a.x", "c.y"),
        ("b", "d"),
        ("b.x", "b.z", "d.x"),
    )
    assert coder.n_labels == (2, 2, 2, 3) and "now" not in repr(coder)
    foreign = Recipe("it is now", "a", "a.new", "zzz", "b.z")
    ((ids, numbers),) = coder.encode([foreign])
    assert ids == [5, UNK, 4, EOS] and numbers == (0, -1, -1, 1)
    assert coder.program((1, 1, 0, 2)) == ("c", "c.y", "b", "d.x")
    assert coder.encode([Recipe("", "a", "a.x", "b", "b.x")])[0][0] == [EOS]
    assert RecipeCoder.train(SOME).words.vocab_size == 4 + 6


@given(n=st.integers(1, 40), budget=st.integers(30, 200), seed=st.one_of(st.none(), st.integers(0, 5)))
def test_batches_hold_every_recipe_once_with_its_labels(n, budget, seed):
    examples = [([*range(4, 4 + i % 9), EOS], (i, i + 1, i + 2, i + 3)) for i in range(n)]
    seen = []
    for batch in recipe_batches(examples, budget, seed):
        assert batch.tokens.numel() <= budget and len(batch) == len(batch.indices)
        for row, index in enumerate(batch.indices):
            ids, numbers = examples[index]
            assert batch.tokens[row].tolist() == ids + [PAD] * (batch.tokens.shape[1] - len(ids))
            assert tuple(batch.labels[row].tolist()) == numbers
        seen += batch.indices
    assert sorted(seen) == list(range(n))


# ---------------------------------------------------------------- use


def trained() -> tuple[IfThenModel, RecipeCoder]:
    coder = RecipeCoder.train(SOME)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"d_model": 8, "d_hidden": 16, "max_length": 8, "dropout": 0.0}
        model = IfThenModel(IfThenConfig(coder.words.vocab_size, coder.n_labels, **sizes))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        data = list(recipe_batches(coder.encode(SOME), 50))
        for _ in range(40):
            train_on(model, data, optimizer)
    return model, coder


@pytest.mark.slow
def test_training_learns_recipes():
    model, coder = trained()
    with torch.no_grad():
        for ids, labels in coder.encode(SOME):
            assert [logits.argmax().item() for logits in model.eval()(torch.tensor([ids]))] == [*labels]


# ---------------------------------------------------------------- real recipes


def tiny_zapier(folder, monkeypatch, rows) -> None:
    """A small file that the library takes for the published one."""
    content = json.dumps(rows).encode()
    path = folder / "zapier" / ZAPIER.name
    path.parent.mkdir()
    path.write_bytes(content)
    file = DataFile("zapier", ZAPIER.name, "http://invalid.example/", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(recipes_module, "ZAPIER", file)
    monkeypatch.setattr(recipes_module, "ZAPIER_SIZES", {"test": 5, "val": 5})


def zapier_row(title: str, description: str, **changes) -> dict[str, str | None]:
    row = {"title": title, "description": description, "event_channel": "E", "event": "e"}
    return row | {"action_channel": "A", "action": "a"} | changes


def test_a_tiny_file_is_split_and_twins_stay_together(tmp_path, monkeypatch):
    rows = [zapier_row(f"Title {i}", f"text {i}") for i in range(20)]
    rows += [
        zapier_row("TITLE  3", "another"),
        zapier_row("last", "Another"),
        zapier_row("x", "y", action_channel=None),
        *(zapier_row(f"one of {i}", "The same!") for i in range(6)),
    ]
    tiny_zapier(tmp_path, monkeypatch, rows)
    splits = {split: load_zapier(split, tmp_path) for split in ("train", "val", "test")}
    assert [len(splits[name]) for name in ("train", "val", "test")] == [19, 5, 5]
    titles = {name: {recipe.description for recipe in part} for name, part in splits.items()}
    assert sum(len(part) for part in titles.values()) == 29
    homes = [name for name in titles for title in ("Title 3", "TITLE  3", "last") if title in titles[name]]
    assert len(homes) == 3 and len(set(homes)) == 1
    assert {f"one of {i}" for i in range(6)} <= titles["train"]  # six twins fit nowhere else
    assert sorted(titles["test"]) == ["TITLE  3", "Title 2", "Title 3", "last", "x"]  # by SHA-256, not by chance
    everything = {recipe.description: recipe for part in splits.values() for recipe in part}
    assert everything["Title 0"].program == ("E", "E.e", "A", "A.a")
    assert everything["x"].program == ("E", "E.e", "None", "None.a")
    longer = {split: load_zapier(split, tmp_path, text="description") for split in splits}
    for name in splits:  # the same recipes, told by the other text
        wanted = {row["description"] for row in rows if row["title"] in titles[name]}
        assert {recipe.description for recipe in longer[name]} == wanted


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path):
    path = tmp_path / "zapier" / ZAPIER.name
    path.parent.mkdir()
    path.write_text("[]")
    with pytest.raises(ValueError, match="SHA-256"):
        load_zapier("train", tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file zapier/Zapier_test\.json"):
        load_zapier("train", tmp_path)


@pytest.fixture(scope="module")
def zapier(request) -> dict[str, list[Recipe]]:
    folder = request.getfixturevalue("data_directory")
    if not (folder / "zapier").is_dir():
        pytest.skip("real recipes cannot be had: the folder of TRANSFORMER_LIB_DATA has no folder zapier/")
    return {split: load_zapier(split, folder) for split in ("train", "val", "test")}


@pytest.mark.slow
def test_the_real_recipes(zapier, data_directory):
    everything = [recipe for part in zapier.values() for recipe in part]
    assert {name: len(part) for name, part in zapier.items()} == {"train": 3859, "val": 500, "test": 500}
    assert len({recipe.trigger for recipe in everything}) == 297
    assert len({recipe.action for recipe in everything}) == 247
    longer = {split: load_zapier(split, data_directory, text="description") for split in zapier}
    for texts in (zapier, longer):
        words = {name: {tuple(recipe_words(recipe.description)) for recipe in part} for name, part in texts.items()}
        assert not words["train"] & words["test"] and not words["train"] & words["val"]
        assert not words["val"] & words["test"]
    assert [r.program for r in zapier["test"]] == [r.program for r in longer["test"]]
    digest = hashlib.sha256("\n".join(recipe.description for recipe in zapier["test"]).encode()).hexdigest()
    assert digest[:16] == "0077d7a5a6b1335d"


@pytest.mark.slow
def test_what_the_chapter_says_of_the_real_titles(zapier):
    train, test = zapier["train"], zapier["test"]
    assert len({" ".join(recipe_words(recipe.description)) for recipe in test}) == 318
    known = {recipe.program for recipe in train}
    assert sum(recipe.program not in known for recipe in test) == 399
    coder = RecipeCoder.train(train, min_count=2)
    assert sum(-1 in numbers for _, numbers in coder.encode(test)) == 14
    bags = {frozenset(recipe_words(recipe.description)) for recipe in train}
    tested = [frozenset(recipe_words(recipe.description)) for recipe in test]
    assert sum(any(len(one & bag) >= 0.8 * len(one | bag) for bag in bags) for one in tested) == 150
    titles = {recipe.description for part in zapier.values() for recipe in part}
    assert "Create Campaign Monitor Subscriber from Highrise Contact" in titles
    assert "Create Highrise Contact from Campaign Monitor Subscriber" in titles
    assert max(len(recipe_words(title)) for title in titles) == 19


# ---------------------------------------------------------------- bad input

WORDS = Tokenizer.train(["a b"], level="word")
CODER = RecipeCoder(WORDS, (("p",), ("q",), ("r",), ("s",)))
TOKENS = ragged([4, 2])
BAD = {
    "encoder": (lambda: IfThenConfig(9, LABELS, encoder="gru"), "encoder"),
    "attention": (lambda: IfThenConfig(9, LABELS, attention="soft"), "attention"),
    "half a width": (lambda: IfThenConfig(9, LABELS, d_hidden=129), "d_hidden=129 must be even"),
    "vocabulary": (lambda: IfThenConfig(vocab_size=0, n_labels=LABELS), "vocab_size"),
    "dropout": (lambda: IfThenConfig(9, LABELS, dropout=1.0), "dropout"),
    "no labels": (lambda: IfThenConfig(9, n_labels=()), "n_labels"),
    "a head without labels": (lambda: IfThenConfig(9, n_labels=(3, 0)), "n_labels"),
    "word too large": (lambda: small_model()(TOKENS + 9), "tokens holds token id"),
    "empty row": (lambda: small_model()(torch.zeros_like(TOKENS)), "tokens begins with padding"),
    "too many words": (lambda: small_model(max_length=1)(ragged([3])), "3 tokens, max_length=1"),
    "no recipes wanted": (lambda: make_recipes(0, 0), "n=0"),
    "too many recipes": (lambda: make_recipes(20_001, 0), "n=20001"),
    "recipes and a half": (lambda: make_recipes(2.5, 0), "n=2.5"),
    "no seed": (lambda: make_recipes(3, None), "seed=None"),
    "nothing to learn from": (lambda: RecipeCoder.train([]), "0 texts contain no words"),
    "negative number": (lambda: CODER.program((-1, 0, 0, 0)), "numbers=.-1"),
    "split": (lambda: load_zapier("dev"), "split='dev'"),
    "text": (lambda: load_zapier("train", text="titel"), "text='titel'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    # With the annotations enforced, a wrong shape may be caught before our own check; test_errors.py runs without.
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))
