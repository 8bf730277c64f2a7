"""The type checker of ``TRANSFORMER_LIB_STRICT=1``: beartype, for which a whole number is a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
