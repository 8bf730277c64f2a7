"""Names for kinds of models: what a saved model is built from, and what ``--model`` takes."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, NamedTuple

from torch import nn

from transformer_lib.models.seq2seq import unwrapped


class Entry(NamedTuple):
    """A kind of model: its configuration, and the class that is built from one."""

    config_class: type[Any]
    model_class: type[nn.Module]


# module, configuration and model; a module is imported when its model is asked for
_BUILT_IN = {
    "gru": ("recurrent", "RecurrentConfig", "RecurrentSeq2Seq"),
    "bahdanau": ("bahdanau", "RecurrentConfig", "BahdanauSeq2Seq"),
    "luong": ("luong", "LuongConfig", "LuongSeq2Seq"),
    "hard": ("hard_attention", "HardConfig", "HardSeq2Seq"),
    "transformer": ("transformer", "TransformerConfig", "Transformer"),
    "gpt": ("gpt", "GPTConfig", "GPTTranslator"),
    "llama": ("llama", "LlamaConfig", "LlamaTranslator"),
    "gpt-lm": ("gpt", "GPTConfig", "GPT"),
    "llama-lm": ("llama", "LlamaConfig", "Llama"),
    "bert": ("bert", "BertConfig", "Bert"),
}
_REGISTERED: dict[str, Entry] = {}


def _place(kind: type[Any]) -> str:
    """Module and name of a class, which stay the same when the cell of a notebook runs again."""
    return f"{kind.__module__}.{kind.__qualname__}"


def register_model(name: str, config_class: type[Any], model_class: type[nn.Module]) -> None:
    """Give a kind of model a name, under which it is trained, saved, loaded and translated with.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class MyConfig:
    ...     vocab_size: int = 10
    >>> class MyModel(nn.Module):
    ...     def __init__(self, config):
    ...         super().__init__()
    ...         self.config = config
    >>> register_model("mine", MyConfig, MyModel)
    >>> build_model("mine", {"vocab_size": 7}).config
    MyConfig(vocab_size=7)

    Args:
        config_class: a dataclass of plain values.
        model_class: built from one such configuration, which it keeps as ``config``.

    Raises:
        TypeError: if the configuration is no dataclass, or the model no ``nn.Module``.
        ValueError: if the name is taken by another class.
    """
    classes = isinstance(config_class, type) and isinstance(model_class, type)
    if not classes or not is_dataclass(config_class) or not issubclass(model_class, nn.Module):
        given = f"config_class={config_class!r}, model_class={model_class!r}"
        raise TypeError(f"{given}: expected a dataclass of plain values, and a class of nn.Module")
    taken = model_entry(name).model_class if name in model_names() else model_class
    if _place(taken) != _place(model_class):
        raise ValueError(f"name={name!r} is taken by {_place(taken)}; choose another")
    _REGISTERED[name] = Entry(config_class, model_class)


def model_names() -> tuple[str, ...]:
    """The names that ``build_model`` knows: the library's own, then those that were registered."""
    return tuple(dict.fromkeys([*_BUILT_IN, *_REGISTERED]))


def model_entry(name: str) -> Entry:
    """The configuration and model classes behind a name.

    Raises:
        ValueError: if nobody has registered the name.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _BUILT_IN:
        shown, known = repr(name)[:80], ", ".join(model_names())
        raise ValueError(f"model={shown} is unknown; choose one of: {known}")
    module, config, model = _BUILT_IN[name]
    home = import_module(f"transformer_lib.models.{module}")
    return Entry(getattr(home, config), getattr(home, model))


def model_name(model: nn.Module) -> str:
    """The name under which a model's class is registered.

    Raises:
        ValueError: for a class that is not registered.
    """
    kind = type(unwrapped(model))
    for exact in (True, False):  # or one of the same place, whose cell has run again
        for name in (*_REGISTERED, *_BUILT_IN):
            found = model_entry(name).model_class
            if found is kind or (not exact and _place(found) == _place(kind)):
                return name
    told = "give it one with register_model(name, config_class, model_class)"
    raise ValueError(f"{kind.__name__} has no name; {told}")


def build_model(name: str, config: Any) -> nn.Module:
    """A model with fresh weights.

    Args:
        config: an object of the model's configuration class, or a mapping of its fields.

    Raises:
        TypeError: if the configuration is neither.
        ValueError: for an unknown name, or a field that is unknown, missing or out of range.
    """
    entry = model_entry(name)
    if isinstance(config, Mapping):
        try:
            config = entry.config_class(**config)
        except (TypeError, ValueError) as error:  # a field is unknown, missing or out of range
            raise ValueError(f"config of model {name!r}: {error}") from error
    if _place(type(config)) != _place(entry.config_class):  # a subclass has fields that the model would ignore
        expected = f"{entry.config_class.__name__} or a mapping of its fields"
        raise TypeError(f"config is {type(config).__name__}, expected {expected}")
    return entry.model_class(config)
