"""Learning from pairs of sentences."""
