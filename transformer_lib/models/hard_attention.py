"""Hard attention: one position, drawn at random, with the gradients of REINFORCE and of straight-through Gumbel-
softmax.

``transformer_lib.plain.hard_attention`` is the same model as its chapter builds it.
"""

__all__ = ["gumbel_like", "HardAttention", "HardConfig", "reinforce", "HardSeq2Seq"]

import math
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.batching import Batch
from transformer_lib.models.attention import masked_softmax
from transformer_lib.models.bahdanau import AlignedMemory, Attention, Score
from transformer_lib.models.loss import Loss
from transformer_lib.models.luong import LuongSeq2Seq, make_score
from transformer_lib.models.recurrent import RecurrentSizes
from transformer_lib.models.seq2seq import check_tokens, shares_memory, token_losses
from transformer_lib.settings import Positive, Size, settings


def gumbel_like(scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
    """Independent draws from the standard Gumbel distribution.

    Source: Jang et al. (2017), section 2.1.
    """
    return -torch.empty_like(scores).exponential_().log()


class HardAttention(Attention):
    """Attention to one position: drawn in training, the best in evaluation.

    In training it is drawn from the softmax. With ``gumbel`` the weights carry the
    gradient of a relaxed draw; with ``reinforce``, none.
    Source: Xu et al. (2015), section 4.1; Jang et al. (2017), section 2.2.
    """

    def __init__(
        self,
        score: Score,
        *,
        estimator: str = "reinforce",
        temperature: float = 1.0,
    ) -> None:
        super().__init__(score)
        self.estimator, self.temperature = estimator, temperature

    def perturb(self, scores: Float[Tensor, "B T S"]) -> Float[Tensor, "B T S"]:
        """Scores whose largest is the choice: with Gumbel noise in training."""
        return scores + gumbel_like(scores) if self.training else scores

    @shares_memory
    def forward(
        self,
        queries: Float[Tensor, "B T H"],
        memory: AlignedMemory,
        positions: Int[Tensor, " T"] | None = None,  # only windows need them
    ) -> tuple[Tensor, ...]:
        """Contexts, one-hot weights, log-probabilities, entropies, and queries.

        Log-probabilities and entropies are (B, T).
        """
        scores = self.score.compare(queries, memory.keys)  # (B, T, S)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        mask = memory.mask[:, None]  # (B, 1, S)
        lowest = torch.finfo(scores.dtype).min

        # one position for each query
        noisy = self.perturb(scores)
        best = noisy.masked_fill(~mask, lowest).argmax(-1)  # (B, T)
        weights = F.one_hot(best, scores.shape[-1]) * mask.to(scores.dtype)

        # what the loss needs: log alpha, and its entropy
        log_alpha = scores.masked_fill(~mask, lowest).log_softmax(-1)
        log_alpha = log_alpha.masked_fill(~mask, 0)
        log_probs = (weights * log_alpha).sum(-1)
        entropy = -(masked_softmax(scores, mask) * log_alpha).sum(-1)

        if self.training and self.estimator == "gumbel":  # straight through
            relaxed = masked_softmax(noisy / self.temperature, mask)
            weights = weights + (relaxed - relaxed.detach())
        weights = weights.to(memory.outputs.dtype)
        return weights @ memory.outputs, weights, log_probs, entropy, queries


@settings
class HardConfig(RecurrentSizes):
    """Sizes of a translator with hard attention, and how it learns to attend."""

    score: Literal["dot", "general", "concat", "location"] = "general"
    input_feeding: bool = False  # with it, a draw affects all later words
    max_source_length: Size = 100  # in tokens; for the location score only
    estimator: Literal["reinforce", "gumbel"] = "reinforce"
    temperature: Positive = 1.0  # of the relaxed draw; low is close to the draw
    entropy_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1  # bonus per nat of entropy
    baseline: bool = True  # for reinforce: subtract a predicted reward


def reinforce(
    rewards: Float[Tensor, "B T"],
    log_probs: Float[Tensor, "B T"],
    valid: Bool[Tensor, "B T"],
    guess: Float[Tensor, "B T"] | None = None,
    *,
    later: bool = False,
) -> Float[Tensor, "B T"]:
    """Terms whose gradient favours draws with a higher reward than expected.

    Args:
        guess: the predicted reward per step; a tenth of its squared error is added.
        later: whether a draw is also credited with the rewards of all later steps.

    Source: Williams (1992); Xu et al. (2015), section 4.1.
    """
    steps = valid.to(rewards.dtype)  # how many words each draw is credited with
    if later:  # its own word and all later ones: sums from the end
        rewards = rewards.flip(1).cumsum(1).flip(1)
        steps = steps.flip(1).cumsum(1).flip(1)
    if guess is None:
        return -rewards * log_probs
    advantage = rewards - steps * guess.detach()
    error = (guess - rewards / steps.clamp(min=1)).square()
    return 0.1 * error - advantage * log_probs


class HardSeq2Seq(LuongSeq2Seq):
    """Luong's translator with hard attention, which needs a loss of its own.

    Source: Xu et al. (2015), section 4.1.
    """

    def __init__(self, config: HardConfig) -> None:
        c, score = config, make_score(config)
        attention = HardAttention(score, estimator=c.estimator, temperature=c.temperature)
        super().__init__(c, attention)
        self.baseline = None
        if c.baseline and c.estimator == "reinforce":
            last = nn.Linear(c.d_hidden, 1)
            nn.init.zeros_(last.weight)
            nn.init.constant_(last.bias, -math.log(c.target_vocab_size))
            hidden = nn.Linear(c.d_hidden + c.d_model, c.d_hidden)
            self.baseline = nn.Sequential(hidden, nn.Tanh(), last)

    def guess(self, queries: Float[Tensor, "B T H"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T"] | None:
        """The expected rewards, from the states and the correct words."""
        if self.baseline is None:
            return None
        known = torch.cat([queries, self.embedding(target)], -1)
        return self.baseline(known.detach())[..., 0]

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """The cross-entropy; in training, with the gradient over all draws."""
        target, padding = batch.target_output, self.special.padding  # (B, T)
        check_tokens(batch.target_input, self.config.target_vocab_size, "target", padding)
        hidden, state = self.read(batch.target_input, self.start(batch.source))
        smoothing = smoothing if self.training else 0.0
        nats = token_losses(self.output(hidden), target, smoothing, padding)
        if self.training:
            terms = self.surrogate(nats, state.attention, target)
            nats = nats.detach() + (terms - terms.detach())
        return Loss(nats.sum(), (target != padding).sum())

    def surrogate(
        self,
        nats: Float[Tensor, "B T"],
        seen: tuple[Tensor, ...],
        target: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T"]:
        """The terms whose gradient trains the model, zero at padding."""
        c, valid = self.config, target != self.special.padding
        _, log_probs, entropy, queries = seen
        log_probs, entropy = log_probs.where(valid, 0), entropy.where(valid, 0)
        terms = nats - c.entropy_weight * entropy
        if c.estimator == "reinforce":
            rewards = -terms.detach()
            guess = self.guess(queries.where(valid[..., None], 0), target)
            terms = terms + reinforce(rewards, log_probs, valid, guess, later=c.input_feeding)
        return terms.where(valid, 0)
