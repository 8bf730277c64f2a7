"""Weights from elsewhere and back: PyTorch's modules, Marian models, and whole Opus-MT folders."""

import json

import pytest
import torch
from marian import marian_model, marian_pair
from torch import nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.decoding.search import beam_search
from transformer_lib.models.convert import (
    config_from_torch,
    from_marian,
    from_torch,
    load_marian,
    marian_config,
    to_marian,
    to_torch,
)
from transformer_lib.models.masks import causal_mask
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Transformer,
    TransformerConfig,
)

SOURCE = torch.tensor([[7, 8, 9, 5, EOS], [6, 4, EOS, PAD, PAD]])
TARGET = torch.tensor([[BOS, 11, 12, 13], [BOS, 14, 15, 9]])


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def same(ours: nn.Module, theirs: nn.Module) -> None:
    """Equal outputs, under a causal mask and, in a decoder, a memory."""
    x, memory, later = draw(2, 5, 16), draw(2, 7, 16), ~causal_mask(5)[0, 0]
    if isinstance(ours, MultiHeadAttention):
        found, expected = ours(x, memory), theirs(x, memory, memory)[0]
    elif isinstance(ours, (DecoderLayer, Decoder)):
        found, expected = ours(x, memory, causal_mask(5)), theirs(x, memory, tgt_mask=later)
    else:
        name = "mask" if isinstance(theirs, nn.TransformerEncoder) else "src_mask"
        found, expected = ours(x, causal_mask(5)), theirs(x, **{name: later})
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


MODULES = {
    "attention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True), None),
    "attention without biases": (lambda: nn.MultiheadAttention(16, 4, bias=False, batch_first=True), None),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, activation=nn.ReLU(), batch_first=True),
        EncoderLayer,
    ),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(16, 4, 32, activation=nn.SiLU(), norm_first=True, batch_first=True),
        DecoderLayer,
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 3),
        Encoder,
    ),
    "decoder with a norm": (
        lambda: nn.TransformerDecoder(
            nn.TransformerDecoderLayer(16, 4, 32, activation=torch.nn.functional.gelu, batch_first=True),
            2,
            nn.LayerNorm(16),
        ),
        Decoder,
    ),
}


@pytest.mark.parametrize("kind", MODULES)
def test_pytorchs_modules_become_ours_and_ours_pytorchs(kind):
    build, ours_class = MODULES[kind]
    torch.manual_seed(0)
    theirs = build().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    bias = getattr(theirs, "in_proj_bias", 0) is not None
    ours = MultiHeadAttention(16, 4, bias=bias) if ours_class is None else ours_class(config_from_torch(theirs))
    ours.eval()
    from_torch(ours, theirs)
    same(ours, theirs)
    back = to_torch(ours)
    assert type(back) is type(theirs)
    same(ours, back)
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in back.state_dict().items())
    if ours_class is None:  # these two have the very same names
        ours.load_state_dict(theirs.state_dict())


def test_zero_attention_is_refused():
    with pytest.raises(ValueError, match="zero attention=False here, but True"):
        from_torch(MultiHeadAttention(16, 4), nn.MultiheadAttention(16, 4, add_zero_attn=True))


# ---------------------------------------------------------------- Marian

OPUS = {  # as in the real ones: opened by padding, whose id is the last; end 0, unknown 1
    "activation_function": "swish",
    "pad_token_id": 29,
    "eos_token_id": 0,
    "decoder_start_token_id": 29,
}


def test_a_marian_model_with_our_ids_goes_there_and_back():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, theirs = marian_pair(30, 16, 4, (2, 3), 32, 40, 0.3)
    with torch.no_grad():
        expected = theirs(
            input_ids=SOURCE, attention_mask=(SOURCE != PAD).long(), decoder_input_ids=TARGET, use_cache=False
        ).logits
        torch.testing.assert_close(model(SOURCE, TARGET), expected, atol=1e-4, rtol=1e-4)
        assert expected.std() > 0.5
        back = to_marian(model)
        for name, tensor in theirs.state_dict().items():
            if "positions" not in name:
                assert torch.equal(tensor, back[name]), name


def opus_like(**changes):
    """A small random model like Opus-MT's, and ours made of it."""
    torch.manual_seed(0)
    theirs = marian_model(30, 16, 4, (6, 6), 32, 40, 0.3, **{**OPUS, **changes})
    nn.init.normal_(theirs.final_logits_bias)
    theirs.final_logits_bias[0, 29] = 0
    return from_marian(theirs.config.to_dict(), theirs.state_dict(), unk=1), theirs


def test_the_four_differences_of_an_opus_model():
    pytest.importorskip("transformers")
    model, theirs = opus_like()
    assert model.config.activation == "swish" and model.config.output_bias and model.config.n_decoder_layers == 6
    assert model.config.target_vocab_size == 31  # the beginning has an id of its own here
    order = [29, 29, 0, 1, *range(2, 29)]  # our ids in theirs
    number = torch.tensor(order)
    with torch.no_grad():
        expected = theirs(
            input_ids=number[SOURCE], attention_mask=(SOURCE != PAD).long(), decoder_input_ids=number[TARGET]
        ).logits[..., order]
        found = model(SOURCE, TARGET)
    keep = [i for i in range(31) if i != BOS]
    torch.testing.assert_close(found[..., keep], expected[..., keep], atol=1e-4, rtol=1e-4)
    assert (found.softmax(-1)[..., BOS] == 0).all()
    torch.testing.assert_close(
        found.log_softmax(-1)[..., keep], expected[..., keep].log_softmax(-1), atol=1e-4, rtol=1e-4
    )


def test_marian_models_that_do_not_share_their_tables():
    pytest.importorskip("transformers")
    model, theirs = opus_like(share_encoder_decoder_embeddings=False, decoder_vocab_size=30)
    assert model.config.tie_embeddings == "target" and model.source_embedding is not model.target_embedding
    order = torch.tensor([29, 29, 0, 1, *range(2, 29)])
    with torch.no_grad():
        expected = theirs(
            input_ids=order[SOURCE], attention_mask=(SOURCE != PAD).long(), decoder_input_ids=order[TARGET]
        ).logits[..., order]
        found = model(SOURCE, TARGET)
    torch.testing.assert_close(found[..., 2:], expected[..., 2:], atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def opus_folder(tmp_path_factory):
    """A folder as it is downloaded, with a small random model."""
    pytest.importorskip("transformers")
    spm = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("opus-mt-en-de")
    texts = folder / "texts"
    texts.write_text("a dog runs in the snow\nein Hund rennt im Schnee\nthe cat sees a red house\ndie Katze\n" * 20)
    for side in ("source", "target"):
        spm.SentencePieceTrainer.train(
            input=str(texts), model_prefix=str(folder / side), vocab_size=40, minloglevel=2, hard_vocab_limit=False
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    cutter = spm.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    pieces = [cutter.id_to_piece(i) for i in range(3, len(cutter))]
    vocab = {piece: i for i, piece in enumerate(["</s>", "<unk>", ">>deu<<", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    torch.manual_seed(1)
    pad = vocab["<pad>"]
    changes = {**OPUS, "pad_token_id": pad, "decoder_start_token_id": pad}
    theirs = marian_model(len(vocab), 16, 4, (2, 2), 32, 40, 0.4, **changes)
    nn.init.normal_(theirs.final_logits_bias)
    theirs.save_pretrained(folder)
    return folder


def hypotheses_of(folder, text, n_beams):
    import transformers

    theirs = transformers.MarianMTModel.from_pretrained(folder).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    pad = theirs.config.pad_token_id
    options = {"num_beams": n_beams, "max_new_tokens": 12, "bad_words_ids": [[pad]], "early_stopping": "never"}
    given = tokenizer([text], return_tensors="pt")
    found = theirs.generate(**given, do_sample=False, length_penalty=1.0, forced_eos_token_id=None, **options)
    return given.input_ids, tokenizer.decode(found[0], skip_special_tokens=True), tokenizer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", ["a dog runs in the snow", ">>deu<< the cat sees a red house", "a xylophone"])
def test_a_downloaded_folder_translates_as_hugging_face_does(opus_folder, text):
    pytest.importorskip("sacremoses")
    model, source, target = load_marian(opus_folder)
    ids, expected, theirs = hypotheses_of(opus_folder, text, 1)
    assert source.tokens(text) == theirs.tokenize(text)
    assert source.vocab_size == model.config.source_vocab_size
    encoded = torch.tensor([[*source.encode(text), EOS]])
    assert encoded.shape == ids.shape
    written = greedy_decode(model, encoded, max_length=12)[0]
    assert target.decode(written) == expected
    (best,) = beam_search(model, encoded, beam_size=3, max_length=12, normalization="mean", length_penalty=1.0)
    _, expected, _ = hypotheses_of(opus_folder, text, 3)
    assert target.decode(best[0].tokens) == expected


def test_a_folder_with_pickled_weights_is_read_safely(opus_folder, tmp_path):
    from safetensors.torch import load_file

    for name in ("config.json", "vocab.json", "source.spm", "target.spm"):
        (tmp_path / name).write_bytes((opus_folder / name).read_bytes())
    weights = load_file(opus_folder / "model.safetensors")
    torch.save(weights, tmp_path / "pytorch_model.bin")
    one, other = load_marian(opus_folder)[0], load_marian(tmp_path)[0]
    assert torch.equal(one(SOURCE, TARGET), other(SOURCE, TARGET))
    torch.save({"weights": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(Exception, match=r"[Uu]nsafe|weights_only|Unsupported"):
        load_marian(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        load_marian(tmp_path)
    (tmp_path / "vocab.json").unlink()
    with pytest.raises(ValueError, match=r"has no vocab.json: is it the folder of an Opus-MT model\?"):
        load_marian(tmp_path)


def test_a_tokenizer_of_an_opus_model_decodes_what_it_encodes(opus_folder):
    _, source, target = load_marian(opus_folder)
    text = "a dog runs in the house"
    assert (
        source.decode(source.encode(text)) == text == source.decode(torch.tensor([BOS, *source.encode(text), EOS, 7]))
    )
    assert source.encode_batch([text, ""]) == [source.encode(text), []]
    assert target.vocab_size == source.vocab_size


BAD = {
    "another kind of model": ({"model_type": "bart"}, "model_type='bart'"),
    "embeddings that are not scaled": ({"scale_embedding": False}, "scaled embeddings"),
    "heads": ({"decoder_attention_heads": 2}, "decoder_attention_heads must be equal"),
    "activation": ({"activation_function": "tanh"}, "activation='tanh' is unknown"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    changes, message = BAD[case]
    config = {
        "model_type": "marian",
        "vocab_size": 30,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "activation_function": "swish",
        "max_position_embeddings": 40,
        "scale_embedding": True,
    }
    assert marian_config(config).d_model == 16
    with pytest.raises(ValueError, match=message):
        marian_config({**config, **changes})


def test_what_marian_cannot_compute_is_not_given_away():
    sizes = {"source_vocab_size": 30, "target_vocab_size": 30, "d_model": 16, "n_heads": 4, "d_ff": 32}
    for changes, message in (({"norm_first": True}, "post-norm"), ({"bias": False}, "bias=False")):
        with pytest.raises(ValueError, match=message):
            to_marian(Transformer(TransformerConfig(**sizes, **changes)))
    with pytest.raises(ValueError, match=r"weights have no model\.decoder\.embed_tokens\.weight"):
        config = {"pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": 2}
        config |= {"model_type": "marian", "scale_embedding": True, "vocab_size": 30, "d_model": 16}
        config |= {
            f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 1), ("ffn_dim", 8))
        }
        config |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "activation_function": "relu"}
        from_marian({**config, "max_position_embeddings": 40}, {"model.encoder.embed_tokens.weight": draw(30, 16)})


@pytest.mark.filterwarnings("ignore")
def test_a_downloaded_folder_becomes_a_translator(opus_folder, tmp_path):
    from transformer_lib.translation.translator import Translator

    translator = Translator.from_marian(opus_folder, device="cpu")
    _, expected, _ = hypotheses_of(opus_folder, "a dog runs", 1)
    assert translator.translate(["a dog runs"], beam_size=1, max_length=12) == [expected]
    assert "".join(translator.stream("a dog runs", max_length=12)) == expected
    assert translator.attention("a dog runs", "ein Hund").cross.shape[:2] == (2, 4)
    with pytest.raises(ValueError, match="load it with from_marian"):
        translator.save_pretrained(tmp_path / "saved")
