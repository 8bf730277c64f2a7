"""Special ids belong to the model: converted models write what theirs write, and no constant is special."""

import json
import re
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer_lib.data.batching import batches, collate, encode_pairs
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.beam_search import SearchConfig, beam_search
from transformer_lib.decoding.greedy import generate, greedy_decode
from transformer_lib.decoding.sampling import sample
from transformer_lib.models.bahdanau import attention_maps
from transformer_lib.models.bert import mask_tokens
from transformer_lib.models.convert import from_hf, to_hf
from transformer_lib.models.gpt import GPT, GPTConfig, GPTTranslator, OneStack
from transformer_lib.models.registry import build_model, model_entry, model_name
from transformer_lib.models.seq2seq import SpecialIds, check_ids, special_ids, token_losses
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.trainer import Trainer, TrainingConfig

transformers = pytest.importorskip("transformers")
V = 40
SIZES = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.4}
GPT2 = {"vocab_size": V, "n_positions": 64, "n_embd": 16, "n_head": 4, "n_layer": 2, "initializer_range": 0.4}
FAMILIES = {
    "gpt2": lambda ids: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, **ids)),
    "llama": lambda ids: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **ids)),
    "qwen3": lambda ids: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, head_dim=6, **ids)),
}
IDS = {
    "its own defaults": {},
    "one end": {"bos_token_id": 1, "eos_token_id": 2},
    "several ends": {"bos_token_id": 1, "eos_token_id": [2, 5, 9, 11, 12, 13, 14, 15, 16]},
    "padding is an end": {"pad_token_id": 17, "eos_token_id": [17, 6, 7, 8, 18, 19]},
    "padding of its own": {"pad_token_id": 39, "bos_token_id": 1, "eos_token_id": 3},
}
every_family = pytest.mark.parametrize("family", FAMILIES)
PROMPTS = (torch.tensor([[4, 9, 8]]), torch.tensor([[1, 2, 0, 3], [11, 17, 6, 1]]), torch.tensor([[7, 0], [0, 7]]))
OPTIONS = (
    ({}, {}),
    ({"repetition_penalty": 1.3, "min_length": 7}, {"repetition_penalty": 1.3, "min_length": 7}),
    (
        {"num_beams": 3, "early_stopping": "never", "length_penalty": 1.0},
        {"beam_size": 3, "normalization": "mean", "length_penalty": 1.0, "lookahead": None},
    ),
)


def theirs_of(family: str, ids: dict[str, object], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        return FAMILIES[family](ids).double().eval()


def until_filled(rows: Tensor, special: SpecialIds, prompt: int) -> list[list[int]]:
    """Rows up to the first end that was written."""
    found = []
    for row in rows.tolist():
        end = next((t for t, token in enumerate(row) if t >= prompt and token in special.eos), len(row))
        found.append(row[: end + 1])
    return found


@pytest.mark.parametrize(
    ("family", "ids"),
    [
        *((family, "its own defaults") for family in FAMILIES),
        *zip(("llama", "qwen3", "gpt2", "llama"), list(IDS)[1:], strict=True),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_converted_language_model_writes_the_ids_that_theirs_writes(family: str, ids: str) -> None:
    theirs = theirs_of(family, IDS[ids], seed=sorted(IDS).index(ids))
    ours, lengths = from_hf(theirs), set()
    for prompt in PROMPTS:
        for their_options, options in OPTIONS:
            expected = theirs.generate(prompt, do_sample=False, max_length=10, **their_options)
            if "beam_size" in options:
                found = beam_search(ours, prompt, max_length=10, **options).tokens[:, 0]
            else:
                found = greedy_decode(ours, prompt, max_length=10, **options)
            size = prompt.shape[1]
            rows = until_filled(found, ours.config.special, size)
            assert rows == until_filled(expected, ours.config.special, size)
            lengths |= {len(row) for row in rows}
    assert len(lengths) > 1 or len(ours.config.special.eos) < 5  # ends are met


@every_family
def test_ids_come_back_and_are_saved_with_the_model(family: str) -> None:
    theirs = theirs_of(family, IDS["several ends"] | {"pad_token_id": 6})
    ours = from_hf(theirs)
    expected = SpecialIds(6, None, tuple(IDS["several ends"]["eos_token_id"]), None, ())
    assert ours.config.special == special_ids(ours) == expected
    stored = json.loads(json.dumps(asdict(ours.config)))
    assert build_model(model_name(ours), stored).config == ours.config
    del stored["special"], stored["attention_dropout"]  # as an older version saved it
    assert build_model(model_name(ours), stored).config.special == SpecialIds()
    config = to_hf(ours).config
    assert (config.pad_token_id, config.eos_token_id) == (6, IDS["several ends"]["eos_token_id"])


def test_the_generation_config_of_a_folder_comes_first(tmp_path) -> None:
    theirs = theirs_of("llama", {"eos_token_id": 2})
    theirs.generation_config.eos_token_id = [7, 8]
    theirs.save_pretrained(tmp_path)
    assert from_hf(tmp_path).config.special.eos == from_hf(theirs).config.special.eos == (7, 8)
    (tmp_path / "generation_config.json").unlink()
    assert from_hf(tmp_path).config.special.eos == (2,)


def test_ids_outside_the_vocabulary_are_none() -> None:
    theirs = theirs_of("gpt2", {})
    stated = theirs.generation_config
    stated.pad_token_id, stated.eos_token_id, stated.suppress_tokens = -1, [2, V], [5, V]
    expected = SpecialIds(None, None, (2,), None, (5,))
    assert from_hf(theirs).config.special == expected
    stated.eos_token_id, stated.suppress_tokens = torch.tensor([2, V]), torch.tensor(5)
    assert from_hf(theirs).config.special == expected
    assert greedy_decode(from_hf(theirs), PROMPTS[0], max_length=6).max() < V


def test_prompts_that_a_converted_model_cannot_begin_with_are_refused() -> None:
    ours = from_hf(theirs_of("gpt2", IDS["padding of its own"]))
    for prompt in (torch.zeros(2, 0, dtype=torch.long), torch.tensor([[4, 5], [39, 39]])):
        for search in (greedy_decode, beam_search):
            with pytest.raises(ValueError, match="no BOS to begin with"):
                search(ours, prompt)
    with pytest.raises(ValueError, match="needs BOS and PAD"):
        OneStack(ours)
    with pytest.raises(ValueError, match="needs BOS and PAD"):
        OneStack(from_hf(theirs_of("gpt2", IDS["padding is an end"])))


def test_samples_and_streams_begin_with_the_prompt_and_stop_at_each_end() -> None:
    ours = from_hf(theirs_of("qwen3", IDS["several ends"]))
    special, prompt = ours.config.special, torch.tensor([[4, 2, 1]])
    for seed in range(5):
        (row,) = sample(ours, prompt, max_length=30, generator=torch.Generator().manual_seed(seed)).tolist()
        assert row[:3] == [4, 2, 1] and not set(row[3:-1]) & set(special.eos)
    steps = [int(token) for _, token in generate(ours, prompt, max_length=9)]
    assert [4, 2, 1, *steps] == greedy_decode(ours, prompt, max_length=9)[0].tolist()


FOLLOWING = {4: 9, 9: 8, 8: 2}


class Chain(nn.Module):
    """A language model in which each token has one that follows it."""

    config = SimpleNamespace(special=SpecialIds(pad=9, bos=None, eos=(2,), unk=None, forbidden=()))

    def start(self, prompt: Tensor) -> tuple[Tensor, Tensor]:
        return self.step(prompt.gather(1, (prompt != 9).sum(1, keepdim=True) - 1)[:, 0], prompt)

    def step(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.stack([9.0 * (torch.arange(10) == FOLLOWING.get(i, 0)) for i in token.tolist()]), state


def test_padding_that_a_model_writes_stays_and_that_of_a_prompt_does_not() -> None:
    model, prompts = Chain(), torch.tensor([[5, 4], [4, 9]])
    expected = [[5, 4, 9, 8, 2], [4, 9, 8, 2, 9]]
    assert greedy_decode(model, prompts).tolist() == expected
    assert beam_search(model, prompts, beam_size=2).tokens[:, 0].tolist() == expected
    assert greedy_decode(model, prompts[1:]).tolist() == [[4, 9, 8, 2]]


# What a search gets is not its own ------------------------------------------------------------------------------------


class Keeper(nn.Module):
    """Keeps its logits, and returns the same row for every hypothesis: one that may not be written to."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(3))

    def encode(self, source: Tensor) -> Tensor:
        return source

    def start(self, source: Tensor) -> Tensor:
        return source[:, :1]

    def step(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(token), -1), state


@pytest.mark.parametrize("repetition_penalty", [1.0, 1.5])
def test_searches_write_into_nothing_that_a_model_returned(repetition_penalty: float) -> None:
    model, source = Keeper(), torch.tensor([[5, 2], [6, 2], [7, 2]])
    before = model.logits.clone()
    for search in (greedy_decode, sample, beam_search):
        search(model, source, max_length=4, min_length=2, repetition_penalty=repetition_penalty)
        assert torch.equal(model.logits, before)


# Windows, losses and masks --------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(
    window=st.sampled_from([None, 1, 2, 3, 5]),
    kind=st.sampled_from(["gpt", "llama"]),
    beam=st.integers(1, 4),
    ratio=st.sampled_from([None, 0.6, 1.5]),
    longest=st.integers(1, 9),
    least=st.integers(0, 3),
    penalty=st.sampled_from([1.0, 1.4]),
    pad=st.integers(0, 2),
)
def test_a_row_does_not_depend_on_its_neighbours(window, kind, beam, ratio, longest, least, penalty, pad) -> None:
    config = {"vocab_size": 13, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 16, "dropout": 0.0, "max_length": 24}
    config |= {"n_kv_heads": 1, "window": window} if kind == "llama" else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(longest)
        model = build_model(kind, config).double().eval()
        for weights in model.parameters():
            weights.data.add_(0.4 * torch.randn_like(weights))
    rows = [[5, 6, 7, 8, 9, 4, 2], [10, 4, 2], [7, 2]]
    prefixes = [[5, 6, 7], [4], []]
    source = torch.tensor([row + [0] * (7 + pad - len(row)) for row in rows])
    prefix = torch.tensor([row + [0] * (3 - len(row)) for row in prefixes])
    options = {"max_length": max(longest, 3), "min_length": least, "repetition_penalty": penalty}
    search = SearchConfig(beam_size=beam, max_ratio=ratio, **options)
    if ratio == 0.6 and least > 1:  # a contradiction: a single token for a source of three
        with pytest.raises(ValueError, match=f"min_length={least} for sentence"):
            beam_search(model, source, search, prefix=prefix)
        return
    together = beam_search(model, source, search, prefix=prefix)
    order = torch.tensor([2, 0, 1])
    moved = beam_search(model, source[order], search, prefix=prefix[order])
    assert torch.equal(moved.tokens, together.tokens[order])
    for i, (row, first) in enumerate(zip(rows, prefixes, strict=True)):
        given = {"prefix": torch.tensor([first])} if first else {}
        alone = beam_search(model, torch.tensor([row]), search, **given)
        length = alone.tokens.shape[2]
        assert alone.tokens[0, 0].tolist() == together.tokens[i, 0, :length].tolist()
        assert not together.tokens[i, 0, length:].any()
        torch.testing.assert_close(alone.scores[0], together.scores[i], rtol=1e-9, atol=1e-9)
    if beam == 1:
        greedy = greedy_decode(model, source, prefix=prefix, max_ratio=ratio, **options)
        assert torch.equal(greedy, together.tokens[:, 0])


def test_a_loss_ignores_the_padding_of_the_model_and_no_other_id() -> None:
    logits = torch.randn(1, 4, 9, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[0, 5, 7, 7]])
    each = nn.functional.cross_entropy(logits[0], target[0], reduction="none")
    for padding in (-1, 0, 7):
        torch.testing.assert_close(token_losses(logits, target, padding=padding)[0], each * (target[0] != padding))


def test_a_converted_bert_reads_its_own_padding() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 24}
    with torch.random.fork_rng(devices=[]):
        theirs = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=30, pad_token_id=7, **sizes)).eval()
    ours, tokens = from_hf(theirs), torch.tensor([[4, 0, 5, 6], [3, 0, 7, 7]])
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=(tokens != 7).long()).logits
        torch.testing.assert_close(ours(tokens)[tokens != 7], expected[tokens != 7], atol=1e-5, rtol=1e-5)
    assert to_hf(ours).config.pad_token_id == 7


def test_words_of_another_vocabulary_are_hidden_and_its_special_tokens_are_not() -> None:
    rows = torch.randint(0, 60, (500, 12), generator=torch.Generator().manual_seed(0))
    words = range(20, 60)
    hidden, chosen = mask_tokens(rows, 3, words=words, share=0.5, rng=torch.Generator().manual_seed(1))
    assert not chosen[rows < 20].any() and chosen[rows >= 20].float().mean() > 0.4
    swapped = hidden[(hidden != rows) & (hidden != 3)]
    assert swapped.min() == 20 and swapped.max() == 59


def test_ids_of_another_vocabulary_are_refused_unless_it_is_said_which_are_words() -> None:
    rows = torch.tensor([[101, 7592, 2088, 102]])  # [CLS] hello world [SEP] of bert-base-uncased
    with pytest.raises(ValueError, match="there are ids above mask_token=103: say which ids are words"):
        mask_tokens(rows, 103)
    draw = torch.Generator().manual_seed(0)
    for _ in range(50):
        hidden, chosen = mask_tokens(rows, 103, words=range(999, 30_522), share=0.9, rng=draw)
        assert not chosen[0, [0, 3]].any() and hidden[0, [0, 3]].tolist() == [101, 102]


@pytest.mark.parametrize("special", [{"bos": 4}, {"bos": None}, {"eos": (3, 5)}, {"pad": 2}], ids=str)
def test_a_trainer_refuses_examples_without_the_ids_of_the_model(special) -> None:
    examples, config = [([5, 2], [1, 6, 2])] * 4, TrainingConfig(epochs=9, max_tokens=16, warmup=1)
    sizes = GPTConfig(13, 8, 2, 1, 16)
    Trainer(GPT(sizes), examples, examples, config)
    with pytest.raises(ValueError, match=r"examples\[0\] is no source with EOS .* SpecialIds"):
        Trainer(GPT(replace(sizes, special=SpecialIds(**special))), examples, examples, config)


def test_the_same_sentences_under_other_special_ids_train_the_same() -> None:
    order = torch.tensor([8, 7, 6, 3, 4, 5, 2, 1, 0, 9])  # padding, beginning and end change places with words
    examples, losses = [([5, 6, 2], [1, 7, 8, 9, 2]), ([8, 2], [1, 6, 2])], []
    for special in (SpecialIds(), SpecialIds(8, 7, (6, 3), None, (8, 7))):
        model = GPTTranslator(GPTConfig(10, 8, 2, 1, 16, dropout=0.0, special=special))
        table = torch.randn(10, 8, generator=torch.Generator().manual_seed(0))
        for i, parameter in enumerate(model.parameters()):
            parameter.data.copy_(torch.sin(torch.arange(1.0, parameter.numel() + 1) * (i + 1)).view(parameter.shape))
        model.model.embedding.weight.data.copy_(table[order] if losses else table)
        rows = [tuple(order[side].tolist() for side in example) for example in examples] if losses else examples
        assert collate(rows, special=special).n_tokens == 6
        trainer = Trainer(model, rows, rows, TrainingConfig(epochs=3, max_tokens=16, warmup=1, smoothing=0.1))
        trainer.fit()
        losses.append([line["validation_loss"] for line in trainer.progress.log])
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)


def test_pairs_are_encoded_with_the_ids_that_are_asked_for() -> None:
    words, special = Tokenizer.train(["a dog"], level="word"), SpecialIds(pad=8, bos=7, eos=(6, 3))
    assert encode_pairs([("a", "dog")], words, words, special=special) == [([4, 6], [7, 5, 6])]
    batch = collate([([4, 6], [7, 5, 5, 3]), ([4, 4, 3], [7, 6])], special=special)
    assert batch.source.tolist() == [[4, 6, 8], [4, 4, 3]] and batch.target.tolist() == [[7, 5, 5, 3], [7, 6, 8, 8]]


# On a device ----------------------------------------------------------------------------------------------------------


class Elsewhere(Tensor):
    """A tensor that says it lies on an accelerator."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda")


def test_ids_out_of_range_are_refused_on_a_device_before_a_search() -> None:
    model = GPT(GPTConfig(13, 8, 2, 1, 16)).eval()
    for bad in (13, -1):
        source = torch.tensor([[5, bad]])
        with pytest.raises(ValueError, match=f"holds token id {bad}"):
            check_ids(source, 13, "source")
        for search in (greedy_decode, beam_search, sample):
            with pytest.raises(ValueError, match=f"holds token id {bad}"):
                search(model, source.as_subclass(Elsewhere))


@pytest.mark.parametrize(
    ("special", "options"),
    [
        (SpecialIds(), {"beam_size": 3}),
        (SpecialIds(8, 7, (6,), None, ()), {"beam_size": 1}),
        (SpecialIds(8, None, (6, 5), None), {"beam_size": 2, "min_length": 7}),
    ],
)
def test_a_penalty_for_repetition_does_not_look_at_padding(special: SpecialIds, options: dict[str, int]) -> None:
    for seed in range(6):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = GPT(GPTConfig(12, 8, 2, 1, max_length=30, special=special)).double().eval()
        for parameter in model.parameters():
            parameter.data *= 6
        prompts = [[3, 4], [3, 9, 10, 9, 11]]
        rows = torch.tensor([prompts[0] + [special.pad] * 3, prompts[1]])
        together = beam_search(model, rows, max_length=13, repetition_penalty=3.0, **options)
        for i, prompt in enumerate(prompts):
            alone = beam_search(model, torch.tensor([prompt]), max_length=13, repetition_penalty=3.0, **options)
            assert together.scores[i].tolist() == pytest.approx(alone.scores[0].tolist(), abs=1e-6)
            width = alone.tokens.shape[2]
            assert together.tokens[i, 0, :width].tolist() == alone.tokens[0, 0].tolist()


def test_batches_and_attention_maps_ask_for_the_ids_of_a_model() -> None:
    class Aligned(GPTTranslator):
        """Attends to every source word alike."""

        def align(self, source: Tensor, target: Tensor) -> Tensor:
            seen.append((source, target))
            return torch.ones(*target.shape, source.shape[1])

    special, words, seen = SpecialIds(8, 7, (6,), None, (8, 7)), Tokenizer.train(["a b c d e"], level="word"), []
    model = Aligned(GPTConfig(12, 8, 2, 1, max_length=30, special=special))
    pairs = [("a b c", "a b"), ("a", "a")]
    maps = attention_maps(model, pairs, words, words)
    assert [tuple(one.shape) for one in maps] == [(3, 4), (2, 2)]
    (source, target), a = seen[0], words.encode("a")[0]
    assert source[0].tolist() == [a, 6, 8, 8] and target[0].tolist() == [7, a, 6]  # the shorter pair comes first
    examples = encode_pairs(pairs, words, words, special=special)
    (batch,) = batches(examples, 100, special=special)
    assert batch.special == special and batch.n_tokens == 5 and batch.source[0].tolist() == [a, 6, 8, 8]


OTHER = SpecialIds(8, 3, (5,), 1, (8, 3))
OURS = [8, 3, 5, 1, 0, 2, 4, 6, 7, 9, 10, 11]  # the place of each id of the library in the other vocabulary


@pytest.mark.parametrize("ties", ["all", "target", "none"])
def test_a_transformer_with_other_special_ids_is_the_same_with_its_words_in_another_order(ties: str) -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 16}
    config = TransformerConfig(12, 12, **sizes, tie_embeddings=ties, output_bias=True)
    usual, other = Transformer(config).double(), Transformer(replace(config, special=OTHER)).double()
    assert not other.source_embedding.weight[8].any() and other.source_embedding.padding_idx == 8
    place = torch.tensor(OURS)
    weights = usual.state_dict()
    for name, weight in weights.items():
        if "embedding" in name or name.startswith("output"):
            weights[name] = torch.empty_like(weight).index_copy(0, place, 3 * weight)
    other.load_state_dict(weights)
    tables = usual.source_embedding.weight, usual.target_embedding.weight, *usual.output.parameters()
    for parameter in {id(table): table for table in tables}.values():
        parameter.data *= 3
    rows = [([5, 6, 2], [1, 7, 4, 2]), ([9, 4, 10, 11, 2], [1, 5, 2])]
    moved = [tuple([OURS[i] for i in side] for side in row) for row in rows]
    one, two = collate(rows), collate(moved, special=OTHER)
    for mode in (True, False):
        usual.train(mode), other.train(mode)
        torch.manual_seed(1)
        nats, n_tokens = usual.loss(one, 0.1)
        torch.manual_seed(1)
        again = other.loss(two, 0.1)
        torch.testing.assert_close(again.sum, nats)
        assert int(again.n_tokens) == int(n_tokens) == one.n_tokens == two.n_tokens == 5
    found = [
        beam_search(*pair, beam_size=3, max_length=9).tokens for pair in ((usual, one.source), (other, two.source))
    ]
    assert torch.equal(place[found[0]], found[1])
    found = [greedy_decode(*pair, max_length=9) for pair in ((usual, one.source), (other, two.source))]
    assert torch.equal(place[found[0]], found[1])
    assert usual.special == SpecialIds() and other.special == OTHER
    again = build_model(model_name(other), json.loads(json.dumps(asdict(other.config))))
    assert again.config == other.config


@pytest.mark.parametrize("kind", ["gru", "bahdanau", "luong"])
def test_a_recurrent_model_with_other_special_ids_is_the_same_with_its_words_in_another_order(kind: str) -> None:
    entry, place = model_entry(kind), torch.tensor(OURS)

    @dataclass(frozen=True)
    class Config(entry.config_class):
        special: SpecialIds = OTHER

    torch.manual_seed(0)
    configs = (Config(12, 12, d_model=8, d_hidden=8, dropout=0.0, special=special) for special in (SpecialIds(), OTHER))
    usual, other = (entry.model_class(config).double() for config in configs)
    for table in (other.encoder.embedding, other.embedding):
        assert table.padding_idx == 8 and not table.weight[8].any()
    weights = usual.state_dict()
    for name, weight in weights.items():
        if "embedding" in name or name.startswith("output"):
            weights[name] = torch.empty_like(weight).index_copy(0, place, weight)
    other.load_state_dict(weights)
    rows = [([5, 6, 2], [1, 7, 4, 2]), ([9, 4, 10, 11, 2], [1, 5, 2])]
    moved = [tuple([OURS[i] for i in side] for side in row) for row in rows]
    one, two = collate(rows), collate(moved, special=OTHER)
    nats = other.loss(two).sum
    torch.testing.assert_close(nats, usual.loss(one).sum)
    nats.backward()
    assert all(table.weight.grad[0].any() for table in (other.encoder.embedding, other.embedding))  # here a word
    found = [beam_search(model, batch.source, max_length=9).tokens for model, batch in ((usual, one), (other, two))]
    assert torch.equal(place[found[0]], found[1])


def test_a_transformer_needs_a_beginning_and_padding() -> None:
    for special in (SpecialIds(pad=None), SpecialIds(bos=None), SpecialIds(pad=2)):
        with pytest.raises(ValueError, match="a translator needs BOS and PAD"):
            TransformerConfig(12, 12, special=special)
    outside = {"pad": 12}, {"bos": 40}, {"eos": (2, 12)}, {"forbidden": (0, 1, 12)}
    for special in (SpecialIds(**ids) for ids in outside):
        with pytest.raises(ValueError, match="special ids outside of a vocabulary of 12"):
            TransformerConfig(14, 12, tie_embeddings="target", special=special)


def test_no_module_above_the_data_knows_padding_by_a_constant() -> None:
    """What is padding, beginning and end belongs to the model; a tokenizer writes its own ids."""
    folder = Path(__file__).parents[1] / "transformer_lib"
    own = {"bert", "marian", "translator"}  # which ids are words, a tokenizer, and what is unknown
    texts = {
        path.stem: path.read_text("utf-8")
        for part in ("models", "decoding", "training", "translation", "viz")
        for path in (folder / part).glob("*.py")
    }
    knows = re.compile(r"^from \S+\.tokenizer import .*\b(PAD|BOS|EOS|UNK)\b", re.M)
    ours = {name: text for name, text in texts.items() if "# AUTOGENERATED" not in text}  # what no page builds
    assert len(ours) > 30 and {name for name, text in ours.items() if knows.search(text)} == own
