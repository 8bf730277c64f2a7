"""The decoder-only model: equal to GPT-2, the same with and without padding, cache and company."""

import copy

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from transformer_lib.data.batching import collate
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.models.gpt import GPT, GPTConfig, from_hugging_face, to_hugging_face
from transformer_lib.models.seq2seq import reorder

SIZES = {"vocab_size": 13, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 16, "dropout": 0.0, "max_length": 16}
EMPTY = torch.empty(2, 0, dtype=torch.long)
EXAMPLES = [([5, 6, 7, EOS], [BOS, 8, 9, EOS]), ([10, EOS], [BOS, 11, EOS])]


def build(**options: object) -> GPT:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GPT(GPTConfig(**SIZES | options)).double().eval()


def gpt2(dtype: torch.dtype = torch.float64, **options: object) -> GPT2LMHeadModel:
    """A small GPT-2 with random weights, biases and norms too."""
    sizes = {"vocab_size": 13, "n_positions": 16, "n_embd": 8, "n_head": 2, "n_layer": 2, "n_inner": 20}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = GPT2LMHeadModel(GPT2Config(**sizes | options, bos_token_id=1, eos_token_id=2)).eval()
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(0.3 * torch.randn_like(weights))
    return model.to(dtype)


# GPT-2 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_the_same_scores_and_gradients_as_gpt2_both_ways(dtype: torch.dtype, tolerance: float) -> None:
    theirs, ids = gpt2(dtype), torch.tensor([[0, 5, 0, 12, 7, 1, 2], [3, 3, 4, 11, 10, 9, 0]])
    ours = from_hugging_face(theirs)
    back = to_hugging_face(ours)
    gradients = []
    for model, scores in (
        (theirs, theirs(ids).logits),
        (ours, ours(EMPTY, ids)),
        (back, back(ids).logits),
    ):
        torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        tables = model.embedding if model is ours else model.transformer.wte
        layer = model.stack.layers[0].norm1 if model is ours else model.transformer.h[0].ln_1
        gradients.append((scores.detach(), tables.weight.grad, layer.weight.grad, layer.bias.grad))
    for found in gradients[1:]:
        for one, expected in zip(found, gradients[0], strict=True):
            torch.testing.assert_close(one, expected, rtol=tolerance, atol=tolerance)
    assert {n: p.shape for n, p in back.named_parameters()} == {n: p.shape for n, p in theirs.named_parameters()}


def test_steps_continue_a_prompt_as_gpt2_does() -> None:
    theirs, prompt = gpt2(), torch.tensor([[7, 0, 5, 9]])
    ours, full = from_hugging_face(theirs), prompt
    with torch.no_grad():
        state = ours.start(ours.encode(prompt[:, :-1], torch.ones(1, 3, dtype=torch.bool)))
        token = prompt[:, -1]
        for _ in range(5):
            logits, state = ours.step(token, state)
            expected = theirs(full).logits[:, -1]
            torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
            token = logits.argmax(dim=-1)
            full = torch.cat([full, token[:, None]], dim=1)


@pytest.mark.parametrize(
    ("option", "value"),
    [("activation_function", "relu"), ("scale_attn_by_inverse_layer_idx", True), ("tie_word_embeddings", False)],
)
def test_a_gpt2_that_computes_something_else_is_refused(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=option):
        from_hugging_face(gpt2(**{option: value}))


# One sequence ---------------------------------------------------------------------------------------------------------


def test_source_and_target_are_one_sequence() -> None:
    """Read as a target without a source, the joined tokens have the same scores."""
    model, batch = build(), collate(EXAMPLES)
    found = model(batch.source, batch.target_input)
    for i, (source, target) in enumerate(EXAMPLES):
        alone = model(EMPTY[:1], torch.tensor([source + target[:-1]]))[0, len(source) :]
        torch.testing.assert_close(found[i, : len(alone)], alone, rtol=1e-10, atol=1e-10)


def test_a_full_source_sees_all_of_itself() -> None:
    """The last source word changes what the first layer makes of the first one, and only then."""
    for full in (False, True):
        model = build(full_source=full)
        made = []
        for last in (7, 8):
            source = torch.tensor([[5, 6, last]])
            memory = model.encode(source, source != PAD)
            made.append(model._read(torch.tensor([[BOS]]), memory)[0, 0])
        assert made[0].equal(made[1]) != full


def test_the_loss_counts_the_source_where_asked() -> None:
    batch = collate(EXAMPLES)
    plain, both = build(), build(source_loss=True)
    tokens = [[*source, *target] for source, target in EXAMPLES]
    sums = {"target": [], "source": []}
    for row, (source, _) in zip(tokens, EXAMPLES, strict=True):
        log_p = plain(EMPTY[:1], torch.tensor([row[:-1]]))[0].log_softmax(dim=-1)
        for t, token in enumerate(row[1:], start=1):
            if token != BOS:
                sums["target" if t > len(source) else "source"].append(-log_p[t - 1, token])
    mean = torch.stack(sums["target"]).mean()
    torch.testing.assert_close(plain.loss(batch), mean)
    torch.testing.assert_close(both.loss(batch), torch.stack(sums["target"] + sums["source"]).mean())


def test_a_prompt_without_a_source_is_continued() -> None:
    model, prompt = build(max_source_length=0), torch.tensor([[5, 6], [7, PAD]])
    ids = greedy_decode(model, EMPTY, max_length=40, min_length=15, prefix=prompt)
    assert ids.shape[1] == 16 and ids[0, :2].tolist() == [5, 6] and ids[1, 0] == 7


def test_a_state_is_used_up_and_a_reordered_one_is_not() -> None:
    model, batch = build(), collate(EXAMPLES)
    with torch.no_grad():
        state = model.start(model.encode(batch.source, batch.source_mask))
        kept = reorder(state, torch.tensor([0, 1]))
        first, _ = model.step(torch.tensor([BOS, BOS]), state)
        with pytest.raises(ValueError, match="reorder it first"):
            model.step(torch.tensor([BOS, BOS]), state)
        assert first.equal(model.step(torch.tensor([BOS, BOS]), kept)[0])


def test_training_reaches_every_parameter() -> None:
    model = copy.deepcopy(build(source_loss=True)).train()
    model.loss(collate(EXAMPLES)).backward()
    assert all(weights.grad is not None and weights.grad.abs().sum() > 0 for weights in model.parameters())


# Wrong input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 0}, "vocab_size"),
        ({"n_layers": 0}, "n_layers"),
        ({"d_model": 9}, "n_heads"),
        ({"max_source_length": 16}, "room for a target"),
        ({"source_loss": True, "full_source": True}, "tokens that it sees"),
    ],
)
def test_sizes_that_cannot_be_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_wrong_tokens_are_named() -> None:
    model, ids = build(), torch.tensor([[5, 6]])
    with pytest.raises(ValueError, match="source_mask"):
        model.encode(ids, torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="max_length=16"):
        model(EMPTY[:1], torch.full((1, 17), 5))
    with pytest.raises(ValueError, match="max_length=16"):
        model(torch.full((1, 10), 5), torch.full((1, 7), 5))
    with pytest.raises((ValueError, IndexError), match=r"out of range|target"):
        model(EMPTY[:1], torch.tensor([[13]]))
