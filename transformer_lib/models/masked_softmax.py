"""Old place of masked softmax."""  # bridge

from .attention import attend as attend, masked_softmax as masked_softmax
