"""From probabilities to a translation."""
