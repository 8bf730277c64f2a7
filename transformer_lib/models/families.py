"""How models of Hugging Face correspond to ours: sizes, names of parameters, and their layout."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor

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
    """One kind of model of Hugging Face beside ours; the tables are those of ``families.toml``."""

    config: type  # of our model
    theirs: dict[type, str]  # their class for each of ours; the first is the usual one
    fields: dict[str, str]  # ours for each of theirs
    names: dict[str, str]  # theirs for each pattern of ours
    fixed: Settings
    defaults: Settings = field(default_factory=dict)
    split: Sequence[str] = ("q_proj", "k_proj", "v_proj")
    load: Callable[[str, Tensor, Settings], Tensor] = lambda name, tensor, settings: tensor
    save: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor
    # computed fields of ours, and of theirs
    more: Callable[[Settings], Settings] = lambda theirs: {"special": special_ids(theirs)}
    their_more: Callable[[Any], Settings] = lambda ours: {}

    def their_names(self, name: str) -> list[str]:
        """Their names for a parameter of ours: three for one matrix of queries, keys and values."""
        for ours, theirs in self.names.items():
            name = re.sub(ours, theirs, name)
        if "in_proj_" not in name:
            return [name]
        return [name.replace("in_proj_", f"{part}.") for part in self.split]

    def settings(self, theirs: Settings) -> Any:
        """Our configuration for theirs."""
        theirs, ours = self.defaults | theirs, dict[str, Any]()
        require(theirs, self.fixed)
        for other, name in self.fields.items():
            require(theirs, {other: ours.setdefault(name, theirs.get(other))})
        optional = {name for name, hint in get_type_hints(self.config).items() if type(None) in get_args(hint)}
        if missing := [other for other, name in self.fields.items() if ours[name] is None and name not in optional]:
            raise ValueError(f"the configuration has no {', '.join(missing)}")
        if "activation" in ours:
            ours["activation"] = OUR_ACTIVATION.get(ours["activation"], ours["activation"])
        return self.config(**ours | self.more(theirs))

    def their_settings(self, ours: Any) -> Settings:
        """Their configuration for ours."""
        theirs = {other: getattr(ours, name) for other, name in self.fields.items()}
        theirs = {name: THEIR_ACTIVATION.get(value, value) for name, value in theirs.items()}
        return self.fixed | theirs | self.their_more(ours)


def read_settings(folder: Path) -> Settings:
    """The configuration in a folder, with what it states about generation, and Marian's vocabularies."""
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    generation = folder / "generation_config.json"
    if generation.is_file():
        settings["generation"] = json.loads(generation.read_text("utf-8"))
    if settings.get("model_type") == "marian":
        settings["decoder_vocab_size"] = settings.get("decoder_vocab_size") or settings.get("vocab_size")  # if old
        shared, target = folder / "vocab.json", folder / "target_vocab.json"
        paths = shared, target if target.is_file() else shared
        settings["vocabularies"] = [json.loads(path.read_text("utf-8")) for path in paths]
    return settings


def stated(settings: Settings) -> Settings:
    """What a model of theirs generates by: its generation_config, or else, as in old files, the configuration."""
    return settings.get("generation") or settings


def special_ids(settings: Settings) -> SpecialIds:
    """Their ids for ours; nothing is put before a prompt, and nothing is forbidden."""
    found = []
    for name in ("pad_token_id", "eos_token_id", "suppress_tokens"):
        given = stated(settings).get(name)  # a number, a list or a tensor, or none
        ids = [] if given is None else torch.as_tensor(given).flatten().tolist()
        found.append(tuple(i for i in ids if 0 <= i < settings["vocab_size"]))  # not -1
    pad, eos, forbidden = found
    return SpecialIds(pad=pad[0] if pad else None, bos=None, eos=eos, unk=None, forbidden=forbidden)


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


def llama_fields(settings: Settings) -> Settings:
    """What sets Llama and Qwen3 apart."""
    require(settings, {"layer_types": ["full_attention"] * settings["num_hidden_layers"]})
    found = {"rotary_base": rotary_base(settings), "special": special_ids(settings)}
    return found | {"qk_norm": settings["model_type"] == "qwen3"}


def their_llama_fields(c: LlamaConfig) -> Settings:
    """Sizes that ours leaves open, and the base of the rotary positions."""
    require(vars(c), {"window": None, "dropout": 0.0})
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rotary_base},
        "head_dim": c.head_width,
        "num_key_value_heads": c.kv_heads,
        "intermediate_size": c.d_ff or 4 * c.d_model,
    }


def marian_ids(settings: Settings, side: int) -> list[int]:
    """Their id for each of ours: padding, beginning, end and unknown come first."""
    size = settings["decoder_vocab_size" if side else "vocab_size"]
    special = [settings[f"{name}_token_id"] for name in ("pad", "decoder_start", "eos")]
    others = [i for i in range(size) if i not in special]
    unk = settings.get("vocabularies", [{}, {}])[side].get("<unk>", others[0])
    return [*special, unk, *(i for i in others if i != unk)]


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
        if name == "output.bias" and ids[1] == ids[0]:  # theirs begins with padding, and no target goes on with BOS
            tensor[1] = NEVER
    return reordered(name, tensor, 2, -1)


def marian_fields(settings: Settings) -> Settings:
    """The sizes that the two vocabularies and the tied tables make up."""
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
    only = {"norm_first": False, "final_norm": False, "positions": "sinusoidal", "bias": True, "eps": 1e-5}
    require(vars(c), only | dict.fromkeys(("d_key", "d_value"), c.d_model // c.n_heads))
    return {
        "share_encoder_decoder_embeddings": c.tie_embeddings == "all",
        "tie_word_embeddings": c.tie_embeddings != "none",
        "decoder_start_token_id": c.special.bos,
        "forced_eos_token_id": None,
    }


TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
LLAMA = Family(
    LlamaConfig,
    {Llama: "LlamaForCausalLM"},
    **TABLES["llama"],
    more=llama_fields,
    their_more=their_llama_fields,
)
GPT2 = Family(
    GPTConfig,
    {GPT: "GPT2LMHeadModel"},
    **TABLES["gpt2"],
    load=lambda name, x, _: x.T if name.startswith("layers") and x.dim() == 2 else x,
    save=lambda name, x: x.T if name.startswith("layers") and x.dim() == 2 else x,
)
BERT = Family(
    BertConfig,
    {Bert: "BertForMaskedLM", BertClassifier: "BertForSequenceClassification"},
    **TABLES["bert"],
    more=lambda theirs: {"special": special_ids({"pad_token_id": 0} | theirs)},
)
MARIAN = Family(
    TransformerConfig,
    {Transformer: "MarianMTModel"},
    **TABLES["marian"],
    load=load_marian_tensor,
    save=lambda name, tensor: reordered(name, tensor, -1, 2),
    more=marian_fields,
    their_more=their_marian_fields,
)
FAMILIES = {"gpt2": GPT2, "bert": BERT, "llama": LLAMA, "qwen3": LLAMA, "marian": MARIAN}
