"""Slow and simple versions of the searches, to judge the fast ones by."""

from itertools import product

import torch
from torch import Tensor, nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.beam_search import Hypotheses, SearchConfig
from transformer_lib.decoding.greedy import penalize_repetition
from transformer_lib.models.seq2seq import eval_mode


class NoCache(nn.Module):
    """A model that encodes and decodes everything again at each step; its state is a plain dictionary."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.max_target_length = model.max_target_length
        if hasattr(model, "encode"):
            self.encode = model.encode

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.model(source, target) if hasattr(self, "encode") else self.model(target)

    def start(self, source: Tensor) -> dict[str, Tensor]:
        return {"source": source, "written": source[:, :0]}

    def step(self, token: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        written = torch.cat([state["written"], token[:, None]], 1)
        return self(state["source"], written)[:, -1], {**state, "written": written}
