"""The student's edition: the reference passes every test, every stub fails one, and slips are caught and named."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import student
import torch

from transformer_lib.student import __main__ as command
from transformer_lib.student import grading

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
FILES = student.pages()
PAGES = {page.path.stem: page for page in FILES.values()}
CELLS = {name: [cell.source if "export" in cell.marks else "" for cell in page.cells] for name, page in PAGES.items()}
KEPT = {  # what learners get, beside constructors, properties, and functions without a docstring
    "perplexity": "evaluate computes it",
    "sequence_log_probability": "log_probability, for other ids and other precisions",
    "_check_corpus": "error messages",
    "exact_match": "a comparison",
    "bleu": "corpus_bleu, by sacreBLEU",
}
SLIPS = [  # a function, what is written right, what wrong, and the slip that the learner reads
    ("what_training_costs/training_operations", "6 *", "2 *", None),
    ("what_training_costs/training_operations", "6 *", "4 *", None),
    ("what_training_costs/training_seconds", "(peak * utilisation)", "peak", None),
    ("what_training_costs/training_seconds", "(peak * utilisation)", "peak * utilisation", None),
    ("what_training_costs/training_bytes", "16 *", "8 *", None),
    ("what_training_costs/training_bytes", "16 *", "12 *", None),
    ("what_training_costs/cache_bytes", "2 *", "4 *", None),
    ("what_training_costs/cache_bytes", " * rows", "", None),
    ("what_training_costs/cache_bytes", "layers * ", "", None),
    ("what_training_costs/reading_seconds", "2 *", "6 *", None),
    ("what_training_costs/reading_seconds", "(peak * utilisation)", "peak", None),
    ("what_training_costs/step_seconds", " + cache", "", None),
    ("what_training_costs/step_seconds", "min(parameters, used * rows)", "parameters", None),
    ("what_training_costs/step_seconds", "min(parameters, used * rows)", "used * rows", None),
    ("what_training_costs/step_seconds", "max(", "min(", None),
    ("what_training_costs/step_seconds", "2 * used * rows", "2 * used", None),
    (
        "scaled_dot_product_attention/attention",
        "math.sqrt(q.shape[-1])",
        "(q.shape[-1] ** 1 / 2)",
        "Dividing the scores by half the width",
    ),
    ("scaled_dot_product_attention/attention", "~mask", "mask", "True means the opposite"),
    ("scaled_dot_product_attention/attention", "dim=-1", "dim=-2", "Softmax along the wrong axis"),
    (
        "scaled_dot_product_attention/attention",
        "scores.masked_fill(~mask, -torch.inf)",
        "scores * mask",
        "Multiplying by the mask",
    ),
    ("self_attention/SelfAttention.forward", "~mask", "mask", "True means the opposite"),
    ("self_attention/SelfAttention.forward", "dim=-1", "dim=-2", "Softmax along the wrong axis"),
    (
        "self_attention/SelfAttention.forward",
        "scores.masked_fill(~mask, -torch.inf)",
        "(scores * mask)",
        "Multiplying by the mask",
    ),
    ("self_attention/Reader.forward", "mask[rows, query, key]", "mask[rows, key, query]", None),
    ("gru_step", "(1 - z) * n + z * h", "z * n + (1 - z) * h", None),
    ("gru_step", "r * n_h", "n_h", None),
    ("gru_step", "n_x + r * n_h", "n_x + z * n_h", None),
    (
        "encoder_decoder/Encoder.forward",
        "states[torch.arange(len(source)), last]",
        "states[:, -1]",
        "States that run on over the padding",
    ),
    ("encoder_decoder/Encoder.forward", ".sum(1) - 1", ".sum(1) - 2", None),
    ("EncoderDecoder.decode", "[words, states, c]", "[words, c, states]", None),
    ("EncoderDecoder.decode", "torch.cat([words, c], -1)", "torch.cat([c, words], -1)", None),
    ("EncoderDecoder.decode", "torch.tanh(self.read_out(parts))", "self.read_out(parts)", None),
    ("EncoderDecoder.forward", "c[None]", "0 * c[None]", None),
    ("write", "logits[:, :, EOS:].argmax(-1) + EOS", "logits.argmax(-1)", None),
    ("write", ".any(1).all()", ".any()", "Greedy decoding for one sentence only"),
    ("write", "(torch.cat(words, 1) == EOS).any(1).all()", "False", None),
    ("encoder_decoder/translate", "max_length)", "50)", None),
    ("find_vector", "c = torch.tanh(u)", "c = u", None),
    ("find_vector", "return torch.tanh(u)", "return u", None),
    ("find_vector", "lr=rate", "lr=rate / 10", None),
    ("find_vector", "target[:, 1:], ignore", "target[:, :-1], ignore", None),
    ("EncoderLayer.forward", "self.norm2)", "self.norm1)", None),
    ("the_transformer/EncoderLayer.forward", "self.norm2)", "self.norm1)", None),
    ("DecoderLayer.forward", "self.norm2)", "self.norm3)", None),
    ("DecoderLayer.forward", "y, memory, padding", "y, y, padding | True", None),
    (
        "Transformer.forward",
        "self.embed(target, self.target_embedding)",
        "self.embed(target, self.source_embedding)",
        None,
    ),
    (
        "the_transformer/Attention.forward",
        "self.split(F.linear(memory, W_V, b_V))",
        "self.split(F.linear(x, W_V, b_V))",
        None,
    ),
    ("the_transformer/Attention.forward", "masked_fill(~mask", "masked_fill(mask", "True means the opposite"),
    *(
        (
            f"{chapter}/Attention.split",
            ".unflatten(2, (self.n_heads, -1)).transpose(1, 2)",
            ".reshape(x.shape[0], self.n_heads, x.shape[1], -1)",
            "Heads cut without the transpose",
        )
        for chapter in ("multi_head_attention", "the_transformer")
    ),
    ("the_transformer/translate", "scores[:, [PAD, BOS]] = -torch.inf", "pass", None),
    ("the_transformer/translate", "<= max_length", "< max_length", None),
    ("the_transformer/translate", "model.eval()(", "model(", None),
    ("Transformer.forward", ".tril()", ".tril() | (not self.training)", None),
    ("flash_forward", "shrink * total + weights", "total + weights", None),
    ("flash_forward", "shrink * o + weights", "o + weights", None),
    ("flash_forward", "o / total, m", "o, m", None),
    ("flash_forward", "m + total.log()", "total.log()", None),
    ("flash_forward", "m + total.log()", "m.exp() * total", None),
    ("flash_forward", "q.shape[-1] ** -0.5", "1", None),
    ("flash_forward", "torch.maximum(m, scores.amax(-1, keepdim=True))", "torch.zeros_like(m)", None),
    ("flash_forward", "torch.maximum(m, scores.amax(-1, keepdim=True))", "scores.amax(-1, keepdim=True)", None),
    ("flash_forward", "torch.maximum(m, scores.amax(-1, keepdim=True))", "torch.maximum(m, scores.amax())", None),
    ("flash_forward", "blocks(len(k), size)", "blocks(len(q), size)", None),
    ("flash_forward", "blocks(len(k), size)", "blocks(len(k), len(k))", None),
    ("flash_forward", "m = larger", "pass", None),
    ("flash_backward", "(d_weights - delta[rows])", "d_weights", None),
    ("flash_backward", "d_scores = scale * weights", "d_scores = weights", None),
    ("flash_backward", "(scores - lse[rows]).exp()", "scores.softmax(-1)", None),
    ("flash_backward", "(g * context).sum(-1, keepdim=True)", "(g * context).sum()", None),
    ("flash_backward", "dq[rows] +=", "dq[rows] =", None),
    ("flash_backward", "dv[columns] += weights.T @", "dv[columns] = weights.T @", None),
    ("flash_backward", "d_scores.T @ q[rows]", "d_scores.T @ (scale * q[rows])", None),
    ("group_advantages", "1e-4", "0", None),
    ("gpt/Attention.forward", ".triu(1)", ".triu()", None),
    ("gpt/Attention.forward", ".triu(1)", ".tril(-1)", "True means the opposite"),
    (
        "gpt/Attention.forward",
        "scores.masked_fill(future, -torch.inf)",
        "scores",
        "A decoder that sees the answer during evaluation",
    ),
    (
        "gpt/Attention.forward",
        "y.unflatten(2, (self.n_heads, -1)).transpose(1, 2)",
        "y.reshape(x.shape[0], self.n_heads, x.shape[1], -1)",
        "Heads cut without the transpose",
    ),
    ("gpt/Attention.forward", " / math.sqrt(q.shape[-1])", "", None),
    ("gpt/Layer.forward", "self.self_attn(self.norm1(x))", "self.self_attn(x)", None),
    ("gpt/Layer.forward", "self.norm2(x)", "self.norm1(x)", None),
    (
        "gpt/Layer.forward",
        "x = x + self.self_attn(self.norm1(x))",
        "x = self.norm1(x + self.self_attn(x)); return self.norm2(x + self.feed_forward(x))",
        "Post-norm in the text, pre-norm in the code",
    ),
    ("GPT.forward", " + self.positions(places)", "", None),
    ("GPT.forward", "self.norm(x)", "x", None),
    ("gpt/write", "tokens[-window:]", "tokens", None),
    ("gpt/write", "tokens[-window:]", "tokens[:window]", None),
    ("gpt/write", "[*tokens]", "tokens", None),
    ("gpt/write", "logits / temperature", "logits * temperature", None),
    ("gpt/train", "windows[:, 1:]", "windows[:, :-1]", None),
    ("gpt/train", "adam.zero_grad()", "pass", None),
    ("gpt/train", "(update + 1) / 50", "update / 50", "The first update is number zero"),
    ("gpt/train", "1 - update / updates", "1.0", None),
    ("gpt/train", "1.0)", "100.0)", None),
    ("choose", "masked_fill(~mask, -torch.inf)", "masked_fill(~mask, 0)", None),
    ("Indexer.forward", "self.k_norm(self.wk(x))", "self.wk(x)", None),
    ("IndexedAttention.pick", "x.detach()", "x", None),
    ("Experts.forward", "scores * visits", "(scores + self.bias) * visits", None),
    ("training/loss", "ignore_index=PAD,", "", None),
    ("training/train", "model.train()", "pass", None),
    ("training/train", "range(1, updates + 1)", "range(updates)", "The first update is number zero"),
    ("training/train", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "pass", None),
    ("AdamW.step", "m / (1 - beta1**self.u)", "m", None),
    ("AdamW.step", "p.grad = None", "pass", None),
    ("orthogonal", "range(steps)", "range(5)", None),
    ("Muon.step", "max(p.shape)", "min(p.shape)", None),
    ("Muon.step", "orthogonal(ahead)", "orthogonal(M)", None),
    ("hidden_matrices", ' and "embedding" not in name', "", None),
    ("smoothed_loss", "eps * log_p.mean(-1)", "eps / 6 * (log_p.sum(-1) - correct)", None),
    ("accumulate", "n_tokens / sum(counts)", "1 / len(group)", "A mean of means"),
    ("Score.forward", ".squeeze(-1)", "", None),
    ("learning_to_align/Attention.forward", "masked_softmax(scores, mask)", "scores.softmax(-1)", None),
    ("learning_to_align/Attention.forward", "return context, weights", "return weights, context", None),
    (
        "learning_to_align/Encoder.forward",
        "self.gru(packed)",
        "self.gru(words); return vectors, last[1]",
        "States that run on over the padding",
    ),
    ("learning_to_align/Encoder.forward", "last[1]", "last[0]", None),
    ("Bahdanau.start", "!= PAD", "== PAD", "True means the opposite"),
    ("Bahdanau.start", "torch.tanh(self.bridge(last))", "self.bridge(last)", None),
    ("Bahdanau.step", "[word, state[0], context]", "[word, context, state[0]]", None),
    ("Bahdanau.step", "torch.cat([word, context], -1)", "torch.cat([context, word], -1)", None),
    ("Bahdanau.forward", "torch.stack(steps, 1)", "torch.stack(steps)", None),
    ("learning_to_align/translate", "logits[:, EOS:].argmax(-1) + EOS", "logits.argmax(-1)", None),
    ("learning_to_align/translate", "words[1:]", "words", None),
    ("learning_to_align/translate", "(torch.stack(words) == EOS).any(0).all()", "False", None),
    ("pad", "[*row, *[PAD] * (longest - len(row))]", "[*[PAD] * (longest - len(row)), *row]", None),
    ("batches", "pairs.sort(key=lambda pair: len(pair[0]))", "pass", None),
    ("batches", "rng.shuffle(cuts)", "pass", None),
    ("log_probability", "log_softmax(-1)", "log_softmax(1)", "Softmax along the wrong axis"),
    ("log_probability", "chosen.masked_fill(target == PAD, 0.0)", "(chosen * (target != PAD))", None),
    ("log_probability", "masked_fill(target == PAD, 0.0)", "clone()", None),
    ("translation_as_prediction/loss", "target[:, 1:]", "target[:, :-1]", "The answer among the inputs"),
    ("translation_as_prediction/loss", "(target != PAD).sum()", "target.numel()", None),
    ("evaluate", "-total / n_tokens", "total / n_tokens", None),
    (
        "translation_as_prediction/translate",
        "logits[0, -1, EOS:].argmax().item() + EOS",
        "logits[0, -1].argmax().item()",
        None,
    ),
    ("Dot.forward", ".squeeze(-1)", "", None),
    ("Dot.forward", "vectors @ state[:, :, None]", "(vectors + state[:, None]).sum(-1, True)", None),
    ("General.forward", "self.key(vectors) @ state[:, :, None]", "vectors @ self.key(state)[:, :, None]", None),
    ("General.forward", "self.key(vectors)", "vectors", None),
    (
        "luong_attention/Attention.forward",
        "masked_softmax(self.score(state, vectors), mask)",
        "self.score(state, vectors).softmax(-1)",
        None,
    ),
    ("luong_attention/Attention.forward", "return context, weights", "return weights, context", None),
    (
        "luong_attention/Encoder.forward",
        "self.gru(packed)",
        "self.gru(words); return vectors, torch.cat([last[0], last[1]], -1)[None]",
        "States that run on over the padding",
    ),
    ("luong_attention/Encoder.forward", "[last[0], last[1]]", "[last[1], last[0]]", None),
    ("luong_attention/Encoder.forward", ', "total_length": source.shape[1]', "", None),
    ("Luong.start", "!= PAD", "== PAD", "True means the opposite"),
    ("Luong.start", "torch.zeros(", "torch.ones(", None),
    ("Luong.step", "self.attention(state[0],", "self.attention(state_before[0],", None),
    ("Luong.step", "[self.embedding(word), feed]", "[feed, self.embedding(word)]", None),
    ("Luong.step", "[context, state[0]]", "[state[0], context]", None),
    ("Luong.step", "feed = torch.tanh(self.attentional(joined))", "feed = self.attentional(joined)", None),
    ("Luong.step", "(state, feed), weights", "(state, torch.zeros_like(feed)), weights", None),
    ("Luong.forward", "torch.stack(steps, 1)", "torch.stack(steps)", None),
    ("Luong.forward", "logits, state, _ = ", "logits, _, _ = ", None),
    ("best_links", " and w > 0", "", None),
    ("EncoderLayer.forward", "y, y, mask", "y, y, mask | True", None),
    ("Stack.forward", "self.norm(x)", "x", None),
    ("beam_search", "live, 2 * w)", "live, w)", None),
    ("beam_search", "candidates[:w] if last", "candidates if last", None),
    ("extend", "torch.tensor([[total] for _, total in live]) + log_p", "log_p", None),
    ("next_words", "[BOS, *words]", "[*words] or [BOS]", None),
    ("masked_softmax", "lowest).softmax(-1)", "lowest).softmax(0)", "Softmax along the wrong axis"),
    ("masked_softmax", "(~mask, lowest)", "(mask, lowest)", "True means the opposite"),
    (
        "masked_softmax",
        "scores.masked_fill(~mask, lowest).softmax(-1) * mask",
        "(scores * mask).softmax(-1)",
        "Multiplying",
    ),
    ("masked_softmax", "torch.finfo(scores.dtype).min", "-torch.inf", "Masking with minus infinity"),
    ("masked_softmax", ".softmax(-1) * mask", ".softmax(-1)", "Masking with a large negative number"),
    (
        "masked_softmax",
        "scores.masked_fill(~mask, lowest).softmax(-1) * mask",
        "(scores + mask.float().log()).softmax(-1).nan_to_num()",
        "Masking with minus infinity",
    ),
    ("padding_mask", "(tokens != pad)[:, None, None]", "tokens != pad", "A mask without its middle axes"),
    ("padding_mask", "!=", "==", "True means the opposite"),
    ("causal_mask", ".tril(past)", ".tril()", None),
    ("multi_head_attention/Attention.forward", "F.linear(x, W_Q", "F.linear(memory, W_Q", None),
    (
        "multi_head_attention/Attention.forward",
        "q = self.split(F.linear(x, W_Q, b_Q))",
        "x, memory = memory, x; q = self.split(F.linear(x, W_Q, b_Q))",
        "Queries and keys exchanged in cross-attention",
    ),
    ("multi_head_attention/Attention.forward", "masked_fill(~mask", "masked_fill(mask", "True means the opposite"),
    ("sinusoids", "angle.cos()", "(angle * 10_000 ** (-1 / d_model)).cos()", "Sine and cosine of different frequency"),
    (
        "LearnedPositions.forward",
        "[start : start + x.shape[1]]",
        "[: x.shape[1]]",
        "Every cached token at position zero",
    ),
    (
        "LayerNorm.forward",
        "centred / (variance + self.eps).sqrt()",
        "centred / (x.std(-1, keepdim=True) + self.eps)",
        "A layer norm that is almost",
    ),
    ("FeedForward.forward", "F.relu(", "F.gelu(", "The paper uses GELU"),
    ("EncoderLayer.add", "if self.norm_first", "if False", None),
    ("the_transformer/EncoderLayer.add", "if self.norm_first", "if False", None),
    ("positional_encoding/rotate", "even * c - odd * s", "even * c + odd * s", None),
    (
        "positional_encoding/rotate",
        "sinusoids(start + x.shape[-2], x.shape[-1])[start:]",
        "sinusoids(x.shape[-2], x.shape[-1])",
        "Every cached token at position zero",
    ),
    ("LayerNorm.forward", "variance + self.eps", "variance", None),
    (
        "EncoderLayer.add",
        "norm(x + self.dropout(sublayer(x)))",
        "self.dropout(norm(x + sublayer(x)))",
        "Dropout in another place",
    ),
    ("DecoderLayer.forward", "y, y, causal", "y, y, causal | True", None),
    ("Transformer.embed", " * math.sqrt(table.embedding_dim)", "", None),
    ("hard_attention/Attention.forward", "elif self.training:", "elif True:", "Noise in evaluation mode"),
    ("straight_through", "picked + (relaxed - relaxed.detach())", "picked.float()", "A choice that cuts the gradient"),
    ("HardTranslator.loss", "-terms.detach()", "-terms", "A reward that isn't detached"),
    (
        "LatentAttention.forward",
        "(self.point(words, mask) @ latent)",
        "(self.point(words, mask).mT @ latent)",
        "Active weights",
    ),
    ("training/warmup", "update / length", "(update - 1) / length", "The first update is number zero"),
    (
        "beam_search",
        "live[0][1] / lp(max_length, penalty)",
        "live[0][1] / lp(length, penalty)",
        "A search that stops too early",
    ),
    ("probabilities", "logits / temperature", "logits * temperature", None),
    ("probabilities", "p[:, top_k or p.shape[1] :] = 0", "p[p < p[:, [(top_k or p.shape[1]) - 1]]] = 0", None),
    ("sample", "word[ended] = PAD", "pass", None),
    ("mask_tokens", "dice >= 0.9", "dice >= 0.8", None),
    (
        "llama/rotate",
        "a, b = x.chunk(2, dim=-1)",
        "a, b = x[..., 0::2], x[..., 1::2]",
        None,
    ),
    ("llama/RMSNorm.forward", "x.square().mean(dim=-1, keepdim=True)", "x.var(dim=-1, keepdim=True)", None),
    (
        "llama/Attention.forward",
        "part.repeat_interleave(shared, dim=1)",
        "part.repeat(1, shared, 1, 1)",
        "Shared keys repeated in the wrong order",
    ),
    ("llama/Block.forward", "self.feed_forward(self.norm2(x))", "self.feed_forward(self.norm1(x))", None),
    ("linear_attention/parallel", ".tril()", "", "A cumulative sum that includes the future"),
    (
        "linear_attention/LinearAttention.forward",
        "q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)",
        "pass",
        "Keys whose length isn't 1",
    ),
]


BY_THRESHOLD = """\
def choose(scores, k, mask=None):
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    chosen = scores >= scores.topk(min(k, scores.shape[-1])).values[..., -1:]
    return chosen if mask is None else chosen & mask"""
BY_TOPK = """\
def choose(scores, k, mask=None):
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    best = scores.topk(min(k, scores.shape[-1])).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
    return chosen if mask is None else chosen & mask"""
BY_HAND = "scores + self.bias >= (scores + self.bias).topk(self.k).values[:, -1:]"
EVERYTHING = """\
def forward(self, x):
    tokens = x.flatten(0, 1)
    scores, visits = self.route(tokens)
    weights = scores * visits
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return sum(w[:, None] * e(tokens) for w, e in zip(weights.mT, self.experts, strict=True)).view_as(x)"""
MUTANTS = {  # a chapter: a function, what is written right, what wrong; "" is the whole function
    "positional_encoding": [
        ("sinusoids", "10_000", "1_000"),
        ("sinusoids", "-2 * i", "-i"),
        ("sinusoids", "-2 * i", "2 * i"),
        ("sinusoids", "[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]"),
        (
            "sinusoids",
            "torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)",
            "torch.cat([angle.sin(), angle.cos()], -1)",
        ),
        ("sinusoids", "torch.arange(length)", "torch.arange(1, length + 1)"),
        ("LearnedPositions.forward", "start : start + x.shape[1]", ": x.shape[1]"),
        ("LearnedPositions.forward", "x.shape[1]", "x.shape[0]"),
        ("LearnedPositions.forward", "x + ", ""),
        ("rotate", "[start:]", "[: x.shape[-2]]"),
        ("rotate", "even * s + odd * c", "odd * s + even * c"),
        ("rotate", "s, c = table[:, 0::2], table[:, 1::2]", "c, s = table[:, 0::2], table[:, 1::2]"),
    ],
    "residuals_norms_feed_forward": [
        ("FeedForward.forward", "F.relu(self.linear1(x))", "self.linear1(x)"),
        ("LayerNorm.forward", "centred.square().mean(-1, keepdim=True)", "x.var(-1, keepdim=True)"),
        ("LayerNorm.forward", "(variance + self.eps).sqrt()", "variance.sqrt() + self.eps"),
        ("LayerNorm.forward", " + self.bias", ""),
        ("LayerNorm.forward", "self.weight * normal", "normal"),
        ("LayerNorm.forward", "x.mean(-1, keepdim=True)", "x.mean(-2, keepdim=True)"),
        ("EncoderLayer.add", "if self.norm_first", "if not self.norm_first"),
        ("EncoderLayer.add", "x + self.dropout(sublayer(norm(x)))", "norm(x) + self.dropout(sublayer(norm(x)))"),
        ("EncoderLayer.add", "norm(x + self.dropout(sublayer(x)))", "x + norm(self.dropout(sublayer(x)))"),
        ("EncoderLayer.forward", "return self.add(x, self.feed_forward, self.norm2)", "return x"),
    ],
    "what_attention_weights_mean": [
        ("best_links", "weights[:-1]", "weights"),
        ("best_links", "weights[:-1].max(-1)", "weights[:-1].max(0)"),
        ("best_links", "s != end", "True"),
        ("best_links", "weights.shape[1] - 1", "weights.shape[0] - 1"),
        ("best_links", " and w > 0", ""),
        ("best_links", "w > 0", "w > 0.5"),
        ("best_links", "{(s, t)", "{(t, s)"),
        ("best_links", "weights.isnan().any()", "False"),
        ("best_links", "ValueError", "TypeError"),
        ("alignment_error_rate", "len(a & s) + len(a & (s | p))", "2 * len(a & s)"),
        ("alignment_error_rate", "a & (s | p)", "a & p"),
        ("alignment_error_rate", "possible or sure", "possible"),
        ("alignment_error_rate", "len(a) + len(s)", "len(a) + len(s | p)"),
        ("alignment_error_rate", "total +=", "total ="),
        ("alignment_error_rate", "1 - correct / total", "correct / total"),
        ("alignment_error_rate", "total == 0", "False"),
    ],
    "llama": [
        ("RMSNorm.forward", "self.weight * x", "x"),
        ("RMSNorm.forward", " + self.eps", ""),
        ("RMSNorm.forward", "x / ", "(x - x.mean(-1, keepdim=True)) / "),
        ("rotate", "base ** -(", "base ** ("),
        ("rotate", "a, b = x.chunk(2, dim=-1)", "a, b = x[..., 0::2], x[..., 1::2]"),
        ("rotate", "a * cos - b * sin", "a * cos + b * sin"),
        ("SwiGLU.forward", "F.silu(self.gate(x)) * self.linear1(x)", "self.gate(x) * F.silu(self.linear1(x))"),
        ("Attention.forward", "q, k = rotate(q, self.base), rotate(k, self.base)", "q = rotate(q, self.base)"),
        ("Attention.forward", "part.repeat_interleave(shared, dim=1)", "part.repeat(1, shared, 1, 1)"),
        ("Attention.forward", "distance < (self.window", "distance <= (self.window"),
        ("Attention.forward", "(distance >= 0) & ", ""),
        ("Block.forward", "return x + ", "return "),
        ("Llama.forward", "self.norm(x)", "x"),
        ("write", "token.item() == end", "False"),
        ("write", "[:, -1:]", "[:, :1]"),
    ],
    "training": [
        ("AdamW.step", "m / (1 - beta1**self.u)", "m"),
        ("AdamW.step", "p.grad**2 - nu", "p.grad - nu"),
        ("AdamW.step", "nu_hat.sqrt() + self.eps", "nu_hat + self.eps"),
        ("AdamW.step", " + self.decay * p", ""),
        ("AdamW.step", "self.u += 1", "self.u = 1"),
        ("orthogonal", "G / (G.norm() + 1e-7)", "G"),
        ("Muon.step", "p.grad + self.momentum * (M - p.grad)", "M"),
        ("hidden_matrices", ' and "embedding" not in name', ""),
        ("smoothed_loss", "log_p.mean(-1)", "log_p.sum(-1)"),
        ("accumulate", "share * loss", "loss"),
        ("accumulate", "target[:, 1:] != PAD", "target != PAD"),
    ],
    "translation_as_prediction": [
        ("Words.encode", "self.ids.get(word, UNK)", "self.ids[word]"),
        ("pad", "[*row, *[PAD] * (longest - len(row))]", "[*[PAD] * (longest - len(row)), *row]"),
        ("batches", "key=lambda pair: len(pair[0])", ""),
        ("batches", "rng.shuffle(cuts)", "pass"),
        ("log_probability", "chosen.masked_fill(target == PAD, 0.0)", "chosen"),
        ("evaluate", "total += log", "total = log"),
        ("evaluate", "math.exp(-total", "math.exp(total"),
        ("translate", "token > EOS", "token >= EOS"),
    ],
    "encoder_decoder": [("Encoder.forward", "source != PAD", "source == PAD")],
    "choosing_what_to_read": [
        ("choose", ", stable=True", ""),
        ("choose", "masked_fill(~mask, -torch.inf)", "masked_fill(~mask, 0)"),
        ("choose", "chosen & (scores > -torch.inf)", "chosen"),
        ("choose", "scores = scores.masked_fill(~mask", "scores = scores.masked_fill_(~mask"),
        ("choose", "descending=True", "descending=False"),
        ("choose", "", BY_THRESHOLD),
        ("choose", "", BY_TOPK),
        ("Indexer.forward", "F.relu(", "("),
        ("Indexer.forward", " / math.sqrt(k.shape[-1])", ""),
        ("Indexer.forward", " / math.sqrt(self.n_heads)", ""),
        ("Indexer.forward", "self.k_norm(self.wk(x))", "self.wk(x)"),
        ("Indexer.forward", "w[..., None] * votes", "votes"),
        ("IndexedAttention.pick", ".tril()", ""),
        ("IndexedAttention.pick", ".tril()", ".tril(-1)"),
        ("IndexedAttention.pick", "x.detach()", "x"),
        ("IndexedAttention.pick", "self.k or T", "T"),
        ("IndexedAttention.forward", "read[:, None]", "torch.ones_like(read[:, None]).tril()"),
        ("IndexedAttention.index_loss", "self.weights.mean(1)", "self.weights[:, 0]"),
        ("IndexedAttention.index_loss", "super().forward(x, x, read[:, None])", "pass"),
        (
            "IndexedAttention.index_loss",
            "super().forward(x, x, read[:, None])",
            "super().forward(x, x, torch.ones_like(read[:, None]).tril())",
        ),
        ("IndexedAttention.index_loss", "scores.masked_fill(~read, -1e9)", "scores"),
        ("IndexedAttention.index_loss", ".sum(-1)", ".mean(-1)"),
    ],
    "experts": [
        ("Experts.forward", "expert(tokens[rows])", "expert(tokens[rows].detach())"),
        ("Experts.balance", "step * (", "step / ("),
        ("SwiGLU.forward", "F.silu(self.gate(x))", "self.gate(x).sigmoid()"),
        ("SwiGLU.forward", " * self.linear1(x)", ""),
        ("Experts.route", "+ self.bias", ""),
        ("Experts.route", "return scores, ", "return scores + self.bias, "),
        ("Experts.route", "softmax(dim=-1)", "softmax(dim=0)"),
        ("Experts.route", "softmax(dim=-1)", "sigmoid()"),
        ("Experts.route", "choose(scores + self.bias, self.k)", BY_HAND),
        ("Experts.forward", "weights / weights.sum(dim=-1, keepdim=True)", "weights"),
        ("Experts.forward", "rows = visits[:, i].nonzero()[:, 0]", "rows = torch.arange(len(tokens))"),
        ("Experts.forward", "weights[rows, i, None] * expert(tokens[rows])", "expert(tokens[rows])"),
        ("Experts.forward", "scores * visits", "visits.float()"),
        ("Experts.forward", "scores * visits", "(scores + self.bias) * visits"),
        ("Experts.forward", "weights = scores * visits", "weights = scores.detach() * visits"),
        ("Experts.forward", "y[rows] +=", "y[rows] ="),
        ("Experts.forward", "", EVERYTHING),
        ("Experts.balance", "(load.sum() - len(load) * load)", "(len(load) * load - load.sum())"),
        ("Experts.balance", ".sign()", ""),
        ("Experts.balance", "self.bias += ", "self.bias = "),
        ("balance_loss", "n / k * ", ""),
        ("balance_loss", "n / k * ", "n * "),
        ("balance_loss", "scores.mean(0)", "scores.detach().mean(0)"),
        ("balance_loss", "(load * score).sum()", "load.sum() * score.sum()"),
    ],
    "attention_over_depth": [
        ("Residuals.forward", "sublayer(i, x)", "sublayer(x, i)"),
        ("Residuals.forward", "x + sublayer", "sublayer"),
        ("AttentionResiduals.weights", "F.rms_norm(values, values.shape[-1:])", "values"),
        ("AttentionResiduals.weights", "softmax(0)", "softmax(-1)"),
        ("AttentionResiduals.weights", "self.query[i]", "self.query[0]"),
        ("AttentionResiduals.look", "[..., None] * values", "[..., None] * F.rms_norm(values, values.shape[-1:])"),
        ("AttentionResiduals.look", ".sum(0)", ".mean(0)"),
        ("AttentionResiduals.look", "self.weights(i, values)", "self.weights(0, values)"),
        ("AttentionResiduals.forward", "sublayer(i, self.look(i, seen))", "sublayer(i, seen[-1])"),
        ("AttentionResiduals.forward", "seen = [x]", "seen = [0 * x]"),
        ("AttentionResiduals.forward", "return self.look(n, seen)", "return seen[-1]"),
        ("AttentionResiduals.forward", "return self.look(n, seen)", "return self.look(n - 1, seen)"),
        ("HyperConnections.forward", "rs,sbtd->rbtd", "sr,sbtd->rbtd"),
        ("HyperConnections.forward", "mixed + torch", "streams + torch"),
        ("HyperConnections.forward", "streams.sum(0)", "streams.mean(0)"),
        ("HyperConnections.forward", "streams.sum(0)", "streams[0]"),
        ("HyperConnections.forward", '"s,sbtd->btd", read', '"s,sbtd->btd", write'),
        ("sinkhorn", "range(rounds)", "range(1)"),
        ("sinkhorn", "x = x / x.sum(1, keepdim=True)", "pass"),
        ("sinkhorn", "x = x / x.sum(0, keepdim=True)", "pass"),
        ("ManifoldHyperConnections.weights", "2 * self.write", "self.write"),
        ("ManifoldHyperConnections.weights", "self.read[i].sigmoid()", "self.read[i]"),
        ("ManifoldHyperConnections.weights", "sinkhorn(self.mix[i].exp())", "self.mix[i].softmax(1)"),
        ("ManifoldHyperConnections.weights", "self.mix[i]", "self.mix[0]"),
    ],
    "masks": [
        ("padding_mask", "!= pad", "== pad"),
        ("padding_mask", "!= pad", "!= 2"),
        ("padding_mask", "[:, None, None]", ""),
        ("padding_mask", "[:, None, None]", "[:, None]"),
        ("padding_mask", "[:, None, None]", "[:, None, :, None]"),
        ("padding_mask", "(tokens != pad)", "(tokens != pad).float()"),
        ("causal_mask", ".tril(past)", ".tril()"),
        ("causal_mask", ".tril(past)", ".tril(past - 1)"),
        ("causal_mask", ".tril(past)", ".triu(past)"),
        ("causal_mask", ".tril(past)", ""),
        ("causal_mask", "past + length", "length"),
        ("causal_mask", "(1, 1, length, past + length)", "(length, past + length)"),
        ("causal_mask", "(1, 1, length, past + length)", "(1, 1, past + length, length)"),
        ("causal_mask", "dtype=torch.bool, ", ""),
        ("causal_mask", ", device=device", ""),
        ("sees", "tokens.clone()", "tokens"),
        ("sees", "+ 1) % n_words", "+ 1)"),
        ("sees", "changed[:, s]", "changed[:, -1]"),
        ("sees", "changed[:, s] = (tokens[:, s]", "changed[:, s:] = (tokens[:, s:]"),
        ("sees", "columns.append(moved != 0)", "columns.append(moved > 0)"),
        ("sees", "columns.append(moved != 0)", "columns.append(moved == 0)"),
        ("sees", ".abs().amax(-1)", ".sum(-1)"),
        ("sees", ".abs().amax(-1)", ".amax(-1).clamp(min=0)"),
        ("sees", ".abs().amax(-1)", ".abs().amax((0, 2), keepdim=True)[..., 0].expand(len(tokens), -1)"),
        ("sees", "dim=-1", "dim=1"),
        ("sees", "dim=-1", "dim=0"),
    ],
    "multi_head_attention": [
        ("Attention.split", ".unflatten(2, (self.n_heads, -1))", ".unflatten(2, (-1, self.n_heads))"),
        ("Attention.split", ".transpose(1, 2)", ""),
        ("Attention.split", ".transpose(1, 2)", ".transpose(1, 3)"),
        (
            "Attention.split",
            "x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)",
            "x.view(len(x), self.n_heads, x.shape[1], -1)",
        ),
        (
            "Attention.split",
            "x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)",
            "x.unflatten(2, (-1, self.n_heads)).permute(0, 3, 1, 2)",
        ),
        ("Attention.split", ".transpose(1, 2)", ".transpose(1, 2).flip(1)"),
        ("Attention.forward", "W_Q, W_K, W_V = ", "W_K, W_Q, W_V = "),
        ("Attention.forward", "W_Q, W_K, W_V = ", "W_Q, W_V, W_K = "),
        ("Attention.forward", "b_Q, b_K, b_V = ", "b_K, b_Q, b_V = "),
        ("Attention.forward", "b_Q, b_K, b_V = ", "b_Q, b_V, b_K = "),
        ("Attention.forward", "F.linear(x, W_Q, b_Q)", "F.linear(memory, W_Q, b_Q)"),
        ("Attention.forward", "F.linear(memory, W_K, b_K)", "F.linear(x, W_K, b_K)"),
        ("Attention.forward", "F.linear(memory, W_V, b_V)", "F.linear(x, W_V, b_V)"),
        ("Attention.forward", "F.linear(memory, W_V, b_V)", "F.linear(memory, W_V)"),
        ("Attention.forward", "math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1])"),
        ("Attention.forward", " / math.sqrt(q.shape[-1])", ""),
        ("Attention.forward", "~mask", "mask"),
        ("Attention.forward", ".masked_fill(~mask, -torch.inf)", ""),
        ("Attention.forward", "-torch.inf", "0"),
        ("Attention.forward", "softmax(dim=-1)", "softmax(dim=-2)"),
        ("Attention.forward", "self.weights = weights.detach()", "pass"),
        ("Attention.forward", "weights.detach()", "weights"),
        ("Attention.forward", "weights.detach()", "scores.detach()"),
        ("Attention.forward", ".transpose(1, 2).flatten(2)", ".reshape(x.shape)"),
        (
            "Attention.forward",
            "self.out_proj((weights @ v).transpose(1, 2).flatten(2))",
            "(weights @ v).transpose(1, 2).flatten(2)",
        ),
    ],
    "hard_attention": [
        ("straight_through", "scores - torch", "scores + torch"),
        ("straight_through", "(noisy / temperature)", "noisy"),
        ("straight_through", "(noisy / temperature)", "(scores / temperature)"),
        ("straight_through", "noisy.argmax(-1)", "scores.argmax(-1)"),
        ("straight_through", "(relaxed - relaxed.detach())", "relaxed"),
        ("Score.forward", "states @ self.key(vectors).mT", "self.key(states) @ vectors.mT"),
        ("Attention.forward", "~mask[:, None]", "mask[:, None] & False"),
        ("Attention.forward", "elif self.training:", "elif True:"),
        ("Attention.forward", "weights.detach()", "weights"),
        ("Attention.forward", "weights = log_alpha.exp()", "weights = scores.sigmoid()"),
        (
            "Attention.forward",
            "return weights @ vectors, weights, log_alpha",
            "return weights @ vectors, weights, scores",
        ),
        ("HardTranslator.read", "self.gru(self.embedding(target), state)", "self.gru(self.embedding(target))"),
        ("HardTranslator.read", "[context, states]", "[states, context]"),
        ("HardTranslator.read", "source != PAD", "source == source"),
        ("HardTranslator.forward", "[0]", "[1]"),
        ("HardTranslator.loss", "- bonus * entropy", "+ bonus * entropy"),
        ("HardTranslator.loss", "- bonus * entropy", ""),
        ("HardTranslator.loss", "-terms.detach()", "-nats.detach()"),
        ("HardTranslator.loss", "-terms.detach()", "-terms"),
        ("HardTranslator.loss", "guess.detach()", "guess"),
        ("HardTranslator.loss", "guess.detach()", "0"),
        ("HardTranslator.loss", "], -1).detach()", "], -1)"),
        ("HardTranslator.loss", "terms + 0.1 * (reward - guess) ** 2", "terms"),
        ("HardTranslator.loss", "[correct != PAD]", ""),
        ("HardTranslator.loss", ".mean()", ".sum()"),
    ],
    "latent_attention": [
        ("OneStep.forward", "masked_softmax(scores, mask[:, None])", "scores.softmax(-1)"),
        (
            "OneStep.forward",
            "self.query @ words.mT",
            "words @ self.query.mT; scores = scores.softmax(1).mT; return scores",
        ),
        ("AddPositions.forward", "words + self", "self"),
        ("AddPositions.forward", "[: words.shape[1]]", "[-words.shape[1] :]"),
        ("IfThen.forward", "!= PAD", "== PAD"),
        ("IfThen.forward", "self.dropout(self.embedding(tokens))", "self.embedding(tokens)"),
        ("IfThen.forward", "self.encoder(words, mask)", "words"),
        ("IfThen.forward", "weights / weights.norm(dim=-1, keepdim=True)", "weights"),
        ("IfThen.forward", "weights.norm(dim=-1, keepdim=True)", "weights.sum(-1, keepdim=True)"),
        ("IfThen.forward", ".unbind(1)", ".flip(1).unbind(1)"),
        (
            "LatentAttention.decide",
            "masked_softmax(self.query @ words.mT, mask[:, None])",
            "(self.query @ words.mT).softmax(-1)",
        ),
        (
            "LatentAttention.point",
            ".mT",
            "",
        ),
        ("LatentAttention.point", "[:, : words.shape[1]]", "[:, -words.shape[1] :]"),
        ("LatentAttention.point", "masked_softmax(scores, mask[:, None, None]).mT", "scores.softmax(-1).mT"),
        ("LatentAttention.forward", "self.point(words, mask)", "self.point(words, mask).mT"),
        ("LatentAttention.forward", "self.decide(words, mask)", "mask[:, None] / mask.sum(1)[:, None, None]"),
        ("SelfAttention.forward", "super().forward(words, mask)", "words"),
        ("SelfAttention.forward", "words.shape[-1] ** 0.5", "1.0"),
        ("SelfAttention.forward", "mask[:, None]", "mask[:, :, None]"),
        ("SelfAttention.forward", "words + weights", "weights"),
        ("SelfAttention.forward", "self.query(words) @ self.key(words).mT", "self.key(words) @ self.query(words).mT"),
    ],
    "bert": [
        ("Attention.forward", "scores.masked_fill(~mask, -torch.inf)", "scores"),
        ("Attention.forward", "~mask", "mask"),
        ("Attention.forward", "math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1] * q.shape[1])"),
        ("Attention.forward", "q, k, v =", "k, q, v ="),
        ("Attention.forward", ".transpose(1, 2).flatten(2)", ".reshape(len(x), -1, self.out_proj.in_features)"),
        ("FeedForward.forward", "F.gelu", "F.relu"),
        (
            "Layer.forward",
            "self.norm1(x + self.dropout(self.self_attn(x, mask)))",
            "self.norm1(self.self_attn(x, mask))",
        ),
        ("Layer.forward", "self.dropout(self.self_attn(x, mask))", "self.self_attn(x, mask)"),
        ("Layer.forward", "self.norm2(x", "self.norm1(x"),
        ("Encoder.forward", "layer(x, mask)", "layer(x, mask) + x"),
        ("Bert.encode", "!= PAD", "== PAD"),
        ("Bert.encode", " if mask is None else mask", ""),
        ("Bert.encode", "self.segment_embedding(segments)", "0"),
        ("Bert.encode", "self.positions.weight[: tokens.shape[1]]", "self.positions.weight[0]"),
        ("Bert.encode", "self.dropout(self.norm(x))", "self.dropout(x)"),
        ("Bert.encode", "self.dropout(self.norm(x))", "self.norm(x)"),
        ("Bert.logits", "F.gelu(self.transform(x))", "self.transform(x)"),
        ("Bert.logits", "self.transform_norm(F.gelu(self.transform(x)))", "x"),
        ("Bert.forward", "self.encode(tokens, segments, mask)", "self.encode(tokens, segments)"),
        ("Bert.forward", "self.encode(tokens, segments, mask)", "self.encode(tokens, mask=mask)"),
        ("mask_tokens", "dice >= 0.9", "dice >= 0.8"),
        ("mask_tokens", "chosen &= tokens > UNK", "pass"),
        ("mask_tokens", "torch.randint(UNK + 1,", "torch.randint(0,"),
        ("mask_tokens", "chosen & (dice < 0.8)", "chosen"),
        ("BertClassifier.forward", "[:, 0]", ".mean(1)"),
        ("BertClassifier.forward", ".tanh()", ""),
        ("BertClassifier.forward", "tokens, segments)[", "tokens)["),
    ],
    "all_words_at_once": [
        ("MaskPredict.embed", "math.sqrt(", "float("),
        ("MaskPredict.embed", "+ self.position.weight[: tokens.shape[1]]", ""),
        ("MaskPredict.embed", "self.dropout(", "("),
        ("MaskPredict.read", "self.length((memory * words).sum(1) / words.sum(1))", "self.length(memory.mean(1))"),
        ("MaskPredict.read", "self.encoder_norm(x)", "x"),
        ("MaskPredict.read", ", src_key_padding_mask=pad", ""),
        ("MaskPredict.write", "memory_key_padding_mask=pads[1],", ""),
        ("MaskPredict.write", "tgt_key_padding_mask=pads[0],", ""),
        ("MaskPredict.write", "self.decoder_norm(x)", "x"),
        ("hide", "1 + (", "("),
        ("hide", ".masked_fill(~inside, 2.0)", ""),
        ("hide", "order < n_hidden", "order > n_hidden"),
        ("hide", "torch.rand(n.shape, device=target.device) * n", "torch.rand(n.shape, device=target.device)"),
        ("mask_predict_loss", ", label_smoothing=smoothing", ""),
        ("mask_predict_loss", "0.1 * F", "F"),
        ("mask_predict_loss", "model.write(memory, source, hidden)", "model.write(memory, source, target)"),
        ("mask_predict_loss", "asked = hidden == MASK", "asked = target != PAD"),
        (
            "mask_predict",
            "lengths[:, 1:].topk(n_lengths).indices.flatten() + 1",
            "lengths.topk(n_lengths).indices.flatten()",
        ),
        ("mask_predict", "logits[..., : MASK + 1] = -torch.inf", "pass"),
        ("mask_predict", "certainty = torch.where(hidden, best, certainty)", "certainty = best"),
        ("mask_predict", "tokens = torch.where(hidden, words, tokens)", "tokens = torch.where(inside, words, tokens)"),
        ("mask_predict", "(steps - 1 - step)", "(steps - step)"),
        ("mask_predict", ".sum(1) / length", ".sum(1)"),
        ("mask_predict", ".argsort(dim=1, stable=True).argsort(1)", ".argsort(1)"),
        ("mask_predict", "order < n_hidden", "order > n_hidden"),
        ("mask_predict", ".argmax(1)", ".argmin(1)"),
    ],
    "vision_transformers": [
        ("patches", "rows.transpose(2, 3).flatten(1, 2)", "rows.flatten(1, 2)"),
        (
            "patches",
            "rows.transpose(2, 3).flatten(1, 2).flatten(2)",
            "images.flatten(1).unflatten(1, (-1, size * size))",
        ),
        ("Layer.forward", "self.self_attn(self.norm1(x), mask)", "self.self_attn(x, mask)"),
        ("Layer.forward", "self.feed_forward(self.norm2(x))", "self.feed_forward(x)"),
        ("Layer.forward", "self.norm2(x)", "self.norm1(x)"),
        ("Layer.forward", "return x + self", "return self"),
        ("Layer.forward", "x = x + self", "x = self"),
        ("Layer.forward", "self.norm1(x), mask", "self.norm1(x), mask | True"),
        ("VisionTransformer.encode", "+ self.positions[1:]", "+ self.positions[:-1]"),
        ("VisionTransformer.encode", "(self.class_token + self.positions[0])", "self.class_token"),
        ("VisionTransformer.encode", "[first, x]", "[x, first]"),
        ("VisionTransformer.encode", "return self.norm(x)", "return x"),
        ("VisionTransformer.encode", "x = layer(x, mask)", "x = x + layer(x, mask)"),
        ("VisionTransformer.encode", "x.take_along_dim(keep[..., None], dim=1)", "x[:, : keep.shape[1]]"),
        ("VisionTransformer.encode", "x.take_along_dim(keep[..., None], dim=1)", "x"),
        ("VisionTransformer.encode", "torch.ones(1,", "torch.zeros(1,"),
        ("VisionTransformer.forward", "[:, 0]", "[:, -1]"),
        ("VisionTransformer.forward", "[:, 0]", ".mean(1)"),
        ("VisionTransformer.forward", "(images, keep)[", "(images)["),
    ],
    "linear_attention": [
        ("chunked", "q @ W", "q @ W.detach()"),
        ("LinearAttention.forward", "len(x), self.n_heads", "self.n_heads, len(x)"),
        ("LinearAttention.forward", "key.mT @ W", "key.mT @ W.detach()"),
        ("recurrent", "k[:, None] * v", "v[:, None] * k"),
        ("recurrent", "W = W + k", "W = k"),
        ("recurrent", "q @ W", "k @ W"),
        ("parallel", ".tril()", ".tril(-1)"),
        ("parallel", "Q @ K.T", "K @ Q.T"),
        ("chunked", "q @ W + ", ""),
        ("chunked", ".tril()", ""),
        ("chunked", "W = W + k.T @ v", "W = k.T @ v"),
        ("delta_rule", "v - answer", "v"),
        ("delta_rule", "b * k", "k"),
        ("delta_rule", "answer = k @ W", "answer = q @ W"),
        ("LinearAttention.forward", '("decay", "gated")', '("gated",)'),
        ("LinearAttention.forward", '("delta", "gated")', '("delta",)'),
        ("LinearAttention.forward", "self.gates(x).sigmoid()", "self.gates(x)"),
        ("LinearAttention.forward", "beta, gamma =", "gamma, beta ="),
        ("LinearAttention.forward", "F.normalize(k, dim=-1)", "k"),
        ("LinearAttention.forward", "value - key.mT @ W", "value + key.mT @ W"),
        ("LinearAttention.forward", "gamma[:, t, :, None, None] * W", "gamma[:, 0, :, None, None] * W"),
        ("LinearAttention.forward", "beta[:, t, :, None, None] * ", ""),
        (
            "LinearAttention.forward",
            "y.transpose(1, 2).flatten(2)",
            "y.reshape(len(x), x.shape[1], -1)",
        ),
        ("LinearAttention.split", ".transpose(1, 2)", ""),
    ],
    "from_prediction_to_assistant": [
        ("improve", "repeat_interleave(8, 0)", "repeat(8, 1)"),
        ("improve", "now.detach()", "reference"),
        ("improve", "adam.zero_grad()", "pass"),
        ("answer", "masked_fill(ended, PAD)", "clone()"),
        ("answer", "and not ended.all()", ""),
        ("answer", "p[:, [PAD, BOS]] = 0", "pass"),
        ("answer", "[:, -1].softmax(-1)", "[:, 0].softmax(-1)"),
        ("answer", "prompts.shape[1] + longest", "longest"),
        ("answer", "ended | (word == EOS)", "(word == EOS)"),
        ("answer_log_probs", "start - 1 :", "start :"),
        ("answer_log_probs", "[:, start - 1 :] * written", "[:, start - 1 :]"),
        ("answer_log_probs", ".log_softmax(-1)", ".softmax(-1)"),
        ("answer_log_probs", "model(tokens[:, :-1])", "model(tokens[:, :-1]).detach()"),
        ("answer_log_probs", "tokens[:, 1:, None]", "tokens[:, :-1, None]"),
        ("group_advantages", "rewards - rewards.mean(1, keepdim=True)", "rewards - rewards.mean()"),
        ("group_advantages", "(rewards.std(1, keepdim=True) + 1e-4)", "1"),
        ("group_advantages", " + 1e-4", ""),
        ("grpo_loss", "ratio.clamp(1 - clip, 1 + clip) * gain", "ratio * gain"),
        ("grpo_loss", "torch.minimum", "torch.maximum"),
        ("grpo_loss", "d = reference - now", "d = now - reference"),
        ("grpo_loss", "gained - beta * leash", "gained + beta * leash"),
        ("grpo_loss", "gained - beta * leash", "gained"),
        ("grpo_loss", ") * written).sum(1)", ")).sum(1)"),
        ("grpo_loss", "return -per_answer.mean()", "return per_answer.mean()"),
        ("improve", "copy.deepcopy(start)", "start"),
        ("improve", "beta=beta", "beta=0.0"),
        ("improve", "gain, written", "-gain, written"),
        ("improve", "    watch(rounds, model)\n", ""),
        ("improve", "adam.step()", "pass"),
        ("minimum_risk", "log_probs / temperature", "log_probs"),
        ("minimum_risk", "softmax(1)", "softmax(0)"),
        ("minimum_risk", "(q * costs).sum(1).mean()", "(q * costs).mean()"),
        ("distil", "copy.deepcopy(start)", "start"),
        ("distil", "log_p.exp() * (log_p - log_q)", "log_q.exp() * (log_q - log_p)"),
        ("distil", "log_p.exp() * (log_p - log_q)", "log_p.exp() * (log_q - log_p)"),
        ("distil", "kl[tokens[:, P:] != PAD].mean()", "kl.mean()"),
        ("distil", "teacher(tokens[:, :-1])", "start(tokens[:, :-1])"),
        ("distil", "answer(student, some, rng)", "answer(teacher, some, rng)"),
        ("distil", "with torch.no_grad():", "if True:"),
        ("dpo_loss", "chosen - reference_chosen", "chosen"),
        ("dpo_loss", "beta * ", ""),
        ("dpo_loss", "-F.logsigmoid(", "F.logsigmoid("),
        ("pass_at_k", "1 - math.comb", "math.comb"),
    ],
    "self_attention": [
        ("self_attention", "for q in Q", "for q in K"),
        ("self_attention", "scores = K @ q", "scores = Q @ q"),
        ("self_attention", "scores.exp() / scores.exp().sum()", "scores / scores.sum()"),
        ("self_attention", "scores.exp() / scores.exp().sum()", "scores.exp()"),
        ("self_attention", "alpha @ V", "alpha @ K"),
        ("self_attention", "return torch.stack(outputs), torch.stack(weights)", "return torch.stack(outputs)"),
        ("SelfAttention.forward", "~mask", "mask"),
        ("SelfAttention.forward", "-torch.inf", "0"),
        ("SelfAttention.forward", "softmax(dim=-1)", "softmax(dim=-2)"),
        ("SelfAttention.forward", "self.query(x) @ self.key(x).mT", "self.key(x) @ self.query(x).mT"),
        ("SelfAttention.forward", "weights @ self.value(x), weights", "weights, weights @ self.value(x)"),
        ("SelfAttention.forward", "weights @ self.value(x)", "weights @ x"),
        ("Reader.forward", "+ self.positions(torch.arange(S))", ""),
        ("Reader.forward", "x = x + y", "x = y"),
        ("Reader.forward", "!= PAD", "== words"),
        ("Reader.forward", "if where == n:", "if True:"),
        ("Reader.forward", "mask[rows, query, key]", "mask[rows, key, query]"),
        ("Reader.forward", "mask[rows, query, key] = False", "pass"),
        ("Reader.forward", "self.output(y[rows, it])", "self.output(x[rows, it])"),
        ("Reader.forward", "y[rows, it]", "y[rows, -1]"),
        ("Reader.forward", "enumerate(self.layers, 1)", "enumerate(self.layers)"),
    ],
    "scaled_dot_product_attention": [
        ("attention", "math.sqrt(q.shape[-1])", "q.shape[-1]"),
        ("attention", "math.sqrt(q.shape[-1])", "math.sqrt(k.shape[-2])"),
        ("attention", "math.sqrt(q.shape[-1])", "math.sqrt(v.shape[-1])"),
        ("attention", " / math.sqrt(q.shape[-1])", ""),
        ("attention", " / math.sqrt(q.shape[-1])", " * math.sqrt(q.shape[-1])"),
        ("attention", "@ k.mT", "@ k.mT * 1.01"),
        ("attention", "~mask", "mask"),
        ("attention", "-torch.inf", "0"),
        ("attention", "-torch.inf", "-1"),
        ("attention", "if mask is not None", "if False"),
        ("attention", "scores.masked_fill(~mask, -torch.inf)", "scores * mask"),
        ("attention", "scores.masked_fill(~mask, -torch.inf)", "scores + mask"),
        ("attention", "scores.masked_fill(~mask, -torch.inf)", "scores.masked_fill(~mask.logical_not_(), -torch.inf)"),
        ("attention", "dim=-1", "dim=-2"),
        ("attention", "dim=-1", "dim=0"),
        ("attention", "scores.softmax(dim=-1)", "scores"),
        ("attention", "weights @ v", "weights"),
        ("attention", "weights @ v", "v"),
        ("attention", "weights @ v", "(weights @ v).mean(-2, keepdim=True)"),
    ],
    "what_the_scale_does": [
        ("softmax_jacobian", "torch.diag_embed(weights) - products", "-products"),
        ("softmax_jacobian", "torch.diag_embed(weights) - products", "torch.diag_embed(weights)"),
        ("softmax_jacobian", "torch.diag_embed(weights) - products", "torch.diag_embed(weights) + products"),
        ("softmax_jacobian", "torch.diag_embed(weights) - products", "products - torch.diag_embed(weights)"),
        ("softmax_jacobian", "weights[..., :, None]", "weights[..., None, :]"),
        ("softmax_jacobian", "torch.diag_embed(weights)", "weights.diag()"),
        ("PhoneBook.forward", "self.scale * ", ""),
        ("PhoneBook.forward", "self.queries @ self.keys.T", "self.keys @ self.queries.T"),
        ("PhoneBook.forward", "on_page.softmax(-1)", "on_page.softmax(0)"),
        ("PhoneBook.forward", "on_page.softmax(-1)", "on_page"),
        ("PhoneBook.forward", "self.values[colours]", "self.values[names]"),
        ("PhoneBook.forward", "[asked[:, None], names]", "[names, asked[:, None]]"),
        ("page_loss", "colours[rows, line])", "colours[rows, 0])"),
        ("page_loss", "names[rows, line])", "names[rows, 0])"),
        ("page_loss", "names[rows, line])", "line)"),
        ("page_loss", "[:, :16]", "[:, :15]"),
        ("page_loss", "torch.rand(pages, n, generator=rng).argsort(-1)", "torch.arange(n).expand(pages, n)"),
        ("learn", "query_rate * rate", "rate"),
        ("learn", "kind(scale, start, width)", "PhoneBook(scale, 1.0, width)"),
        ("learn", "[queries, others]", "[others]"),
        ("learn", "[model.keys, model.values]", "[model.values]"),
        ("learn", "optimizer.step()", "pass"),
    ],
    "learning_to_align": [
        ("masked_softmax", ".softmax(-1) * mask", ".softmax(-1)"),
        ("masked_softmax", "torch.finfo(scores.dtype).min", "-1e4"),
        ("masked_softmax", "scores.masked_fill(~mask, lowest)", "scores.masked_fill_(~mask, lowest)"),
        ("Score.forward", "torch.tanh(query + self.key(vectors))", "torch.tanh(query) + self.key(vectors)"),
        ("Score.forward", "self.query(state)[:, None]", "self.key(state)[:, None]"),
        ("Attention.forward", "weights[:, :, None] * vectors", "scores[:, :, None] * vectors"),
        ("Attention.forward", ".sum(1)", ".mean(1)"),
        ("Attention.forward", "masked_softmax(scores, mask)", "masked_softmax(scores, mask | True)"),
        ("Encoder.forward", '"enforce_sorted": False', '"enforce_sorted": True'),
        ("Encoder.forward", '"total_length": source.shape[1]', '"total_length": None'),
        ("Encoder.forward", "(source != PAD).sum(1)", "(source > EOS).sum(1)"),
        ("Encoder.forward", "return vectors, last[1]", "return vectors, last.mean(0)"),
        ("Bahdanau.start", "[None]", "[None] * 2"),
        ("Bahdanau.start", "source != PAD", "source > EOS"),
        ("Bahdanau.step", "self.attention(state[0], vectors, mask)", "self.attention(state[0], vectors, mask | True)"),
        ("Bahdanau.step", "torch.tanh(self.read_out(parts))", "self.read_out(parts)"),
        ("Bahdanau.step", "return logits, state, weights", "return logits.log_softmax(-1), state, weights"),
        ("Bahdanau.step", "_, state = self.gru(inputs, state)", "self.gru(inputs, state)"),
        ("Bahdanau.forward", "for word in target.unbind(1)", "for word in target[:, 1:].unbind(1)"),
        ("Bahdanau.forward", "logits, state, _ = self.step", "logits, _, _ = self.step"),
        ("translate", "words[-1]", "words[0]"),
        ("translate", "logits, state, weights = model.step", "logits, _, weights = model.step"),
        ("translate", "torch.full_like(source[:, 0], BOS)", "torch.full_like(source[:, 0], EOS)"),
        ("translate", ".any(0).all()", ".any(0).any()"),
        ("translate", "torch.stack(maps, 1)", "torch.stack(maps)"),
        ("translate", "range(max_length)", "range(max_length - 1)"),
    ],
    "the_transformer": [
        ("Attention.forward", "math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1])"),
        ("Attention.forward", "softmax(dim=-1)", "softmax(dim=-2)"),
        (
            "Attention.forward",
            "b_Q, b_K, b_V = self.in_proj_bias.chunk(3)",
            "b_K, b_Q, b_V = self.in_proj_bias.chunk(3)",
        ),
        ("Attention.forward", "self.split(F.linear(memory, W_K, b_K))", "self.split(F.linear(x, W_K, b_K))"),
        ("Attention.forward", ".transpose(1, 2).flatten(2)", ".flatten(2).view_as(x)"),
        (
            "Attention.forward",
            "self.out_proj((weights @ v).transpose(1, 2).flatten(2))",
            "(weights @ v).transpose(1, 2).flatten(2)",
        ),
        ("FeedForward.forward", "F.relu(", "F.gelu("),
        ("EncoderLayer.add", "self.dropout(sublayer(norm(x)))", "sublayer(norm(x))"),
        ("EncoderLayer.add", "norm(x + self.dropout(sublayer(x)))", "x + norm(self.dropout(sublayer(x)))"),
        ("EncoderLayer.add", "norm(x + self.dropout(sublayer(x)))", "norm(self.dropout(x + sublayer(x)))"),
        ("EncoderLayer.add", "x + self.dropout(sublayer(norm(x)))", "norm(x) + self.dropout(sublayer(norm(x)))"),
        ("EncoderLayer.forward", "return self.add(x, self.feed_forward, self.norm2)", "return self.feed_forward(x)"),
        ("DecoderLayer.forward", "self.cross_attn(y, memory, padding)", "self.cross_attn(y, memory, padding | True)"),
        ("DecoderLayer.forward", "self.cross_attn(y, memory, padding)", "self.self_attn(y, memory, padding)"),
        ("DecoderLayer.forward", "y, y, causal", "y, y, causal | True"),
        ("Stack.forward", "layer(x, *others)", "self.layers[0](x, *others)"),
        ("Stack.forward", "layer(x, *others)", "x + layer(x, *others)"),
        ("sinusoids", "torch.arange(0, d_model, 2) / d_model", "torch.arange(0, d_model, 2) / (2 * d_model)"),
        ("sinusoids", "10_000", "1_000"),
        (
            "sinusoids",
            "[angle.sin(), angle.cos()], dim=-1).flatten(1)",
            "[angle.cos(), angle.sin()], dim=-1).flatten(1)",
        ),
        (
            "sinusoids",
            "torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)",
            "torch.cat([angle.sin(), angle.cos()], dim=-1)",
        ),
        ("Transformer.embed", "* math.sqrt(table.embedding_dim)", ""),
        (
            "Transformer.embed",
            "self.dropout(x + sinusoids(*x.shape[1:]).to(x))",
            "self.dropout(x) + sinusoids(*x.shape[1:]).to(x)",
        ),
        ("Transformer.embed", "sinusoids(*x.shape[1:]).to(x)", "0"),
        ("Transformer.forward", "(source != PAD)[:, None, None]", "(source >= PAD)[:, None, None]"),
        ("Transformer.forward", ".tril()", ".triu()"),
        ("Transformer.forward", ".tril()", ".tril(-1)"),
        ("Transformer.forward", ".tril()", ""),
        (
            "Transformer.forward",
            "self.decoder(x, causal, memory, padding)",
            "self.decoder(x, causal, memory, padding | True)",
        ),
        ("translate", "target[:, 1:]", "target"),
        ("translate", ".any(dim=1).all()", ".any(dim=1).any()"),
        ("translate", "[:, -1]", "[:, 0]"),
        ("translate", "(len(source), 1), BOS", "(len(source), 1), EOS + 1"),
    ],
    "decoding": [
        ("next_words", "[:, -1]", "[:, 0]"),
        ("next_words", "[PAD, BOS]", "[PAD]"),
        ("next_words", "[PAD, BOS]", "[PAD, BOS, EOS]"),
        ("next_words", ".log_softmax(-1)", ".softmax(-1)"),
        ("next_words", "logits.log_softmax(-1)", "logits"),
        ("greedy", "EOS not in words", "True"),
        ("greedy", "len(words) < max_length", "len(words) <= max_length"),
        ("greedy", "(*words, log_p.argmax().item())", "(log_p.argmax().item(), *words)"),
        ("greedy", "argmax", "argmin"),
        ("extend", "i // V", "0"),
        ("extend", "min(n, totals.numel())", "n"),
        ("extend", "(*live[i // V][0], i % V), total", "(*live[i // V][0], i % V), total - live[i // V][1]"),
        ("extend", "i % V", "i // V"),
        ("lp", "(5 + n) / 6", "n"),
        ("lp", "** penalty", "* penalty"),
        ("beam_search", "total / lp(len(words), penalty)", "total"),
        ("beam_search", "total / lp(len(words), penalty)", "total * lp(len(words), penalty)"),
        (
            "beam_search",
            "[c for c in candidates if c[0][-1] != EOS][:w]",
            "[c for c in candidates[:w] if c[0][-1] != EOS]",
        ),
        ("beam_search", "[c for c in candidates if c[0][-1] != EOS][:w]", "[c for c in candidates if c[0][-1] != EOS]"),
        ("beam_search", "last or c[0][-1] == EOS", "c[0][-1] == EOS"),
        ("beam_search", "if best and score(best) >= live[0][1] / lp(max_length, penalty)", "if best"),
        ("beam_search", "lp(max_length, penalty)", "lp(length, penalty)"),
        ("beam_search", "live[0][1] / lp(max_length, penalty)", "live[0][1]"),
        ("beam_search", "max(finished, key=score, default=None)", "finished[0] if finished else None"),
        ("exhaustive", "EOS in words or len(words) == max_length", "len(words) == max_length"),
        ("exhaustive", "one[1] / lp(len(one[0]), penalty)", "one[1]"),
        ("exhaustive", "total + p", "p"),
    ],
    "subwords": [
        ("count_pairs", "+= counts[word]", "+= 1"),
        ("count_pairs", "+= counts[word]", "= counts[word]"),
        ("count_pairs", "pairwise(pieces)", "set(pairwise(pieces))"),
        ("count_pairs", "pairwise(pieces)", "pairwise(word)"),
        ("join", "tuple(pieces[i : i + 2]) == pair", '"".join(pieces[i : i + 2]) == "".join(pair)'),
        ("join", "i += step", "i += 1"),
        ("learn_merges", "< 2", "< 1"),
        ("learn_merges", "< 2", "< 3"),
        ("learn_merges", "len(merges) < n_merges", "len(merges) <= n_merges"),
        ("learn_merges", "(pairs[p], -age[p[0]], -age[p[1]])", "(pairs[p], age[p[0]], age[p[1]])"),
        ("learn_merges", "(pairs[p], -age[p[0]], -age[p[1]])", "(pairs[p], -age[p[1]], -age[p[0]])"),
        ("learn_merges", "(pairs[p], -age[p[0]], -age[p[1]])", "pairs[p]"),
        ("learn_merges", 'sorted(set("".join(counts)))', 'dict.fromkeys("".join(counts))'),
        ("learn_merges", "split = {word: join(pieces, best) for word, pieces in split.items()}", "pass"),
        ("cut_word", "min(known, key=rank.get)", "known[0]"),
        ("cut_word", "min(known, key=rank.get)", "max(known, key=rank.get)"),
        ("byte_letters", "chr(256 + i)", "chr(byte)"),
        ("byte_letters", "range(161, 173)", "range(161, 174)"),
        ("words", '" " + text', "text"),
        ("words", "if text else []", ""),
        ("words", "word.encode()", 'word.encode("utf-16")'),
        ("cut", "words(text)", '["".join(words(text))]'),
        ("text_of", '.removeprefix(" ")', ""),
        ("text_of", '.removeprefix(" ")', ".strip()"),
        ("text_of", 'errors="replace"', 'errors="ignore"'),
        ("cut_at_random", "min(known)", "known[0]"),
        ("cut_at_random", ">= skip", "< skip"),
        ("cut_at_random", "rng.random() >= skip", "rng.random() * skip == 0"),
    ],
    "translating_real_sentences": [
        ("ngrams", "len(tokens) - n + 1", "len(tokens) - n"),
        ("ngrams", "tuple(tokens[i : i + n])", "tuple(sorted(tokens[i : i + n]))"),
        ("ngrams", "i + n]", "i + n + 1]"),
        ("ngrams", "Counter(", "set("),
        ("corpus_bleu", "ngrams(h, n) & ngrams(ref, n)", "ngrams(h, n) | ngrams(ref, n)"),
        ("corpus_bleu", "range(1, 5)", "range(1, 4)"),
        ("corpus_bleu", "matches[n - 1] +=", "matches[n - 1] ="),
        ("corpus_bleu", "totals[n - 1] +=", "totals[n - 1] ="),
        ("corpus_bleu", "len(h) - n + 1", "len(ref) - n + 1"),
        ("corpus_bleu", "len(h) - n + 1", "len(h) - n"),
        ("corpus_bleu", "max(0, len(h) - n + 1)", "len(h) - n + 1"),
        ("corpus_bleu", "c + len(h), r + len(ref)", "len(h), len(ref)"),
        ("corpus_bleu", "c + len(h), r + len(ref)", "c + len(ref), r + len(h)"),
        ("corpus_bleu", "min(1, math.exp(1 - r / c))", "math.exp(1 - r / c)"),
        ("corpus_bleu", "min(1, math.exp(1 - r / c))", "min(1, c / r)"),
        ("corpus_bleu", "if c else 0", ""),
        ("corpus_bleu", "100 * ", ""),
        ("corpus_bleu", "math.prod(precisions) ** (1 / 4)", "sum(precisions) / 4"),
        ("corpus_bleu", "m / t if t else 0", "m / t if t else 1"),
    ],
    "when_can_you_trust": [
        ("log_probabilities", "target[:, :-1]", "target[:, 1:]"),
        ("log_probabilities", "target[:, 1:, None]", "target[:, :-1, None]"),
        ("log_probabilities", ".log_softmax(-1)", ""),
        ("log_probabilities", ".log_softmax(-1)", ".log_softmax(1)"),
        ("log_probabilities", ".log_softmax(-1)", ".softmax(-1)"),
        ("log_probabilities", "target[:, 1:] == PAD", "target[:, :-1] == PAD"),
        ("log_probabilities", "target[:, 1:] == PAD", "target[:, 1:] <= EOS"),
        ("log_probabilities", "chosen.masked_fill(target[:, 1:] == PAD, 0.0)", "chosen"),
        ("log_probabilities", ", 0.0)", ", -torch.inf)"),
        ("confidence", "(target[:, 1:] != PAD).sum(1)", "target.shape[1] - 1"),
        ("confidence", "(target[:, 1:] != PAD).sum(1)", "(target != PAD).sum(1)"),
        ("confidence", "(target[:, 1:] != PAD).sum(1)", "1"),
        ("confidence", ".exp()", ""),
        ("confidence", ".sum(1) / n_tokens", ".exp().sum(1) / n_tokens"),
        ("auc", "a < b", "a > b"),
        ("auc", "a < b", "a <= b"),
        ("auc", "+ (a == b) / 2", ""),
        ("auc", "/ len(pairs)", ""),
        ("rounded", "** (bits - 1) - 1", "** (bits - 1)"),
        ("rounded", ".abs()", ""),
        ("rounded", ".clamp(min=1e-9)", ""),
        ("rounded", ".amax(-1, keepdim=True)", ".amax()"),
        ("rounded", ".amax(-1, keepdim=True)", ".amax(0)"),
        ("rounded", ".round()", ""),
        ("rounded", ".round()", ".trunc()"),
        ("rounded", ".round() * scale", ".round()"),
    ],
    "sampling": [
        ("probabilities", "logits / temperature", "logits * temperature"),
        ("probabilities", "(logits / temperature).softmax(-1)", "(logits.softmax(-1) / temperature).softmax(-1)"),
        ("probabilities", "descending=True", "descending=False"),
        ("probabilities", "p[:, top_k or p.shape[1] :] = 0", "p[:, (top_k or p.shape[1]) - 1 :] = 0"),
        ("probabilities", "p[:, top_k or p.shape[1] :] = 0", "pass"),
        ("probabilities", "before >= top_p", "before > top_p"),
        ("probabilities", "p.cumsum(-1) - p", "p.cumsum(-1)"),
        ("probabilities", "    p = p / p.sum(-1, keepdim=True)\n    before", "    before"),
        ("probabilities", "    p = p / p.sum(-1, keepdim=True)\n    return", "    return"),
        ("probabilities", "torch.zeros_like(p).scatter(-1, words, p)", "p"),
        ("probabilities", "scatter(-1, words, p)", "scatter(0, words, p)"),
        ("sample", "[PAD, BOS]", "[PAD]"),
        ("sample", "[PAD, BOS]", "[PAD, BOS, EOS]"),
        ("sample", "word[ended] = PAD", "pass"),
        ("sample", "word[ended] = PAD", "word[ended] = EOS"),
        ("sample", "ended |= word == EOS", "ended = word == EOS"),
        ("sample", "<= max_length", "< max_length"),
        ("sample", "and not ended.all()", ""),
        ("sample", "not ended.all()", "not ended.any()"),
        ("sample", "generator=generator", "generator=None"),
        ("sample", "[:, -1]", "[:, 0]"),
        ("sample", "[[BOS, *begin]]", "[[*begin, BOS]]"),
        ("sample", "target[:, 1:]", "target"),
        ("sample", "target[:, 1:]", "target[:, 1 + len(begin) :]"),
        ("sample", "probabilities(logits, **settings)", "probabilities(logits)"),
        ("sample", "torch.multinomial(p, 1, generator=generator)[:, 0]", "p.argmax(-1)"),
    ],
}
# These live, because they compute the same: `choose` with stable=False (a CPU sorts stably anyway); `attention` without
# `if T == 1` (`with_causal` lets a single query see all keys); `answer_log_probs` with a product instead of masked_fill
# (its logits are masked already), or without `wide` (the tests are in single precision); the Transformer's attention
# without `detach` (its weights are only looked at).


def of(target: str) -> str:
    """The chapter in which a function is written."""
    return next(name for name in PAGES if any(one.target == target for one in grading.checks(name)))


def problems(chapter: str, target: str, answers: grading.Answers) -> list[str]:
    """What the tests of a function say, with some functions in the place of the library's."""
    with grading.planted(chapter, answers):
        found = [grading.tried(one) for one in grading.checks(chapter) if one.target == target]
    return [problem for problem in found if problem is not None]


def caught(chapter: str, target: str, node: ast.AST, cell: str = "cell 0") -> bool:
    """Whether one of the tests of a function fails with another in its place."""
    with grading.planted(chapter, {target: (node, cell)}):
        return any(grading.tried(one) is not None for one in grading.checks(chapter) if one.target == target)


@pytest.mark.parametrize("chapter", PAGES)
def test_the_reference_passes_and_every_stub_fails(chapter: str) -> None:
    answers, others = grading.read(CELLS[chapter])
    targets = [one.target for one in grading.checks(chapter)]
    assert 3 <= len(targets) <= 20
    with grading.planted(chapter, answers, others):
        wrong = {one.target: problem for one in grading.checks(chapter) if (problem := grading.tried(one))}
    assert wrong == {}
    for target in dict.fromkeys(targets):
        node, cell = answers[target]
        stub = ast.parse(f"def {node.name}(*arguments, **options):\n    raise NotImplementedError").body[0]
        assert caught(chapter, target, stub, cell), target


def test_all_that_chapters_export_is_written_by_learners_or_kept_for_a_reason() -> None:
    kept = set()
    for chapter in PAGES:
        answers, _ = grading.read(CELLS[chapter])
        targets = {one.target for one in grading.checks(chapter)}
        for name, (node, _) in answers.items():
            plain = {ast.unparse(one) for one in node.decorator_list} <= {"torch.no_grad()", "contextmanager"}
            if name not in targets and plain and ast.get_docstring(node):
                kept.add(name)
    new, gone = sorted(kept - set(KEPT)), sorted(set(KEPT) - kept)
    assert not new, f"write a learner's test of {new} in transformer_lib/student/, or say in KEPT why there is none"
    assert not gone, f"{gone} stand in KEPT, but learners write them, or no chapter exports them: take them out"


@pytest.mark.parametrize(("target", "right", "wrong", "name"), SLIPS, ids=[f"{s[0]}-{i}" for i, s in enumerate(SLIPS)])
def test_a_slip_is_caught_by_the_test_of_its_function(target: str, right: str, wrong: str, name: str | None) -> None:
    chapter, _, target = target.rpartition("/")
    chapter = chapter or of(target)
    text = grading.source(chapter, target)
    assert right in text
    node = ast.parse(text.replace(right, wrong)).body[0]
    found = "\n".join(problems(chapter, target, {target: (node, "cell 0")}))
    assert found and (name is None or f'"{name}' in found.replace('""', '"')), found


def test_every_chapter_has_sixteen_wrong_answers() -> None:
    slips = [target.rpartition("/")[0] or of(target) for target, *_ in SLIPS]
    few = {chapter: n for chapter in PAGES if (n := len(MUTANTS.get(chapter, [])) + slips.count(chapter)) < 16}
    assert few == {}


@pytest.mark.parametrize("chapter", MUTANTS)
def test_the_mutants_of_a_chapter_are_caught(chapter: str) -> None:
    for target, right, wrong in MUTANTS[chapter]:
        text = grading.source(chapter, target)
        assert right in text, (target, right)
        node = ast.parse(text.replace(right, wrong) if right else wrong).body[0]
        assert caught(chapter, target, node), (target, right, wrong)


SILENT = [  # wrong answers that passed once, and what the learner reads now
    ("choose", BY_THRESHOLD, "all scores that equal the k-th are chosen, so more than k"),
    ("Experts.forward", None, "every expert computes for all tokens, and most of it is multiplied by zero"),
    ("choose", "in place", "a method that ends in _ writes into the tensor that was given"),
]


@pytest.mark.parametrize(("target", "wrong", "told"), SILENT, ids=[told for *_, told in SILENT])
def test_wrong_answers_that_passed_once_are_told_what_is_wrong(target: str, wrong: str | None, told: str) -> None:
    chapter = of(target)
    text = grading.source(chapter, target)
    text = text.replace("masked_fill(~mask", "masked_fill_(~mask")
    text = text.replace("rows = visits[:, i].nonzero()[:, 0]", "rows = torch.arange(len(tokens))")
    node = ast.parse(wrong if wrong and wrong != "in place" else text).body[0]
    assert f"This looks like: {told}." in "\n".join(problems(chapter, target, {target: (node, "cell 0")}))


def test_a_message_names_the_function_of_the_library_that_raised() -> None:
    text = grading.source("decoding", "beam_search").replace("extend(model, source, live", "extend(model, None, live")
    answers, _ = grading.read([text])
    found = "\n".join(problems("decoding", "beam_search", answers))
    assert "in the cell" in found and "The library's own `next_words` raised it" in found


def test_there_are_thirty_slips_and_eleven_famous_ones() -> None:
    assert len(SLIPS) >= 30 and len({name for *_, name in SLIPS} - {None}) >= 11


def test_messages_name_sections_and_slips_that_exist() -> None:
    page = (ROOT / "book/appendix/slips.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"(?m)^### (.+)", page))
    for chapter, notebook in PAGES.items():
        headings = set(re.findall(r"(?m)^##+ (.+)$", "\n".join(cell.source for cell in notebook.cells)))
        sections = {one.section for one in grading.checks(chapter)}
        assert sections <= headings, (chapter, sections - headings)
        text = (ROOT / f"transformer_lib/student/{chapter}.py").read_text(encoding="utf-8")
        named = set(re.findall(r"[\"'](\"?[A-Z][^'\"\n]*\w\"?)[\"']: ", text.replace("isn't", "isn’t")))
        assert {name.replace("’", "'") for name in named} <= titles, (chapter, named - titles)


def test_commands_in_the_text_name_chapters_and_functions_that_exist() -> None:
    files = ["README.md", "Makefile", "book/appendix/write_it_yourself.md", "tools/student.py"]
    files += ["transformer_lib/student/__init__.py", "transformer_lib/student/__main__.py"]
    text = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    for file, words in text.items():
        named = re.findall(r"(?:CHAPTER=|--chapter )(\w+)", words)
        assert named and set(named) <= set(PAGES), (file, named)
        for chapter, target in re.findall(r"CHAPTER=(\w+) TAKE=([\w.]+)", words):
            assert grading.source(chapter, target)
    chapter, slip = re.search(r'CHAPTER=(\w+)` names your slip \("(.+?)"\)', text["README.md"]).groups()
    assert f'"{slip}": ' in (ROOT / f"transformer_lib/student/{chapter}.py").read_text(encoding="utf-8")


def test_the_edition_has_stubs_and_no_answers() -> None:
    pytest.importorskip("myst_parser")
    for chapter, page in PAGES.items():
        notebook = student.edition(page)
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        answers, _ = grading.read(["".join(cell["source"]) for cell in code])
        assert not answers.keys() & {one.target for one in grading.checks(chapter)}
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
        assert "google.colab" not in code[0]["source"] or "OWNER" not in code[0]["source"]
        assert any(cell["source"] == student.START for cell in code[:2])
        told = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
        assert not re.search(r"\{[\w:-]+\}`|^[`:]{3,}\{", told, re.M) and "](../" not in told
        assert all(f"- `{one.target}`: {one.expects}" in told for one in grading.checks(chapter))


def test_a_chapter_links_to_its_notebook_if_the_book_has_an_address() -> None:
    book_pages = pytest.importorskip("book_pages")
    page = "<blockquote>promise</blockquote><p>"
    assert book_pages.write_it_yourself(page, "book/transformer/masks", "") == page
    assert book_pages.write_it_yourself(page, "book/appendix/slips", "https://github.com/me/it") == page
    linked = {
        re.search(r"/github/me/it/blob/student/(\S+?)\"", text)[1]
        for one in PAGES.values()
        if (text := book_pages.write_it_yourself(page, one.name.removesuffix(".ipynb"), "https://github.com/me/it"))
    }
    assert linked == set(FILES)


def test_a_folder_is_graded_and_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("myst_parser")
    two = {name: page for name, page in FILES.items() if name[3:-6] in ("scaled_dot_product_attention", "masks")}
    monkeypatch.setattr(student, "pages", lambda: two)
    student.main(tmp_path)
    path = tmp_path / "08_masks.ipynb"
    fresh = path.read_text(encoding="utf-8")
    text = fresh.replace('raise NotImplementedError"', 'return (tokens != 0)[:, None, None]"', 1)
    path.write_text(text, encoding="utf-8")
    student.main(tmp_path)
    assert path.read_text(encoding="utf-8") == text != fresh
    capsys.readouterr()
    assert command.main([str(tmp_path), "--chapter", "8", "--mine"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("✓") == 2 and shown.count("·") == 8 and shown.endswith("2 of 10\n")
    command.main([str(tmp_path), "--chapter", "masks", "--take", "causal_mask"])
    assert "tril(past)" in capsys.readouterr().out
    broken = json.loads(text)
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    return 1 / 0"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "8"])
    shown = capsys.readouterr().out
    assert "ZeroDivisionError" in shown and "line 2: return 1 / 0" in shown and 'under "The axes of a mask"' in shown
    assert shown.count("The same error as above.") == 2
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    return (1"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "masks"])
    shown = capsys.readouterr().out
    assert 'the cell "def causal_mask(length, past=0):" is left out' in shown and "! causal_mask: its cell" in shown
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    length + past"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "08_masks"])
    assert "None: is a return missing?" in capsys.readouterr().out
    monkeypatch.setattr(grading, "LIMIT", 1)
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    while True:\n        pass"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "8"])
    assert "still running after 1 seconds" in capsys.readouterr().out
    for words, said in (
        ([str(path)], "give the folder"),
        ([str(tmp_path), "--chapter", "mask"], "there is in 6 scaled_dot_product_attention, 8 masks"),
        ([str(tmp_path), "--chapter", "masks", "--take", "mask"], "'mask' is none of"),
    ):
        with pytest.raises(SystemExit):
            command.main(words)
        assert said in capsys.readouterr().err


def test_a_notebook_grades_and_takes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Of two attempts the later one counts, and what is taken works in the notebook."""
    cells = [cell.source for cell in PAGES["multi_head_attention"].cells if "export" in cell.marks]
    cells = [student.stubs(cell, {"Attention.split", "Attention.forward"})[0] for cell in cells]
    cells += [
        "class Attention:\n    def split(self, x):\n        return one(x), x",
        "%pip install x\none = 1\ndef one(x): return [x]",
    ]
    scope: dict = {"In": cells}
    for cell in cells[:-2]:
        exec(cell, scope)
    monkeypatch.setattr("builtins.get_ipython", lambda: SimpleNamespace(user_ns=scope), raising=False)
    grading.grade("multi_head_attention", "Attention.split", "Attention.forward")
    shown = capsys.readouterr().out
    assert shown.count("·") == 5 and shown.count("✗") == 2 and shown.endswith("0 of 7\n") and "2 results" in shown
    for name in ("Attention.split", "Attention.forward"):
        grading.take("multi_head_attention", name)
    assert "unflatten(2, (self.n_heads, -1))" in capsys.readouterr().out
    x = torch.randn(2, 5, 12)
    layer, theirs = scope["Attention"](12, 3), torch.nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict(layer.state_dict())
    assert torch.allclose(layer(x, x, torch.tensor(True)), theirs(x, x, x)[0], atol=1e-6)
    grading.take("multi_head_attention", "Attention.join")
    grading.grade("multi_head")
    shown = capsys.readouterr().out
    assert "none of" in shown and "Attention.split" in shown and "'multi_head'" in shown


def test_grading_leaves_the_library_as_it_was() -> None:
    from transformer_lib.models import attention, masks
    from transformer_lib.plain.self_attention import SelfAttention

    def now() -> tuple:
        return masks.causal_mask, vars(SelfAttention)["forward"]

    before = now()
    for chapter, changed in (("masks", 0), ("self_attention", 1)):
        with grading.planted(chapter, grading.read(CELLS[chapter])[0]):
            assert now()[changed] != before[changed] and attention.causal_mask is masks.causal_mask
    assert now() == before
