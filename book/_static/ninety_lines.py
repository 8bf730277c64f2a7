# fmt: off
"""A Transformer in ninety lines of PyTorch: training, greedy translation, and the parameter names of transformer_lib."""

import math

import torch
from torch import nn
from torch.nn import functional as F

PAD, BOS, EOS = 0, 1, 2


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj = nn.Linear(d_model, d_model)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x, memory, mask):
        parts = zip((x, memory, memory), self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        q, k, v = (F.linear(y, w, b).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y, w, b in parts)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        for linear in (self.linear1, self.linear2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        return self.linear2(F.relu(self.linear1(x)))


class Layer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout, cross):
        super().__init__()
        self.self_attn = Attention(d_model, n_heads)
        self.cross_attn = Attention(d_model, n_heads) if cross else None
        self.feed_forward, self.dropout = FeedForward(d_model, d_ff), nn.Dropout(dropout)
        for i in range(2 + cross):
            setattr(self, f"norm{i + 1}", nn.LayerNorm(d_model))

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.norm1(x + self.dropout(self.self_attn(x, x, mask)))
        if self.cross_attn is None:
            return self.norm2(x + self.dropout(self.feed_forward(x)))
        x = self.norm2(x + self.dropout(self.cross_attn(x, memory, memory_mask)))
        return self.norm3(x + self.dropout(self.feed_forward(x)))


def sinusoids(length, d_model):
    angle = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


class Transformer(nn.Module):
    def __init__(self, source_words, target_words, d_model=96, n_heads=4, n_layers=2, d_ff=192, dropout=0.0):
        super().__init__()
        self.source_embedding = nn.Embedding(source_words, d_model, padding_idx=PAD)
        self.target_embedding = nn.Embedding(target_words, d_model, padding_idx=PAD)
        for table in (self.source_embedding, self.target_embedding):
            nn.init.normal_(table.weight, std=d_model**-0.5)
            nn.init.zeros_(table.weight.data[PAD])
        for name in ("encoder", "decoder"):
            layers = [Layer(d_model, n_heads, d_ff, dropout, name == "decoder") for _ in range(n_layers)]
            setattr(self, name, nn.ModuleDict({"layers": nn.ModuleList(layers)}))
        self.output, self.dropout = nn.Linear(d_model, target_words, bias=False), nn.Dropout(dropout)
        self.output.weight = self.target_embedding.weight

    def embed(self, tokens, table):
        d_model = table.embedding_dim
        positions = sinusoids(tokens.shape[1], d_model).to(table.weight)
        return self.dropout(table(tokens) * math.sqrt(d_model) + positions)

    def forward(self, source, target):
        padding = (source != PAD)[:, None, None]
        memory = self.embed(source, self.source_embedding)
        for layer in self.encoder["layers"]:
            memory = layer(memory, padding)
        causal = torch.ones(target.shape[1], target.shape[1], device=target.device).tril().bool()
        x = self.embed(target, self.target_embedding)
        for layer in self.decoder["layers"]:
            x = layer(x, causal, memory, padding)
        return self.output(x)


def train(model, batches, rate=3e-3, warmup=60):
    optimizer = torch.optim.Adam(model.train().parameters(), betas=(0.9, 0.98), eps=1e-9)
    for update, (source, target) in enumerate(batches):
        optimizer.param_groups[0]["lr"] = rate * min((update + 1) / warmup, 1 - update / len(batches))
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def translate(model, source, max_length=50):
    target = torch.full((len(source), 1), BOS, device=source.device)
    while target.shape[1] < max_length and not (target == EOS).any(1).all():
        word = model.eval()(source, target)[:, -1, EOS:].argmax(-1) + EOS  # never PAD or BOS
        target = torch.cat([target, word[:, None]], 1)
    return target
