"""All settings of a training run.

Chapter: Training.
"""

from typing import Annotated, Literal

from pydantic import Field

from transformer_lib.settings import Count, Positive, Probability, Size, settings

__all__ = ["Schedule", "TrainingConfig"]

Schedule = Literal["inverse-sqrt", "linear", "plateau", "constant"]


@settings
class TrainingConfig:
    """Settings of a training run.

    The defaults adapt the paper's recipe to one small machine.

    Source: Vaswani et al. (2017), section 5.
    """

    epochs: Size = 10
    """The most epochs; a run may be resumed with more of them."""
    max_tokens: Size = 4096
    """Tokens of a batch on its longer side, padding included, before noise and BPE-dropout make sources longer."""
    accumulate: Size = 1
    """Batches whose gradients are added up for one update."""
    learning_rate: Positive | None = None
    """The highest learning rate; None: the paper's, (d_model * warmup) ** -0.5."""
    schedule: Schedule = "inverse-sqrt"
    """After warm-up: the paper's, linear to zero, halved at stalls, or constant."""
    warmup: Count = 4000
    """Updates over which the learning rate rises from zero."""
    cooldown: Count = 0
    """Epochs at the end over which the rate falls to zero, in every schedule."""
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """How slowly Adam's two means forget."""
    eps: Positive = 1e-9
    """Added to the root of Adam's second mean."""
    smoothing: Probability = 0.1
    """Label smoothing."""
    consistency: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Weight of the divergence between two passes (R-Drop); 0 for one pass."""
    clip: Positive | None = 1.0
    """The longest gradient; a longer one is scaled down."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """float32 multiplies in TF32 on CUDA; bfloat16 is automatic mixed precision."""
    compile: bool = False
    """Compile model and loss with torch.compile."""
    shard: bool = False
    """Shard weights, gradients and Adam's moments across processes (FSDP2)."""
    average: Count = 5
    """Last epochs whose weights are averaged when training ends; 0 for none."""
    ema: Probability = 0.0
    """Decay of a running average of the weights, measured and kept; 0 for none."""
    patience: Size | None = None
    """Stop after so many epochs in a row without a lower validation loss."""
    workers: Count = 0
    """Processes that prepare batches."""
    seed: Count = 0
    """Seed of the order of batches, dropout and transforms."""

    def __post_init__(self) -> None:
        paper = self.schedule == "inverse-sqrt" and self.warmup
        if not (self.learning_rate or paper):
            raise ValueError("no learning_rate: needs schedule inverse-sqrt, a warmup")
