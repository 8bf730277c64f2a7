"""Where the settings of training were.

Chapter: Training.
"""

from transformer_lib.training.trainer import TrainingConfig  # bridge

PRECISIONS = {"float32": None, "bfloat16": None}  # bridge
SCHEDULES = ("inverse-sqrt", "linear", "plateau", "constant")  # bridge
__all__: list[str] = []
