"""Laws of every loss: what is not counted has no influence, in value and gradient; what is padding, the model says."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer_lib.data.batching import Batch, SpecialIds, collate, special_ids, unwrapped
from transformer_lib.models.bert import Bert, BertConfig
from transformer_lib.models.gpt import GPT, GPTConfig, GPTTranslator
from transformer_lib.models.llama import Llama, LlamaConfig
from transformer_lib.models.loss import add_up, translation_loss
from transformer_lib.models.seq2seq import token_losses
from transformer_lib.training.loss import minimum_risk_loss, r_drop_loss
from transformer_lib.training.preferences import (
    answer_log_probs,
    dpo_loss,
    group_advantages,
    grpo_loss,
    pass_at_k,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
every_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)
SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1}


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def decoder(kind: type = GPT, **special: object) -> nn.Module:
    config = {GPT: GPTConfig, Llama: LlamaConfig, GPTTranslator: GPTConfig}[kind]
    more = {"n_kv_heads": 1, "d_ff": 8} if kind is Llama else {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = kind(config(40, **SIZES, **more, dropout=0.0, max_length=16, special=SpecialIds(**special)))
        return made.double().eval()


def one_by_one(model: nn.Module, row: list[int], start: int) -> list[float]:
    """The log-probability of each token of an answer."""
    logits = model(torch.tensor([row]))[0].log_softmax(-1)
    return [float(logits[t - 1, row[t]]) for t in range(start, len(row))]


# ---------------------------------------------------------------- answers, and who says what padding is

OTHER_IDS = [
    (GPT, {"pad": None, "bos": None, "eos": (39,), "unk": None, "forbidden": ()}),  # as from_hf makes GPT-2
    (Llama, {"pad": 38, "bos": 1, "eos": (39,), "unk": None, "forbidden": ()}),
    (GPT, {"pad": 39, "bos": None, "eos": (39, 37), "unk": None, "forbidden": ()}),  # filled up with its end
    (GPT, {}),
]


@torch.no_grad()
@pytest.mark.parametrize(("kind", "special"), OTHER_IDS, ids=str)
def test_an_answer_is_what_the_model_calls_no_padding(kind, special):
    model = decoder(kind, **special)
    ids = model.config.special
    end = ids.eos[0]
    short, long = [5, 6, 7, end], [5, 6, 9 if ids.pad == 0 else 0, 7, 8, end]
    rows = torch.tensor([short + [ids.fill] * 2, long])
    found, written = answer_log_probs(model, rows, 2)
    assert written.tolist() == [[True, True, False, False], [True] * 4]
    assert torch.equal(answer_log_probs(model, rows.int(), 2)[0], found)
    for row, answer in zip(found.tolist(), (short, long), strict=True):
        assert row == pytest.approx(one_by_one(model, answer, 2) + [0.0] * (6 - len(answer)), abs=1e-9)


@torch.no_grad()
def test_a_mask_says_what_counts_and_goes_before_any_id():
    model, rows = decoder(), torch.tensor([[5, 6, 0, 7, 8]])
    with pytest.raises(ValueError, match="tokens has padding before a token"):
        answer_log_probs(model, rows, 1)
    mask = torch.tensor([[True, True, True, False, True]])
    found, written = answer_log_probs(model, rows, 1, mask)
    expected = one_by_one(model, rows[0].tolist(), 1)
    assert torch.equal(written, mask[:, 1:])
    assert found[0].tolist() == pytest.approx([expected[0], expected[1], 0.0, expected[3]], abs=1e-9)


def test_what_cannot_be_an_answer_is_refused():
    model = decoder()
    with pytest.raises(ValueError, match="start=0 must be at least 1"):
        answer_log_probs(model, torch.tensor([[5, 6]]), 0)
    with pytest.raises(ValueError, match="tokens begins with padding"):
        answer_log_probs(model, torch.tensor([[0, 5, 6]]), 1)
    for rows, shape in ((torch.tensor([[5, 6]]), (1, 0)), (torch.zeros(0, 4, dtype=torch.long), (0, 2))):
        found, written = answer_log_probs(model, rows, 2)
        assert found.shape == written.shape == shape


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_at_padding_have_no_influence(bad):
    class Odd(nn.Module):
        """Logits that are given; without a configuration, so with the library's ids."""

        def forward(self, tokens: Tensor) -> Tensor:
            return self.logits

    rows, odd = torch.tensor([[5, 6, 7, 2, 0, 0], [5, 6, 2, 0, 0, 0]]), Odd()
    results = []
    for value in (0.0, bad):
        logits = numbers(2, 5, 40)
        logits[0, 3:], logits[1, 2:] = value, value
        odd.logits = logits.requires_grad_()
        found, _ = answer_log_probs(odd, rows, 2)
        (gradient,) = torch.autograd.grad(found.square().sum(), logits)
        results.append((found.detach(), gradient))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other) and one.isfinite().all()
    odd.logits = numbers(2, 5, 40)
    odd.logits[..., 0] = -math.inf  # padding is impossible
    assert answer_log_probs(odd, rows, 2)[0].isfinite().all()


@every_type
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_of_tokens_has_no_gradient_at_padding(dtype, smoothing, bad):
    target, results = torch.tensor([[5, 7, 7], [0, 7, 7]]), []
    for value in (0.0, bad):
        logits = numbers(2, 3, 9).to(dtype)
        logits[target == 7] = value
        losses = token_losses(logits.requires_grad_(), target, smoothing, padding=7)
        results.append((losses.detach(), *torch.autograd.grad(losses.square().sum(), logits)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other) and one.isfinite().all() and not one[target == 7].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_a_model_says_at_padding_has_no_influence_on_its_risk(bad):
    class Odd(nn.Module):
        config = SimpleNamespace(special=SpecialIds(pad=7, bos=6, eos=(5,)))

        def __init__(self, value):
            super().__init__()
            self.logits, self.value = nn.Parameter(numbers(2, 3, 9)), value

        def forward(self, source, target):
            return self.logits + torch.where(target == 5, self.value, 0.0)[..., None]  # what follows EOS is padding

    target = torch.tensor([[6, 1, 2, 5], [6, 3, 5, 7]])
    batch, results = Batch(torch.tensor([[1, 5], [2, 5]]), target), []
    for value in (0.0, bad):
        model = Odd(value).train()
        found = minimum_risk_loss(model, batch, lambda m, s: target[:, None], lambda one, _: torch.ones(one.shape[:2]))
        results.append((found.sum.detach(), *torch.autograd.grad(found.sum, model.logits)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other) and one.isfinite().all()


@pytest.mark.filterwarnings("ignore")
def test_special_ids_are_asked_of_the_model_inside():
    model = decoder(Llama, pad=38, eos=(39,))
    rows, special = torch.tensor([[5, 6, 39, 38]]), model.config.special
    for wrapped in (model, nn.DataParallel(model)):
        assert special_ids(torch.compile(wrapped, backend="eager")) == special_ids(wrapped) == special
        assert unwrapped(torch.compile(wrapped, backend="eager")) is model
        assert answer_log_probs(wrapped, rows, 1)[1].tolist() == [[True, True, False]]


# ---------------------------------------------------------------- losses of batches


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_every_loss_of_a_translator_counts_what_its_model_counts(smoothing):
    special = SpecialIds(pad=8, bos=7, eos=(6, 3), unk=None, forbidden=(8, 7))
    model = decoder(GPTTranslator, pad=8, bos=7, eos=(6, 3), unk=None, forbidden=(8, 7)).train()
    rows = [([4, 0, 6], [7, 5, 0, 4, 3]), ([4, 6], [7, 0, 6])]
    together = collate(rows, special=special)
    plain = Batch(together.source, together.target)  # which says nothing about its ids
    losses = {
        "own": lambda batch: model.loss(batch, smoothing),
        "called directly": lambda batch: translation_loss(model, batch, smoothing),
        "R-Drop": lambda batch: r_drop_loss(model, batch, smoothing),
        "minimum risk": lambda batch: minimum_risk_loss(
            model, batch, lambda m, s: batch.target[:, None], lambda one, _: torch.ones(one.shape[:2]).double()
        ),
    }
    for name, loss in losses.items():
        for batch in (together, plain):
            nats, n_tokens = loss(batch)
            assert int(n_tokens) == 6, name
            parts = [loss(collate([row], special=special)) for row in rows]
            assert nats.item() == pytest.approx(sum(part.sum.item() for part in parts)), name


def test_the_losses_of_language_models_count_what_their_models_count():
    for kind in (GPT, Llama):
        model = decoder(kind, pad=38, bos=1, eos=(39,))
        text, padded = torch.tensor([[1, 0, 7, 0, 39]]), torch.tensor([[1, 0, 7, 0, 39, 38, 38]])
        one, other = (model.loss(Batch(rows, rows)) for rows in (text, padded))
        assert int(one.n_tokens) == int(other.n_tokens) == 4 and one.sum.item() == pytest.approx(other.sum.item())
    torch.manual_seed(0)
    bert = Bert(BertConfig(20, d_ff=16, **SIZES, special=SpecialIds(pad=5))).eval()
    source, target = torch.tensor([[1, 0, 9, 2, 5]]), torch.tensor([[5, 0, 9, 5, 5, 5]])  # two words to predict
    assert int(bert.loss(Batch(source, target)).n_tokens) == 2


# ---------------------------------------------------------------- preferences


def given_answers(dtype: torch.dtype, seed: int) -> list[Tensor]:
    rows = [(0.5 * numbers(4, 5, seed=seed + n) - 2).to(dtype) for n in range(3)]
    return [*rows, numbers(4, seed=seed + 5).to(dtype)]


WRITTEN = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]]).bool()


@every_type
@settings(max_examples=15)
@given(
    seed=st.integers(0, 99),
    beta=st.sampled_from([0.0, 0.3]),
    bad=st.sampled_from([0.0, 7e4, -math.inf, math.inf, math.nan]),
)
def test_what_is_not_counted_has_no_influence_on_grpo(dtype, seed, beta, bad):
    results = []
    for value in (0.0, bad):
        parts = given_answers(dtype, seed)
        for x in parts[:3]:
            x[~WRITTEN] = value
        parts[3][2] = value  # the advantage of an answer without tokens
        parts = [x.requires_grad_() for x in parts]
        loss = grpo_loss(*parts, WRITTEN, beta=beta)
        results.append([loss.detach(), *torch.autograd.grad(loss, parts, allow_unused=True)])
    for one, other in zip(*results, strict=True):
        assert (one is None and other is None) or (torch.equal(one, other) and one.isfinite().all())


@every_type
def test_no_ratio_is_too_large_and_no_leash_that_is_not_used_pulls(dtype):
    now = torch.tensor([[5.0, -1.0]], dtype=dtype).requires_grad_()
    old, far = torch.tensor([[-700.0, -1.0]], dtype=dtype), torch.full((1, 2), 6e4, dtype=dtype)
    for gain in (1.0, 0.0):
        loss = grpo_loss(now, old, far, torch.tensor([gain], dtype=dtype), torch.ones(1, 2).bool())
        (gradient,) = torch.autograd.grad(loss, now)
        assert loss.isfinite() and gradient.isfinite().all() and gradient[0, 0] == 0
    loss = grpo_loss(-far, -far, now.detach(), torch.ones(1), torch.ones(1, 2).bool(), beta=0.1)
    assert loss.isfinite()  # however far the leash is


def test_batches_without_answers_have_a_loss_of_zero():
    empty = torch.zeros(0, 4)
    none = torch.zeros(2, 0)
    assert grpo_loss(empty, empty, empty, torch.zeros(0), empty.bool()).item() == 0
    assert grpo_loss(none, none, none, torch.zeros(2), none.bool(), beta=0.1).item() == 0
    assert dpo_loss(*[torch.zeros(0)] * 4).item() == 0


@every_type
@given(value=st.sampled_from([0.1, 0.7, -3.3, 1e4, 60000.0]), size=st.integers(1, 9))
def test_equal_rewards_teach_nothing_in_any_type(dtype, value, size):
    assert not group_advantages(torch.full((3, size), value, dtype=dtype)).any()


def test_a_single_answer_is_no_better_than_its_group():
    assert group_advantages(numbers(3, 1)).tolist() == [[0.0]] * 3


@every_type
def test_dpo_is_finite_and_near_double_precision(dtype):
    four = [(30 * numbers(6, seed=n)).to(dtype).requires_grad_() for n in range(4)]
    found, exact = dpo_loss(*four), dpo_loss(*(x.double() for x in four))
    assert found.item() == pytest.approx(exact.item(), rel=0.02)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found, four))


# what the annotations say is not checked outside strict mode, in which these tests run: see bad_calls.py


@pytest.mark.parametrize(("n", "correct", "k"), [(5, 2, 6), (5, 6, 2), (10, -1, 2), (5, 2, 0), (5, 2, -1), (0, 0, 1)])
def test_impossible_counts_are_refused(n, correct, k):
    with pytest.raises(ValueError, match="answers"):
        pass_at_k(n, correct, k)


def test_the_loss_of_no_batches_is_refused():
    with pytest.raises(ValueError, match="there are no batches"):
        add_up(iter([]))
