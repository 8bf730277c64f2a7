"""Settings that refuse bad values through their types."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from typing_extensions import dataclass_transform

Size = Annotated[int, Field(gt=0, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
Probability = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass_transform(frozen_default=True)
def settings(cls: type) -> type:
    """A frozen dataclass that checks its fields and refuses unknown ones with a ``ValueError``."""
    return dataclass(cls, frozen=True, config=ConfigDict(extra="forbid"))
