"""Weights from elsewhere and back: PyTorch's modules, Marian models, and whole Opus-MT folders."""

import functools
import json
import shutil

import pytest
import torch
from marian import marian_model, marian_pair
from torch import nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.beam_search import beam_search
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.models.attention import causal_mask
from transformer_lib.models.convert import from_hf, from_torch, to_hf, to_torch
from transformer_lib.models.gpt import CausalAttention
from transformer_lib.models.marian import load_marian
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
    """Equal outputs, of self-attention without a mask in an encoder and a causal one in a decoder."""
    x, memory, later = draw(2, 5, 16), draw(2, 7, 16), ~causal_mask(5)[0, 0]
    if isinstance(ours, MultiHeadAttention):
        found, expected = ours(x, memory), theirs(x, memory, memory)[0]
    elif isinstance(ours, (DecoderLayer, Decoder)):
        found, expected = ours(x, memory), theirs(x, memory, tgt_mask=later)
    else:
        found, expected = ours(x), theirs(x)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)


def decoder_layer(**options):
    return nn.TransformerDecoderLayer(16, 4, 32, batch_first=True, **options)


def decoder_with_a_norm():
    return nn.TransformerDecoder(decoder_layer(activation=nn.functional.gelu), 2, nn.LayerNorm(16))


MODULES = {
    "attention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True), None),
    "attention without biases": (lambda: nn.MultiheadAttention(16, 4, bias=False, batch_first=True), None),
    "encoder layer": (lambda: encoder_layer(activation=nn.ReLU()), EncoderLayer),
    "decoder layer": (lambda: decoder_layer(activation=nn.SiLU(inplace=True), norm_first=True), DecoderLayer),
    "encoder": (lambda: nn.TransformerEncoder(encoder_layer(), 3), Encoder),
    "decoder with a norm": (decoder_with_a_norm, Decoder),
}


@pytest.mark.parametrize("kind", MODULES)
def test_pytorchs_modules_become_ours_and_ours_pytorchs(kind):
    build, ours_class = MODULES[kind]
    torch.manual_seed(0)
    theirs = build().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = from_torch(theirs)
    assert type(ours) is (ours_class or MultiHeadAttention) and not ours.training
    same(ours, theirs)
    back = to_torch(ours)
    assert type(back) is type(theirs)
    same(ours, back)
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in back.state_dict().items())
    if ours_class is None:  # these two have the very same names
        ours.load_state_dict(theirs.state_dict())


def test_a_whole_transformer_goes_there_and_back():
    torch.manual_seed(0)
    theirs = nn.Transformer(16, 4, 2, 3, 32, 0.0, batch_first=True).eval()
    ours = from_torch(theirs, source_vocab_size=30, target_vocab_size=30)
    same(ours.encoder, theirs.encoder)
    same(ours.decoder, theirs.decoder)
    back = to_torch(ours)
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in back.state_dict().items())


def dropouts(module: nn.Module) -> list[float]:
    """The probability of every dropout, of attention weights too."""
    kinds = (nn.MultiheadAttention, MultiHeadAttention)
    parts = [part.p if isinstance(part, nn.Dropout) else part.dropout for part in module.modules()
             if isinstance(part, (nn.Dropout, *kinds))]  # fmt: skip
    return sorted(set(parts))


@pytest.mark.parametrize("kind", ["encoder layer", "decoder layer", "encoder", "decoder with a norm"])
def test_every_dropout_is_carried_there_and_back(kind):
    theirs = MODULES[kind][0]()
    for part in theirs.modules():
        if isinstance(part, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            part.dropout.p, part.self_attn.dropout = 0.2, 0.4  # of the activations, and of the weights
            for name, other in part.named_children():
                if name[:-1] == "dropout":
                    other.p = 0.3
                elif name == "multihead_attn":
                    other.dropout = 0.4
    ours = from_torch(theirs)
    back = to_torch(ours)
    assert dropouts(theirs) == dropouts(ours) == dropouts(back) == [0.2, 0.3, 0.4]
    layer = getattr(ours, "layers", [ours])[0]
    assert (layer.dropout.p, layer.feed_forward.dropout.p, layer.self_attn.dropout) == (0.3, 0.2, 0.4)
    own = [(name, part.p) for name, part in theirs.named_modules() if isinstance(part, nn.Dropout)]
    assert own == [(name, part.p) for name, part in back.named_modules() if isinstance(part, nn.Dropout)]


@pytest.mark.parametrize("name", ["dropout2", "multihead_attn"])
def test_dropouts_that_ours_cannot_tell_apart_are_refused(name):
    theirs = nn.TransformerDecoderLayer(16, 4, 32, 0.3)
    part = theirs.get_submodule(name)
    setattr(part, "p" if name == "dropout2" else "dropout", 0.1)
    with pytest.raises(ValueError, match=r"dropout.*=0\.1 cannot be converted, only 0\.3"):
        from_torch(theirs)


def test_dropouts_of_hugging_face_are_carried_or_refused():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "n_embd": 16, "n_head": 4, "n_layer": 1, "resid_pdrop": 0.2, "attn_pdrop": 0.3}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(embd_pdrop=0.2, **sizes))
    ours = from_hf(theirs)
    assert (ours.config.dropout, ours.layers[0].self_attn.dropout) == (0.2, 0.3)
    config = to_hf(ours).config
    assert (config.embd_pdrop, config.resid_pdrop, config.attn_pdrop) == (0.2, 0.2, 0.3)
    theirs.config.embd_pdrop = 0.0
    with pytest.raises(ValueError, match=r"embd_pdrop=0\.0"):
        from_hf(theirs)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 24}
    config = transformers.BertConfig(vocab_size=20, classifier_dropout=0.4, hidden_dropout_prob=0.2, **sizes)
    ours = from_hf(transformers.BertForSequenceClassification(config))
    assert (ours.dropout.p, ours.bert.dropout.p) == (0.4, 0.2)
    assert to_hf(ours).config.classifier_dropout == 0.4


ODD = {
    "add_zero_attn": lambda: nn.MultiheadAttention(16, 4, add_zero_attn=True),
    "bias_k": lambda: nn.MultiheadAttention(16, 4, add_bias_kv=True),
    "bias": lambda: encoder_layer(bias=False),
}


@pytest.mark.parametrize("name", ODD)
def test_what_ours_would_compute_differently_is_refused(name):
    with pytest.raises((ValueError, RuntimeError), match=name):
        from_torch(ODD[name]())


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU6(), nn.Threshold(1.0, 1.0, inplace=True)], ids=str)
def test_another_activation_is_refused(activation):
    """Two of them are ReLU below 6, or above 1."""
    with pytest.raises(ValueError, match="activation"):
        from_torch(encoder_layer(activation=activation))


def test_layers_of_a_stack_that_differ_are_refused():
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32), 2, enable_nested_tensor=False)
    stack.layers[1].norm2.eps = 0.1
    with pytest.raises(ValueError, match=r"eps=0\.1"):
        from_torch(stack)
    stack.layers[1] = nn.TransformerEncoderLayer(16, 2, 32)
    with pytest.raises(ValueError, match=r"layers\.1\.self_attn\.num_heads=2"):
        from_torch(stack)


def test_a_class_of_ones_own_is_refused():
    class Mine(nn.TransformerEncoderLayer):
        pass

    with pytest.raises(TypeError, match="Mine"):
        from_torch(Mine(16, 4, 32))
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32), 2, enable_nested_tensor=False)
    stack.layers[1] = Mine(16, 4, 32)
    with pytest.raises(ValueError, match=r"class of layers\.1='Mine'"):
        from_torch(stack)


def test_what_pytorch_cannot_compute_is_refused():
    sizes = {"source_vocab_size": 30, "target_vocab_size": 30, "d_model": 16, "n_heads": 4, "d_ff": 32}
    with pytest.raises(RuntimeError, match="in_proj"):
        to_torch(Transformer(TransformerConfig(**sizes, d_key=5)).encoder)
    encoder = Transformer(TransformerConfig(**sizes)).encoder
    encoder.layers[1].self_attn = CausalAttention(16, 4)  # the same parameters
    with pytest.raises(TypeError, match="CausalAttention has no counterpart"):
        to_torch(encoder)


# ---------------------------------------------------------------- Marian

OPUS = {  # as in the real ones: opened by padding, whose id is the last; end 0, unknown 1
    "activation_function": "swish",
    "pad_token_id": 29,
    "eos_token_id": 0,
    "decoder_start_token_id": 29,
}


@pytest.mark.parametrize("tied", [True, False])
def test_a_marian_model_with_our_ids_goes_there_and_back(tied):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, theirs = marian_pair(30, 16, 4, (2, 3), 32, 40, 0.3, tie_word_embeddings=tied)
    with torch.no_grad():
        expected = theirs(
            input_ids=SOURCE, attention_mask=(SOURCE != PAD).long(), decoder_input_ids=TARGET, use_cache=False
        ).logits
        torch.testing.assert_close(model(SOURCE, TARGET), expected, atol=1e-4, rtol=1e-4)
        assert expected.std() > 0.5
        back = to_hf(model)
    one, other = theirs.state_dict(), back.state_dict()
    assert one.keys() == other.keys() or not tied
    for name in one.keys() & other.keys():
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("shared", [True, False])
def test_the_differences_of_an_opus_model(shared):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    tables = {} if shared else {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 30}
    theirs = marian_model(30, 16, 4, (6, 6), 32, 40, 0.3, **OPUS, **tables)
    nn.init.normal_(theirs.final_logits_bias)
    theirs.final_logits_bias[0, 29] = 0
    model = from_hf(theirs)
    assert model.config.activation == "swish" and model.config.output_bias and model.config.n_decoder_layers == 6
    assert model.config.target_vocab_size == 31  # the beginning has an id of its own here
    assert (model.source_embedding is model.target_embedding) == shared == (model.config.tie_embeddings == "all")
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


@functools.cache
def theirs_in(folder):
    import transformers

    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    return transformers.MarianMTModel.from_pretrained(folder).eval(), tokenizer


def hypotheses_of(folder, text, n_beams):
    theirs, tokenizer = theirs_in(folder)
    pad = theirs.config.pad_token_id
    options = {"num_beams": n_beams, "max_new_tokens": 12, "bad_words_ids": [[pad]], "early_stopping": "never"}
    given = tokenizer([text], return_tensors="pt")
    found = theirs.generate(**given, do_sample=False, length_penalty=1.0, forced_eos_token_id=None, **options)
    return given.input_ids, tokenizer.decode(found[0], skip_special_tokens=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_downloaded_folder_translates_as_hugging_face_does(opus_folder):
    pytest.importorskip("sacremoses")
    model, source, target = load_marian(opus_folder)
    assert source.vocab_size == model.config.source_vocab_size
    for text in ("a dog runs in the snow", ">>deu<< the cat sees a red house", "a xylophone"):
        ids, expected = hypotheses_of(opus_folder, text, 1)
        assert source.tokens(text) == theirs_in(opus_folder)[1].tokenize(text)
        encoded = torch.tensor([[*source.encode(text), EOS]])
        assert encoded.shape == ids.shape
        written = greedy_decode(model, encoded, max_length=12)[0]
        assert target.decode(written) == expected
        best = beam_search(model, encoded, beam_size=3, max_length=12, normalization="mean", length_penalty=1.0)
        assert target.decode(best.tokens[0, 0].tolist()) == hypotheses_of(opus_folder, text, 3)[1]


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
    (tmp_path / "vocab.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab\.json"):
        load_marian(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        load_marian(tmp_path)


@pytest.mark.parametrize("stated", [{}, {"decoder_vocab_size": None}], ids=["missing", "null"])
def test_a_folder_from_before_there_were_two_vocabularies_is_read(opus_folder, tmp_path, stated):
    folder = shutil.copytree(opus_folder, tmp_path / "opus")
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    del settings["decoder_vocab_size"]
    path.write_text(json.dumps(settings | stated))
    one, other = (load_marian(place)[0] for place in (opus_folder, folder))
    assert torch.equal(one(SOURCE, TARGET), other(SOURCE, TARGET))


def test_a_tokenizer_of_an_opus_model_decodes_what_it_encodes(opus_folder):
    _, source, target = load_marian(opus_folder)
    text = "a dog runs in the house"
    assert (
        source.decode(source.encode(text)) == text == source.decode(torch.tensor([BOS, *source.encode(text), EOS, 7]))
    )
    assert source.encode_batch([text, ""]) == [source.encode(text), []]
    assert target.vocab_size == source.vocab_size


@pytest.mark.parametrize(
    ("option", "value"),
    [("scale_embedding", False), ("decoder_attention_heads", 2), ("activation", "tanh")],
)
def test_a_marian_model_that_computes_something_else_is_refused(option, value):
    theirs = marian_model(30, 16, 4, (1, 1), 32, 40, 0.3)
    setattr(theirs.config, "activation_function" if option == "activation" else option, value)
    with pytest.raises(ValueError, match=option):
        from_hf(theirs)


@pytest.mark.parametrize(
    "changes", [{"norm_first": True}, {"bias": False}, {"positions": "learned"}, {"d_key": 5}, {"eps": 1e-3}]
)
def test_what_marian_cannot_compute_is_not_given_away(changes):
    sizes = {"source_vocab_size": 30, "target_vocab_size": 30, "d_model": 16, "n_heads": 4, "d_ff": 32}
    with pytest.raises(ValueError, match=next(iter(changes))):
        to_hf(Transformer(TransformerConfig(**sizes, **changes)))


def test_a_folder_is_read_without_hugging_face(tmp_path):
    """In the files of older versions, too: the base of the rotary positions stands elsewhere in them."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = theirs(SOURCE).logits
        torch.testing.assert_close(from_hf(tmp_path)(SOURCE), expected, atol=1e-5, rtol=1e-5)
        path = tmp_path / "config.json"
        settings = json.loads(path.read_text())
        del settings["rope_parameters"]
        path.write_text(json.dumps(settings | {"rope_theta": 500.0, "rope_scaling": None}))
        torch.testing.assert_close(from_hf(tmp_path)(SOURCE), expected, atol=1e-5, rtol=1e-5)
    path.write_text(json.dumps(settings | {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}))
    with pytest.raises(ValueError, match="type='linear'"):
        from_hf(tmp_path)


def test_other_models_have_no_counterpart():
    for convert in (to_hf, to_torch):
        with pytest.raises(TypeError, match="Linear has no counterpart"):
            convert(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="Linear has no counterpart"):
        from_torch(nn.Linear(2, 2))
    for model in (nn.Linear(2, 2), Transformer(TransformerConfig.tiny())):
        with pytest.raises(ValueError, match=f"{type(model).__name__} is no model of Hugging Face"):
            from_hf(model)


@pytest.mark.filterwarnings("ignore")
def test_a_downloaded_folder_becomes_a_translator(opus_folder, tmp_path):
    from transformer_lib.translation.translator import Translator

    translator = Translator.from_marian(opus_folder, device="cpu")
    assert translator.text.prepare("TWO DOGS") == "TWO DOGS"  # as the original reads it
    _, expected = hypotheses_of(opus_folder, "a dog runs", 1)
    assert translator.translate(["a dog runs"], beam_size=1, max_length=12) == [expected]
    assert "".join(translator.stream("a dog runs", max_length=12)) == expected
    assert translator.attention("a dog runs", "ein Hund").cross.shape[:2] == (2, 4)
    with pytest.raises(ValueError, match="load it with from_marian"):
        translator.save_pretrained(tmp_path / "saved")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("forced", [0, None])
def test_beams_and_limits_of_a_folder_are_the_translators_own(opus_folder, tmp_path, forced):
    from transformer_lib.translation.translator import Translator

    folder = shutil.copytree(opus_folder, tmp_path / "opus")
    path, text = folder / "generation_config.json", "a dog runs in the snow"
    stated = json.loads(path.read_text()) | {"num_beams": 3, "max_length": 14, "length_penalty": 0.7, "min_length": 4}
    stated |= {"forced_eos_token_id": forced, "early_stopping": "never", "bad_words_ids": [[stated["pad_token_id"]]]}
    path.write_text(json.dumps(stated))
    translator = Translator.from_marian(folder, device="cpu")
    decoding = translator.decoding
    assert (decoding.beam_size, decoding.length_penalty, decoding.normalization) == (3, 0.7, "mean")
    assert (decoding.max_length, decoding.min_length) == (13 - (forced is not None), 3)
    theirs, tokenizer = theirs_in(folder)
    given = tokenizer([text], return_tensors="pt")
    greedy = tokenizer.decode(theirs.generate(**given, num_beams=1)[0], skip_special_tokens=True)
    assert translator.translate([text], beam_size=1) == [greedy] == ["".join(translator.stream(text))]
    if forced is None:  # otherwise their last token costs nothing
        (best,) = theirs.generate(**given)
        assert translator.translate([text]) == [tokenizer.decode(best, skip_special_tokens=True)]
    other = {"no_repeat_ngram_size": 3, "bad_words_ids": [[7]], "forced_bos_token_id": 5, "min_new_tokens": 4}
    for name, value in (other | {"suppress_tokens": [7], "begin_suppress_tokens": [7]}).items():
        path.write_text(json.dumps(stated | {name: value}))
        with pytest.raises(ValueError, match=f"{name}="):
            Translator.from_marian(folder, device="cpu")


# ---------------------------------------------------------------- every weight of a file


def theirs_of(kind: str) -> nn.Module:
    """A small random model of Hugging Face, whose output layer is tied."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
    sizes |= {"intermediate_size": 16, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "marian":
            return marian_model(40, 16, 2, (1, 1), 16, 16, 0.3)
        if kind == "gpt2":
            few = {"n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 16}
            config = transformers.GPT2Config(vocab_size=40, bos_token_id=1, eos_token_id=2, **few)
            return transformers.GPT2LMHeadModel(config).eval()
        names = {"bert": "BertForMaskedLM", "llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
        made = getattr(transformers, names[kind])
        few = {} if kind == "bert" else {"num_key_value_heads": 1, "head_dim": 8}
        return made(made.config_class(**sizes, **few)).eval()


KINDS = ["gpt2", "bert", "llama", "qwen3", "marian"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_an_output_layer_that_is_not_the_tied_one_is_refused(kind):
    theirs = theirs_of(kind)
    from_hf(theirs)
    name = "cls.predictions.decoder" if kind == "bert" else "lm_head"
    head = theirs.get_submodule(name)
    head.weight = nn.Parameter(head.weight.detach() + 0.5)
    with pytest.raises(ValueError, match=rf"{name}\.weight differs from the weights that it is tied to"):
        from_hf(theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_no_weight_is_stretched_read_without_its_scale_or_rounded(kind):
    theirs, tokens = theirs_of(kind), torch.tensor([[5, 6, 7, 8]])
    norm = theirs.model.norm if kind == "llama" else theirs.transformer.ln_f
    held = norm.weight
    for other in (torch.ones(1), torch.ones(16, dtype=torch.int8), torch.ones(16, dtype=torch.float8_e4m3fn)):
        norm.weight = nn.Parameter(other, requires_grad=False)
        with pytest.raises(ValueError, match=r"norm\.weight|ln_f\.weight"):
            from_hf(theirs)
    norm.weight = held
    table = theirs.get_input_embeddings().weight
    table.data = table.bfloat16().float()
    with torch.no_grad():
        logits = theirs(tokens).logits
        table.data = table.bfloat16()  # the first weight of all
        torch.testing.assert_close(from_hf(theirs)(tokens), logits, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_of_a_file_is_used_or_compared_or_refused(kind, tmp_path):
    """Each tensor is changed in turn: then the outputs change, or the name is refused."""
    theirs = theirs_of(kind)
    theirs.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "vocab.json").write_text('{"<unk>": 3}')  # of a Marian model
    weights, inputs = theirs.state_dict(), torch.arange(4, 16)[None]
    pairs = (inputs, torch.tensor([[1, 5, 6, 7]]))

    def outputs() -> torch.Tensor:
        torch.save({name: tensor.clone() for name, tensor in weights.items()}, tmp_path / "pytorch_model.bin")
        with torch.no_grad():
            return from_hf(tmp_path)(*pairs if kind == "marian" else pairs[:1])

    before = outputs()
    constants = {"position_ids": torch.arange(16)[None], "inv_freq": 10_000 ** -(torch.arange(4) / 4)}
    if kind in ("llama", "qwen3"):
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = constants["inv_freq"]
    if kind == "bert":
        weights["bert.embeddings.position_ids"] = constants["position_ids"]
    if kind == "gpt2":
        weights["transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16).tril().bool()
        weights["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    assert torch.equal(outputs(), before)
    for name in [*weights, "model.layers.9.unknown"]:
        if "masked_bias" in name or "token_type" in name:
            continue  # a number that hides; all segments move alike, and the norm takes it out again
        held = weights.get(name)
        if held is None:
            weights[name] = torch.ones(2)
        elif held.dtype == torch.bool:
            weights[name] = held.flip(-1)
        elif held.is_floating_point():
            weights[name] = held + torch.randn(held.shape, generator=torch.Generator().manual_seed(1)).to(held)
        else:
            weights[name] = held + 1
        try:
            changed = not torch.allclose(outputs(), before)
        except ValueError as error:
            changed = name in str(error) or "tied" in str(error)
        moot = name.endswith(("k_proj.bias", "key.bias")) or "attn.c_attn.bias" in name  # a softmax forgets it
        assert changed or moot, name
        weights[name] = held
        if held is None:
            del weights[name]


def test_what_a_configuration_leaves_out_is_the_default_of_its_kind_or_told(tmp_path):
    for kind, left_out, size in (
        ("llama", "rms_norm_eps", "hidden_size"),
        ("gpt2", "layer_norm_epsilon", "n_embd"),
        ("bert", "layer_norm_eps", "num_hidden_layers"),
    ):
        folder = tmp_path / kind
        theirs_of(kind).save_pretrained(folder)
        stated = json.loads((folder / "config.json").read_text())
        eps = stated.pop(left_out)
        (folder / "config.json").write_text(json.dumps(stated))
        assert from_hf(folder).config.eps == eps
        stated.pop(size)
        (folder / "config.json").write_text(json.dumps(stated))
        with pytest.raises(ValueError, match=rf"^the configuration has no {size}$"):
            from_hf(folder)


def test_a_name_instead_of_a_folder_gets_advice():
    with pytest.raises(ValueError, match=r"there is no folder gpt2.*downloads nothing.*from_pretrained\('gpt2'\)"):
        from_hf("gpt2")


# ---------------------------------------------------------------- compiled


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["the model", "a layer"])
def test_a_compiled_model_is_converted_like_the_one_inside(part):
    def compiled(model: nn.Module) -> nn.Module:
        if part == "the model":
            return torch.compile(model, backend="eager")
        for layers in (one for one in model.modules() if isinstance(one, nn.ModuleList)):
            layers[0] = torch.compile(layers[0], backend="eager")
        return model

    for kind in KINDS:
        theirs = theirs_of(kind)
        plain = from_hf(theirs)
        back = to_hf(compiled(from_hf(theirs))).state_dict()
        for name, tensor in to_hf(plain).state_dict().items():
            assert torch.equal(back[name], tensor), name
        for one, other in zip(plain.parameters(), from_hf(compiled(theirs)).parameters(), strict=True):
            assert torch.equal(one, other)
    if part == "the model":
        theirs = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
        same(from_torch(compiled(theirs)), theirs)
        same(from_torch(theirs), to_torch(compiled(from_torch(theirs))))


@pytest.mark.filterwarnings("ignore")
def test_weights_in_several_files_are_read_together(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2}
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, intermediate_size=8)).eval()
    theirs.save_pretrained(tmp_path, max_shard_size="2KB")
    files = [*tmp_path.glob("model-*.safetensors")]
    assert len(files) > 1 and not (tmp_path / "model.safetensors").exists()
    tokens = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(from_hf(tmp_path)(tokens), theirs(tokens).logits)
    files[0].unlink()
    with pytest.raises(FileNotFoundError, match=files[0].name):
        from_hf(tmp_path)
