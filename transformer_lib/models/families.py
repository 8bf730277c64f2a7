"""How models of Hugging Face correspond to ours: sizes, names of parameters, and their layout."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.models.bert import Bert, BertClassifier, BertConfig
from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.models.llama import Llama, LlamaConfig
from transformer_lib.models.seq2seq import SpecialIds
from transformer_lib.models.transformer import Transformer, TransformerConfig

Settings = dict[str, Any]  # the contents of a config.json
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
    theirs: dict[type, str]  # their class for each of ours; the first is the usual one
    fields: str  # of the configurations
    names: str  # of parameters: patterns, replaced one after the other
    fixed: Settings = field(default_factory=dict)  # what ours always does
    defaults: Settings = field(default_factory=dict)  # what their files may leave out
    split: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")  # their queries, keys and values
    load: Callable[[str, Tensor, Settings], Tensor] = lambda name, tensor, settings: tensor
    save: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor
    more: Callable[[Settings], Settings] = lambda theirs: {}  # fields of ours that are computed
    their_more: Callable[[Any], Settings] = lambda ours: {}  # and of theirs

    def their_names(self, name: str) -> list[str]:
        """Their names for a parameter of ours: three for one matrix of queries, keys and values."""
        for ours, theirs in pairs(self.names):
            name = re.sub(ours, theirs, name)
        if "in_proj_" not in name:
            return [name]
        return [name.replace("in_proj_", f"{part}.") for part in self.split]

    def settings(self, theirs: Settings) -> Any:
        """Our configuration for theirs."""
        theirs = self.defaults | theirs
        require(theirs, self.fixed)
        ours = {name: theirs.get(other) for name, other in pairs(self.fields)} | self.more(theirs)
        if "activation" in ours:
            ours["activation"] = OUR_ACTIVATION.get(ours["activation"], ours["activation"])
        return self.config(**ours)

    def their_settings(self, ours: Any) -> Settings:
        """Their configuration for ours."""
        theirs = {other: getattr(ours, name) for name, other in pairs(self.fields)}
        theirs = {name: THEIR_ACTIVATION.get(value, value) for name, value in theirs.items()}
        return self.fixed | theirs | self.their_more(ours)


def pairs(table: str) -> list[list[str]]:
    """Entries of a table, ours and theirs."""
    return [entry.split("=") for entry in table.split()]


def stated(settings: Settings) -> Settings:
    """What a model of theirs generates by: its generation_config, or else, as in old files, the configuration."""
    return settings.get("generation") or settings


def special_ids(settings: Settings) -> SpecialIds:
    """Their ids for ours; nothing is put before a prompt, and nothing is forbidden."""
    theirs = stated(settings)

    def ids(name: str) -> tuple[int, ...]:  # a number, a list or a tensor; none outside the vocabulary, such as -1
        given = theirs.get(name)
        found = [] if given is None else torch.as_tensor(given).flatten().tolist()
        return tuple(i for i in found if 0 <= i < settings["vocab_size"])

    pad = next(iter(ids("pad_token_id")), None)
    return SpecialIds(pad=pad, bos=None, eos=ids("eos_token_id"), unk=None, forbidden=ids("suppress_tokens"))


def their_ids(c: Any) -> Settings:
    """The same the other way round."""
    special = getattr(c, "special", SpecialIds())
    ends = special.eos[0] if len(special.eos) == 1 else [*special.eos] or None
    return {"pad_token_id": special.pad, "bos_token_id": special.bos, "eos_token_id": ends}


def rotary_base(settings: Settings) -> float:
    """Base of the rotary positions, in files of every version; refuses scaled positions."""
    rope = {"rope_theta": settings.get("rope_theta", 10_000.0)}  # before version 5
    rope |= settings.get("rope_scaling") or {}
    rope |= settings.get("rope_parameters") or {}
    require(rope, {"rope_type": "default", "type": "default", "partial_rotary_factor": 1.0})
    return rope["rope_theta"]


def gpt2_fields(settings: Settings) -> Settings:
    """The special ids; refuses a dropout of the embeddings that is not that of the sublayers."""
    require(settings, {"embd_pdrop": settings["resid_pdrop"]})
    return {"special": special_ids(settings)}


def llama_fields(settings: Settings) -> Settings:
    """What sets Llama and Qwen3 apart."""
    require(settings, {"layer_types": ["full_attention"] * settings["num_hidden_layers"]})
    qk_norm = settings["model_type"] == "qwen3"
    return {"rotary_base": rotary_base(settings), "qk_norm": qk_norm, "special": special_ids(settings)}


def their_llama_fields(c: LlamaConfig) -> Settings:
    """Sizes that ours leaves open, and the base of the rotary positions."""
    require(vars(c), {"window": None})
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rotary_base},
        "head_dim": c.head_width,
        "num_key_value_heads": c.kv_heads,
        "intermediate_size": c.d_ff or 4 * c.d_model,
    }


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
    only = {"norm_first": False, "final_norm": False, "positions": "sinusoidal", "bias": True}
    require(vars(c), only | dict.fromkeys(("d_key", "d_value"), c.d_model // c.n_heads))
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


LLAMA = Family(
    LlamaConfig,
    {Llama: "LlamaForCausalLM"},
    "vocab_size=vocab_size d_model=hidden_size n_heads=num_attention_heads d_head=head_dim "
    "n_kv_heads=num_key_value_heads n_layers=num_hidden_layers d_ff=intermediate_size "
    "attention_dropout=attention_dropout "
    "max_length=max_position_embeddings eps=rms_norm_eps tie_embeddings=tie_word_embeddings",
    "^layers=model.layers ^norm=model.norm ^embedding=model.embed_tokens ^output=lm_head "
    "out_proj=o_proj norm1=input_layernorm norm2=post_attention_layernorm "
    "feed_forward.gate=mlp.gate_proj feed_forward.linear1=mlp.up_proj "
    "feed_forward.linear2=mlp.down_proj",
    dict(hidden_act="silu", attention_bias=False, mlp_bias=False, use_sliding_window=False),
    dict(tie_word_embeddings=False, attention_dropout=0.0),
    more=llama_fields,
    their_more=their_llama_fields,
)
GPT2 = Family(
    GPTConfig,
    {GPT: "GPT2LMHeadModel"},
    "vocab_size=vocab_size d_model=n_embd n_heads=n_head n_layers=n_layer d_ff=n_inner "
    "dropout=resid_pdrop attention_dropout=attn_pdrop max_length=n_positions eps=layer_norm_epsilon "
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
    dict(tie_word_embeddings=True, resid_pdrop=0.1, attn_pdrop=0.1),
    load=lambda name, x, _: x.T if name.startswith("layers") and x.dim() == 2 else x,
    save=lambda name, x: x.T if name.startswith("layers") and x.dim() == 2 else x,
    more=gpt2_fields,
    their_more=lambda c: {"embd_pdrop": c.dropout},
)
BERT = Family(
    BertConfig,
    {Bert: "BertForMaskedLM", BertClassifier: "BertForSequenceClassification"},
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
    more=lambda theirs: {"special": special_ids({"pad_token_id": 0} | theirs)},
)
MARIAN = Family(
    TransformerConfig,
    {Transformer: "MarianMTModel"},
    "d_model=d_model n_heads=encoder_attention_heads n_encoder_layers=encoder_layers "
    "n_decoder_layers=decoder_layers d_ff=encoder_ffn_dim dropout=dropout "
    "attention_dropout=attention_dropout activation_dropout=activation_dropout "
    "activation=activation_function max_length=max_position_embeddings",
    "^source_embedding=model.encoder.embed_tokens ^target_embedding=model.decoder.embed_tokens "
    r"^output.weight=lm_head.weight ^output.bias=final_logits_bias (^encoder.*)norm2=\1norm3 "
    "^encoder=model.encoder ^decoder=model.decoder norm3=final_layer_norm "
    "norm1=self_attn_layer_norm norm2=encoder_attn_layer_norm cross_attn=encoder_attn "
    "feed_forward.linear1=fc1 feed_forward.linear2=fc2",
    dict(scale_embedding=True, encoder_layerdrop=0.0, decoder_layerdrop=0.0),
    dict(dropout=0.1, attention_dropout=0.0, activation_dropout=0.0),
    load=load_marian_tensor,
    save=lambda name, tensor: reordered(name, tensor, -1, 2),
    more=marian_fields,
    their_more=their_marian_fields,
)
FAMILIES = {"gpt2": GPT2, "bert": BERT, "llama": LLAMA, "qwen3": LLAMA, "marian": MARIAN}
