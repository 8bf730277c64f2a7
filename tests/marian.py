"""A Marian model of Hugging Face, and its weights in ours: the reference for logits, for decoding and for speed."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.models.transformer import Transformer, TransformerConfig


def marian_pair(
    vocab_size: int, d_model: int, n_heads: int, layers: tuple[int, int], d_ff: int, max_length: int, init_std: float
) -> tuple[Transformer, nn.Module]:
    """Our model and theirs, in evaluation mode, with the same random weights."""
    import transformers

    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        encoder_attention_heads=n_heads,
        decoder_attention_heads=n_heads,
        encoder_ffn_dim=d_ff,
        decoder_ffn_dim=d_ff,
        activation_function="relu",
        max_position_embeddings=max_length,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
        init_std=init_std,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.MarianMTModel(config).eval()
    sizes = (vocab_size, vocab_size, d_model, n_heads, *layers, d_ff)
    model = Transformer(TransformerConfig(*sizes, dropout=0.0, max_length=max_length)).eval()
    load_marian(model, theirs)
    return model, theirs


def interleave(width: int) -> torch.Tensor:
    """Marian keeps all sines before all cosines; this takes its columns into our order."""
    return torch.arange(width).view(2, -1).T.flatten()


def load_marian(model: Transformer, theirs: nn.Module) -> None:
    """Give our model the weights of a Marian model; every axis of width D is permuted alike."""
    order, weights = interleave(model.config.d_model), theirs.state_dict()

    def linear(ours: nn.Linear, name: str, rows: bool, columns: bool) -> None:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        weight = weight[order] if rows else weight
        ours.weight.data.copy_(weight[:, order] if columns else weight)
        ours.bias.data.copy_(bias[order] if rows else bias)

    def attention(ours: nn.Module, name: str) -> None:
        parts = [f"{name}.{part}_proj" for part in "qkv"]
        ours.in_proj_weight.data.copy_(torch.cat([weights[f"{part}.weight"][:, order] for part in parts]))
        ours.in_proj_bias.data.copy_(torch.cat([weights[f"{part}.bias"] for part in parts]))
        linear(ours.out_proj, f"{name}.out_proj", rows=True, columns=False)

    def norm(ours: nn.Module, name: str) -> None:
        ours.weight.data.copy_(weights[f"{name}.weight"][order])
        ours.bias.data.copy_(weights[f"{name}.bias"][order])

    model.target_embedding.weight.data.copy_(weights["model.shared.weight"][:, order])
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers):
            name = f"model.{side}.layers.{number}"
            attention(layer.self_attn, f"{name}.self_attn")
            norm(layer.norm1, f"{name}.self_attn_layer_norm")
            if side == "decoder":
                attention(layer.cross_attn, f"{name}.encoder_attn")
                norm(layer.norm2, f"{name}.encoder_attn_layer_norm")
            linear(layer.feed_forward.linear1, f"{name}.fc1", rows=False, columns=True)
            linear(layer.feed_forward.linear2, f"{name}.fc2", rows=True, columns=False)
            norm(layer.norm3 if side == "decoder" else layer.norm2, f"{name}.final_layer_norm")
