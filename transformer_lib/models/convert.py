"""Models of Hugging Face and of PyTorch become models of this library, and the other way round."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.models.bert import Bert, BertClassifier, BertConfig
from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.models.layers import ACTIVATIONS, LayerNorm
from transformer_lib.models.llama import Llama, LlamaConfig
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Transformer,
    TransformerConfig,
)

Settings = dict[str, Any]  # the contents of a config.json
Weights = Mapping[str, Tensor]
OUR_ACTIVATION = {"silu": "swish", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
THEIR_ACTIVATION = {"swish": "silu", "gelu_tanh": "gelu_new"}
NEVER = -1e4  # a logit that no softmax notices, in half precision too


def require(settings: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse a variant that would load without an error and compute something else."""
    for name, value in expected.items():
        if settings.get(name, value) not in (value, None):
            raise ValueError(f"{name}={settings[name]!r} cannot be converted, only {value!r}")


@dataclass(frozen=True)
class Family:
    """One kind of model of Hugging Face beside ours; tables are pairs, ours=theirs."""

    config: type  # of our model
    fields: str  # of the configurations
    names: str  # of parameters: patterns, replaced one after the other
    fixed: Settings = field(default_factory=dict)  # what ours always does
    defaults: Settings = field(default_factory=dict)  # what their files may leave out
    split: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")  # their queries, keys and values
    load: Callable[[str, Tensor, Settings], Tensor] = lambda name, tensor, settings: tensor
    save: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor

    def their_names(self, name: str) -> list[str]:
        """Their names for a parameter of ours: three for one matrix of queries, keys and values."""
        for ours, theirs in pairs(self.names):
            name = re.sub(ours, theirs, name)
        if "in_proj_" not in name:
            return [name]
        return [name.replace("in_proj_", f"{part}.") for part in self.split]

    def settings(self, theirs: Settings, **more: Any) -> Any:
        """Our configuration for theirs."""
        theirs = self.defaults | theirs
        require(theirs, self.fixed)
        ours = {name: theirs.get(other) for name, other in pairs(self.fields)} | more
        if "activation" in ours:
            ours["activation"] = OUR_ACTIVATION.get(ours["activation"], ours["activation"])
        return self.config(**ours)

    def their_settings(self, ours: Any) -> Settings:
        """Their configuration for ours."""
        theirs = {other: getattr(ours, name) for name, other in pairs(self.fields)}
        return self.fixed | {n: THEIR_ACTIVATION.get(v, v) for n, v in theirs.items()}


def pairs(table: str) -> list[list[str]]:
    """Entries of a table, ours and theirs."""
    return [entry.split("=") for entry in table.split()]


# ---------------------------------------------------------------- Marian


def marian_ids(settings: Settings, side: int) -> list[int]:
    """Their id for each of ours: padding, beginning, end and unknown come first."""
    size = (settings["vocab_size"], settings.get("decoder_vocab_size"))[side]
    size = size or settings["vocab_size"]
    special = [settings[f"{name}_token_id"] for name in ("pad", "decoder_start", "eos")]
    others = [i for i in range(size) if i not in special]
    unk = settings.get("unk", others[:1] * 2)[side]
    return [*special, unk, *(i for i in others if i != unk)]


def marian_vocabularies(folder: Path) -> list[dict[str, int]]:
    """The id of each piece, of source and target."""
    files = [folder / "vocab.json", folder / "target_vocab.json"]
    if not files[0].is_file():
        raise ValueError(f"{folder} has no vocab.json: is it the folder of an Opus-MT model?")
    source = json.loads(files[0].read_text("utf-8"))
    return [source, json.loads(files[1].read_text("utf-8")) if files[1].is_file() else source]


def reordered(name: str, tensor: Tensor, *shape: int) -> Tensor:
    """A parameter whose axis along the residual stream, if it has one, is in another order."""
    axis = 0 if any(part in name for part in ("norm", "out_proj", "linear2")) else 1
    if tensor.dim() <= axis:
        return tensor
    order = torch.arange(tensor.shape[axis], device=tensor.device).view(*shape).T.flatten()
    return tensor.index_select(axis, order)


def load_marian_tensor(name: str, tensor: Tensor, settings: Settings) -> Tensor:
    """Our ids; sines and cosines in turn, where theirs follow one another."""
    if "embedding" in name or name.startswith("output"):
        ids = marian_ids(settings, 0 if name.startswith("source") else 1)
        tensor = (tensor.flatten() if name == "output.bias" else tensor)[ids]
        if name == "output.bias" and ids[BOS] in ids[:BOS]:  # no target goes on with BOS
            tensor[BOS] = NEVER
    return reordered(name, tensor, 2, -1)


def marian_fields(settings: Settings) -> Settings:
    """The sizes that the two vocabularies and the tied tables make up."""
    for part in ("attention_heads", "ffn_dim"):
        require(settings, {f"decoder_{part}": settings.get(f"encoder_{part}")})
    shared = settings.get("share_encoder_decoder_embeddings", True)
    tied = settings.get("tie_word_embeddings", True)
    return {
        "source_vocab_size": len(marian_ids(settings, 0)),
        "target_vocab_size": len(marian_ids(settings, 1)),
        "tie_embeddings": ("all" if shared else "target") if tied else "none",
        "output_bias": True,
    }


def their_marian_fields(c: TransformerConfig) -> Settings:
    """The same the other way round; refuses what Marian cannot compute."""
    require(vars(c), {"norm_first": False, "final_norm": False, "positions": "sinusoidal"})
    require(vars(c), {"bias": True, "d_key": c.d_model // c.n_heads})
    require(vars(c), {"d_value": c.d_model // c.n_heads})
    return {
        "decoder_vocab_size": c.target_vocab_size,
        "vocab_size": c.source_vocab_size,
        "decoder_attention_heads": c.n_heads,
        "decoder_ffn_dim": c.d_ff,
        "share_encoder_decoder_embeddings": c.tie_embeddings == "all",
        "tie_word_embeddings": c.tie_embeddings != "none",
        "pad_token_id": PAD,
        "decoder_start_token_id": BOS,
        "eos_token_id": EOS,
        "forced_eos_token_id": None,
    }


# ---------------------------------------------------------------- Hugging Face

LLAMA = Family(
    LlamaConfig,
    "vocab_size=vocab_size d_model=hidden_size n_heads=num_attention_heads d_head=head_dim "
    "n_kv_heads=num_key_value_heads n_layers=num_hidden_layers d_ff=intermediate_size "
    "max_length=max_position_embeddings eps=rms_norm_eps tie_embeddings=tie_word_embeddings",
    "^layers=model.layers ^norm=model.norm ^embedding=model.embed_tokens ^output=lm_head "
    "out_proj=o_proj norm1=input_layernorm norm2=post_attention_layernorm "
    "feed_forward.gate=mlp.gate_proj feed_forward.linear1=mlp.up_proj "
    "feed_forward.linear2=mlp.down_proj",
    dict(hidden_act="silu", attention_bias=False, mlp_bias=False, use_sliding_window=False),
    dict(tie_word_embeddings=False),
)
GPT2 = Family(
    GPTConfig,
    "vocab_size=vocab_size d_model=n_embd n_heads=n_head n_layers=n_layer d_ff=n_inner "
    "dropout=resid_pdrop max_length=n_positions eps=layer_norm_epsilon "
    "tie_embeddings=tie_word_embeddings",
    "^embedding=transformer.wte ^positions=transformer.wpe ^norm=transformer.ln_f ^output=lm_head "
    "^layers=transformer.h norm1=ln_1 norm2=ln_2 self_attn.in_proj_=attn.c_attn. "
    "self_attn.out_proj=attn.c_proj feed_forward.linear1=mlp.c_fc feed_forward.linear2=mlp.c_proj",
    dict(
        activation_function="gelu_new",
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
    ),
    dict(tie_word_embeddings=True),
    load=lambda name, x, _: x.T if name.startswith("layers") and x.dim() == 2 else x,
    save=lambda name, x: x.T if name.startswith("layers") and x.dim() == 2 else x,
)
BERT = Family(
    BertConfig,
    "vocab_size=vocab_size d_model=hidden_size n_heads=num_attention_heads "
    "n_layers=num_hidden_layers d_ff=intermediate_size dropout=hidden_dropout_prob "
    "attention_dropout=attention_probs_dropout_prob activation=hidden_act "
    "max_length=max_position_embeddings n_segments=type_vocab_size eps=layer_norm_eps",
    "^bert.= ^token_embedding=bert.embeddings.word_embeddings "
    "^segment_embedding=bert.embeddings.token_type_embeddings "
    "^positions=bert.embeddings.position_embeddings ^norm=bert.embeddings.LayerNorm "
    "^encoder.layers=bert.encoder.layer self_attn.in_proj_=attention.self.in_proj_ "
    "self_attn.out_proj=attention.output.dense norm1=attention.output.LayerNorm "
    "feed_forward.linear1=intermediate.dense feed_forward.linear2=output.dense "
    "norm2=output.LayerNorm ^transform[.]=cls.predictions.transform.dense. "
    "^transform_norm=cls.predictions.transform.LayerNorm ^output.bias=cls.predictions.bias "
    "^pooler=bert.pooler.dense",
    dict(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False),
    split=("query", "key", "value"),
)
MARIAN = Family(
    TransformerConfig,
    "d_model=d_model n_heads=encoder_attention_heads n_encoder_layers=encoder_layers "
    "n_decoder_layers=decoder_layers d_ff=encoder_ffn_dim dropout=dropout "
    "attention_dropout=attention_dropout activation_dropout=activation_dropout "
    "activation=activation_function max_length=max_position_embeddings",
    "^source_embedding=model.encoder.embed_tokens ^target_embedding=model.decoder.embed_tokens "
    r"^output.weight=lm_head.weight ^output.bias=final_logits_bias (^encoder.*)norm2=\1norm3 "
    "^encoder=model.encoder ^decoder=model.decoder norm3=final_layer_norm "
    "norm1=self_attn_layer_norm norm2=encoder_attn_layer_norm cross_attn=encoder_attn "
    "feed_forward.linear1=fc1 feed_forward.linear2=fc2",
    dict(scale_embedding=True),
    dict(dropout=0.1, attention_dropout=0.0, activation_dropout=0.0),
    load=load_marian_tensor,
    save=lambda name, tensor: reordered(name, tensor, -1, 2),
)
FAMILIES = {"gpt2": GPT2, "bert": BERT, "llama": LLAMA, "qwen3": LLAMA, "marian": MARIAN}
UNUSED = re.compile(  # weights of theirs that are tied to others, rebuilt, or belong to other heads
    r"position_ids|inv_freq|attn\.(masked_)?bias$|embed_positions|^model\.shared|embed_tokens"
    r"|lm_head|cls\.predictions\.decoder|cls\.seq_relationship|pooler"
)
CLASSES = {
    GPT: ("gpt2", "GPT2Config", "GPT2LMHeadModel"),
    Bert: ("bert", "BertConfig", "BertForMaskedLM"),
    BertClassifier: ("bert", "BertConfig", "BertForSequenceClassification"),
    Llama: ("llama", "LlamaConfig", "LlamaForCausalLM"),
    Transformer: ("marian", "MarianConfig", "MarianMTModel"),
}


def rotary_base(settings: Settings) -> float:
    """Base of the rotary positions, in files of every version; refuses scaled positions."""
    rope = {"rope_theta": settings.get("rope_theta", 10_000.0)}  # before version 5
    rope |= settings.get("rope_scaling") or {}
    rope |= settings.get("rope_parameters") or {}
    require(rope, {"rope_type": "default", "type": "default", "partial_rotary_factor": 1.0})
    return rope["rope_theta"]


def read_hf(model_or_folder: nn.Module | Path | str) -> tuple[Settings, Weights]:
    """Configuration and weights; nothing in a folder is executed."""
    if isinstance(model_or_folder, nn.Module):
        return model_or_folder.config.to_dict(), model_or_folder.state_dict()
    folder = Path(model_or_folder)
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    if not (folder / "config.json").is_file() or not (safe.is_file() or pickled.is_file()):
        raise ValueError(f"{folder} has no config.json, or neither {safe.name} nor {pickled.name}")
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    if settings.get("model_type") == "marian":
        settings["unk"] = [vocabulary["<unk>"] for vocabulary in marian_vocabularies(folder)]
    weights = load_file(safe) if safe.is_file() else torch.load(pickled, "cpu", weights_only=True)
    old = {".gamma": ".weight", ".beta": ".bias"}  # in files of the first BERTs
    return settings, {re.sub(r"\.gamma$|\.beta$", lambda found: old[found[0]], n): w for n, w in weights.items()}


@torch.no_grad()
def from_hf(model_or_folder: nn.Module | Path | str) -> nn.Module:
    """A model of this library, in evaluation mode, from one of Hugging Face or its folder.

    Converts GPT-2, BERT, Llama, Qwen3 and Marian. Token ids stay theirs, but for Marian: there
    0 to 3 become padding, beginning, end and unknown.

    Raises:
        ValueError: for another kind of model, a variant that ours would compute differently, or
            weights that are missing or left over.
    """
    settings, weights = read_hf(model_or_folder)
    kind = settings.get("model_type")
    if kind not in FAMILIES:
        raise ValueError(f"model_type={kind!r} cannot be converted, only {', '.join(FAMILIES)}")
    family, more = FAMILIES[kind], {}
    if family is LLAMA:
        more = {"rotary_base": rotary_base(settings), "qk_norm": kind == "qwen3"}
        require(settings, {"layer_types": ["full_attention"] * settings["num_hidden_layers"]})
    if kind == "marian":
        more = marian_fields(settings)
    build = {"gpt2": GPT, "bert": Bert, "marian": Transformer}.get(kind, Llama)
    model = build(family.settings(settings, **more))
    if "classifier.weight" in weights:
        model = BertClassifier(model, len(weights["classifier.weight"]))
    like = next(tensor for tensor in weights.values() if tensor.is_floating_point())
    model, used = model.to(like.device, like.dtype), set()
    for name, parameter in model.named_parameters():
        if name.startswith(("bert.transform", "bert.output")):
            continue  # a classifier predicts no words
        parts = []
        for other in family.their_names(name):
            names = other, other.split(".", 1)[-1], re.sub(r"..coder.embed_tokens", "shared", other)
            found = next((name for name in names if name in weights), None)
            if found is None:
                raise ValueError(f"weights have no {other}")
            used.add(found)
            parts.append(weights[found])
        parameter.copy_(family.load(name, torch.cat(parts), settings))
    if left := [name for name in weights if name not in used and not UNUSED.search(name)]:
        raise ValueError(f"weights have {left[0]}, for which {type(model).__name__} has no place")
    return model.eval()


@torch.no_grad()
def to_hf(model: nn.Module) -> nn.Module:
    """The model of Hugging Face that computes the same, in evaluation mode, with our token ids.

    Raises:
        TypeError: for a model that has no counterpart.
        ValueError: for a variant that theirs cannot compute.
    """
    import transformers

    if type(model) not in CLASSES:
        raise TypeError(f"{type(model).__name__} has no counterpart among Hugging Face's models")
    kind, config, name = CLASSES[type(model)]
    c = model.bert.config if isinstance(model, BertClassifier) else model.config
    settings = {"bos_token_id": BOS, "eos_token_id": EOS} | FAMILIES[kind].their_settings(c)
    if kind == "gpt2":
        settings |= {"embd_pdrop": c.dropout, "attn_pdrop": 0.0}
    elif kind == "llama":
        require(vars(c), {"window": None})
        base: Settings = {"rope_theta": c.rotary_base}
        if int(transformers.__version__.split(".")[0]) >= 5:
            base = {"rope_parameters": {"rope_type": "default"} | base}
        widths = {"head_dim": c.head_width, "num_key_value_heads": c.kv_heads}
        settings |= base | widths | {"intermediate_size": c.d_ff or 4 * c.d_model}
        if c.qk_norm:
            config, name = "Qwen3Config", "Qwen3ForCausalLM"
    elif kind == "marian":
        settings |= their_marian_fields(c)
    elif isinstance(model, BertClassifier):
        settings["num_labels"] = model.classifier.out_features
    theirs = getattr(transformers, name)(getattr(transformers, config)(**settings))
    like = next(model.parameters())
    tensors = theirs.to(like.device, like.dtype).eval().state_dict()
    for name, parameter in model.named_parameters():
        names = FAMILIES[kind].their_names(name)
        if names[0] not in tensors:
            continue  # a classifier predicts no words
        tensor = FAMILIES[kind].save(name, parameter)
        if len(names) == 1:
            tensors[names[0]].copy_(tensor.view(tensors[names[0]].shape))
            continue
        for other, part in zip(names, tensor.split([len(tensors[n]) for n in names]), strict=True):
            tensors[other].copy_(part)
    return theirs


# ---------------------------------------------------------------- PyTorch

PEERS: dict[type[nn.Module], type[nn.Module]] = {
    nn.MultiheadAttention: MultiHeadAttention,
    nn.TransformerEncoderLayer: EncoderLayer,
    nn.TransformerDecoderLayer: DecoderLayer,
    nn.TransformerEncoder: Encoder,
    nn.TransformerDecoder: Decoder,
    nn.Transformer: Transformer,
}


def torch_name(name: str) -> str:
    """PyTorch's name for a parameter or module of ours."""
    return re.sub(r"(^|\.)feed_forward\.", r"\1", name).replace("cross_attn", "multihead_attn")


def torch_names(model: nn.Module) -> dict[str, str]:
    """PyTorch's name for each of our parameters; of a Transformer, those of its two stacks."""
    names = [name for name, _ in model.named_parameters()]
    stacks = ("encoder.", "decoder.") if isinstance(model, Transformer) else ""
    return {name: torch_name(name) for name in names if name.startswith(stacks)}


def activation_name(layer: Any) -> str:
    """Our name for a layer's activation, compared by value: nn.ReLU() and F.relu are one."""
    probe = torch.linspace(-4, 4, 33)
    theirs = layer.activation(probe)
    same = (name for name, ours in ACTIVATIONS.items() if torch.allclose(theirs, ours(probe)))
    return next(same, "unknown")


def computes(part: Any) -> dict[str, Any]:
    """Settings of a module, ours or PyTorch's, that its parameters do not show."""
    if isinstance(part, MultiHeadAttention):
        return {"n_heads": part.n_heads, "add_zero_attn": False}
    if isinstance(part, nn.MultiheadAttention):
        return {"n_heads": part.num_heads, "add_zero_attn": part.add_zero_attn}
    if isinstance(part, (LayerNorm, nn.LayerNorm)):
        return {"eps": part.eps}
    if isinstance(part, (EncoderLayer, DecoderLayer)):
        return {"norm_first": part.norm_first, "activation": activation_name(part.feed_forward)}
    if isinstance(part, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return {"norm_first": part.norm_first, "activation": activation_name(part)}
    return {}


def matched(ours: nn.Module, theirs: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Our parameters and theirs, in pairs; refuses modules that would not compute the same."""
    names, weights = torch_names(ours), dict(theirs.named_parameters())
    if odd := set(names.values()) ^ set(weights):
        raise ValueError(f"only one of the two models has {min(odd)}")
    for name, part in ours.named_modules():
        if not computes(part) or (isinstance(ours, Transformer) and not name):
            continue
        other = theirs.get_submodule(torch_name(name))
        if PEERS.get(type(other), type(part)) is not type(part):
            raise ValueError(f"{type(other).__name__} at {name or 'the top'}")
        require(computes(other), computes(part))
    return [(ours.get_parameter(name), weights[other]) for name, other in names.items()]


def torch_config(theirs: nn.Module, sizes: Settings) -> TransformerConfig:
    """Our configuration for PyTorch's layers and stacks."""
    parts = list(theirs.modules())
    encoders = [part for part in parts if isinstance(part, nn.TransformerEncoderLayer)]
    decoders = [part for part in parts if isinstance(part, nn.TransformerDecoderLayer)]
    stacks = (nn.TransformerEncoder, nn.TransformerDecoder)
    layer = (encoders + decoders)[0]
    fields = {
        "d_model": layer.self_attn.embed_dim,
        "n_heads": layer.self_attn.num_heads,
        "n_encoder_layers": max(len(encoders), 1),
        "n_decoder_layers": max(len(decoders), 1),
        "d_ff": layer.linear1.out_features,
        "dropout": layer.dropout.p,
        "activation": activation_name(layer),
        "norm_first": layer.norm_first,
        "final_norm": any(part.norm is not None for part in parts if isinstance(part, stacks)),
        "eps": layer.norm1.eps,
    }
    return TransformerConfig(**fields | sizes)


@torch.no_grad()
def from_torch(theirs: nn.Module, **sizes: Any) -> nn.Module:
    """A module of this library from one of PyTorch.

    An nn.Transformer has no embeddings: give source_vocab_size and target_vocab_size for new ones.

    Raises:
        TypeError: for another kind of module.
        ValueError: if ours cannot compute the same.
    """
    kind = PEERS.get(type(theirs))
    if kind is None:
        raise TypeError(f"{type(theirs).__name__} has no counterpart in this library")
    like = next(theirs.parameters())
    if isinstance(theirs, nn.MultiheadAttention):
        bias = theirs.in_proj_bias is not None
        ours = kind(theirs.embed_dim, theirs.num_heads, dropout=theirs.dropout, bias=bias)
    else:
        ours = kind(torch_config(theirs, sizes))
    ours = ours.to(like.device, like.dtype).train(theirs.training)
    for parameter, other in matched(ours, theirs):
        parameter.copy_(other)
    return ours


def empty_peer(ours: Any) -> nn.Module:
    """PyTorch's module of the same kind and sizes."""
    if isinstance(ours, MultiHeadAttention):
        bias = ours.in_proj_bias is not None
        D, H = ours.out_proj.out_features, ours.n_heads
        require({"width": ours.out_proj.in_features}, {"width": D})
        return nn.MultiheadAttention(D, H, ours.dropout, bias=bias, batch_first=True)
    if isinstance(ours, Transformer):
        stacks = empty_peer(ours.encoder), empty_peer(ours.decoder)
        sizes = ours.config.d_model, ours.config.n_heads, 1, 1, 1
        coders = dict(zip(("custom_encoder", "custom_decoder"), stacks, strict=True))
        return nn.Transformer(*sizes, **coders, batch_first=True)
    if isinstance(ours, (Encoder, Decoder)):
        norm = ours.norm
        last = nn.LayerNorm(norm.weight.shape, norm.eps) if isinstance(norm, LayerNorm) else None
        kind = nn.TransformerEncoder if isinstance(ours, Encoder) else nn.TransformerDecoder
        nested = {"enable_nested_tensor": False} if isinstance(ours, Encoder) else {}
        return kind(empty_peer(ours.layers[0]), len(ours.layers), last, **nested)
    if isinstance(ours, (EncoderLayer, DecoderLayer)):
        encodes = isinstance(ours, EncoderLayer)
        kind = nn.TransformerEncoderLayer if encodes else nn.TransformerDecoderLayer
        attention = empty_peer(ours.self_attn)
        return kind(
            attention.embed_dim,
            attention.num_heads,
            ours.feed_forward.linear1.out_features,
            ours.dropout.p,
            ACTIVATIONS[activation_name(ours.feed_forward)],
            layer_norm_eps=ours.norm1.eps,
            norm_first=ours.norm_first,
            batch_first=True,
        )
    raise TypeError(f"{type(ours).__name__} has no counterpart in PyTorch")


@torch.no_grad()
def to_torch(model: nn.Module) -> nn.Module:
    """PyTorch's module that computes the same, batches first; of a Transformer, the two stacks.

    PyTorch has one dropout for more places than ours: the two are equal in evaluation mode.

    Raises:
        TypeError: for another kind of module.
        ValueError: if PyTorch's cannot compute the same.
    """
    like = next(model.parameters())
    theirs = empty_peer(model).to(like.device, like.dtype).train(model.training)
    for parameter, other in matched(model, theirs):
        other.copy_(parameter)
    return theirs


def from_marian(settings: Settings, weights: Weights) -> nn.Module:  # bridge
    from types import SimpleNamespace  # bridge

    module: Any = nn.Module()  # bridge
    module.config, module.state_dict = SimpleNamespace(to_dict=lambda: settings), lambda: weights  # bridge
    return from_hf(module)  # bridge
