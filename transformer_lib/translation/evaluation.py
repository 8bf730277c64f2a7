"""Scores of a translator on the corpus that it was trained on."""

import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transformer_lib.data.batching import Example, Pair, batches, encode_pairs, pair_lengths
from transformer_lib.data.multi30k import moses_tokenize
from transformer_lib.data.text import one_line
from transformer_lib.metrics import bleu, exact_match
from transformer_lib.training.loop import evaluate_loss
from transformer_lib.translation.run import load_corpus, longest_pair, read_options
from transformer_lib.translation.translator import Translator, find_pretrained, weights_file


def bleu_interval(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> list[float]:
    """BLEU of 95 % of the test sets drawn from this one, with a fixed seed. Source: Koehn (2004)."""
    metric = BLEU(tokenize=tokenize, force=True)
    sides = [[one_line(text) for text in texts] for texts in (hypotheses, references)]
    score = metric.corpus_score(sides[0], sides[1:], n_bootstrap=1000)
    return [round(score._mean + side * score._ci, 2) for side in (-1, 1)]


def evaluate_run(
    folder: Path | str,
    part: str = "test",
    *,
    device: str = "auto",
    weights: str | None = None,
    data: str | None = None,
    **search: Any,
) -> dict[str, Any]:
    """Translate a part of a run's corpus and score the translations.

    Args:
        folder: of the run, or the name of a shipped model.
        part: ``validation`` or ``test``.
        data: where the file of sentence pairs is now, if it has moved.
        search: fields of ``SearchConfig``, such as ``beam_size=1``.

    Returns:
        Loss and perplexity a token, exact match in percent, BLEU with its signature and 95 % interval, chrF, and
        how it was decoded; of Multi30k also the scores that most papers report.

    Raises:
        ValueError: for another part, a folder without a run, or a corpus that is not the one of the training.

    Source: Post (2018) for the signature.
    """
    if part not in ("validation", "test"):
        raise ValueError(f"part={part!r} must be validation or test")
    folder = find_pretrained(folder)
    stored, options = read_options(folder, data)
    translator = Translator.from_pretrained(folder, device=device, weights=weights)
    config = replace(translator.decoding, n_best=1, **search)
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    corpus = load_corpus(replace(options, extra=None), stored.text, tokenizers)
    if (stored.data or {}).get("fingerprint", {}).get(part) != corpus.fingerprint(part):
        told = f"its {part} part differs, or an earlier version split it in another way"
        raise ValueError(f"{options.data} has changed since the training: {told}")
    pairs, longest = getattr(corpus, part), longest_pair(translator.model, options)
    encoded = encode_pairs(pairs, translator.source_tokenizer, translator.target_tokenizer, special=translator.special)
    fitting = [i for i, example in enumerate(encoded) if max(map(len, example)) <= longest]
    kept, examples = [pairs[i] for i in fitting], [encoded[i] for i in fitting]
    if not kept:
        raise ValueError(f"{options.data}: no pair of the {part} part has at most {longest} tokens")
    best = translator.search([pair.source for pair in kept], config, prepared=True)
    log, text = folder / "log.jsonl", translator.text
    planned = (stored.training or {}).get("epochs")
    about = {
        "data": options.data if options.data.startswith("hf:") else Path(options.data).name,
        "part": part,
        "source": text.source,
        "target": text.target,
        "model": options.model,
        "weights": weights_file(folder, weights).stem,
        "epochs": f"{len(log.read_bytes().splitlines())} of {planned}" if log.is_file() else None,
        "beam_size": config.beam_size,
        "length_penalty": config.length_penalty,
        "parameters": sum(parameter.numel() for parameter in translator.model.parameters()),
        "sentences": len(kept),
        "left_out": len(pairs) - len(kept),
    }
    return about | _scores(translator, options.data, kept, examples, [one.text for (one,) in best])


def _scores(
    translator: Translator, data: str, pairs: Sequence[Pair], examples: Sequence[Example], texts: list[str]
) -> dict[str, Any]:
    """All scores of the translations of a corpus."""
    model, tokenize = translator.model, "13a" if translator.text.kind == "raw" else "none"
    references = [pair.target for pair in pairs]
    most = max(4000, *pair_lengths(examples).max(axis=1))
    loss = evaluate_loss(model, batches(examples, most, special=translator.special))
    score = bleu(texts, references, tokenize=tokenize)
    scores = {
        "reference_tokens": sum(len(text.split()) for text in references),
        "loss": round(loss, 4),
        "perplexity": round(math.exp(min(loss, 700)), 3),
        "exact_match": round(100 * exact_match(texts, references), 2),
        "bleu": round(score.score, 2),
        "bleu_interval": bleu_interval(texts, references, tokenize=tokenize),
        "signature": score.signature,
        "chrf": round(CHRF().corpus_score(texts, [references]).score, 2),
    }
    if data != "multi30k":
        return scores
    # without regard to case, and as most papers count: split by Moses's rules
    lower = bleu(texts, references, tokenize="13a", lowercase=True)
    scores |= {"bleu_lowercase": round(lower.score, 2), "bleu_lowercase_signature": lower.signature}
    if find_spec("sacremoses") is None:  # of the extra "moses"
        return scores
    language = str(translator.text.target)
    split = ([moses_tokenize(text, language) for text in side] for side in (texts, references))
    moses = bleu(*split, tokenize="none")
    return scores | {"bleu_moses_lowercase": round(moses.score, 2), "bleu_moses_lowercase_signature": moses.signature}
