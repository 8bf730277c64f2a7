"""Scores of a translator on the corpus that it was trained on."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transformer_lib.data.batching import batches
from transformer_lib.data.captions import Pair
from transformer_lib.data.multi30k import moses_tokenize
from transformer_lib.decoding.beam_search import SearchConfig
from transformer_lib.metrics import alignment_error_rate, bleu, exact_match
from transformer_lib.training.loop import evaluate_loss
from transformer_lib.translation.run import TrainOptions, encode, read_corpus, read_options
from transformer_lib.translation.translator import Translator, find_pretrained, weights_file


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int] = (9, 12, 15),
    tokenize: str = "none",
) -> list[dict[str, Any]]:
    """BLEU of short and of long sentences apart: ``words``, ``sentences`` and ``bleu`` of each group.

    Args:
        edges: the most words of a source sentence in each group; the last group has all longer ones.
        tokenize: as for ``bleu``.

    Raises:
        ValueError: if the texts do not pair up, or the edges do not grow.

    Source: Bahdanau et al. (2015), figure 2.
    """
    if any(low >= high for low, high in pairwise((0, *edges))):
        raise ValueError(f"edges={tuple(edges)} must grow, from 1 at least")
    groups: list[list[tuple[str, str, str]]] = [[] for _ in (*edges, 0)]
    names = [f"{low + 1} to {high}" for low, high in pairwise((0, *edges))]
    names.append(f"{edges[-1] + 1} or more" if edges else "any")
    for row in zip(sources, hypotheses, references, strict=True):
        groups[bisect_left(edges, len(row[0].split()))].append(row)
    table = []
    for name, group in zip(names, groups, strict=True):
        if group:
            _, texts, expected = zip(*group, strict=True)
            score = bleu(texts, expected, tokenize=tokenize).score
            table.append({"words": name, "sentences": len(group), "bleu": round(score, 2)})
    return table


def bleu_interval(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a", n_samples: int = 1000
) -> list[float]:
    """BLEU of 95 % of the test sets drawn from this one, with a fixed seed. Source: Koehn (2004)."""
    metric = BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=n_samples)
    return [round(score._mean + side * score._ci, 2) for side in (-1, 1)]


def evaluate_run(
    folder: Path | str,
    part: str = "test",
    config: SearchConfig | None = None,
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
        Loss and perplexity a token, exact match in percent, BLEU with its signature and 95 % interval, chrF, BLEU by
        length, and how it was decoded; the alignment error rate, where model, tokens and corpus allow.

    Raises:
        ValueError: for another part, a folder without a run, or a corpus that is not the one of the training.

    Source: Post (2018) for the signature.
    """
    if part not in ("validation", "test"):
        raise ValueError(f"part={part!r} must be validation or test")
    folder = find_pretrained(folder)
    settings, options = read_options(folder, data)
    translator = Translator.from_pretrained(folder, device=device, weights=weights)
    corpus = read_corpus(settings, options, (part,))
    examples, pairs = encode(corpus, part, translator, replace(options, skip_bad=True))
    config = replace(config or translator.decoding, n_best=1, **search)
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    hypotheses = [best[0].text for best in translator.search(sources, config, prepared=True)]
    widest = max(max(map(len, ids)) for ids in examples)
    loss = evaluate_loss(translator.model, batches(examples, max(4000, widest)))
    tokenize = "13a" if translator.text.kind == "raw" else "none"
    score = bleu(hypotheses, references, tokenize=tokenize)
    return {
        "data": Path(options.data).name,
        "part": part,
        "source": translator.text.source,
        "target": translator.text.target,
        "model": options.model,
        "weights": weights_file(folder, weights).stem,
        "epochs": _epochs(folder, (settings.training or {}).get("epochs")),
        "beam_size": config.beam_size,
        "length_penalty": config.length_penalty,
        "parameters": sum(parameter.numel() for parameter in translator.model.parameters()),
        "sentences": len(pairs),
        "left_out": len(getattr(corpus, part)) - len(pairs),
        "reference_tokens": sum(len(text.split()) for text in references),
        "loss": round(loss, 4),
        "perplexity": round(math.exp(loss), 3),
        "exact_match": round(100 * exact_match(hypotheses, references), 2),
        "bleu": round(score.score, 2),
        "bleu_interval": bleu_interval(hypotheses, references, tokenize=tokenize),
        "signature": score.signature,
        "chrf": round(CHRF().corpus_score(hypotheses, [references]).score, 2),
        "by_length": bleu_by_length(sources, hypotheses, references, tokenize=tokenize),
        **_photograph_scores(options, str(translator.text.target), hypotheses, references),
        **_alignment(translator, pairs),
    }


def _epochs(folder: Path, planned: int | None) -> str | None:
    """The epochs that a run has come to, and those that were planned; None for a translator without a log."""
    log = folder / "log.jsonl"
    return f"{len(log.read_text(encoding='utf-8').splitlines())} of {planned}" if log.is_file() else None


def _photograph_scores(
    options: TrainOptions, language: str, hypotheses: list[str], references: list[str]
) -> dict[str, Any]:
    """BLEU of Multi30k without regard to case, and as most papers count: lower-cased, split by Moses's rules."""
    if options.data != "multi30k":
        return {}
    split = [[moses_tokenize(text, language) for text in texts] for texts in (hypotheses, references)]
    scores = {
        "bleu_lowercase": bleu(hypotheses, references, tokenize="13a", lowercase=True),
        "bleu_moses_lowercase": bleu(*split, tokenize="none"),
    }
    table: dict[str, Any] = {}
    for name, score in scores.items():
        table |= {name: round(score.score, 2), f"{name}_signature": score.signature}
    return table


def _alignment(translator: Translator, pairs: list[Pair]) -> dict[str, Any]:
    """The alignment error rate, where there is something to compare with."""
    words = translator.source_tokenizer.level == "word"
    if not (hasattr(translator.model, "align") and words and pairs[0].alignment):
        return {}
    from transformer_lib.models.bahdanau import attention_maps, best_links

    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    links = [best_links(weights) for weights in attention_maps(translator.model, pairs, *tokenizers)]  # type: ignore[arg-type]
    return {"alignment_error_rate": round(alignment_error_rate(links, [pair.alignment for pair in pairs]), 4)}
