"""Studies can be run again, judge as they promise, and keep the pages' numbers true."""

import json
import math
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import harness, numbers  # noqa: E402
from experiments.__main__ import challenge, report  # noqa: E402
from experiments.__main__ import main as command  # noqa: E402
from experiments.harness import (  # noqa: E402
    TUNING,
    Check,
    Finding,
    Study,
    checks_of,
    get_study,
    judge,
    measured,
    met,
    names,
    refuse,
    run,
)
from experiments.statistics import difference, level, ratio, share  # noqa: E402
from experiments.studies import museum  # noqa: E402
from experiments.studies.depth import what_each_reads  # noqa: E402
from experiments.tasks import Rows, fit, fit_for_hours, pad  # noqa: E402
from transformer_lib import results  # noqa: E402
from transformer_lib.data.batching import collate  # noqa: E402
from transformer_lib.models.bahdanau import BahdanauSeq2Seq  # noqa: E402
from transformer_lib.models.recurrent import RecurrentConfig  # noqa: E402
from transformer_lib.plain.deep_translator import DeepTranslator  # noqa: E402
from transformer_lib.plain.depth import AttentionResiduals, HyperConnections, Residuals  # noqa: E402
from transformer_lib.training.loop import train_on  # noqa: E402

CALLS = []


def measure(seed, budget, worth, rate=0.0):
    """A study of no cost: best at a rate of 2 everywhere; a larger `worth` lowers the loss."""
    CALLS.append((seed, worth, rate))
    noise = 0.1 * np.random.default_rng([seed, worth]).normal()
    return {"valid": (rate - 2) ** 2, "loss": 5 - worth + noise + (rate - 2) ** 2}


@pytest.fixture
def study(monkeypatch):
    CALLS.clear()
    one = Study(
        chapter="history/latent_attention",
        equal="everything",
        arms={"a": {"worth": 1}, "b": {"worth": 2}, "fixed": {"worth": 2, "rate": 7}},
        rates=(1, 2, 3),
        measure=measure,
        metric="loss",
        budget=10,
        smoke=1,
        findings={"gap": Finding("a loses more than b.", difference("loss", "a", "b"), ("low", ">", 0.5))},
    )
    monkeypatch.setattr("experiments.harness.get_study", lambda name: one)
    return one


def test_rates_are_tuned_on_seeds_that_are_not_measured(study, tmp_path):
    section = run(study, study.seeds, 10, "it", folder=tmp_path)
    assert {seed for seed, _, rate in CALLS if rate in (1, 3)} == set(TUNING)  # the losing rates are never measured
    assert {row["rate"] for row in measured(section) if row["arm"] != "fixed"} == {2}
    assert not set(TUNING) & {row["seed"] for row in measured(section)}
    assert section["findings"]["gap"]["value"] == pytest.approx(1, abs=0.2) and section["findings"]["gap"]["holds"]
    with pytest.raises(SystemExit, match="tuned on the seeds"):
        run(study, range(49, 52), 10, "it", folder=tmp_path)


def test_a_best_rate_at_the_edge_of_its_grid_is_reported(study, tmp_path):
    assert not run(study, [0, 1], 10, "it", folder=tmp_path)["tuned"]["a"]["edge"]
    object.__setattr__(study, "rates", (2, 3))
    assert run(study, [0, 1], 11, "it", folder=tmp_path)["tuned"]["a"] == {"rate": 2, "edge": True}


def test_rows_that_are_there_are_not_run_again_and_a_challenge_is_kept_apart(study, tmp_path):
    run(study, [0, 1], 10, "first", folder=tmp_path)
    before = len(CALLS)
    run(study, [0, 1, 2], 10, "second", folder=tmp_path)
    assert len(CALLS) == before + 3  # one more seed for each arm
    ours = json.loads((tmp_path / "test_experiments.json").read_text())
    check = Check("seeds 100 to 103", ("gap",), range(100, 104))
    run(study, check.seeds, 20, "theirs", check=check, folder=tmp_path)
    record = json.loads((tmp_path / "test_experiments.json").read_text())
    assert record["rows"] == ours["rows"] and record["findings"] == ours["findings"]
    (challenge,) = record["challenges"]
    assert challenge["findings"]["gap"]["holds"] and {row["budget"] for row in challenge["rows"]} == {20}
    assert [record["runs"][row["run"]]["command"] for row in record["rows"] if row["seed"] == 2] == ["second"] * 3
    source = record["runs"][0]
    assert source["commit"] and source["versions"]["torch"] and source["hardware"] and source["date"]


def test_after_an_error_in_one_process_no_job_begins_and_no_row_is_lost(study, monkeypatch):
    def fails(seed, budget, worth, rate=0.0):
        CALLS.append((worth, rate))
        time.sleep(0.1 * worth)
        if worth == 1:
            raise ArithmeticError("too hot")
        return {"valid": 0.0, "loss": 0.0}

    monkeypatch.setattr(harness, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(workers))
    other = replace(study, measure=fails, arms={"a": {"worth": 1}, "b": {"worth": 2}}, rates=(1, 2))
    monkeypatch.setattr(harness, "get_study", lambda name: other)
    jobs = [{"arm": arm, "rate": 1, "seed": s, "budget": 10, "tuning": False} for s in range(9) for arm in "ba"]
    section = {"rows": [], "runs": ["it", "other"]}
    with pytest.raises(ArithmeticError, match="too hot"):
        harness.fill(other, section, jobs, 2, lambda: None, "it")
    assert len(CALLS) < 6 and len(section["rows"]) == sum(worth == 2 for worth, _ in CALLS) > 0
    assert {row["run"] for row in section["rows"]} == {0}  # a source that is repeated keeps its place


def test_a_record_is_written_by_one_process_at_a_time(study, tmp_path, monkeypatch):
    monkeypatch.setenv("DEVICE", "cpu")
    monkeypatch.setitem(command.__globals__, "get_study", lambda name: study)
    for do in ("run", "judge"):
        monkeypatch.setattr(sys, "argv", ["experiments", do, "it", "--folder", str(tmp_path), "--device", "cpu"])
        with harness.alone(study, tmp_path), pytest.raises(SystemExit, match="another process"):
            command()
    assert not CALLS and not (tmp_path / "test_experiments.json").exists()


def test_a_check_that_was_stopped_is_judged_on_nothing(study, tmp_path, monkeypatch):
    train, check = harness.train, Check("other seeds", ("gap",), range(100, 104))

    def stops(*job):
        if len(CALLS) == 2:
            raise Stopped
        return train(*job)

    with pytest.raises(SystemExit, match="nothing to judge"):
        harness.rejudge(study, tmp_path)
    run(study, [0, 1], 10, "it", folder=tmp_path)
    run(study, [0, 1], 10, "it", folder=tmp_path / "numbers")
    assert harness.rejudge(replace(study, findings={}), tmp_path / "numbers")["findings"] == {}
    CALLS.clear()
    monkeypatch.setattr(harness, "train", stops)
    with pytest.raises(Stopped):
        run(study, check.seeds, 20, "theirs", check=check, folder=tmp_path)
    (stopped,) = harness.rejudge(study, tmp_path)["challenges"]
    assert len(stopped["rows"]) == 2 and stopped["findings"] == {}


def test_without_git_a_row_names_the_version(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert harness.provenance("it")["commit"] == version("attention-step-by-step")


def test_a_rate_is_chosen_at_the_budget_that_is_measured(study, tmp_path, monkeypatch):
    def later(seed, budget, worth, rate=0.0):
        return measure(seed, budget, worth, rate) | {"valid": (rate - (1 if budget == 10 else 3)) ** 2 * budget}

    other = replace(study, measure=later)
    monkeypatch.setattr(harness, "get_study", lambda name: other)
    run(other, [0, 1], 1000, "it", folder=tmp_path)
    assert run(other, [0, 1], 10, "it", folder=tmp_path)["tuned"]["a"]["rate"] == 1


def test_a_study_is_measured_anew_in_a_folder_of_its_own(study, tmp_path, monkeypatch):
    def does(*words):
        monkeypatch.setattr(
            sys, "argv", ["experiments", *words, "--folder", str(tmp_path / "again"), "--device", "cpu"]
        )
        assert command() == 0
        return json.loads((tmp_path / "again" / "test_experiments.json").read_text())

    monkeypatch.setenv("DEVICE", "cpu")
    monkeypatch.setitem(command.__globals__, "get_study", lambda name: study)
    assert len(does("run", "it")["rows"]) == len(CALLS) > 0
    record = does("run", "it", "--seeds", "100-103", "--budget", "20")
    assert record["challenges"][0]["tried"] == "seeds 100 to 103, 20 updates" and does("judge", "it") == record
    assert not (Path(results.__file__).parent / "test_experiments.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "it", "--seeds", "104-100"], "'104-100'"),
        (["run", "it", "--seeds", "3,3"], "'3,3'"),
        (["run", "it", "--budget", "0"], "'0'"),
        (["run", "it/other"], "run takes studies, not it/other"),
        (["check", "it", "--seeds", "7"], "are for run, not for check"),
        (["judge", "it", "--budget", "7"], "are for run, not for judge"),
        (["check", "it/typo"], "it/typo is no check"),
        (["run"], "name a study, or --all"),
        (["run", "it", "--jobs", "0"], "'0'"),
    ],
)
def test_what_a_command_cannot_do_is_refused_before_anything_is_measured(study, monkeypatch, capsys, words, told):
    monkeypatch.setattr(sys, "argv", ["experiments", *words, "--device", "cpu"])
    monkeypatch.setenv("DEVICE", "cpu")
    monkeypatch.setitem(command.__globals__, "get_study", lambda name: study)
    monkeypatch.setitem(command.__globals__, "measure", lambda *arguments: CALLS.append(1))
    with pytest.raises(SystemExit):
        command()
    assert told in capsys.readouterr().err and not CALLS


def test_other_seeds_are_another_challenge(study):
    def tried(seeds):
        return challenge(study, SimpleNamespace(seeds=seeds, budget=None)).tried

    assert tried([0, 3, 7]) == "seeds 0, 3, 7, 10 updates" and tried([5, 6, 7]) == "seeds 5 to 7, 10 updates"


def test_effects_are_those_of_the_textbook():
    a, b = [5.0, 7.0, 6.0], [4.0, 4.5, 5.5]
    rows = [{"arm": arm, "seed": s, "x": x} for arm, xs in (("a", a), ("b", b)) for s, x in enumerate(xs)]
    gaps = np.subtract(a, b)  # 1, 2.5, 0.5
    half = 4.302653 * gaps.std(ddof=1) / math.sqrt(3)  # Student's t, two degrees of freedom
    found = difference("x", "a", "b")(rows)
    assert (found["low"], found["high"]) == pytest.approx((gaps.mean() - half, gaps.mean() + half), rel=1e-5)
    assert level("x", "b")(rows)["value"] == pytest.approx(14 / 3)
    tiny = level("x", "a")([{"arm": "a", "seed": s, "x": x} for s, x in enumerate([4e-9, -3e-9, 9e-9])])
    assert tiny["low"] < 0 < tiny["high"]
    assert ratio("x", "a", "b")(rows)["value"] == pytest.approx((5 / 4 * 7 / 4.5 * 6 / 5.5) ** (1 / 3))
    all_three = share("x", "a", 5)(rows)
    one = [row for row in rows if row["seed"] == 1]
    for alone in (level("x", "a"), difference("x", "a", "b"), ratio("x", "a", "b")):
        assert math.isnan(alone(one)["low"]) and math.isnan(alone(one)["high"]) and alone(one)["value"] > 0
    assert all_three["value"] == 1 and all_three["low"] == pytest.approx(0.025 ** (1 / 3))  # Clopper-Pearson


def test_a_stale_number_is_found_and_rewritten(monkeypatch):
    monkeypatch.setattr(numbers, "load", lambda name: {"findings": {"gap": {"value": -2.345}}})
    line = "costs 2.10<!-- any/findings/gap/value:.2f --> nats"
    new = numbers.rewrite(line, stale := [])
    assert len(stale) == 1 and new.startswith("costs \u22122.35<!-- any")
    assert numbers.rewrite(new, again := []) == new and not again
    for path in ("other:.1f", "gap:.1f", "gap/value/low:.1f"):
        with pytest.raises(SystemExit, match=f"{path}.* names nothing"):
            numbers.rewrite(f"1<!-- any/findings/{path} -->", [])
    rows = [{"arm": "a", "tuning": True, "x": 1}, *({"arm": "a", "tuning": False, "x": x} for x in (2, 3))]
    monkeypatch.setattr(numbers, "load", lambda name: {"rows": rows})
    assert numbers.rewrite("2<!-- any/rows/a/x:d -->", stale := []) == "2<!-- any/rows/a/x:d -->" and not stale
    with pytest.raises(SystemExit, match="names nothing"):  # a place would change with every new row
        numbers.rewrite("2<!-- any/rows/1/x:d -->", [])


def test_the_numbers_of_the_pages_are_those_of_the_records(capsys):
    assert numbers.main([], check=True) == 0, capsys.readouterr().out


def test_every_record_that_a_page_loads_is_there():
    loaded = {
        name for page in numbers.pages() for name in re.findall(r'load\(\\?"([\w-]+)\\?"\)', page.read_text("utf-8"))
    }
    assert {"museum", "rare_words"} <= loaded <= {*results.names()}


def test_a_check_judges_every_finding_whose_arms_it_has(study, tmp_path):
    late = Finding("a loses at least three.", level("loss", "a"), (("low", ">", 3), ("high", "<", 9)))
    none = Finding("The fixed rate is worst.", difference("loss", "fixed", "a"), ("low", ">", 0))
    study.findings.update(late=late, none=none)
    check = Check("other seeds", ("gap",), range(100, 104), {"a": {}, "b": {}})
    found = run(study.changed(check), check.seeds, 10, "theirs", check=check, folder=tmp_path)["findings"]
    assert found.keys() == {"gap", "late"}
    assert found["gap"]["asked"] and not found["late"]["asked"]
    with pytest.raises(LookupError, match="no row of the arm 'a'"):  # the study itself has to have them all
        judge(study, {"rows": [], "tuned": {}, "budget": 10, "seeds": []})


def test_a_criterion_is_a_condition_or_several():
    numbers = {"value": 2.0, "low": -1.0, "high": 3.0}
    assert met([["low", ">", -2], ["high", "<", 4]], numbers) and met([["value", "==", 2]], numbers)
    assert not met([["low", ">", -2], ["high", "<", 3]], numbers) and not met([["low", ">=", -0.5]], numbers)


@pytest.mark.parametrize(
    ("effect", "holds", "fails"),
    [
        (level("loss", "a"), ("high", "<", 5), True),
        (difference("loss", "a", "b"), ("low", ">", 0), True),
        (ratio("loss", "a", "b"), ("low", ">", 0.8), True),
        (ratio("loss", "a", "b"), ("low", ">", 0), False),
        (share("loss", "a", 3), ("value", ">=", 0.8), True),
        (share("loss", "a", 3), ("high", "<=", 1), False),
    ],
)
def test_what_no_number_could_break_is_no_finding(study, tmp_path, effect, holds, fails):
    study.findings["it"] = Finding("It.", effect, holds)
    if fails:
        run(study, [0, 1, 2], 10, "it", folder=tmp_path)
    else:
        with pytest.raises(SystemExit, match="it holds whatever is measured"):
            run(study, [0, 1, 2], 10, "it", folder=tmp_path)


def test_a_ratio_to_nothing_breaks_no_finding_and_no_command(study):
    rows = [{"arm": arm, "seed": s, "x": x} for arm, x in (("a", 1.0), ("b", 2.0), ("c", 0.0)) for s in range(3)]
    assert not harness.cannot_fail(study, Finding("It.", ratio("x", "a", "b"), ("low", ">", 0.1)), rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_finding_of_the_book_could_have_come_out_otherwise(name):
    refuse(get_study(name), results.load(name))


def test_what_the_book_stands_by_held_in_every_run():
    for name in names():
        record = results.load(name)
        for key, found in record["findings"].items():
            checks = [one["findings"][key] for one in record["challenges"] if key in one["findings"]]
            if found.get("line"):
                assert found["holds"] and all(one["holds"] for one in checks), f"{name}/{key}"
                assert sum(one["asked"] for one in checks) >= 2, f"{name}/{key}"


def test_a_record_says_what_its_study_says():
    for name in names():
        study, record = get_study(name), results.load(name)
        assert record["fell"] == study.fell and record["findings"].keys() == study.findings.keys()
        for key, finding in study.findings.items():
            words = {
                "text": finding.text,
                "line": finding.line,
                "earlier": finding.earlier,
                "withdrawn": finding.withdrawn,
            }
            assert words == {word: record["findings"][key].get(word, "") for word in words}, f"judge {name} again"
            assert record["findings"][key]["criterion"] == finding.criterion


def test_a_record_belongs_to_a_study_or_says_how_it_was_made():
    for name in results.names():
        record = results.load(name)
        if "findings" not in record:
            assert len(record["commit"].split()[0]) == 40 and record["command"] and record["hardware"], name
            continue
        rows = [row for part in (record, *record["challenges"]) for row in part["rows"]]
        assert rows and all("with changes" not in run["commit"] for run in record["runs"]), name
    with pytest.raises(ValueError, match="no record is called"):
        results.load("nothing")


def test_two_seeds_break_nothing(capsys):
    found = {"value": 1, "low": -3, "high": 5, "how": "two seeds"}
    for seeds, holds, smoke, word in (
        ([100, 101], False, False, "too few"),
        ([100, 101], True, False, "holds"),
        ([100, 101, 102], False, False, "BROKEN"),
        ([0, 1], False, True, "computed"),
    ):
        report("study", {"findings": {"it": found | {"holds": holds}}, "seeds": seeds, "tuned": {}}, smoke)
        assert capsys.readouterr().out.startswith(f"{word} "), word


@pytest.mark.parametrize("name", names())
def test_a_study_runs_in_miniature(name, monkeypatch, capsys):
    """With all its checks, by the command. What is the same is measured once, for both seeds unless CI is set."""
    study, rows, train = get_study(name), {}, harness.train

    def once(name, settings, job):
        seed = job["seed" if os.environ.get("CI") else "tuning"]
        key = repr((settings, job["rate"], job["budget"], seed))
        rows[key] = rows.get(key) or train(name, settings, job)
        return rows[key] | job

    def computed(*words):
        monkeypatch.setattr(sys, "argv", ["experiments", *words, "--smoke", "--device", "cpu"])
        assert command() == 0
        return re.findall(rf"^computed +{name}/(\S+) ", capsys.readouterr().out, re.M)

    monkeypatch.setattr(harness, "train", once)
    monkeypatch.setenv("DEVICE", "cpu")  # as the command chooses it
    assert study.question.endswith("?") and (ROOT / f"book/{study.chapter}.ipynb").is_file()
    assert set(study.every_rate) <= set(study.arms)
    assert computed("run", name) == list(study.findings)
    for key, check in checks_of(study).items():
        found = computed("check", f"{name}/{key}")
        assert found and set(check.asked) <= set(found)


def test_every_challenge_can_be_tried_again():
    for name in results.names():
        challenges = results.load(name).get("challenges", ())
        checks = {check.tried: check for check in checks_of(get_study(name)).values()} if challenges else {}
        for old in challenges:
            check = checks[old["tried"]]
            assert {key for key, one in old["findings"].items() if one["asked"]} == set(check.asked)
            assert old["seeds"] == list(check.seeds)
            assert {row["arm"] for row in old["rows"]} == set(get_study(name).changed(check).arms)


def test_weights_that_are_held_even_stay_even_in_training():
    torch.manual_seed(0)
    model = BahdanauSeq2Seq(RecurrentConfig(9, 9, d_model=4, d_hidden=4, dropout=0.0))
    museum.hold_even(model)
    batch = collate([([5, 6, 7, 2], [1, 7, 2])])
    train_on(model, [batch] * 3, torch.optim.Adam(p for p in model.parameters() if p.requires_grad))
    torch.testing.assert_close(model.align(batch.source, batch.target_input), torch.full((1, 2, 4), 0.25))


def test_a_study_trains_by_its_schedule_and_no_longer_than_its_budget():
    model, seen = torch.nn.Linear(1, 1, bias=False).train(False), []
    before = model.weight.item()

    def loss(model, batch):
        seen.append((batch[0].item(), model.training))
        return model.weight.sum()  # Adam moves it by the rate

    batches = ((torch.tensor(n),) for n in range(9))
    assert fit(model, loss, batches, 0.1, 3, lambda update, budget: update / budget) is model and not model.training
    assert seen == [(0, True), (1, True), (2, True)]
    assert before - model.weight.item() == pytest.approx(0.1 * (1 + 2 + 3) / 3, abs=1e-4)
    fit(model, lambda model, batch: model.weight.sum() * math.nan, [torch.tensor(0)], 0.1, 1)
    assert math.isnan(model.weight.item())  # a rate that is too high is measured like any other


class Stopped(Exception):
    """As if somebody had pulled the plug."""


def test_a_run_of_hours_that_was_stopped_ends_like_one_that_was_not(tmp_path):
    pairs = [([n % 7 + 4] * (n % 5 + 1), [n % 3 + 4, 2]) for n in range(40)]

    def run(folder, stop=99):
        torch.manual_seed(0)
        model, seen = torch.nn.Sequential(torch.nn.Embedding(20, 4), torch.nn.Dropout(0.3)), []

        def loss(model, source, target):
            seen.append(len(source))
            if len(seen) == stop:
                raise Stopped
            return (model(source).mean(1) - model[0](target[:, 0])).square().mean()

        curve = fit_for_hours(model, loss, pairs, tmp_path / folder, 3, 6, 0.1, lambda model: len(seen), tokens=40)
        return model[0].weight, curve, len(seen)

    whole, curve, n = run("whole")
    assert list(curve) == [f"epoch {epoch}" for epoch in range(1, 7)] and n % 6 == 0
    with pytest.raises(Stopped):
        run("stopped", stop=n // 2 + 2)
    gone_on, _, rest = run("stopped")
    assert torch.equal(gone_on, whole) and rest == n // 2
    assert torch.equal(run("stopped")[0], whole)  # nothing is left to do


@pytest.mark.parametrize("wiring", [Residuals(), HyperConnections(4), AttentionResiduals(4, 8)])
def test_what_each_sublayer_reads_is_what_stands_in_front_of_it(wiring):
    model = DeepTranslator(20, wiring, d_model=8, n_heads=2, n_layers=2).eval()
    reads = what_each_reads(model, Rows(pad([[5, 6, 7], [5, 6]]), pad([[1, 8, 9, 2], [1, 8, 2]])))
    assert [len(row) for row in reads] == [1, 2, 3, 4, 5]
    attends = isinstance(wiring, AttentionResiduals)
    for row in reads[:-1]:  # the end adds up all streams
        assert row == pytest.approx([1 / len(row) if attends else 1] * len(row), abs=1e-3)
    if attends:  # a query that wants what the second sublayer has written for the words of the target
        with torch.no_grad():
            wiring.query[3] = 100 * (model.sublayers[1].output.bias.fill_(1))
        assert what_each_reads(model, Rows(pad([[5]]), pad([[1, 8, 2]])))[3][2] > 0.5
