"""Old place of positions."""  # bridge

from .layers import LearnedPositions as LearnedPositions, SinusoidalPositions as SinusoidalPositions, sinusoids as sinusoids
