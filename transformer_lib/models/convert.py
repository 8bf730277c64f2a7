"""Models of Hugging Face and of PyTorch become models of this library, and the other way round."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_lib.models.bert import BertClassifier
from transformer_lib.models.families import FAMILIES, Settings, read_settings, require, rotary_base, their_ids
from transformer_lib.models.layers import ACTIVATIONS, LayerNorm
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.seq2seq import plain_names, unwrapped
from transformer_lib.models.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Stack,
    Transformer,
    TransformerConfig,
)

WORD_HEAD = "bert.transform", "bert.output"  # of a classifier, which predicts no words
OTHER_HEADS = re.compile(r"cls\.seq_relationship|pooler|attn\.masked_bias$")  # or a number that hides
FLOATS = torch.float32, torch.float16, torch.bfloat16, torch.float64
TIED = re.compile(r"^(model\.)?shared|embed_tokens|lm_head|cls\.predictions\.decoder")  # to others, perhaps


def rebuilt(name: str, tensor: Tensor, settings: Settings) -> Tensor | None:
    """What a constant in a file of theirs has to be, if it is one that ours computes."""
    *_, rows, columns = 1, 1, *tensor.shape
    if "position_ids" in name:
        return torch.arange(columns)
    if "attn.bias" in name:
        return torch.ones(rows, columns).tril()
    if "inv_freq" in name:
        return rotary_base(settings) ** -(torch.arange(columns) / columns)
    if "embed_positions" in name:
        angles = torch.arange(rows)[:, None] * 10_000 ** -(torch.arange(columns // 2) * 2 / columns)
        return torch.cat([angles.sin(), angles.cos()], 1)
    return None


def check_unused(name: str, weights: Mapping[str, Tensor], used: set[str], settings: Settings) -> None:
    """Refuse a weight that changes what theirs computes, and has no place in ours.

    Raises:
        ValueError: if it belongs to no other head, is no constant that ours computes, and equals no weight in use.
    """
    tensor, sides = weights[name], {f"model.{side}coder.embed_tokens.weight" for side in ("en", "de")}
    if name == "model.shared.weight" and sides <= used:
        return  # each side has a table of its own
    same = (one for one in used if weights[one].shape == tensor.shape)
    if OTHER_HEADS.search(name) or (TIED.search(name) and any(torch.equal(weights[one], tensor) for one in same)):
        return
    if TIED.search(name):
        raise ValueError(f"{name} differs from the weights that it is tied to by the configuration")
    expected = rebuilt(name, tensor, settings)
    if expected is None:
        raise ValueError(f"weights have {name}, for which our model has no place")
    near: dict[str, Any] = {"rtol": 0.01, "atol": 0.0 if "inv_freq" in name else 0.01}  # files may be in half precision
    if not torch.allclose(tensor.cpu().float(), expected.float().expand_as(tensor), **near):
        raise ValueError(f"{name} is not what its kind of model computes there")


def weight_files(folder: Path) -> list[Path]:
    """The files with the weights of a folder: one, or several of a large model."""
    safe, index, pickled = (
        folder / name for name in ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
    )
    if index.is_file() and not safe.is_file():
        return [folder / Path(name).name for name in sorted({*json.loads(index.read_bytes())["weight_map"].values()})]
    found = [file for file in (safe, pickled) if file.is_file()]
    if not found:
        raise ValueError(f"{folder} has neither {safe.name} nor {pickled.name}")
    return found[:1]


def read_hf(model_or_folder: nn.Module | Path | str) -> tuple[Settings, Mapping[str, Tensor]]:
    """Configuration and weights; nothing in a folder is executed."""
    if isinstance(model_or_folder, nn.Module):
        model: Any = unwrapped(model_or_folder)
        if not hasattr(getattr(model, "config", None), "to_dict"):
            raise ValueError(f"{type(model).__name__} is no model of Hugging Face")
        settings = model.config.to_dict()
        generation = getattr(model, "generation_config", None)
        settings["generation"] = generation and generation.to_dict()
        settings["architectures"] = [type(model).__name__]
        return settings, plain_names(model.state_dict())
    folder = Path(model_or_folder)
    if not folder.is_dir():
        advice = (
            f"AutoModel...from_pretrained({str(folder)!r}) of transformers, or a folder that its save_pretrained wrote"
        )
        raise ValueError(f"there is no folder {folder}, and from_hf downloads nothing: give it what {advice}")
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} has no config.json")
    files = weight_files(folder)
    weights: dict[str, Tensor] = {}
    settings = read_settings(folder)
    for file in files:
        weights |= torch.load(file, "cpu", weights_only=True) if file.suffix == ".bin" else load_file(file)
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
        require(settings, {"architectures": ["BertForSequenceClassification"]})  # others have a classifier, too
        model = BertClassifier(model, len(weights["classifier.weight"]))
        if (dropout := settings.get("classifier_dropout")) is not None:
            model.dropout = nn.Dropout(dropout)
    sources: dict[str, list[str]] = {}  # for each parameter, where its parts stand in the file
    for name, _ in model.named_parameters():
        if name.startswith(WORD_HEAD):
            continue
        sources[name] = []
        for other in family.their_names(name):
            names = other, other.split(".", 1)[-1], re.sub(r"..coder.embed_tokens", "shared", other)
            present = next((name for name in names if name in weights), None)
            if present is None:
                raise ValueError(f"weights have no {other}")
            if weights[present].dtype not in FLOATS:  # such as whole numbers, which a scale belongs to
                raise ValueError(f"{present} is {weights[present].dtype}, expected {', '.join(map(str, FLOATS))}")
            sources[name].append(present)
    used = {place for places in sources.values() for place in places}
    dtype = reduce(torch.promote_types, (weights[name].dtype for name in used))  # so that none is rounded
    model.to(next(iter(weights.values())).device, dtype)
    for name, places in sources.items():
        tensor = family.load(name, torch.cat([weights[place] for place in places]), settings)
        parameter = model.get_parameter(name)
        if tensor.shape != parameter.shape:  # which a copy might stretch
            shapes = tuple(tensor.shape), tuple(parameter.shape)
            raise ValueError(f"{places[0]} gives {name} the shape {shapes[0]}, but the configuration {shapes[1]}")
        parameter.copy_(tensor)
    for name in weights:
        if name not in used:
            check_unused(name, weights, used, settings)
    return model.eval()


@torch.no_grad()
def to_hf(model: nn.Module) -> nn.Module:
    """The model of Hugging Face that computes the same, in evaluation mode, with our token ids.

    Raises:
        TypeError: for a model that has no counterpart.
        ValueError: for a variant that theirs cannot compute.
    """
    import transformers

    model = unwrapped(model)
    family = next((f for f in FAMILIES.values() if type(model) in f.theirs), None)
    if family is None:
        raise TypeError(f"{type(model).__name__} has no counterpart among Hugging Face's models")
    c, name = getattr(model, "bert", model).config, family.theirs[type(model)]
    settings = their_ids(c) | family.their_settings(c)
    if getattr(c, "qk_norm", False):
        name = "Qwen3ForCausalLM"
    if isinstance(model, BertClassifier):
        settings["num_labels"] = model.classifier.out_features
        settings["classifier_dropout"] = model.dropout.p
    kind = getattr(transformers, name)
    theirs, like = kind(kind.config_class(**settings)), next(model.parameters())
    tensors = theirs.to(like.device).eval().state_dict(keep_vars=True)
    for tensor in tensors.values():  # not the angles of RoPE, which half precision would round
        tensor.data = tensor.to(like.dtype)
    for name, parameter in plain_names(dict(model.named_parameters())).items():
        names = family.their_names(name)
        if name.startswith(WORD_HEAD):
            continue
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


def torch_state(ours: nn.Module) -> dict[str, Tensor]:
    """Our parameters under PyTorch's names; of a Transformer, those of its two stacks."""
    stacks = ("encoder.", "decoder.") if isinstance(ours, Transformer) else ""
    found = {name: tensor for name, tensor in ours.named_parameters() if name.startswith(stacks)}
    plain = {re.sub(r"(^|\.)feed_forward\.", r"\1", name): tensor for name, tensor in found.items()}
    return {name.replace("cross_attn", "multihead_attn"): tensor for name, tensor in plain.items()}


def activation_name(layer: Any) -> str:
    """Our name for a layer's activation, compared by value: nn.ReLU() and F.relu are one."""
    probe = torch.linspace(-2.5, 2.5, 51, device=next(layer.parameters()).device) ** 5  # from -98 to 98, most near 0
    theirs = layer.activation(probe.clone())  # which may work in place
    same = (name for name, ours in ACTIVATIONS.items() if torch.allclose(theirs, ours(probe)))
    return next(same, "unknown")


def traits(model: nn.Module) -> Settings:
    """What the parts of a module of PyTorch compute, as far as their parameters don't show it."""
    found: Settings = {}
    for place, part in model.named_modules():
        found[f"class of {place or 'the module'}"] = type(part).__name__
        for name in ("norm_first", "num_heads", "add_zero_attn", "dropout", "p", "eps"):
            if isinstance(value := getattr(part, name, None), (int, float)):
                found[f"{place}.{name}"] = value
        if hasattr(part, "activation"):
            found[f"{place}.activation"] = activation_name(part)
    return found


def torch_config(theirs: nn.Module, sizes: Settings) -> TransformerConfig:
    """Our configuration for PyTorch's layers and stacks."""
    parts = list(theirs.modules())
    kinds = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
    layer = next(part for part in parts if isinstance(part, kinds))
    n_encoders, n_decoders = (sum(isinstance(part, kind) for part in parts) for kind in kinds)
    fields = {
        "d_model": layer.self_attn.embed_dim,
        "n_heads": layer.self_attn.num_heads,
        "n_encoder_layers": max(n_encoders, 1),
        "n_decoder_layers": max(n_decoders, 1),
        "d_ff": layer.linear1.out_features,
        "dropout": layer.dropout1.p,  # of the sublayers
        "attention_dropout": layer.self_attn.dropout,
        "activation_dropout": layer.dropout.p,
        "activation": activation_name(layer),
        "norm_first": layer.norm_first,
        "final_norm": any(getattr(part, "norm", None) is not None for part in parts),
        "eps": layer.norm1.eps,
    }
    return TransformerConfig(**fields | sizes)


@torch.no_grad()
def from_torch(theirs: nn.Module, **sizes: Any) -> nn.Module:
    """A module of this library from one of PyTorch.

    An nn.Transformer has no embeddings: give source_vocab_size and target_vocab_size for new ones.

    Raises:
        TypeError: for another kind of module.
        RuntimeError, ValueError: if ours has other parameters, or cannot compute the same.
    """
    theirs = unwrapped(theirs)
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
    again, weights = to_torch(ours), theirs.state_dict()
    require(traits(theirs), traits(again))
    again.load_state_dict(weights)  # refuses other names and shapes
    for name, parameter in torch_state(ours).items():
        parameter.copy_(weights[name])
    return ours


def empty_peer(ours: Any) -> nn.Module:
    """PyTorch's module of the same kind and sizes."""
    kind: Any = next((theirs for theirs, own in PEERS.items() if own is type(ours)), None)
    if kind is None:
        raise TypeError(f"{type(ours).__name__} has no counterpart in PyTorch")
    if isinstance(ours, MultiHeadAttention):
        D, bias = ours.out_proj.out_features, ours.in_proj_bias is not None
        return kind(D, ours.n_heads, ours.dropout, bias=bias, batch_first=True)
    if isinstance(ours, Transformer):
        c, encoder, decoder = ours.config, empty_peer(ours.encoder), empty_peer(ours.decoder)
        stacks = {"custom_encoder": encoder, "custom_decoder": decoder}
        return kind(c.d_model, c.n_heads, 1, 1, 1, **stacks, batch_first=True)
    if isinstance(ours, Stack):
        norm, layers = ours.norm, [empty_peer(layer) for layer in ours.layers]
        last = nn.LayerNorm(norm.weight.shape, norm.eps) if isinstance(norm, LayerNorm) else None
        nested = {"enable_nested_tensor": False} if isinstance(ours, Encoder) else {}
        theirs = kind(layers[0], len(layers), last, **nested)
        theirs.layers = nn.ModuleList(layers)
        return theirs
    attention, inside = empty_peer(ours.self_attn), ours.feed_forward
    sizes = attention.embed_dim, attention.num_heads, inside.linear1.out_features
    options = {"layer_norm_eps": ours.norm1.eps, "norm_first": ours.norm_first, "batch_first": True}
    theirs = kind(*sizes, ours.dropout.p, inside.activation, **options)
    theirs.dropout.p, theirs.self_attn = inside.dropout.p, attention
    if isinstance(ours, DecoderLayer):
        theirs.multihead_attn = empty_peer(ours.cross_attn)
    return theirs


@torch.no_grad()
def to_torch(model: nn.Module) -> nn.Module:
    """PyTorch's module that computes the same, batches first; of a Transformer, the two stacks.

    Raises:
        TypeError: for another kind of module.
        RuntimeError: if PyTorch's has other parameters.
    """
    model = unwrapped(model)
    like = next(model.parameters())
    theirs = empty_peer(model).to(like.device, like.dtype).train(model.training)
    theirs.load_state_dict(torch_state(model))
    return theirs
