"""One suite of laws that every translator obeys, whatever is inside: what search, training and plots rely on."""

from __future__ import annotations

import copy
import functools
import unicodedata
import warnings
import zlib
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import torch
from oracles import NoCache, as_lists
from torch import Tensor

from transformer_lib.data.batching import Batch, SpecialIds, collate
from transformer_lib.data.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_lib.decoding.beam_search import SearchConfig, beam_search
from transformer_lib.decoding.greedy import begin, generate, greedy_decode
from transformer_lib.decoding.sampling import sample
from transformer_lib.models.bert import Bert
from transformer_lib.models.registry import _BUILT_IN, build_model, model_entry, model_name, model_names
from transformer_lib.models.seq2seq import Seq2Seq, reorder
from transformer_lib.training.checkpoints import load_tensors, load_weights, save_tensors
from transformer_lib.translation.translator import Translator

RECURRENT = {"source_vocab_size": 13, "target_vocab_size": 11, "d_model": 8, "d_hidden": 8, "dropout": 0.0}
TRANSFORMER = {
    "source_vocab_size": 13, "target_vocab_size": 11, "tie_embeddings": "target", "d_model": 8, "n_heads": 2,
    "n_encoder_layers": 2, "n_decoder_layers": 2, "d_ff": 16, "dropout": 0.0, "max_length": 12,
}  # fmt: skip
GPT = {"vocab_size": 13, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 16, "dropout": 0.0, "max_length": 24}
LLAMA = GPT | {"n_heads": 4, "n_kv_heads": 2}
TRANSLATORS = {
    "gru": ("gru", RECURRENT),
    "gru, deep and reversed": ("gru", RECURRENT | {"n_layers": 2, "reverse_source": True}),
    "gru, both ways": ("gru", RECURRENT | {"bidirectional": True}),
    "bahdanau": ("bahdanau", RECURRENT),
    "bahdanau, deep": ("bahdanau", RECURRENT | {"n_layers": 2}),
    **{f"luong {score}": ("luong", RECURRENT | {"score": score}) for score in ("dot", "general", "concat", "location")},
    "luong without feeding": ("luong", RECURRENT | {"input_feeding": False}),
    # unfed: positions of single steps must be those of words that are read at once
    "luong local-m": ("luong", RECURRENT | {"score": "dot", "local": "m", "window": 2, "input_feeding": False}),
    "luong local-p": ("luong", RECURRENT | {"score": "concat", "local": "p", "window": 2}),
    "hard": ("hard", RECURRENT),
    "hard, gumbel and fed": ("hard", RECURRENT | {"estimator": "gumbel", "input_feeding": True}),
    "transformer": ("transformer", TRANSFORMER),
    "transformer, pre-norm": (
        "transformer",
        TRANSFORMER | {"norm_first": True, "positions": "learned"},
    ),
    "transformer, wide heads": ("transformer", TRANSFORMER | {"d_key": 3, "d_value": 5, "activation": "gelu"}),
    "transformer, one sided": ("transformer", TRANSFORMER | {"n_encoder_layers": 1, "n_decoder_layers": 3}),
    "transformer, untied": ("transformer", TRANSFORMER | {"tie_embeddings": "none", "final_norm": True, "bias": False}),
    "gpt": ("gpt", GPT),
    "llama, two groups": ("llama", LLAMA),
    "llama, a window": ("llama", LLAMA | {"window": 4}),
    "llama, as qwen 3": ("llama", LLAMA | {"qk_norm": True, "d_head": 6, "tie_embeddings": True}),
}
LANGUAGE_MODELS = {
    "gpt-lm": ("gpt-lm", GPT),
    "llama-lm": ("llama-lm", LLAMA),
    "llama-lm, a window": ("llama-lm", LLAMA | {"window": 3}),
    "llama-lm, as qwen 3": ("llama-lm", LLAMA | {"qk_norm": True, "d_head": 6}),
    "gpt-lm, no BOS": ("gpt-lm", GPT | {"special": SpecialIds(PAD, None)}),
    "llama-lm, no BOS": ("llama-lm", LLAMA | {"special": SpecialIds(PAD, None)}),
}
BERT = {key: size for key, size in GPT.items() if key != "max_length"} | {"attention_dropout": 0.0}
MODELS = TRANSLATORS | LANGUAGE_MODELS | {"bert": ("bert", BERT)}
WITHOUT_CACHE = "transformer without cache"
every_translator = pytest.mark.parametrize("name", [*TRANSLATORS, WITHOUT_CACHE])
every_model = pytest.mark.parametrize("name", TRANSLATORS)  # those with weights and a cache of their own
every_loss = pytest.mark.parametrize("name", MODELS)  # language models and BERT, too
every_text_model = pytest.mark.parametrize("name", LANGUAGE_MODELS)
ALIGNING = [name for name, (kind, _) in TRANSLATORS.items() if hasattr(model_entry(kind).model_class, "align")]

SOURCE = torch.tensor([[5, 6, 7, 8, 9, EOS], [10, 4, EOS, PAD, PAD, PAD], [7, EOS, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[BOS, 4, 5, 6, 7], [BOS, 8, 9, PAD, PAD], [BOS, PAD, PAD, PAD, PAD]])
LENGTHS = (TARGET != PAD).sum(dim=1).tolist()


@functools.cache
def trained(name: str) -> Seq2Seq:
    """A small model in double precision, with weights large enough for every input to matter."""
    kind, config = MODELS["transformer" if name == WITHOUT_CACHE else name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(name.encode()))  # which stays when others are added
        model = build_model(kind, config).double().eval()
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(0.4 * torch.randn_like(weights))
    return NoCache(model).eval() if name == WITHOUT_CACHE else model


@pytest.fixture
def model(name: str) -> Seq2Seq:
    return copy.deepcopy(trained(name))


def same(ours: Tensor, theirs: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def real(logits: Tensor, lengths: list[int] = LENGTHS) -> Tensor:
    """The logits at real target positions, one row each."""
    return torch.cat([row[:length] for row, length in zip(logits, lengths, strict=True)])


def rows_of(hypotheses: Tensor) -> list[list[int]]:
    """Token ids without padding."""
    return [[token for token in row if token != PAD] for row in hypotheses.tolist()]


def test_every_registered_model_is_held_to_the_laws() -> None:
    assert {kind for kind, _ in MODELS.values()} == set(_BUILT_IN)
    translators = {name for name in model_names() if issubclass(model_entry(name).model_class, Seq2Seq)}
    assert translators == {kind for kind, _ in TRANSLATORS.values()}


@pytest.mark.parametrize("name", model_names())
def test_every_table_of_vectors_starts_with_vectors_of_length_one(name: str) -> None:
    known = {field.name for field in fields(model_entry(name).config_class)}
    sizes = {"d_model": 64, "d_hidden": 64, "n_heads": 4, "n_kv_heads": 4, "d_ff": 64, "positions": "learned"}
    sizes |= dict.fromkeys(("vocab_size", "source_vocab_size", "target_vocab_size", "max_length", "n_segments"), 400)
    options = {key: value for key, value in sizes.items() if key in known}
    untied = {"tie_embeddings": False if "vocab_size" in known else "none"} if "tie_embeddings" in known else {}
    for changes in ({}, untied):
        model = build_model(name, options | changes)
        tables = [weights for weights in model.parameters() if weights.shape == (400, 64)]
        assert tables and all(table.std().item() == pytest.approx(64**-0.5, rel=0.05) for table in tables)
        assert not any(weights.any() for weights in model.parameters() if weights.shape == (400,))


# What the logits depend on --------------------------------------------------------------------------------------------


@every_translator
def test_logits_do_not_see_the_future_and_do_see_the_past(model: Seq2Seq) -> None:
    source, target = SOURCE[:1], TARGET[:1]
    with torch.no_grad():
        before = model(source, target)
        for t in range(1, target.shape[1]):
            changed = target.clone()
            changed[0, t] = 10
            after = model(source, changed)
            same(after[:, :t], before[:, :t], 1e-12)
            moved = (after[:, t:] - before[:, t:]).abs().amax(dim=-1) > 1e-9
            assert moved.all(), f"the token at {t} is not read by all that follow"


@every_translator
def test_logits_depend_on_the_source_and_on_its_order(model: Seq2Seq) -> None:
    with torch.no_grad():
        before = model(SOURCE[:1], TARGET[:1])
        other = model(SOURCE[:1, [1, 0, 2, 3, 4, 5]], TARGET[:1])
    assert (before - other).abs().max() > 1e-7


@every_translator
def test_padding_changes_nothing(model: Seq2Seq) -> None:
    with torch.no_grad():
        before = model(SOURCE, TARGET)
        longer = torch.nn.functional.pad(SOURCE, (0, 3), value=PAD)
        same(real(model(longer, TARGET)), real(before))
        same(real(model(SOURCE, torch.nn.functional.pad(TARGET, (0, 2), value=PAD))), real(before))


@every_translator
def test_company_changes_nothing(model: Seq2Seq) -> None:
    with torch.no_grad():
        together = model(SOURCE, TARGET)
        for i, length in enumerate(LENGTHS):
            alone = model(SOURCE[i : i + 1, : (SOURCE[i] != PAD).sum()], TARGET[i : i + 1, :length])
            same(alone[0], together[i, :length])
        order = torch.tensor([2, 0, 1])
        same(model(SOURCE[order], TARGET[order]), together[order])


@pytest.mark.parametrize("name", ALIGNING)
@torch.no_grad()
def test_an_alignment_stays_in_its_sentence_and_needs_no_company(model: Seq2Seq) -> None:
    weights = model.align(SOURCE, TARGET)
    assert weights.shape == (3, 5, 6) and (weights >= 0).all() and (weights.sum(-1) <= 1 + 1e-9).all()
    if getattr(model.config, "local", None) is None:  # a window may leave the sentence
        same(weights.sum(-1), torch.ones(3, 5).double())
    assert not weights[(SOURCE == PAD)[:, None].expand_as(weights)].any()
    for i, length in enumerate(LENGTHS):
        alone = model.align(SOURCE[i : i + 1, : (SOURCE[i] != PAD).sum()], TARGET[i : i + 1, :length])
        same(alone[0], weights[i, :length, : alone.shape[2]])
    assert model.align(SOURCE[:0], TARGET[:0]).shape == (0, 5, 6)


@every_model
def test_a_model_without_memory_tells_shapes(model: Seq2Seq) -> None:
    with torch.device("meta"):
        logits = build_model(model_name(model), model.config)(*(torch.ones(3, n, dtype=torch.long) for n in (5, 4)))
    assert logits.is_meta and logits.shape == (3, 4, model.output.out_features)


@every_model
def test_padding_earns_no_gradient_and_no_loss(model: Seq2Seq) -> None:
    words = [[BOS, 4, 5, 6, 7, EOS], [BOS, 8, 9, EOS, PAD, PAD], [BOS, EOS, PAD, PAD, PAD, PAD]]
    losses, gradients = [], []
    for extra in (0, 2):
        model.zero_grad()
        loss = model.loss(Batch(SOURCE, torch.nn.functional.pad(torch.tensor(words), (0, extra)))).sum
        loss.backward()
        losses.append(loss.detach())
        gradients.append([weights.grad.clone() for weights in model.parameters() if weights.grad is not None])
    same(losses[1], losses[0])
    assert all(gradient.isfinite().all() for gradient in gradients[0]) and len(gradients[0]) == len(gradients[1])
    for one, other in zip(*gradients, strict=True):
        same(one, other)


# The loss -------------------------------------------------------------------------------------------------------------

ROWS = [([5, 6, 7, 8, 9, EOS], [BOS, 4, 5, 6, 7, EOS]), ([10, 4, EOS], [BOS, 8, 9, EOS]), ([7, EOS], [BOS, EOS])]
BLANKS = Batch(SOURCE, torch.tensor([[BOS, 0, 7, 0, 0, 10, 0], [BOS, 0, 5, 0, 0, 0, 0], [BOS, 0, 0, 0, 0, 0, 0]]))
NOTHING = Batch(torch.tensor([[EOS]]), torch.tensor([[BOS, PAD]]))


def batch_for(name: str) -> Batch:
    """BERT predicts words of the source."""
    return BLANKS if name == "bert" else collate(ROWS)


def logits_of(model: torch.nn.Module, batch: Batch) -> Tensor:
    """A language model reads targets, BERT a source with blanks."""
    if isinstance(model, Seq2Seq):
        return model(batch.source, batch.target_input)
    return model(batch.source if isinstance(model, Bert) else batch.target_input)


@every_loss
def test_the_loss_of_a_batch_is_the_sum_over_its_rows(name: str, model: torch.nn.Module) -> None:
    batch = batch_for(name)
    together = model.loss(batch)
    rows = [model.loss(Batch(batch.source[[i]], batch.target[[i]])) for i in range(3)]
    same(together.sum, sum(row.sum for row in rows))
    assert together.n_tokens == sum(row.n_tokens for row in rows) == batch.n_tokens
    logits = logits_of(model, batch)
    nats = torch.nn.functional.cross_entropy(logits.mT, batch.target_output, ignore_index=PAD, reduction="sum")
    same(together.sum, nats)
    same(together.mean, nats / batch.n_tokens)


@every_loss
def test_smoothing_mixes_the_loss_with_that_of_all_words_in_training(name: str, model: torch.nn.Module) -> None:
    """By definition; dropout is zero, and what is drawn is drawn alike."""
    batch, found = batch_for(name), []
    same(model.loss(batch, smoothing=0.3).sum, model.loss(batch).sum)
    model.train()
    for smoothing in (0.0, 0.3):
        torch.manual_seed(0)
        found.append(model.loss(batch, smoothing=smoothing).sum)
    torch.manual_seed(0)
    log_p = logits_of(model, batch).log_softmax(-1).mean(-1)
    same(found[1], 0.7 * found[0] - 0.3 * log_p[batch.target_output != PAD].sum())


@every_loss
def test_a_batch_without_target_tokens_adds_exact_zeros_to_the_same_gradients(
    name: str, model: torch.nn.Module
) -> None:
    """This is the share of a process without sentences, which exchanges gradients with the others all the same."""
    model.train()
    reached = []
    for batch in (batch_for(name), NOTHING):
        model.zero_grad()
        loss = model.loss(batch)
        loss.sum.backward()
        reached.append({name for name, weight in model.named_parameters() if weight.grad is not None})
    assert loss.sum == 0 and loss.n_tokens == 0 and loss.mean == 0
    assert not any(weight.grad.any() for weight in model.parameters() if weight.grad is not None)
    assert reached[0] == reached[1]


@every_loss
def test_every_weight_has_the_gradient_that_a_small_step_confirms(name: str, model: torch.nn.Module) -> None:
    torch.manual_seed(0)
    batch = batch_for(name)
    model.loss(batch).sum.backward()
    silent = {label.split(".")[0] for label, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert silent <= ({"attention", "baseline"} if name.startswith("hard") else set())  # which learn from draws
    moved = [(p, p.grad, torch.randn_like(p)) for p in model.parameters() if p.grad is not None]
    ends = []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for weights, _, direction in moved:
                weights += step * direction
            ends.append(model.loss(batch).sum.item())
    expected = sum((gradient * direction).sum().item() for _, gradient, direction in moved)
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(expected, rel=1e-5, abs=1e-5)


# One step after another -----------------------------------------------------------------------------------------------


@every_translator
@torch.no_grad()
def test_steps_are_teacher_forcing(model: Seq2Seq) -> None:
    target = TARGET.where(TARGET != PAD, 4)
    state, steps = model.start(SOURCE), []
    for token in target.T:
        logits, state = model.step(token, state)
        steps.append(logits)
    same(torch.stack(steps, dim=1), model(SOURCE, target))


@every_translator
@torch.no_grad()
def test_a_reordered_state_goes_its_own_way(model: Seq2Seq) -> None:
    """One that was stepped may be used up, but then it says so."""
    _, state = model.step(TARGET[:, 0], model.start(SOURCE))
    copied = reorder(state, torch.arange(3))
    expected, _ = model.step(torch.tensor([4, 5, 6]), state)
    other, _ = model.step(torch.tensor([7, 8, 9]), reorder(copied, torch.arange(3)))
    same(model.step(torch.tensor([4, 5, 6]), copied)[0], expected, 0)
    assert (other - expected).abs().max() > 1e-6
    try:
        again, _ = model.step(torch.tensor([4, 5, 6]), state)
    except ValueError as error:
        assert "reorder" in str(error)
    else:
        same(again, expected, 0)


@every_translator
@torch.no_grad()
def test_rows_can_be_repeated_and_exchanged_and_the_memory_is_shared(model: Seq2Seq) -> None:
    """Two rows for each sentence, which then change places, as the hypotheses of a beam do."""
    _, stepped = model.step(TARGET[:, 0], model.start(SOURCE))
    state = reorder(stepped, torch.tensor([0, 0, 1, 1, 2, 2]))
    if hasattr(state, "memory"):
        assert state.memory is stepped.memory
    second = torch.tensor([4, 5, 6, 7, 8, 9])
    _, state = model.step(second, state)
    order = torch.tensor([1, 0, 2, 2, 5, 4])
    state = reorder(state, order)
    logits, _ = model.step(torch.full((6,), 10), state)
    written = torch.stack([torch.full((6,), BOS), second[order], torch.full((6,), 10)], dim=1)
    same(logits, model(SOURCE.repeat_interleave(2, dim=0), written)[:, -1])


@every_translator
@torch.no_grad()
def test_finished_sentences_can_leave(model: Seq2Seq) -> None:
    _, state = model.step(TARGET[:, 0], model.start(SOURCE))
    state = reorder(state, torch.tensor([0, 0, 1, 1, 2, 2]))
    state = reorder(state, torch.tensor([5, 4, 0, 1]), torch.tensor([2, 0]))
    second = torch.tensor([4, 5, 6, 7])
    logits, _ = model.step(second, state)
    written = torch.stack([torch.full((4,), BOS), second], dim=1)
    same(logits, model(SOURCE[[2, 2, 0, 0]], written)[:, -1])


@every_model
@torch.no_grad()
def test_a_memory_is_that_of_its_sentences(model: Seq2Seq) -> None:
    rows = torch.tensor([2, 0, 2])
    memory, target = model.encode(SOURCE), TARGET[[2, 0, 1]]
    same(model.decode(target, reorder(memory, rows, rows)), model(SOURCE[rows], target))


# A prompt is read at once ---------------------------------------------------------------------------------------------

PROMPTS = torch.tensor([[5, 6, 7, 8, 9, 4], [10, 4, PAD, PAD, PAD, PAD], [7, 9, 11, PAD, PAD, PAD]])


@every_translator
@torch.no_grad()
def test_a_translation_begins_behind_the_source_and_bos(model: Seq2Seq) -> None:
    logits, state = begin(model, SOURCE, SpecialIds())
    same(logits, model(SOURCE, TARGET[:, :1])[:, -1])
    second = torch.tensor([4, 5, 6])
    same(model.step(second, state)[0], model(SOURCE, torch.stack([TARGET[:, 0], second], 1))[:, -1])


@every_text_model
@torch.no_grad()
def test_start_reads_the_prompt_and_steps_go_on_from_it(model: torch.nn.Module) -> None:
    """Rows of unequal length, too: logits are those of each row alone, and so are those that follow."""
    lengths = (PROMPTS != PAD).sum(1)
    first = [BOS] * (model.config.special.bos is not None)
    logits, state = model.start(PROMPTS)
    rows = [[*first, *prompt[:n]] for prompt, n in zip(PROMPTS.tolist(), lengths.tolist(), strict=True)]
    for token in (None, *torch.tensor([[4, 5, 6], [7, 8, 9], [12, 11, 10]])):
        if token is not None:
            logits, state = model.step(token, state)
            rows = [[*row, one] for row, one in zip(rows, token.tolist(), strict=True)]
        for row, found in zip(rows, logits, strict=True):
            same(found, model(torch.tensor([row]))[0, -1])
    model.step(torch.tensor([9, 9, 9]), state)  # which leaves the state as it is
    order = torch.tensor([2, 0, 0, 1])
    moved, _ = model.step(torch.tensor([3, 3, 4, 3]), reorder(state, order))
    for row, found, token in zip(order.tolist(), moved, (3, 3, 4, 3), strict=True):
        same(found, model(torch.tensor([[*rows[row], token]]))[0, -1])


@every_text_model
def test_a_prompt_goes_through_the_model_once(model: torch.nn.Module) -> None:
    """Up to the first new token, the layers see no more than one pass over the prompt; after it, a token a step."""
    widths: list[int] = []
    model.layers[0].register_forward_hook(lambda layer, inputs, output: widths.append(output.shape[1]))
    prompt, bos = PROMPTS[:1], model.config.special.bos is not None
    for search in (greedy_decode, sample, lambda *a, **o: beam_search(*a, beam_size=3, **o)):
        for new in (1, 4):
            widths.clear()
            search(model, prompt, max_length=6 + new, min_length=6 + new)
            assert widths == [6 + bos, *[1] * (new - 1)]


PROMPTED = [{}, {"min_length": 9, "repetition_penalty": 1.4}, {"beam_size": 3}]


@pytest.mark.parametrize(("name", "options"), [*zip(LANGUAGE_MODELS, 2 * PROMPTED, strict=True)], ids=str)
def test_prompts_go_on_as_each_alone(model: torch.nn.Module, options: dict) -> None:
    """Also up to the limit of the model, where the longest prompt has the least room."""
    longest = 24

    def search(prompts: Tensor) -> Tensor:
        if "beam_size" in options:
            return beam_search(model, prompts, max_length=longest, **options).tokens[:, 0]
        return greedy_decode(model, prompts, max_length=longest, **options)

    together = search(PROMPTS)
    for row, prompt in zip(together.tolist(), PROMPTS.tolist(), strict=True):
        alone = search(torch.tensor([[token for token in prompt if token != PAD]]))[0].tolist()
        assert row[: len(alone)] == alone and not any(row[len(alone) :])
        assert alone[: len(prompt) - prompt.count(PAD)] == [token for token in prompt if token != PAD]


def test_a_prompt_with_padding_before_a_token_is_refused() -> None:
    for bad in ([[PAD, 5, 6]], [[5, PAD, 6]], [[5, 99, 6]]):
        with pytest.raises(ValueError, match="prompt"):
            trained("gpt-lm").start(torch.tensor(bad))


# Decoding -------------------------------------------------------------------------------------------------------------


@every_translator
def test_greedy_decoding_is_a_beam_of_one_and_needs_no_company(model: Seq2Seq) -> None:
    together = rows_of(greedy_decode(model, SOURCE, max_length=9, min_length=3))
    assert all(len(row) > 3 for row in together)
    for i, expected in enumerate(together):
        length = int((SOURCE[i] != PAD).sum())
        assert rows_of(greedy_decode(model, SOURCE[i : i + 1, :length], max_length=9, min_length=3)) == [expected]
    beams = as_lists(beam_search(model, SOURCE, beam_size=1, max_length=9, min_length=3))
    assert [list(best.tokens) for (best,) in beams] == together


@every_translator
def test_a_beam_needs_no_company_and_scores_what_it_says(model: Seq2Seq) -> None:
    options = {"beam_size": 3, "n_best": 2, "max_length": 6}
    together = as_lists(beam_search(model, SOURCE, **options))
    for i, hypotheses in enumerate(together):
        length = int((SOURCE[i] != PAD).sum())
        (alone,) = as_lists(beam_search(model, SOURCE[i : i + 1, :length], **options))
        assert [list(one.tokens) for one in alone] == [list(one.tokens) for one in hypotheses]
        for one in hypotheses:
            with torch.no_grad():
                target = torch.tensor([[BOS, *one.tokens[:-1]]])
                logits = model(SOURCE[i : i + 1, :length], target).log_softmax(dim=-1)
            picked = logits[0].gather(1, torch.tensor(one.tokens)[:, None])
            assert one.log_prob == pytest.approx(picked.sum().item(), abs=1e-6)


@every_translator
def test_prefixes_are_kept_and_the_model_comes_back_in_its_mode(model: Seq2Seq) -> None:
    prefix = torch.tensor([[4, 5], [6, PAD], [PAD, PAD]])
    model.train()
    ids = rows_of(greedy_decode(model, SOURCE, max_length=6, prefix=prefix, min_length=3))
    assert model.training
    assert ids[0][:2] == [4, 5] and ids[1][:1] == [6] and all(len(row) >= 4 or row[-1] != EOS for row in ids)
    model.eval()
    assert ids[2] == rows_of(greedy_decode(model, SOURCE[2:, :2], max_length=6, min_length=3))[0]


@every_translator
def test_tokens_stream_and_samples_repeat(model: Seq2Seq) -> None:
    ids = rows_of(greedy_decode(model, SOURCE, max_length=6))
    written: list[list[int]] = [[], [], []]
    for rows, tokens in generate(model, SOURCE, lambda logits: logits.argmax(dim=-1), max_length=6):
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            written[row].append(token)
    assert written == ids
    drawn = [
        sample(model, SOURCE, max_length=6, generator=torch.Generator().manual_seed(seed)).tolist()
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    cold = sample(model, SOURCE, max_length=6, top_k=1, generator=torch.Generator().manual_seed(3))
    assert rows_of(cold) == ids


# Saved and loaded, in other types -------------------------------------------------------------------------------------


@every_model
def test_a_model_is_rebuilt_from_its_name_configuration_and_weights(model: Seq2Seq, tmp_path: Path) -> None:
    save_tensors(tmp_path / "weights.safetensors", model.state_dict(), {})
    again = build_model(model_name(model), asdict(model.config)).double().eval()
    load_weights(again, load_tensors(tmp_path / "weights.safetensors")[0], tmp_path)
    assert again.config == model.config
    with torch.no_grad():
        same(again(SOURCE, TARGET), model(SOURCE, TARGET), 0)


TEXTS = ["ä b c d é", "f g", "ü", "", "i h x"]


SEARCHES = [
    {},
    {"beam_size": 3, "n_best": 2, "length_penalty": 1.0, "normalization": "mean"},
    {"min_length": 4, "repetition_penalty": 1.5},
    {"max_ratio": 1.2},
]


@pytest.mark.parametrize(("name", "options"), [(name, SEARCHES[i % 4]) for i, name in enumerate(TRANSLATORS)], ids=str)
@pytest.mark.filterwarnings("ignore:the model does not know")
def test_a_translator_is_the_same_loaded_streaming_alone_and_with_decomposed_letters(
    name: str, model: Seq2Seq, options: dict, tmp_path: Path
) -> None:
    sides = [Tokenizer.train([" ".join("äbcdéfgüi"[: size - 4])], level="word") for size in (13, 11)]
    sides = [sides[0], sides["vocab_size" not in TRANSLATORS[name][1]]]
    translator = Translator(model.float(), *sides, decoding=SearchConfig(max_length=9, **options))
    expected = translator.search(TEXTS)
    assert len({one.log_probability for row in expected for one in row}) > 3  # no two sentences are alike
    again = Translator.from_pretrained(translator.save_pretrained(tmp_path / "saved"), device="cpu")
    assert again.search(TEXTS) == expected and again.config() == translator.config()
    greedy = translator.translate(TEXTS, beam_size=1, n_best=1)
    assert ["".join(again.stream(text)) for text in TEXTS] == greedy
    decomposed = [unicodedata.normalize("NFD", text) for text in TEXTS]
    assert translator.search(decomposed) == expected and decomposed != TEXTS
    assert ["".join(translator.stream(text)) for text in decomposed] == greedy
    for texts in ([[text] for text in TEXTS], [TEXTS[::-1]]):
        found = [row for group in texts for row in translator.search(group)]
        for row, other in zip(found, expected if len(texts) > 1 else expected[::-1], strict=True):
            assert [one.text for one in row] == [one.text for one in other]
            assert [one.score for one in row] == pytest.approx([one.score for one in other], abs=1e-4)


@every_translator
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_smaller_types_keep_to_themselves_and_come_close(model: Seq2Seq, dtype: torch.dtype) -> None:
    with torch.no_grad():
        exact = torch.log_softmax(model(SOURCE, TARGET), dim=-1)
        model.to(dtype)
        logits = model(SOURCE, TARGET)
        assert logits.dtype == dtype and logits.isfinite().all()
        assert model.step(TARGET[:, 0], model.start(SOURCE))[0].dtype == dtype
    close = torch.log_softmax(logits.double(), dim=-1)
    limit = {torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.5}[dtype]
    assert (real(close) - real(exact)).abs().max() < limit
    assert len(greedy_decode(model, SOURCE, max_length=5)) == 3


@every_translator
def test_nothing_warns_and_no_sentences_are_no_error(model: Seq2Seq) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert greedy_decode(model, SOURCE[:0], max_length=5).shape[0] == 0
        assert len(beam_search(model, SOURCE[:0], beam_size=2, max_length=5).tokens) == 0
