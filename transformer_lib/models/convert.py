"""Models of Hugging Face and of PyTorch become models of this library, and the other way round."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_lib.models.bert import BertClassifier
from transformer_lib.models.families import FAMILIES, Settings, marian_vocabularies, require, their_ids
from transformer_lib.models.layers import ACTIVATIONS, LayerNorm
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Transformer,
    TransformerConfig,
)

UNUSED = re.compile(  # weights of theirs that are tied to others, rebuilt, or belong to other heads
    r"position_ids|inv_freq|attn\.(masked_)?bias$|embed_positions|^model\.shared|embed_tokens"
    r"|lm_head|cls\.predictions\.decoder|cls\.seq_relationship|pooler"
)


def read_settings(folder: Path) -> Settings:
    """The configuration in a folder, with what it states about generation."""
    settings, generation = json.loads((folder / "config.json").read_text("utf-8")), folder / "generation_config.json"
    if generation.is_file():
        settings["generation"] = json.loads(generation.read_text("utf-8"))
    if settings.get("model_type") == "marian":
        settings["unk"] = [vocabulary["<unk>"] for vocabulary in marian_vocabularies(folder)]
    return settings


def read_hf(model_or_folder: nn.Module | Path | str) -> tuple[Settings, Mapping[str, Tensor]]:
    """Configuration and weights; nothing in a folder is executed."""
    if isinstance(model_or_folder, nn.Module):
        settings, generation = model_or_folder.config.to_dict(), getattr(model_or_folder, "generation_config", None)
        settings["generation"] = generation and generation.to_dict()
        return settings, model_or_folder.state_dict()
    folder = Path(model_or_folder)
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    if not (folder / "config.json").is_file() or not (safe.is_file() or pickled.is_file()):
        raise ValueError(f"{folder} has no config.json, or neither {safe.name} nor {pickled.name}")
    settings = read_settings(folder)
    weights = load_file(safe) if safe.is_file() else torch.load(pickled, "cpu", weights_only=True)
    old = {".gamma": ".weight", ".beta": ".bias"}  # in files of the first BERTs
    new = {re.sub(r"\.gamma$|\.beta$", lambda end: old[end[0]], n): w for n, w in weights.items()}
    return settings, new


@torch.no_grad()
def from_hf(model_or_folder: nn.Module | Path | str) -> nn.Module:
    """A model of this library, in evaluation mode, from one of Hugging Face or its folder.

    Converts GPT-2, BERT, Llama, Qwen3 and Marian. Token ids stay theirs, and a search puts nothing before a
    prompt; but for Marian, 0 to 3 become padding, beginning, end and unknown.

    Raises:
        ValueError: for another kind of model, a variant that ours would compute differently, or
            weights that are missing or left over.
    """
    settings, weights = read_hf(model_or_folder)
    kind = settings.get("model_type")
    if kind not in FAMILIES:
        raise ValueError(f"model_type={kind!r} cannot be converted, only {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    model = next(iter(family.theirs))(family.settings(settings))
    if "classifier.weight" in weights:
        model = BertClassifier(model, len(weights["classifier.weight"]))
        if (dropout := settings.get("classifier_dropout")) is not None:
            model.dropout = nn.Dropout(dropout)
    like = next(tensor for tensor in weights.values() if tensor.is_floating_point())
    model, used = model.to(like.device, like.dtype), set()
    for name, parameter in model.named_parameters():
        if name.startswith(("bert.transform", "bert.output")):
            continue  # a classifier predicts no words
        parts = []
        for other in family.their_names(name):
            names = other, other.split(".", 1)[-1], re.sub(r"..coder.embed_tokens", "shared", other)
            present = next((name for name in names if name in weights), None)
            if present is None:
                raise ValueError(f"weights have no {other}")
            used.add(present)
            parts.append(weights[present])
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

    family = next((f for f in FAMILIES.values() if type(model) in f.theirs), None)
    if family is None:
        raise TypeError(f"{type(model).__name__} has no counterpart among Hugging Face's models")
    c, name = getattr(model, "bert", model).config, family.theirs[type(model)]
    settings = their_ids(c) | family.their_settings(c)
    if getattr(c, "qk_norm", False):
        name = "Qwen3ForCausalLM"
    if isinstance(model, BertClassifier):
        settings |= {"num_labels": model.classifier.out_features, "classifier_dropout": model.dropout.p}
    kind = getattr(transformers, name)
    theirs, like = kind(kind.config_class(**settings)), next(model.parameters())
    tensors = theirs.to(like.device, like.dtype).eval().state_dict()
    for name, parameter in model.named_parameters():
        names = family.their_names(name)
        if names[0] not in tensors:
            continue  # a classifier predicts no words
        tensor = family.save(name, parameter)
        if len(names) == 1:
            tensor = tensor.view(tensors[names[0]].shape)
        parts = tensor.split([len(tensors[other]) for other in names])
        for other, part in zip(names, parts, strict=True):
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
    probe = torch.linspace(-4, 4, 33, device=next(layer.parameters()).device)
    theirs = layer.activation(probe)
    same = (name for name, ours in ACTIVATIONS.items() if torch.allclose(theirs, ours(probe)))
    return next(same, "unknown")


def computes(part: Any) -> dict[str, Any]:
    """Settings of a module, ours or PyTorch's, that its parameters do not show."""
    if isinstance(part, MultiHeadAttention):
        return {"n_heads": part.n_heads, "add_zero_attn": False, "dropout of attention": part.dropout}
    if isinstance(part, nn.MultiheadAttention):
        found = {"n_heads": part.num_heads, "add_zero_attn": part.add_zero_attn}
        return found | {"dropout of attention": part.dropout}
    if isinstance(part, (LayerNorm, nn.LayerNorm)):
        return {"eps": part.eps}
    if isinstance(part, (EncoderLayer, DecoderLayer)):
        found = {"norm_first": part.norm_first, "activation": activation_name(part.feed_forward)}
        sublayers = ("dropout1", "dropout2", "dropout3") if isinstance(part, DecoderLayer) else ("dropout1", "dropout2")
        return found | dict.fromkeys(sublayers, part.dropout.p) | {"dropout": part.feed_forward.dropout.p}
    if isinstance(part, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        found = {"norm_first": part.norm_first, "activation": activation_name(part)}
        return found | {name: one.p for name, one in part.named_children() if isinstance(one, nn.Dropout)}
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
        if PEERS.get(type(other), LayerNorm) is not type(part):  # a class of one's own computes something else
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
        "dropout": layer.dropout1.p,  # of the sublayers
        "attention_dropout": layer.self_attn.dropout,
        "activation_dropout": layer.dropout.p,
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
        theirs = kind(
            attention.embed_dim,
            attention.num_heads,
            ours.feed_forward.linear1.out_features,
            ours.dropout.p,
            ACTIVATIONS[activation_name(ours.feed_forward)],
            layer_norm_eps=ours.norm1.eps,
            norm_first=ours.norm_first,
            batch_first=True,
        )
        theirs.dropout.p = ours.feed_forward.dropout.p
        for name in ("self_attn", "multihead_attn")[: 2 - encodes]:
            theirs.get_submodule(name).dropout = attention.dropout
        return theirs
    raise TypeError(f"{type(ours).__name__} has no counterpart in PyTorch")


@torch.no_grad()
def to_torch(model: nn.Module) -> nn.Module:
    """PyTorch's module that computes the same, batches first; of a Transformer, the two stacks.

    Raises:
        TypeError: for another kind of module.
        ValueError: if PyTorch's cannot compute the same.
    """
    like = next(model.parameters())
    theirs = empty_peer(model).to(like.device, like.dtype).train(model.training)
    for parameter, other in matched(model, theirs):
        other.copy_(parameter)
    return theirs
