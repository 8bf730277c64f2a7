"""Sentences with special names in them, two tokenizers that learned them, and strings that look like special ids."""

from transformer_lib.data.tokenizer import Tokenizer

TEXTS = [
    "the small dog runs through the park .",
    "the dogs are running and the children are running too .",
    "der kleine Hund läuft durch den Park .",
    "die Hunde laufen, und die Kinder laufen auch.",
    "<pad> <s> </s> <unk> <pad> </s> <pad>",
] * 3
BPE = Tokenizer.train(TEXTS, vocab_size=330)
WORDS = Tokenizer.train(TEXTS, level="word")
LOOK_ALIKES = ["<pad>", "<s>", "</s>", "<unk>", "[PAD]", "⟨unk⟩", "<|endoftext|>", " ", "  ", "\n", "Ġ", "▁"]
