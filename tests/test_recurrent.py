"""The recurrent translator: equal to PyTorch's GRU, blind to padding, the same step by step and all at once."""

import copy
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_lib.data.batching import Batch, collate
from transformer_lib.data.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_lib.decoding.greedy import collect_tokens, generate, greedy_decode, translate
from transformer_lib.models.recurrent import (
    GRU,
    RecurrentConfig,
    RecurrentSeq2Seq,
    RecurrentState,
    reverse_padded,
)
from transformer_lib.models.seq2seq import (
    Memory,
    Seq2Seq,
    State,
    build_model,
    check_tokens,
    embedding,
    eval_mode,
    model_name,
    register_model,
    sequence_loss,
)
from transformer_lib.training.loop import evaluate_loss, train_on

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
MODES = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
SIZES = {"source_vocab_size": 13, "target_vocab_size": 11, "d_model": 6, "d_hidden": 8}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_model(seed: int = 0, **changes) -> RecurrentSeq2Seq:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = RecurrentSeq2Seq(RecurrentConfig(**{**SIZES, "dropout": 0.0, **changes}))
        for parameter in model.parameters():  # away from zero, so that nothing is equal by accident
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model.double()


def ragged(lengths: list[int], vocab_size: int, seed: int = 0, first: int | None = None) -> torch.Tensor:
    """Random sentences, closed by EOS, filled up with PAD."""
    rows = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = torch.randint(4, vocab_size, (length,), generator=generator(seed + length))
        row[length - 1] = EOS
        if first is not None:
            row[0] = first
    return rows


def reference(ours: GRU) -> nn.GRU:
    """``torch.nn.GRU`` with the weights of ours."""
    theirs = nn.GRU(
        ours.d_input, ours.d_hidden, ours.n_layers, batch_first=True, bidirectional=len(ours.directions) == 2
    )
    theirs = theirs.to(next(ours.parameters()).dtype)
    theirs.load_state_dict(ours.state_dict())
    return theirs


# ---------------------------------------------------------------- equal to a reference


@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    widths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    n_layers=st.integers(1, 3),
    both=st.booleans(),
    with_state=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow
def test_gru_equals_torch_on_packed_sequences_in_values_and_gradients(
    lengths, widths, n_layers, both, with_state, seed
):
    draw = generator(seed)
    ours, directions = GRU(*widths, n_layers, bidirectional=both).double(), 1 + both
    theirs = reference(ours)
    inputs = torch.randn(len(lengths), max(lengths), widths[0], generator=draw).double()
    state, theirs_state = None, None
    if with_state:
        state = torch.randn(len(lengths), n_layers, directions * widths[1], generator=draw).double()
        theirs_state = state.unflatten(2, (directions, -1)).flatten(1, 2).transpose(0, 1).contiguous()
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ours_in, theirs_in = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()

    outputs, final = ours(ours_in, mask, state)
    packed = pack_padded_sequence(theirs_in, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    packed_out, their_final = theirs(packed, theirs_state)
    their_outputs, _ = pad_packed_sequence(packed_out, batch_first=True)
    their_final = their_final.transpose(0, 1).unflatten(1, (n_layers, directions)).flatten(2)
    torch.testing.assert_close(outputs, their_outputs, atol=1e-12, rtol=0)
    torch.testing.assert_close(final, their_final, atol=1e-12, rtol=0)

    weight_out, weight_final = torch.randn(outputs.shape, generator=draw), torch.randn(final.shape, generator=draw)
    ((outputs * weight_out).sum() + (final * weight_final).sum()).backward()
    ((their_outputs * weight_out).sum() + (their_final * weight_final).sum()).backward()
    torch.testing.assert_close(ours_in.grad, theirs_in.grad, atol=1e-10, rtol=0)
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, getattr(theirs, name).grad, atol=1e-10, rtol=0)


@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
def test_gru_equals_torch_on_full_rows(both):
    ours = GRU(3, 4, 2, bidirectional=both).double()
    inputs = torch.randn(2, 5, 3, generator=generator(0)).double()
    outputs, final = ours(inputs)
    theirs, their_final = reference(ours)(inputs)
    torch.testing.assert_close(outputs, theirs, atol=1e-12, rtol=0)
    torch.testing.assert_close(final, their_final.transpose(0, 1).unflatten(1, (2, -1)).flatten(2), atol=1e-12, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2), (torch.float16, 5e-3)])
def test_gru_in_other_precisions(device, dtype, tolerance):
    exact = GRU(5, 7, 2).double()
    inputs = torch.randn(3, 6, 5, generator=generator(0)).double()
    expected, _ = exact(inputs)
    outputs, final = copy.deepcopy(exact).to(device, dtype)(inputs.to(device, dtype))
    assert outputs.dtype == final.dtype == dtype
    torch.testing.assert_close(outputs.cpu().double(), expected, atol=tolerance, rtol=0)


def test_gradients_agree_with_finite_differences():
    gru, mask = GRU(2, 3).double(), torch.tensor([[True, True], [True, False]])
    inputs, state = torch.randn(2, 2, 2).double().requires_grad_(), torch.randn(2, 1, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, h: gru(x, mask, h), (inputs, state))


def test_loss_equals_the_mean_over_a_loop():
    logits = torch.randn(3, 4, 7, generator=generator(1))
    target = torch.tensor([[5, 6, 2, 0], [4, 2, 0, 0], [1, 3, 4, 2]])
    nats = [
        -torch.log_softmax(logits[row, column], -1)[target[row, column]]
        for row in range(3)
        for column in range(4)
        if target[row, column] != PAD
    ]
    torch.testing.assert_close(sequence_loss(logits, target), torch.stack(nats).mean())


# ---------------------------------------------------------------- properties


@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_reversing_turns_each_row_within_its_length(lengths):
    tokens = ragged(lengths, 50)
    mask = tokens != PAD
    reversed_once = reverse_padded(tokens, mask)
    for before, after, length in zip(tokens, reversed_once, lengths, strict=True):
        assert after.tolist() == before[:length].tolist()[::-1] + [PAD] * (tokens.shape[1] - length)
    assert torch.equal(reverse_padded(reversed_once, mask), tokens)


def test_shapes_on_the_meta_device():
    with torch.device("meta"):
        model = RecurrentSeq2Seq(RecurrentConfig(**SIZES))
        logits = model(torch.ones(3, 5, dtype=torch.long), torch.ones(3, 4, dtype=torch.long))
    assert logits.shape == (3, 4, 11) and logits.is_meta


def test_embeddings_start_small_and_the_padding_row_stays_zero():
    model = RecurrentSeq2Seq(RecurrentConfig(500, 500, d_model=64))
    for table in (model.encoder.embedding, model.decoder.embedding):
        assert table.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
        assert not table.weight[PAD].any()


# ---------------------------------------------------------------- greedy decoding


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), seed=st.integers(0, 30))
@pytest.mark.slow
def test_greedy_batch_equals_one_by_one(lengths, seed):
    model = small_model(seed).eval()
    source = ragged(lengths, 13, seed)
    together = greedy_decode(model, source, max_length=9)
    for row, length in enumerate(lengths):
        alone = greedy_decode(model, source[row : row + 1, :length], max_length=9)[0]
        assert together[row, : len(alone)].tolist() == alone.tolist()
        assert (together[row, len(alone) :] == PAD).all()


@given(seed=st.integers(0, 30))
@pytest.mark.slow
def test_greedy_takes_the_best_token_of_the_whole_prefix(seed):
    model = small_model(seed).eval()
    source = ragged([4], 13, seed)
    written = greedy_decode(model, source, max_length=8)[0].tolist()
    prefix = [BOS]
    for token in written:
        logits = model(source, torch.tensor([prefix]))[0, -1]
        logits[[PAD, BOS]] = -torch.inf
        assert token == logits.argmax().item()
        prefix.append(token)
    assert written[-1] == EOS or len(written) == 8
    assert EOS not in written[:-1]


@MODES
def test_greedy_is_the_same_in_either_mode_and_restores_it(training):
    model = small_model(dropout=0.5).train(training)
    source = ragged([5, 3], 13)
    first, second = greedy_decode(model, source, max_length=9), greedy_decode(model, source, max_length=9)
    assert torch.equal(first, second) and model.training is training


def test_the_mode_is_restored_when_decoding_fails():
    model = small_model().train()
    with pytest.raises(ValueError, match="99"):
        greedy_decode(model, torch.tensor([[99, EOS]]))
    assert model.training


def test_every_part_comes_back_in_the_mode_it_was_found_in():
    model = small_model().train()
    model.encoder.eval()  # frozen by its owner
    with eval_mode(model):
        assert not any(part.training for part in model.modules()) and not torch.is_grad_enabled()
    modes = [part.training for part in model.encoder.modules()], [part.training for part in model.decoder.modules()]
    assert not any(modes[0]) and all(modes[1]) and model.training and torch.is_grad_enabled()
    with pytest.raises(KeyError), eval_mode(model):
        raise KeyError
    assert model.training and not model.encoder.training and torch.is_grad_enabled()


def test_greedy_refuses_a_model_whose_numbers_are_not_numbers():
    model = small_model()
    next(model.decoder.parameters()).data.fill_(torch.nan)
    with pytest.raises(ValueError, match="logits at token 1 hold NaN"):
        greedy_decode(model, ragged([5, 3], 13))
    assert model.training


class OneRow(Seq2Seq):
    """Its logits are a view of a parameter, the same for every sentence."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.row = torch.nn.Parameter(torch.tensor(logits))

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        return Memory(source.float().unsqueeze(-1), source_mask, torch.zeros(len(source), 1, 1))

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        return self.row.expand(*target.shape, -1)

    def start(self, memory: Memory) -> RecurrentState:
        return RecurrentState(memory, memory.final)

    def step(self, token: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        return self.row.expand(len(token), -1), state


def test_greedy_writes_tokens_and_nothing_else():
    source = ragged([5, 3], 13)
    logits = [9.0, 8.0, 0.0, 1.0, 2.0]  # PAD and BOS score best, and are never written
    model = OneRow(logits)
    assert greedy_decode(model, source, max_length=3).tolist() == [[4, 4, 4]] * 2
    assert model.row.tolist() == logits
    assert greedy_decode(model, source[:0], max_length=3).shape == (0, 0)
    with pytest.raises(ValueError, match="at token 1 hold NaN, or leave no token possible"):
        greedy_decode(OneRow([1.0, 1.0, *[-math.inf] * 3]), source)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [torch.int64, torch.int32])
def test_the_loss_is_exact_and_takes_every_type_of_token(dtype, tokens):
    logits = torch.randn(2, 3, 7, generator=generator(0), dtype=torch.float64).to(dtype)
    target = torch.tensor([[4, 5, EOS], [4, EOS, PAD]], dtype=tokens)
    loss = sequence_loss(logits, target)
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    rows = logits.double().log_softmax(-1)
    expected = -sum(rows[place].item() for place in ((0, 0, 4), (0, 1, 5), (0, 2, EOS), (1, 0, 4), (1, 1, EOS))) / 5
    assert loss.item() == pytest.approx(expected, rel=1e-12 if dtype == torch.float64 else 1e-5)


# ---------------------------------------------------------------- training


def copy_task(n: int = 64) -> list[Batch]:
    draw = generator(0)
    rows = [torch.randint(4, 11, (int(length),), generator=draw).tolist() for length in torch.arange(n) % 3 + 1]
    return [collate([([*row, EOS], [BOS, *row, EOS]) for row in rows])]


@pytest.mark.slow
def test_training_learns_to_copy():
    torch.manual_seed(0)
    model = RecurrentSeq2Seq(RecurrentConfig(11, 11, d_model=16, d_hidden=32, dropout=0.0))
    data, optimizer = copy_task(), torch.optim.Adam(model.parameters(), lr=0.01)
    before = evaluate_loss(model, data)
    assert before == pytest.approx(torch.log(torch.tensor(11.0)).item(), abs=0.3)
    for _ in range(120):
        train_on(model, data, optimizer)
    assert evaluate_loss(model, data) < 0.05
    decoded = greedy_decode(model, data[0].source, max_length=6)
    expected = data[0].target[:, 1:]
    assert torch.equal(decoded, expected[:, : decoded.shape[1]])


def test_reported_loss_is_the_mean_over_tokens():
    model = small_model().float()
    data = [
        Batch(ragged([3, 2], 13), ragged([6, 3], 11, first=BOS), (0, 1)),
        Batch(ragged([4], 13), ragged([2], 11, first=BOS), (2,)),
    ]
    nats = sum(sequence_loss(model(b.source, b.target_input), b.target_output).item() * b.n_tokens for b in data)
    expected = nats / sum(b.n_tokens for b in data)
    assert evaluate_loss(model, data) == pytest.approx(expected, rel=1e-6)
    frozen = torch.optim.SGD(model.parameters(), lr=0.0)
    assert train_on(model, data, frozen) == pytest.approx(expected, rel=1e-6)


def test_evaluation_leaves_the_model_as_it_was():
    model = small_model(dropout=0.5).float().train()
    before = copy.deepcopy(model.state_dict())
    evaluate_loss(model, [Batch(ragged([3], 13), ragged([4], 11, first=BOS), (0,))])
    assert model.training and all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_clipping_bounds_the_step():
    model = small_model().float()
    data = [Batch(ragged([3], 13), ragged([4], 11, first=BOS), (0,))]
    before = torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])
    train_on(model, data, torch.optim.SGD(model.parameters(), lr=1.0), clip=0.01)
    after = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_training_under_bfloat16_autocast(device):
    torch.manual_seed(0)
    model = RecurrentSeq2Seq(RecurrentConfig(11, 11, d_model=16, d_hidden=32, dropout=0.0)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = [train_on(model, copy_task(), optimizer, autocast=torch.bfloat16) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.slow
def test_translate_keeps_the_order_and_takes_no_sentence():
    torch.manual_seed(0)
    words = Tokenizer.train(["a b c d"], level="word")
    size = words.vocab_size
    model = RecurrentSeq2Seq(RecurrentConfig(size, size, d_model=16, d_hidden=32, dropout=0.0))
    lines = ["a", "b c d", "c a", "d d d d", "b"]
    data = [collate([([*words.encode(line), EOS], [BOS, *words.encode(line), EOS]) for line in lines])]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        train_on(model, data, optimizer)
    assert translate(model, lines, words, words) == lines
    assert translate(model, lines[::-1], words, words, max_tokens=3) == lines[::-1]
    assert translate(model, [], words, words) == []
    assert isinstance(translate(model, [""], words, words)[0], str)


# ---------------------------------------------------------------- the step loop and the register


def test_prefix_minimum_and_penalty_do_what_they_say():
    source, model = ragged([5, 3], 13), OneRow([0.0, 0.0, 3.0, 1.0, 2.0])
    assert greedy_decode(model, source).tolist() == [[EOS]] * 2
    assert greedy_decode(model, source, min_length=2).tolist() == [[4, 4, EOS]] * 2
    prefix = torch.tensor([[3, 3], [3, PAD]])
    assert greedy_decode(model, source, prefix=prefix).tolist() == [[3, 3, EOS], [3, EOS, PAD]]
    assert greedy_decode(model, source, prefix=torch.tensor([[EOS], [3]])).tolist() == [[EOS, PAD], [3, EOS]]
    endless = OneRow([0.0, 0.0, -9.0, 1.0, 2.0])
    once = greedy_decode(endless, source, max_length=3, repetition_penalty=3.0)
    assert once.tolist() == [[4, 3, 4]] * 2  # 2 / 3 is less than 1, and 1 / 3 less than 2 / 3


def test_a_stream_can_be_left_and_gradients_stay_on():
    model, source = small_model().train(), ragged([5, 3], 13)
    stream = generate(model, source, lambda logits: logits.argmax(-1), max_length=5)
    rows, tokens = next(stream)
    assert rows.tolist() == [0, 1] and tokens.shape == (2,) and torch.is_grad_enabled()
    stream.close()
    assert model.training
    written = collect_tokens(generate(model, source, lambda logits: logits.argmax(-1), max_length=5), source)
    assert torch.equal(written, greedy_decode(model, source, max_length=5))


class Counter(nn.Module):
    """A decoder-only model: after token n comes n + 1."""

    def clamp_length(self, max_length: int) -> int:
        return max_length

    def start(self, rows: int) -> State:
        return State(None)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        return nn.functional.one_hot((token + 1) % 9, 9).float(), state


def test_a_model_without_an_encoder_continues_its_prompt():
    prompt = torch.tensor([[5, 6], [4, PAD]])
    assert greedy_decode(Counter(), prompt, max_length=5).tolist() == [[5, 6, 7, 8, EOS], [4, 5, 6, 7, 8]]


# ---------------------------------------------------------------- bad input

SOURCE, TARGET = ragged([3, 2], 13), ragged([4, 3], 11, first=BOS)
SGD = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
BAD = {
    "gru input": (lambda: GRU(0, 3), "d_input=0"),
    "gru state": (lambda: GRU(3, -1), "d_hidden=-1"),
    "no layers": (lambda: GRU(3, 3, 0), "n_layers=0"),
    "gru dropout": (lambda: GRU(3, 3, dropout=1.0), "dropout=1.0"),
    "input width": (lambda: GRU(3, 4)(torch.zeros(2, 5, 4)), r"inputs is a float32 tensor of shape \(2, 5, 4\)"),
    "mask shape": (lambda: GRU(3, 4)(torch.zeros(2, 5, 3), torch.ones(2, 4, dtype=torch.bool)), r"shape \(2, 4\)"),
    "state shape": (lambda: GRU(3, 4)(torch.zeros(2, 5, 3), None, torch.zeros(2, 2, 4)), r"state has shape"),
    "vocabulary of 0": (lambda: RecurrentConfig(0, 5), "source_vocab_size=0"),
    "negative vocabulary": (lambda: RecurrentConfig(5, -2), "target_vocab_size=-2"),
    "width of 0": (lambda: RecurrentConfig(5, 5, d_model=0), "d_model=0"),
    "config layers": (lambda: RecurrentConfig(5, 5, n_layers=0), "n_layers=0"),
    "config dropout": (lambda: RecurrentConfig(5, 5, dropout=-0.1), "dropout=-0.1"),
    "source token too large": (lambda: small_model()(SOURCE + 10, TARGET), "source holds token id"),
    "negative token": (lambda: small_model()(SOURCE - 5, TARGET), "source holds token id -"),
    "target token too large": (lambda: small_model()(SOURCE, TARGET + 9), "target holds token id"),
    "empty source": (lambda: small_model()(torch.zeros_like(SOURCE), TARGET), "row 0 of source is only padding"),
    "no column": (lambda: check_tokens(torch.zeros(2, 0, dtype=torch.long), 5, "source"), "at least 1 token"),
    "unequal rows": (lambda: small_model()(SOURCE, TARGET[:1]), "2 rows and target 1"),
    "loss shapes": (
        lambda: sequence_loss(torch.zeros(2, 3, 5), torch.ones(2, 4, dtype=torch.long)),
        "must agree|target is",
    ),
    "loss of nothing": (
        lambda: sequence_loss(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.long)),
        "only padding",
    ),
    "no batch to train on": (
        lambda: train_on(small_model(), [], SGD),
        "nothing to train on",
    ),
    "no batch to measure": (lambda: evaluate_loss(small_model(), []), "nothing to measure"),
    "padding on the left": (
        lambda: small_model()(torch.tensor([[0, 5, EOS]]), TARGET[:1]),
        "row 0 of source has padding",
    ),
    "float targets": (
        lambda: sequence_loss(torch.zeros(2, 3, 5), torch.ones(2, 3)),
        "target is",
    ),
    "climbing": (lambda: train_on(small_model(), [], SGD, clip=-1), "clip=-1 must be a finite number above 0"),
    "standing still": (lambda: train_on(small_model(), [], SGD, clip=0), "clip=0"),
    "a word for a number": (lambda: RecurrentConfig(5, 5, dropout="0.1"), "dropout='0.1'"),
    "a word for a flag": (lambda: RecurrentConfig(5, 5, reverse_source="no"), "reverse_source='no'"),
    "an embedding of nothing": (lambda: embedding(0, 4), "vocab_size=0"),
    "prefix rows": (
        lambda: greedy_decode(small_model(), SOURCE, prefix=torch.tensor([[4]])),
        r"prefix is a int64 tensor of shape \(1, 1\)|prefix has shape \(1, 1\)",
    ),
    "prefix padded on the left": (
        lambda: greedy_decode(small_model(), SOURCE, prefix=torch.tensor([[0, 4], [4, 5]])),
        "prefix must be padded on the right",
    ),
    "a model of no kind": (lambda: build_model("gpu", {}), "model='gpu' is unknown"),
    "a field of no kind": (lambda: build_model("gru", {**SIZES, "heads": 2}), "unexpected keyword argument 'heads'"),
    "a field too few": (lambda: build_model("gru", {"source_vocab_size": 4}), "target_vocab_size"),
    "no configuration": (lambda: build_model("gru", 5), "config is int"),
    "a taken name": (lambda: register_model("gru", RecurrentConfig, nn.Linear), "taken by RecurrentSeq2Seq"),
    "an unnamed model": (lambda: model_name(nn.Linear(1, 1)), "Linear has no name"),
    "decode length 0": (lambda: greedy_decode(small_model(), SOURCE, max_length=0), "max_length=0"),
    "a lone string": (lambda: translate(small_model(), "a b", WORDS, WORDS), "sentences"),
}
WORDS = Tokenizer.train(["a b"], level="word")


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    # With the annotations enforced, a wrong shape may be caught before our own check; test_errors.py runs without.
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))


def test_a_gradient_that_is_not_finite_stops_the_training():
    model = small_model().float()
    model.decoder.bias.data[4] = torch.inf
    data = [Batch(SOURCE, TARGET, (0, 1))]
    with pytest.raises(ValueError, match="batch 0: the gradient is not finite"):
        train_on(model, data, torch.optim.SGD(model.parameters(), lr=0.1))
