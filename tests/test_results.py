"""The records of long runs are complete, and the pages quote them as they are."""

import ast
import json
import re
import shlex
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from pages import prose_of, read, record_of

from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.translation.arguments import build_parser
from transformer_lib.translation.cli import _chosen
from transformer_lib.translation.evaluation import evaluate_run
from transformer_lib.translation.options import TrainOptions, load_corpus, read_options
from transformer_lib.translation.translator import (
    Translator,
    find_pretrained,
    pretrained_names,
    read_config,
)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import diversify  # noqa: E402
import real_translators  # noqa: E402
from real_translators import RunConfig  # noqa: E402
from side_by_side import fallen  # noqa: E402

RECORDS = sorted((ROOT / "results").glob("*.json"))


def options_of(record: dict) -> TrainOptions:
    """The options that the command of a record gives."""
    given = build_parser().parse_args(shlex.split(record["command"])[1:])
    return TrainOptions(**_chosen(given))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_says_where_it_comes_from(path):
    record = read(path)
    assert len(record["commit"]) == 40 and record["seeds"] and record["versions"]["torch"] and record["hardware"]
    program = shlex.split(record["command"])
    if program[0] != "transformer-lib":
        assert program[0] == "python" and (ROOT / program[1]).is_file()
    assert not any(word.startswith(("/", "~")) for word in program)  # nobody else has the folders of one machine


def test_the_commits_of_the_records_are_in_the_history():
    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT).stdout.split()

    if git("rev-parse", "--is-shallow-repository") != ["false"]:
        pytest.skip("this copy has no history")
    assert {read(path)["commit"] for path in RECORDS} <= set(git("rev-list", "HEAD"))


@pytest.mark.parametrize("path", [path for path in RECORDS if "rows" not in read(path)], ids=lambda path: path.stem)
def test_a_run_can_be_repeated_from_its_record(path):
    record = read(path)
    assert [line.get("epoch", line.get("pass")) for line in record["curves"]] == list(
        range(1, len(record["curves"]) + 1)
    )
    assert record["parameters"] > 0
    if "real_translators" in record["command"]:
        parts = [shlex.split(part)[1:] for part in record["command"].split("&&")]
        train, *decay = (words for program, *words in parts if program == "benchmarks/real_translators.py")
        given = real_translators.given_options(real_translators.build_parser().parse_args(train))
        again = asdict(RunConfig(**given))
        if decay:
            epochs = real_translators.build_parser().parse_args(decay[0]).epochs
            first = len(record["curves"]) - epochs
            again |= {"decay_epochs": epochs, "decay_from": first, "averaging": real_translators.DECAY_AVERAGING}
        for program, *words in parts:
            if program == "benchmarks/diversify.py" and words[0] == "train":
                last = diversify.build_parser().parse_args(words)
                again |= {"precision": last.precision, "decay_epochs": last.decay, "decay_from": last.epochs}
        assert again == record["options"]
        return
    options = options_of(record)
    for name, value in record["options"].items():  # None leaves a choice to the model
        if name in options.model_options:
            assert options.model_options[name] == value, name
        elif hasattr(options, name):
            assert getattr(options, name) in (value, None), name


@pytest.mark.parametrize("path", [path for path in RECORDS if "rows" in read(path)], ids=lambda path: path.stem)
def test_a_study_is_a_table(path):
    record = read(path)
    assert record["rows"] and all(row.keys() == record["rows"][0].keys() for row in record["rows"])


def test_the_translator_without_attention_on_multi30k():
    record = record_of("multi30k-de-en-gru")
    metrics = record["metrics"]
    assert metrics["test_bleu"]["value"] >= 20
    assert "tok:none" in metrics["test_bleu"]["signature"]
    assert metrics["test_reference_tokens"]["value"] == 12_968 and metrics["test_sentences"]["value"] == 1_000


def test_the_three_models_of_chapter_14_are_those_of_the_record():
    rows = {f"{row['model']}-{row['seed']}": row for row in record_of("three-models")["rows"]}
    cells = json.loads((ROOT / "book/transformer/the_transformer.ipynb").read_text(encoding="utf-8"))["cells"]
    (cell,) = (text for text in ("".join(cell["source"]) for cell in cells) if "RECORD = {" in text)
    shown = ast.literal_eval(cell[cell.index("{", cell.index("RECORD =")) : cell.index("\n}") + 2])
    expected = {name: (row["exact_match"], round(row["seconds"][-1])) for name, row in rows.items()}
    assert shown == expected and len(shown) == 9
    assert all(420_000 < row["parameters"] < 470_000 for row in rows.values())
    prose = prose_of("transformer/the_transformer")
    (cost,) = (row for row in record_of("self-attention-cost")["rows"] if row["words"] == 64)
    assert 6.25 < cost["gru_time"] < 6.75 and cost["gru_work"] < 2
    assert "64 words took a GRU about six and a half times as long" in prose


def test_the_decoder_only_models_of_chapter_19_are_those_of_the_record():
    rows = {"two stacks": [row for row in record_of("three-models")["rows"] if row["model"] == "transformer"]}
    for row in record_of("decoder-only")["rows"]:
        rows.setdefault(row["model"], []).append(row)
    cells = json.loads((ROOT / "book/descendants/gpt.ipynb").read_text(encoding="utf-8"))["cells"]
    (cell,) = (text for text in ("".join(cell["source"]) for cell in cells) if "RECORD = {" in text)
    shown = ast.literal_eval(cell[cell.index("{", cell.index("RECORD =")) : cell.index("\n}") + 2])
    assert shown == {kind: [row["exact_match"][-1] for row in some] for kind, some in rows.items()}
    assert all(len(shown[kind]) == 3 for kind in ("two stacks", "two", "target", "both", "full"))
    nats = [row["nats"] for row in rows["both"]]
    assert all(1.9 < found["source"] < 2.1 for found in nats)
    assert round(sum(found["target"] for found in nats) / 3, 2) == 0.25
    rates = {kind: {row["rate"] for row in some} for kind, some in rows.items()}
    assert rates.pop("two stacks") == {0.003}
    assert all(found == {0.004} for found in rates.values()) and len(rates) == 4
    assert {row["parameters"] for some in rows.values() for row in some} == {469_632, 475_200, 481_632}
    table = [line for line in prose_of("descendants/gpt").splitlines() if re.match(r"\| (one|two) stack", line)]
    for line, kind in zip(table, ("two stacks", "two", "target", "both", "full"), strict=True):
        scores = shown[kind]
        cell = f"{round(sum(scores) / 3)} % ({round(min(scores))} to {round(max(scores))})"
        assert line.endswith(f"| {cell} |"), line


@pytest.mark.parametrize("page", ["history/encoder_decoder", "history/learning_to_align"])
def test_the_bottleneck_is_what_was_recorded(page):
    rows = {row["name"]: list(row["exact_match"].values()) for row in record_of("bottleneck")["rows"]}
    shown = literal(page, "RECORD")
    assert shown == {name: rows[name] for name in shown}
    if page.startswith("history/03"):  # nothing is left out
        assert shown.keys() == {name for name in rows if name.startswith("gru")}


def test_the_cost_of_the_bottleneck_is_told():
    rows = {row["name"]: row for row in record_of("bottleneck")["rows"]}
    prose = prose_of("history/learning_to_align")
    for name in ("gru-256-30-0", "gru-512-30-0", "attention-64-30-0", "gru-192-6-0", "attention-128-6-0"):
        assert f"{rows[name]['parameters']:,} " in prose
    seconds = [round(rows[f"{kind}-128-6-0"]["seconds"]) for kind in ("attention", "gru")]
    assert f"{seconds[0]} seconds against {seconds[1]}" in prose and round(seconds[0] / seconds[1], 1) == 1.6
    losses = [rows[f"gru-128-30-{seed}"]["train_loss"][-1] for seed in range(3)]
    assert f"{min(losses):.3f} to {max(losses):.3f} nats a token" in prose_of("history/encoder_decoder")
    last = [list(rows[f"gru-256-6-{seed}"]["exact_match"].values())[-1] for seed in range(2)]
    assert f"get {last[0]} and {last[1]} % right after six epochs" in prose_of("history/encoder_decoder")


CHAPTER_4 = "history/learning_to_align"


def test_the_table_of_attention_and_width_is_the_record():
    rows = {row["name"]: row for row in record_of("bottleneck")["rows"]}
    lines = [line.split("|")[1:-1] for line in prose_of("history/learning_to_align").splitlines()]
    kinds = {"with": "attention", "without": "gru", "without, reading both ways": "two-way"}
    table = [[cell.strip() for cell in line] for line in lines if line and line[0].strip() in kinds]
    assert len(table) == 7
    for attention, width, weights, epochs, *shares in table:
        name = f"{kinds[attention]}-{width}-{epochs}"
        seeds = [row for key, row in rows.items() if key.rpartition("-")[0] == name]
        assert {f"{row['parameters']:,}" for row in seeds} == {weights}
        scores = [list(row["exact_match"].values()) for row in seeds]
        expected = [sorted(round(sum(row) / 11) for row in scores), sorted(row[-1] for row in scores)]
        assert [[int(number) for number in re.findall(r"\d+", share)] for share in shares] == expected
    means = {
        kind: sum(sum(rows[f"{kind}-128-6-{seed}"]["exact_match"].values()) for seed in range(3)) / 33
        for kind in ("gru", "two-way", "attention")
    }
    assert round(means["two-way"] - means["gru"]) == 9 and "nine points in the mean" in prose_of(CHAPTER_4)
    assert round(means["attention"] - means["two-way"]) == 42 and "another forty-two" in prose_of(CHAPTER_4)


def test_the_words_of_chapter_3_are_those_of_its_record_and_its_output():
    prose = prose_of("history/encoder_decoder")
    (row,) = (row for row in record_of("bottleneck")["rows"] if row["name"] == "gru-128-6-0")
    right, tokens = row["exact_match"]["14"], row["token_accuracy"]["14"] / 100
    assert f"gets {right} % of the sentences right" in prose and f"{tokens:.1%}".replace("%", " %") in prose
    for power in (right / 100) ** (1 / 15), round(tokens, 3) ** 15:
        assert f" = {power:.3f}$" in prose
    cells = read(ROOT / "book/history/encoder_decoder.ipynb")["cells"]
    texts = ["".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", [])]
    (printed,) = (text for text in texts if "model: " in text)
    table = [[cell.strip().replace("**", "") for cell in line.split("|")[1:-1]] for line in prose.splitlines()]
    quoted = [line for line in table if len(line) == 3 and f"{line[0]}\n" in printed]
    assert len(quoted) == 2
    assert all(f"{source}\n  right: {right}\n  model: {ours}\n" in printed for source, right, ours in quoted)


LADDER_PAGE = "translation/translating_real_sentences"
RUNGS = {row["model"]: row for row in record_of("ladder")["rows"]}


def score_and_interval(found):
    return (found["bleu"], *found["interval"])


def shown_score(found):
    return "{:.2f} ({:.1f} to {:.1f})".format(*score_and_interval(found))


def test_attention_is_ahead_of_one_vector_on_multi30k():
    scores = {name: row["beam 5"]["bleu"] for name, row in RUNGS.items()}
    assert list(scores) == sorted(scores, key=scores.get)  # each rung is compared with the one below
    assert scores["gru"] + 5 < min(scores["bahdanau"], scores["luong-global-dot"])
    assert all(row["beam 5 minus the one before"] for row in list(RUNGS.values())[1:])
    sizes = [row["parameters"] for row in RUNGS.values()]
    assert max(sizes) < 1.15 * min(sizes)


def test_the_ladder_is_what_was_recorded():
    prose = prose_of(LADDER_PAGE)
    table = prose[prose.index("| `--model`") :].partition("\n\n")[0].splitlines()
    rungs = [line.split("|")[1:-1] for line in table if line.startswith("| `")]
    shown = {cells[0].strip().strip("`"): [cell.strip() for cell in cells[2:]] for cells in rungs}
    shown.pop("--model")  # the head of the table
    assert shown == {
        name: [
            f"{row['parameters'] / 1e6:.2f}",
            f"{row['epochs']} ({row['best_epoch']})",
            f"{min(epoch['seconds'] for epoch in row['curve']):.0f}",
            shown_score(row["greedy"]),
            shown_score(row["beam 5"]),
        ]
        for name, row in RUNGS.items()
    }


def test_the_transformer_is_held_against_the_literature_with_its_own_record():
    prose = prose_of("translation/translating_real_sentences")
    record = record_of("multi30k-en-de-transformer")
    metrics = record["metrics"]
    assert metrics["test_reference_tokens"]["value"] == 12_103 and metrics["test_sentences"]["value"] == 1_000
    assert "tok:none" in metrics["test_bleu"]["signature"] and record["parameters"] <= 3_000_000
    assert record["decoding"]["beam_size"] == 5 and record["decoding"]["weights"] == "averaged"
    assert metrics["test_bleu"]["value"] >= 39.9
    penalty = record["decoding"]["length_penalty"]
    assert f"evaluate runs/multi30k-en-de-transformer --length-penalty {penalty}" in prose
    assert f"reaches {metrics['test_bleu']['value']:.2f} BLEU" in prose
    assert f"in {len(record['curves'])} epochs" in prose
    commands = prose.replace("\\\n", " ").splitlines()
    shown = next(line for line in commands if "--output runs/multi30k-en-de-transformer" in line)
    assert shlex.split(shown) == shlex.split(record["command"])


def test_the_layer_that_died_is_the_one_that_was_recorded():
    rows = record_of("head-entropy")["rows"]
    prose = prose_of("translation/translating_real_sentences")
    for row in rows:
        cells = [row["norm"], f"{row['validation_loss']:.3f}", f"{row['validation_bleu']:.2f}"]
        assert f"| {' | '.join([*cells, row['encoder'], row['decoder']])} |" in prose
    dead, alive = (
        [float(row[part].split(",")[0]) for row in rows if row["norm"] == norm for part in ("encoder", "decoder")]
        for norm in ("post-norm", "pre-norm")
    )
    assert max(dead) < 0.1 and min(alive) > 1
    before = record_of("multi30k-en-de-transformer-post-norm")
    losses = {row["norm"]: row["validation_loss"] for row in rows}
    lowest = min(line["validation_loss"] for line in before["curves"])
    assert losses["pre-norm"] < losses["post-norm"] < lowest
    score = before["metrics"]["test_bleu"]["value"]
    assert f"24 epochs, has {score:.2f} BLEU" in prose and len(before["curves"]) == 24


def test_the_length_penalty_was_chosen_as_the_chapter_says():
    score = {row["alpha"]: row["validation_bleu"] for row in record_of("length-penalty")["rows"]}
    prose = " ".join(prose_of("translation/translating_real_sentences").split())
    assert f"where 0 gives {score[0]:.2f}, 0.6 gives {score[0.6]:.2f}, and 1.0 gives {score[1.0]:.2f}" in prose
    assert f"A penalty of 1.5 gives {score[1.5]:.2f}" in prose and score[1.5] - score[1.0] < 0.1
    assert f"with 2.0 it falls to {score[2.0]:.2f}" in prose
    assert record_of("multi30k-en-de-transformer")["decoding"]["length_penalty"] == 1.0


def test_the_ladder_on_captions_is_what_was_recorded():
    rows = record_of("captions-ladder")["rows"] + record_of("captions-ladder-gru")["rows"]
    prose = prose_of("translation/translating_real_sentences")
    table = prose[prose.index("| model | epochs | minutes |") :].splitlines()[2 : 2 + len(rows)]
    shown = [[cell.strip() for cell in line.split("|")[2:-1]] for line in table]
    written = {"passes": "{}", "minutes": "{:.1f}", "exact_match": "{:.1f}", "perplexity": "{:.3f}"}
    assert shown == [[form.format(row[name]) for name, form in written.items()] for row in rows]
    assert all(row["minutes"] <= 12.2 for row in rows) and "at most twelve minutes" in prose
    transformer, bahdanau, gru = rows
    assert f"{round(10 * (100 - gru['exact_match']))} in a thousand wrong" in prose
    assert transformer["exact_match"] >= 99 and "Is the Transformer always ahead?" in prose
    assert (bahdanau["exact_match"] > transformer["exact_match"]) == ("it is not. Here three models" in prose)
    ratio = transformer["minutes"] / transformer["passes"] / (bahdanau["minutes"] / bahdanau["passes"])
    assert f"An epoch takes the Transformer {ratio:.1f} times as long" in prose
    earlier = prose_of("history/encoder_decoder")
    assert f"a larger GRU of this kind learns to get {gru['exact_match']:.0f} % of new ones right" in earlier
    assert "from 50,000 captions, in twelve minutes" in earlier and round(gru["minutes"]) == 12
    assert gru["million_parameters"] > 0.8 and "50000 captions; beam 5" in record_of("captions-ladder-gru")["data"]
    first = record_of("captions-ladder-post-norm")["rows"][0]
    assert f"at {first['exact_match']} % after three epochs" in prose and first["passes"] == 3


def test_chapter_2_says_how_many_pieces_the_translators_of_real_sentences_have():
    records = [read(path) for path in RECORDS if path.stem.startswith("multi30k-")]
    trained = [record for record in records if record["command"].startswith("transformer-lib train")]
    assert {options_of(record).vocab_size for record in trained} | {RunConfig.vocab_size} == {5000, 8000}
    assert "use 5,000 or 8,000" in prose_of("history/words_to_batches")


def test_by_bleu_chapter_1_has_a_missing_word_above_a_wrong_one():
    cells = read(ROOT / "book/history/translation_as_prediction.ipynb")["cells"]
    texts = ["".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", [])]
    (table,) = (text for text in texts if "perplexity\nreference " in text)
    bleu = {line[:18].strip(): float(line[18:].split()[1]) for line in table.splitlines()[1:]}
    assert bleu["too short"] > bleu["one word wrong"]


def test_german_to_english_reaches_what_was_asked_for():
    record = record_of("multi30k-de-en-transformer")
    assert record["metrics"]["test_bleu"]["value"] >= 41 and record["parameters"] <= 3_000_000
    assert record["metrics"]["test_reference_tokens"]["value"] == 12_968
    assert record["decoding"] == {"weights": "averaged", "beam_size": 5, "length_penalty": 0.6}


def literal(page, name):
    """The value that a cell of a page writes down by hand."""
    cells = json.loads((ROOT / f"book/{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    (cell,) = (text for text in ("".join(cell["source"]) for cell in cells) if f"\n{name} = " in text)
    tree = ast.parse(cell)
    (found,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return ast.literal_eval(found)


def test_the_words_about_the_ladder_are_those_of_the_record():
    prose = prose_of(LADDER_PAGE)
    gru, bahdanau, luong, transformer = RUNGS.values()
    assert list(RUNGS) == ["gru", "bahdanau", "luong-global-dot", "transformer"]
    beam = [row["beam 5"]["bleu"] for row in RUNGS.values()]
    ends = [row["beam 5 minus the one before"] for row in (bahdanau, luong, transformer)]
    first, between, last = ("{:.2f} to {:.2f}".format(*pair) for pair in ends)
    assert f"it is {beam[1] - beam[0]:.1f} points with a beam of 5" in prose and f"gives {first} points" in prose
    assert f"lie {beam[2] - beam[1]:.2f} points in favour of Luong's ({between}), so the two cannot be told" in prose
    assert ends[1][0] < 0 < ends[1][1] and ends[2][0] > 0
    assert f"to the Transformer it is {beam[3] - beam[2]:.1f} more ({last})" in prose
    gains = [row["beam 5"]["bleu"] - row["greedy"]["bleu"] for row in RUNGS.values()]
    assert f"is worth {min(gains):.1f} to {max(gains):.1f} points to each" in prose
    times = [min(epoch["seconds"] for epoch in row["curve"]) for row in (gru, transformer)]
    assert f"takes {times[1] / times[0]:.1f} times as long as that of `gru`" in prose
    late = max(row["curve"][-4]["validation_loss"] - row["validation_loss"] for row in RUNGS.values())
    assert f"by more than {late:.3f} nats" in prose and {row["epochs"] for row in RUNGS.values()} == {30}
    groups = [[group["bleu"] for group in row["by_length"]] for row in RUNGS.values()]
    ahead = [[scores[place] - groups[0][place] for place in (0, -1)] for scores in (groups[1], groups[3])]
    words = "Bahdanau's model is {:.1f} points ahead of it, on those of 16 or more {:.1f}; "
    assert (words + "the Transformer is {:.1f} and {:.1f} points ahead").format(*ahead[0], *ahead[1]) in prose
    lost = [round(100 * (1 - groups[place][-1] / groups[place][0])) for place in (0, 1, 3)]
    assert "loses {} % of its score, Bahdanau's model {} % and the Transformer {} %".format(*lost) in prose
    assert f"{gru['by_length'][-1]['sentences']} have 16 words or more" in prose
    for number, group in enumerate(gru["by_length"][1:], 1):  # "they do not overlap for 10 words or more"
        others = (row["by_length"][number]["interval"][0] for row in (bahdanau, luong, transformer))
        assert group["interval"][1] < min(others)
    for name, size in (("gru", "7.6"), ("bahdanau", "7.8")):  # of an older recipe
        record = record_of(f"multi30k-de-en-{name}")
        assert f"{record['metrics']['test_bleu']['value']:.2f}" in prose and f"{record['parameters'] / 1e6:.1f}" == size


def test_other_seeds_give_the_ladder_of_the_record():
    scores = {
        name: [RUNGS[name]["beam 5"]["bleu"], *(other["beam 5"]["bleu"] for other in RUNGS[name]["other seeds"])]
        for name in ("bahdanau", "transformer")
    }
    assert literal(LADDER_PAGE, "OTHER_SEEDS") == {
        1: tuple(scores["bahdanau"][1:]),
        3: tuple(scores["transformer"][1:]),
    }
    assert all([other["seed"] for other in RUNGS[name]["other seeds"]] == [1, 2] for name in scores)
    assert all(other["epochs"] == 30 for name in scores for other in RUNGS[name]["other seeds"])
    prose = " ".join(prose_of(LADDER_PAGE).split())
    for label, name in (("Bahdanau's model", "bahdanau"), ("the Transformer", "transformer")):
        first, second, third = sorted(scores[name])
        assert f"{label} has {first:.2f}, {second:.2f} and {third:.2f}" in prose
    means = {name: statistics.mean(found) for name, found in scores.items()}
    assert f"On average it is {means['transformer'] - means['bahdanau']:.1f} points ahead" in prose
    apart = min(scores["transformer"]) - max(scores["bahdanau"])
    assert apart > 0 and f"its lowest score is {apart:.1f} above the highest of Bahdanau's" in prose


def test_what_helps_with_little_data_is_what_was_recorded():
    rows = {row["change"]: row for row in record_of("small-data")["rows"]}
    expected = {name: (tuple(row["bleu"]), tuple(row["bleu_with_typing_errors"])) for name, row in rows.items()}
    assert literal("translation/training", "SMALL") == expected
    prose = prose_of("translation/training")
    gains = [
        after - before
        for row in rows.values()
        for before, after in zip(
            row["bleu_before_the_fall_last_weights"], row["bleu_before_the_fall_averaged"], strict=True
        )
    ]
    assert (
        f"the averaged weights scored {statistics.mean(gains):.1f} BLEU higher on average than the latest ones" in prose
    )
    assert f"in {sum(gain > 0 for gain in gains)} of {len(gains)} trainings" in prose
    plain, dropped = (statistics.mean(rows[name]["loss"]) for name in ("plain", "R-Drop"))
    assert f"from {plain:.2f} to {dropped:.2f}" in prose and f"here there were {rows['plain']['updates']:,}" in prose


def test_what_translations_of_translators_brought_is_what_was_recorded():
    prose = prose_of("translation/training")
    alone, mixed = record_of("multi30k-en-de-raw"), record_of("multi30k-en-de-raw-translations")
    first = record_of("multi30k-en-de-raw-19")
    curves = [{line["epoch"]: line.get("validation_bleu") for line in record["curves"]} for record in (alone, mixed)]
    for name, curve in zip(("the pairs alone", "with translations"), curves, strict=True):
        cells = " | ".join(f"{curve[epoch]:.2f}" for epoch in (19, 24, 29, 34, 39, 43, 49, 53))
        assert f"| {name} | {cells} |" in prose
    assert alone["curves"][:19] == mixed["curves"][:19] == first["curves"]
    assert f"ahead by {curves[1][24] - curves[0][24]:.1f} points" in prose
    scores = [record["metrics"]["test_bleu"]["value"] for record in (alone, mixed)]
    low, high = mixed["test_bleu_minus"]["interval_95"]
    assert f"the difference is {scores[0] - scores[1]:.2f} points in favour of the control" in prose
    assert f"from $-${high:.2f} to {-low:.2f} in 95 %" in prose


def test_scores_by_length_are_those_of_the_records():
    prose = prose_of(LADDER_PAGE)
    table = prose[prose.index("| BLEU by words of the source") :].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in table]
    assert rows == [[f"{group['bleu']:.2f}" for group in row["by_length"]] for row in RUNGS.values()]
    drawn = list(literal(LADDER_PAGE, "BY_LENGTH").values())
    assert drawn == [[score_and_interval(group) for group in row["by_length"]] for row in RUNGS.values()]
    assert all(group["sentences"] >= 100 for row in RUNGS.values() for group in row["by_length"])


def test_the_figure_of_the_ladder_is_what_was_recorded():
    expected = [tuple(score_and_interval(row[search]) for search in ("greedy", "beam 5")) for row in RUNGS.values()]
    assert list(literal(LADDER_PAGE, "LADDER").values()) == expected
    cells = json.loads((ROOT / f"book/{LADDER_PAGE}.ipynb").read_text(encoding="utf-8"))["cells"]
    (alt,) = (
        cell["metadata"]["mystnb"]["image"]["alt"]
        for cell in cells
        if "mystnb" in cell["metadata"] and "LADDER = {" in "".join(cell["source"])
    )
    assert all(f"{row['beam 5']['bleu']:.1f}" in alt for row in RUNGS.values())


def test_the_translators_of_cased_text_are_told_with_their_intervals():
    prose = prose_of("translation/translating_real_sentences")
    for pair in ("en-de", "de-en"):
        record = record_of(f"multi30k-{pair}-raw")
        scores = (record["metrics"][name] for name in ("test_bleu", "test_bleu_cased"))
        cells = ["{:.2f} ({:.2f} to {:.2f})".format(score["value"], *score["interval_95"]) for score in scores]
        assert f"| `multi30k-{pair}` | {len(record['curves'])} | {' | '.join(cells)} |" in prose
    shipped, longer = record_of("multi30k-en-de-raw"), record_of("multi30k-en-de-raw-longer")
    first = record_of("multi30k-en-de-raw-19")
    best = [max(tried["bleu"] for tried in record["decoding_choice"]["tried"]) for record in (first, shipped, longer)]
    assert f"After {len(first['curves'])} epochs it had {first['metrics']['test_bleu']['value']:.2f}" in prose
    ends = shipped["test_bleu_minus"]
    assert ends["model"] == "multi30k-en-de-19" and "({:.2f} to {:.2f} in 95 %".format(*ends["interval_95"]) in prose
    assert f"On the validation part the score rose from {best[0]:.1f} to {best[1]:.1f}." in prose
    same = sum(one == other for one, other in zip(first["curves"], longer["curves"], strict=False))
    assert same == 11 and len(longer["curves"]) == 35
    told = "the same for the first eleven epochs and 35 long, shows how far such numbers can be trusted: it reached"
    assert f"{told} {best[2]:.1f} on the validation part, but only" in prose
    assert f"but only {longer['metrics']['test_bleu']['value']:.2f} on the test set" in prose


def test_what_the_chapter_says_of_the_captions_in_multi30k(data_directory):
    sentences = [pair.source.lower() for pair in load_multi30k("train", "en", "de")]
    assert len(sentences) == 29_000
    assert sum(re.search(r"\bnot\b", sentence) is not None for sentence in sentences) == 29
    assert sum("?" in sentence for sentence in sentences) == 7
    prose = prose_of("translation/translating_real_sentences")
    assert '29 have the word "not"' in prose and "Seven of the training sentences have a question mark" in prose
    german = [pair.target.lower() for pair in load_multi30k("train", "en", "de")]
    played = [b for a, b in zip(sentences, german, strict=True) if re.search(r"\bfootball\b", a)]
    assert [len(played), *(sum(word in b for b in played) for word in ("football", "fußball"))] == [202, 165, 37]
    assert "of the 202 English captions with *football*, 165 have *Football* in the German one and 37" in prose


def test_the_rare_words_of_the_twenty_captions_are_counted(data_directory):
    counts = Counter()
    for pair in load_multi30k("train", "en", "de"):
        counts.update(set(re.findall(r"[a-z]+", pair.source.lower())))
    rows = literal("translation/translating_real_sentences", "JUDGED")
    rarest = {caption: min(counts[word] for word in re.findall(r"[a-z]+", caption.lower())) for caption, _, _ in rows}
    wrong = sorted(rarest[caption] for caption, _, verdict in rows if verdict == "wrong")
    others = sorted(rarest[caption] for caption, _, verdict in rows if verdict != "wrong")
    assert wrong == [0, 2, 3, 13, 50, 62] and others[:2] == [6, 9] and counts["lava"] == 2
    told = {"afraid": 0, "exam": 2, "grandmother": 3, "granddaughter": 3, "cook": 13, "oven": 13}
    told |= {"father": 50, "newspaper": 62, "tomatoes": 6, "soap": 9}
    assert {word: counts[word] for word in told} == told
    assert "*Lava* is in two of the 29,000 captions" in prose_of("translation/translating_real_sentences")


@pytest.mark.slow
def test_the_untidy_lines_come_out_as_the_chapter_says():
    lines = (ROOT / "tests/data/odd_inputs.tsv").read_text(encoding="utf-8").splitlines()
    rows = [row for row in (line.split("\t") for line in lines[1:]) if row[1] == "en"]
    written = Translator.from_pretrained("multi30k-en-de", device="cpu").translate([row[2] for row in rows])
    right: dict[str, list[bool]] = {}
    for (kind, _, _, wanted), found in zip(rows, written, strict=True):
        right.setdefault(kind, []).append(found in wanted.split(" | "))
    assert sum(map(sum, right.values())) == 25 and len(rows) == 32
    assert all(all(right[kind]) for kind in ("no capital", "no full stop", "typo", "two sentences"))
    assert not any(any(right[kind]) for kind in ("all capitals", "unknown word"))
    assert [(sum(right[kind]), len(right[kind])) for kind in ("name", "short")] == [(4, 5), (1, 2)]
    assert "32 English lines" in prose_of("translation/translating_real_sentences")


# ---------------------------------------------------------------- the models that come with the library


def recorded(name):
    """The record of a model that comes with the library: the translators of raw text have one of another recipe."""
    plain = name.startswith("multi30k") and not name.endswith("-moses")
    return record_of(f"{name}-raw" if plain else f"{name.removesuffix('-moses')}-transformer")


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_is_the_one_that_was_recorded(name):
    record, folder = recorded(name), find_pretrained(name)
    options, training = read_options(folder), read_config(folder)["training"]
    if "recipe" in training:
        assert training["config"] == record["options"] and training["log"] == record["curves"]
        decoding = read_config(folder)["decoding"]
        assert record["decoding"].items() >= {key: decoding[key] for key in ("beam_size", "length_penalty")}.items()
        assert decoding["split"] == "val" and decoding["tried"] == record["decoding_choice"]["tried"]
    else:
        typed = options_of(record)
        assert dict(options.model_options).items() >= dict(typed.model_options).items()
        told = {field.name: getattr(typed, field.name) for field in fields(typed) if field.name != "model_options"}
        assert all(getattr(options, name) == value for name, value in told.items() if value is not None)
        same = ("epochs", "learning_rate", "warmup", "smoothing")
        assert all(record["options"][name] == training[name] for name in same)
    translator = Translator.from_pretrained(name, device="cpu")
    assert record["parameters"] == sum(p.numel() for p in translator.model.parameters())
    assert sum(path.stat().st_size for path in folder.iterdir()) < 6_000_000
    card = (folder / "README.md").read_text()
    assert f"{record['parameters']:,} parameters" in card and record["command"].split(" --output")[0] in card
    assert ("no terms" in card) == (options.data == "captions")
    assert ("non-commercial" in card) == (options.data == "multi30k")


@pytest.mark.slow
@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_translates_as_it_did(name, request):
    if name.startswith("multi30k"):
        request.getfixturevalue("data_directory")
    decoding = recorded(name)["decoding"]
    before = (ROOT / "tests" / "data" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    translator = Translator.from_pretrained(name, device="cpu")
    text = translator.text
    if name.startswith("multi30k"):
        pairs = text.prepare_pairs(load_multi30k("test_2016_flickr", text.source, text.target)[: len(before)])
    else:
        pairs = load_corpus(TrainOptions(n_captions=1)).test[: len(before)]
    search = {"beam_size": decoding["beam_size"], "length_penalty": decoding["length_penalty"]}
    found = translator.search([pair.source for pair in pairs], prepared=True, **search)
    same = sum(best[0].text == text for best, text in zip(found, before, strict=True))
    assert same >= 98  # of 100; another processor may round otherwise


@pytest.mark.ci
@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_scores_what_its_record_says(name, request):
    if name.startswith("multi30k"):
        request.getfixturevalue("data_directory")
    record = recorded(name)
    decoding, metrics = record["decoding"], record["metrics"]
    search = {"beam_size": decoding["beam_size"], "length_penalty": decoding["length_penalty"]}
    scores = evaluate_run(name, device="cpu", **search)
    plain = Translator.from_pretrained(name, device="cpu").text.kind == "raw"
    assert scores["sentences"] == metrics["test_sentences"]["value"]
    score = "bleu_moses_lowercase" if plain else "bleu"
    told = "bleu_moses_lowercase_signature" if plain else "signature"
    assert scores[told] == metrics["test_bleu"]["signature"]
    assert scores[score] == pytest.approx(metrics["test_bleu"]["value"], abs=0.3)  # half precision, another processor
    assert scores["loss"] == pytest.approx(metrics["test_loss"]["value"], abs=0.01)
    if plain:
        assert scores["bleu"] == pytest.approx(metrics["test_bleu_cased"]["value"], abs=0.3)
        assert metrics["test_reference_tokens"]["value"] in (12_103, 12_968)
    else:
        assert scores["reference_tokens"] == metrics["test_reference_tokens"]["value"]
        assert scores["exact_match"] == pytest.approx(metrics["test_exact_match"]["value"], abs=0.5)


def test_the_small_transformer_is_nearly_perfect_on_captions():
    metrics = record_of("captions-en-de-transformer")["metrics"]
    assert metrics["test_exact_match"]["value"] >= 99 and metrics["test_sentences"]["value"] == 1000


def test_the_decoders_of_chapter_21_are_those_of_the_record():
    rows: dict[str, list[dict]] = {}
    for row in record_of("todays-decoder")["rows"]:
        rows.setdefault(row["variant"], []).append(row)
    expected = {}
    for name, some in rows.items():
        first = {row["rate"]: sum(row["validation"][1:4]) for row in some if row["seed"] == 0}
        best = min(first, key=first.__getitem__)
        assert len(first) == 4 and best < max(first)
        chosen = sorted((row for row in some if row["rate"] == best), key=lambda row: row["seed"])
        within = [round(sum(row["bits"][1:4]) / 3, 3) for row in chosen]
        beyond = [round(row["bits"][4], 2) for row in chosen]
        expected[name] = (best, within, beyond)
        assert len(within) == 3
        assert 94_000 < some[0]["parameters"] - 256 * 64 * (name in ("learned positions", "GPT-2's design")) < 96_500
    assert literal("descendants/llama", "RECORD") == expected


def test_a_ratio_that_falls_is_caught(tmp_path):
    """``peers.py --compare`` names what fell by more than 15 percent, and what is gone, and nothing else."""

    def record(name, **ratios):
        path = tmp_path / name
        rows = [{"measured": key, "peer": "a peer", "times_as_fast": ratio} for key, ratio in ratios.items()]
        path.write_text(json.dumps({"rows": rows}), encoding="utf-8")
        return str(path)

    before = record("before.json", greedy=1.0, beam=2.0, training=1.1)
    after = record("after.json", greedy=0.84, beam=2.5)
    asked = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), "--compare", before, after]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT)
    lost = ["greedy, a peer: 1.0 before, 0.84 now", "training, a peer: 1.1 before, not measured now"]
    assert (done.returncode, done.stdout.splitlines()) == (1, lost)
    kept = record("kept.json", greedy=0.86, beam=1.71, training=1.5, other=0.1)
    assert fallen(read(Path(kept))["rows"], read(Path(before))["rows"]) == []


def test_the_page_of_symptoms_quotes_the_record():
    metrics = record_of("multi30k-en-de-transformer")["metrics"]
    cases = [metrics[f"test_bleu_plain_{kind}"]["value"] for kind in ("lowercase", "cased")]
    cells = json.loads((ROOT / "book/appendix/what_now.ipynb").read_text(encoding="utf-8"))["cells"]
    page = " ".join(" ".join("".join(cell["source"]) for cell in cells).split())
    assert "has {} BLEU on the test set of 2016 if case is ignored and {} if it is not".format(*cases) in page


def test_the_page_on_speed_says_what_the_records_say():
    page = " ".join((ROOT / "book/appendix/how_fast.md").read_text(encoding="utf-8").split())
    found = {}
    for name in ("peers", "peers-text", "peers-attention"):
        found |= {(row["measured"], row["peer"]): row for row in record_of(name)["rows"]}
    theirs, cpp = "Hugging Face, batches of 32", "CTranslate2 (C++), float32"
    for search in ("greedy", "beam of 4"):
        assert 1.75 < found[f"1,000 sentences, {search}", theirs]["times_as_fast"] < 2.5
        assert found[f"1,000 sentences, {search}", cpp]["times_as_fast"] < 1
        packed = found[f"weights packed by oneDNN, width 256, {search}", "as it is"]["times_as_fast"]
        assert packed * found[f"decoding, {search}", cpp]["times_as_fast"] < 0.75
        assert found[f"weights of 8 bits, width 256, {search}", "as it is"]["times_as_fast"] >= 1.5
        assert 0.85 < found[f"decoding, {search}", "Hugging Face"]["times_as_fast"] < 1.2
    updates = [row["times_as_fast"] for row in found.values() if row["measured"] == "training, fixed shape"]
    assert len(updates) == 4 and 0.9 < min(updates) <= max(updates) < 1.15 and "an update is about as fast as" in page
    memory = [row["times_as_fast"] for (what, _), row in found.items() if what.startswith("peak memory of output")]
    assert len(memory) == 3 and min(memory) > 2 and "take less than half of the usual memory" in page
    notes = {record_of(name)["notes"] for name in ("peers", "peers-text", "peers-attention")}
    assert notes == {"one thread; medians of 3 turns, quartiles of the ratios"} and "a median of three turns" in page
    assert "about as fast as by Hugging Face, and a list of sentences of many lengths is translated about twice" in page
    for search in ("greedy", "beam of 5"):
        shipped = f"shipped translator, {search}"
        assert found[f"weights of 8 bits, {shipped}", "as it is"]["times_as_fast"] < 1.5
        assert found[f"weights packed by oneDNN, {shipped}", "as it is"]["times_as_fast"] < 1.2
        scores = found[f"BLEU with weights of 8 bits, {shipped}", "as it is"]
        assert scores["theirs"] - scores["ours"] <= 0.3
    shares = [work["percent"]["matrix products"] for work in record_of("peers")["profile"]]
    assert min(shares) > 50 > max(row["matrix products"] for row in record_of("peers-profile")["rows"])
    for length in ("2,048", "4,096"):
        for what in ("", "peak memory of "):
            row = found[f"{what}attention layer, length {length}", "Hugging Face Marian, eager"]
            assert row["times_as_fast"] > 1.3
