"""The pieces behind the translators of raw text: noise, cuts, and a fast step that is right."""

import random
import sys
from pathlib import Path

import pytest
import torch

from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.tokenizer import PAD, Tokenizer
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.loss import smoothed_loss
from transformer_lib.translation.translator import Translator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import real_translators  # noqa: E402
from diversify import diversify, resume  # noqa: E402
from minimum_risk import RiskStep, begin, expected_risk, first_of_each  # noqa: E402
from real_translators import (  # noqa: E402
    BpeDropout,
    FastStep,
    NoiseConfig,
    Run,
    RunConfig,
    add_noise,
    clean,
    dropout_mask,
    insert_name,
    load_pairs,
    make_readings,
    misspell,
    score,
    translate,
)

PAIRS = [Pair(p.source, p.target) for p in make_captions(200, seed=1)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([t for pair in PAIRS for t in (pair.source, pair.target)], 400)


def test_bpe_dropout_comes_back_exactly_and_is_bpe_at_zero(tokenizer):
    text = "Ein Hund spielt im Schnee, 3 Kinder lächeln — 雪!"
    chance = random.Random(0)
    whole, none = BpeDropout(tokenizer, 1.0), BpeDropout(tokenizer, 0.0)
    some = BpeDropout(tokenizer, 0.3)
    assert none.encode(text, chance) == tokenizer.encode(text)
    assert len(whole.encode(text, chance)) == len((" " + text).encode())
    cuts = {tuple(some.encode(text, chance)) for _ in range(20)}
    assert len(cuts) > 10 and {tokenizer.decode(cut) for cut in cuts} == {text}


def test_the_same_chance_gives_the_same_ids_after_an_interruption(tokenizer):
    first, second = BpeDropout(tokenizer, 0.2), BpeDropout(tokenizer, 0.2)
    first.encode(PAIRS[0].source, random.Random(5))  # has a history, the other has none
    for pair in PAIRS[:20]:
        one, two = (bpe.encode(pair.source, random.Random(7)) for bpe in (first, second))
        assert one == two


def test_noise_does_what_it_says():
    text, chance = "Zwei Hunde spielen im Schnee.", random.Random(3)
    assert add_noise(text, NoiseConfig(0, 0, 0, 0, 0), chance) == text
    assert add_noise(text, NoiseConfig(0, 1, 0, 0, 0), chance) == text[:-1]
    cases = {add_noise(text, NoiseConfig(0.7, 0, 0, 0, 0), chance) for _ in range(100)}
    assert cases == {text, "z" + text[1:], text.lower(), text.upper()}
    for _ in range(100):
        wrong = misspell(text, chance)
        assert abs(len(wrong) - len(text)) <= 1 and wrong[0] == "Z" and wrong[-1] == "."
    assert misspell("a b", chance) == "a b"


def test_a_name_is_the_same_on_both_sides():
    pair = Pair("Two dogs play with a man.", "Zwei Hunde spielen mit einem Mann.")
    named = insert_name(pair, "en", random.Random(0))
    name = named.source.removeprefix("Two dogs play with ").removesuffix(".")
    assert name.istitle() and named.target == f"Zwei Hunde spielen mit {name}."
    turned = insert_name(Pair(pair.target, pair.source), "de", random.Random(0))
    assert (turned.source, turned.target) == (named.target, named.source)
    two = Pair("A man sees a man.", "Ein Mann sieht einen Mann.")
    assert insert_name(two, "en", random.Random(0)) == two


def test_readings_keep_the_target_and_change_the_source(tokenizer):
    bpe, noise = BpeDropout(tokenizer, 0.1), NoiseConfig()
    made = [make_readings(PAIRS, "en", bpe, noise, False, random.Random(2)) for _ in range(2)]
    assert made[0] == made[1]
    plain = [tokenizer.decode(ids) for ids in made[0].plain]
    assert sum(text == pair.source for text, pair in zip(plain, PAIRS, strict=True)) > 180
    assert made[0].plain != made[0].noisy
    seen = sum(len(batch[2]) for batch in made[0].batches(300, 0, 0))
    assert seen == len(PAIRS)
    for one, two, target in made[0].batches(300, 0, 0):
        assert len(one) == len(two) == len(target)
        assert max(one.numel(), two.numel(), target.numel()) <= 300


def test_a_dropout_mask_keeps_the_mean():
    mask = dropout_mask((300, 1000), 0.25, torch.float32)
    assert mask.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert mask.mean().item() == pytest.approx(1, abs=0.01)


def small_model(dropout):
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 400, "target_vocab_size": 400, "norm_first": True}
    return Transformer(TransformerConfig.tiny(**sizes, d_model=32, d_ff=48, dropout=dropout))


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("consistency", [0.0, 2.0])
def test_the_fast_step_has_the_loss_and_the_gradient_of_the_plain_one(tokenizer, consistency):
    model = small_model(dropout=0.0)
    bpe = BpeDropout(tokenizer, 0.3)
    data = make_readings(PAIRS, "en", bpe, NoiseConfig(), False, random.Random(2))
    one, two, target = next(data.batches(300, 0, 0))
    fast = FastStep(model, 0.1, consistency, torch.float32)
    loss, entropy, divergence = fast.loss((one, two), target)
    ours = gradients(model, loss)
    logits = [model.decode(target[:, :-1], model.encode(s, s != PAD)) for s in (one, two)]
    there = target[:, 1:] != PAD
    p, q = (each[there].log_softmax(-1) for each in logits)
    apart = ((p.exp() - q.exp()) * (p - q)).sum(-1).mean() / 2
    right = sum(smoothed_loss(each, target[:, 1:]) for each in logits) / 2
    theirs = gradients(model, right + consistency * apart)
    assert entropy.item() == pytest.approx(right.item(), rel=1e-5)
    if consistency:
        assert divergence.item() == pytest.approx(apart.item(), rel=1e-3)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"norm_first": False},
        {"activation": "gelu"},
        {"tie_embeddings": "none"},
        {"positions": "learned"},
        {"bias": False},
        {"output_bias": True},
        {"attention_dropout": 0.1},
        {"activation_dropout": 0.1},
        {"final_norm": False},
    ],
)
def test_the_fast_step_refuses_a_model_that_it_would_compute_wrongly(change):
    sizes = {"source_vocab_size": 8, "target_vocab_size": 8, "d_model": 8, "d_ff": 8}
    config = TransformerConfig.tiny(**{**sizes, "norm_first": True, **change})
    with pytest.raises(ValueError, match=next(iter(change))):
        FastStep(Transformer(config))


def test_dropout_of_the_fast_step_is_drawn_anew(tokenizer):
    fast = FastStep(small_model(dropout=0.3), dtype=torch.float32)
    tokens = torch.tensor([[7, 8, 9, 2]])
    assert not torch.equal(*(fast.hidden([tokens], tokens) for _ in range(2)))


@pytest.mark.slow
def test_translations_come_back_in_order_and_as_text(tokenizer):
    found = translate(small_model(0.0).eval(), tokenizer, ["Two dogs.", "A  cat", ""], 2)
    assert len(found) == 3 and all(isinstance(text, str) for text in found)


def test_the_odd_inputs_are_complete():
    lines = (ROOT / "tests/data/odd_inputs.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    assert rows[0] == ["kind", "source", "input", "expected"]
    assert all(len(row) == 4 and row[1] in ("en", "de") for row in rows[1:])
    for language in ("en", "de"):
        assert sum(row[1] == language for row in rows) == 32
    assert all(clean(e) == e for row in rows for e in row[3].split(" | "))


def test_expected_risk_moves_probability_to_the_better_candidate():
    log_probability = torch.tensor([[-1.0, -2.0, -2.0]], requires_grad=True)
    risk = torch.tensor([[0.9, 0.1, 0.1]])
    counted = torch.tensor([first_of_each([[4], [5], [5]])])
    assert counted.tolist() == [[True, True, False]]
    found = expected_risk(log_probability, risk, counted, sharpness=1.0)
    weights = torch.tensor([-1.0, -2.0]).softmax(0)
    assert found.item() == pytest.approx((weights @ risk[0, :2]).item())
    found.backward()
    assert log_probability.grad[0, 0] > 0 > log_probability.grad[0, 1]
    assert log_probability.grad[0, 2] == 0


def test_fine_tuning_begins_with_the_weights_of_a_shipped_translator():
    folder = ROOT / "transformer_lib" / "pretrained" / "multi30k-en-de"
    run, shipped = begin(folder), Translator.from_pretrained(folder, device="cpu")
    wanted = dict(shipped.model.named_parameters())
    for name, parameter, average in zip(run.names, run.parameters, run.average, strict=True):
        assert torch.equal(parameter, wanted[name]) and torch.equal(average, wanted[name])
    assert run.tokenizer.encode("Ein Hund.") == shipped.source_tokenizer.encode("Ein Hund.") and run.step > 10_000


def test_every_second_pair_has_one_side_from_a_translator():
    back, forth = [f"s{i}" for i in range(200)], [f"t{i}" for i in range(200)]
    found = diversify(PAIRS, [back], [forth], random.Random(0))
    kinds = [0, 0, 0]
    for index, (pair, old) in enumerate(zip(found, PAIRS, strict=True)):
        sides = (pair.source, pair.target)
        kinds[[(old.source, old.target), (back[index], old.target), (old.source, forth[index])].index(sides)] += 1
    assert 80 < kinds[0] < 120 and all(30 < kind < 70 for kind in kinds[1:])
    assert diversify(PAIRS, [], [], random.Random(0)) == PAIRS
    assert diversify(PAIRS, [[""] * 200], [], random.Random(0)) == PAIRS  # nothing was translated
    with pytest.raises(ValueError, match="3 sources for 200 pairs"):
        diversify(PAIRS, [back[:3]], [], random.Random(0))


@pytest.mark.slow
def test_a_translator_goes_on_with_translations_and_can_be_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr("diversify.load_pairs", lambda *_: PAIRS[:20])
    monkeypatch.setattr(Run, "validation_pairs", PAIRS[:2])
    runs = []
    for name, epochs in (("whole", [2]), ("halves", [1, 2])):
        for number in epochs:
            run = resume("multi30k-en-de", tmp_path / name, warmup=10)
            run.sources = [[pair.source.upper() for pair in PAIRS[:20]]]
            run.train(number, score_every=10)
        runs.append(run)
    whole, halves = runs
    assert whole.epoch == halves.epoch == 2 and whole.config.warmup == 10
    assert any(pair.source.isupper() for pair in whole.train_pairs)
    for one, other in zip(whole.average, halves.average, strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match="--start"):
        resume(None, tmp_path / "nothing")


@pytest.mark.slow
def test_a_risk_step_scores_candidates_and_has_a_gradient(tokenizer, tmp_path):
    config = RunConfig(vocab_size=len(tokenizer), d_model=32, n_heads=4, d_ff=48)
    run = Run(tmp_path, config, tokenizer)
    ids = [tokenizer.encode(text) for text in (PAIRS[0].source, PAIRS[0].target)]
    source, target = torch.tensor([[*ids[0], 2]]), torch.tensor([[1, *ids[1], 2]])
    step = RiskStep(run, n_samples=3)
    candidates, references = step.draw(source, target)
    assert candidates[0] == [*ids[1], 2] and references == [PAIRS[0].target]
    loss, reward = step.loss(source, target)
    loss.backward()
    assert 0 <= reward < 50 and torch.isfinite(run.model.output.weight.grad).all()


@pytest.mark.slow
def test_the_references_have_the_tokens_of_the_literature(data_directory):
    for (source, target), tokens in {
        ("en", "de"): 12_103,
        ("de", "en"): 12_968,
    }.items():
        texts = [p.target for p in load_pairs("test_2016_flickr", source, target)]
        scores = score(texts, texts, target)
        assert scores["reference_tokens"]["value"] == tokens
        assert "tok:13a" in scores["bleu_cased"]["signature"]
        assert all(scores[n]["value"] == pytest.approx(100) for n in ("bleu", "chrf"))


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_last_bit(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(real_translators, "load_pairs", lambda *_: PAIRS)
    sizes = {"d_model": 32, "n_heads": 4, "d_ff": 48, "max_tokens": 300}
    config = RunConfig(vocab_size=len(tokenizer), **sizes)
    whole, cut = (Run(tmp_path / name, config, tokenizer) for name in ("whole", "cut"))
    torch.manual_seed(1)
    whole.run_epoch()

    class Killed(Exception):
        pass

    def save_and_die():
        Run.save(cut)
        raise Killed

    cut.save = save_and_die
    tokenizer.save(tmp_path / "cut" / "tokenizer.json")
    torch.manual_seed(1)
    with pytest.raises(Killed):
        cut.run_epoch(save_every=3)
    resumed = Run.load(tmp_path / "cut")
    assert (resumed.epoch, resumed.batch) == (0, 3)
    resumed.run_epoch()
    for ours, theirs in zip(resumed.average, whole.average, strict=True):
        assert torch.equal(ours, theirs)
