"""The whole library on a device that is not the CPU, and what it makes the host wait for; see ``stand_in``."""

import copy
import json
import os
import re
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import compare
import pytest
import torch
from marian import marian_model
from stand_in import NAME, device, generator, plain
from test_documents import blocks
from test_protocol import SOURCE, TARGET, TRANSLATORS, trained
from torch import nn
from torch.nn import functional as F

from experiments.tasks import Rows, fit
from experiments.tasks import translation_loss as mean_cross_entropy
from transformer_lib import Tokenizer, Transformer, TransformerConfig, Translator, beam_search, greedy_decode, sample
from transformer_lib.data.batching import Batch, collate, encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.recipes import RecipeBatch
from transformer_lib.models.bert import BertClassifier, mask_tokens
from transformer_lib.models.convert import from_hf, from_torch, to_hf, to_torch
from transformer_lib.models.latent_attention import IfThenConfig, IfThenModel
from transformer_lib.models.linear_attention import RULES, GatedDeltaNet, LinearAttention
from transformer_lib.models.loss import Loss, chunked_loss, translation_loss
from transformer_lib.models.registry import build_model, model_entry, model_names
from transformer_lib.models.seq2seq import Seq2Seq
from transformer_lib.training.loop import evaluate_loss, train_on
from transformer_lib.training.loss import minimum_risk_loss, r_drop_loss
from transformer_lib.training.trainer import Trainer, TrainingConfig
from transformer_lib.translation.cli import main as command
from transformer_lib.translation.run import TrainOptions, create_run, open_run
from transformer_lib.viz.steps import beam_viewer, decoding_viewer, translation_viewer

if NAME == "gpu" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
    pytest.skip("the stand-in needs PyTorch 2.13", allow_module_level=True)
pytestmark = pytest.mark.xdist_group("device")  # one process, since "gpu" stays a device of it

ROOT = Path(__file__).resolve().parents[1]
BATCH = Batch(SOURCE, F.pad(TARGET, (0, 1)).scatter(1, (TARGET != 0).sum(1, keepdim=True), 2))
PAIRS = make_captions(40, seed=0, min_length=4, max_length=7)
EN, DE = (Tokenizer.train([getattr(p, side) for p in PAIRS], level="word") for side in ("source", "target"))
ROWS = encode_pairs(PAIRS, EN, DE)
SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
LM = {"vocab_size": 13, "d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 16, "max_length": 24}
LMS = {name: LM for name in model_names() if not issubclass(model_entry(name).model_class, Seq2Seq)}
LMS["llama-lm"] = LM | {"n_kv_heads": 1, "window": 4}
ALIKE = ["gru", "bahdanau", "luong general", *(f"transformer, {one}" for one in ("wide heads", "one sided", "untied"))]
DIFFERENT = [name for name in TRANSLATORS if name not in ALIKE]  # in operations
every_translator = pytest.mark.parametrize("name", DIFFERENT)


def there(thing):
    return thing.to(NAME)


def on_device(model):
    return there(copy.deepcopy(model))


def same(ours, exact, tolerance=1e-9):
    assert ours.device.type == NAME
    torch.testing.assert_close(plain(ours), exact, rtol=tolerance, atol=tolerance)


def small(name="transformer"):
    torch.manual_seed(0)
    if name == "transformer":
        return Transformer(TransformerConfig(len(EN), len(DE), **SIZES, tie_embeddings="target"))
    vocabularies = {"source_vocab_size": len(EN), "target_vocab_size": len(DE)}
    return build_model(name, vocabularies | {"d_model": 16, "d_hidden": 16})


def config(**changes):
    given = {"epochs": 2, "max_tokens": 60, "learning_rate": 1e-2, "warmup": 2, "average": 0}
    return TrainingConfig(**given | changes)


# ---------------------------------------------------------------- the stand-in


def test_what_cuda_refuses_and_waits_for():
    with device() as waits:
        x, c, s = torch.randn(3, 4, device=NAME), torch.randn(3, 4), torch.tensor(2.0)
        calls = [lambda: x + c, lambda: c.add_(x), lambda: x @ c.T, lambda: torch.stack([x.sum(), s])]
        calls += [lambda: x.index_select(0, torch.tensor([0])), lambda: c[torch.tensor([0], device=NAME)]]
        calls += [lambda: torch.rand(3, device=NAME, generator=torch.Generator()), lambda: s.add_(x.sum())]
        calls += [lambda: F.embedding(torch.tensor([0]), x)]
        for call in calls:
            with pytest.raises(RuntimeError):
                call()
        with pytest.raises(TypeError):
            x.numpy()
        assert (x * s).device == x[torch.tensor([0])].device == x.device
        waits.clear()
        (
            c.to(NAME, non_blocking=True),
            torch.zeros(2, device=NAME),
            x.masked_fill(x > 0, 1.0),
            x.index_select(0, x[0, :0].long()),
        )
        assert not waits
        c.to(NAME), x.cpu(), x[x > 0], x.sum().item(), x.tolist(), torch.tensor([1], device=NAME)
        assert waits.total() == 6 and {line.split(":")[0] for _, line in waits} == {__file__}
        with torch.autocast(NAME, torch.bfloat16):
            assert F.linear(x, x).dtype == torch.bfloat16


# ---------------------------------------------------------------- models and losses


@every_translator
def test_a_translator_computes_the_same(name):
    exact = trained(name)
    with device() as waits:
        model, batch = on_device(exact), there(BATCH)
        model(batch.source, batch.target_input)  # which makes tables of positions
        waits.clear()
        loss, expected = model.loss(batch), exact.loss(BATCH)
        loss.sum.backward()
        assert not waits
        gradients = torch.autograd.grad(expected.sum, [*exact.parameters()], allow_unused=True)
        same(loss.sum, expected.sum), same(loss.n_tokens, expected.n_tokens)
        for (label, parameter), gradient in zip(model.named_parameters(), gradients, strict=True):
            assert (parameter.grad is None) == (gradient is None), label
            if gradient is not None:
                same(parameter.grad, gradient)
        model.train().loss(batch).sum.backward()
        if hasattr(model, "align"):
            same(model.eval().align(batch.source, batch.target_input), exact.align(BATCH.source, BATCH.target_input))


@pytest.mark.parametrize(
    ("name", "prefix"), [(name, (None, TARGET[:, 1:3])[i % 2]) for i, name in enumerate(DIFFERENT)]
)
def test_a_search_finds_the_same(name, prefix):
    exact = trained(name)
    greedy = {"max_length": 6, "min_length": 2, "repetition_penalty": 1.3}
    beam = greedy | {"beam_size": 3, "n_best": 2, "max_ratio": 1.5, "normalization": "mean", "length_penalty": 1.0}
    drawn = {"max_length": 4, "top_k": 5, "top_p": 0.9, "temperature": 0.7}
    seen = []
    with device():
        model, source, forced = on_device(exact), there(SOURCE), None if prefix is None else there(prefix)
        ours = greedy_decode(model, source, **greedy, prefix=forced)
        same(ours, greedy_decode(exact, SOURCE, prefix=prefix, **greedy))
        found = beam_search(model, source, **beam, prefix=forced, on_step=seen.append)
        for ours, theirs in zip(found, beam_search(exact, SOURCE, prefix=prefix, **beam), strict=True):
            same(ours, theirs)
        assert len(sample(model, source, generator=generator(1), **drawn, prefix=forced)) == len(SOURCE)
    assert {step.sentences.device.type for step in seen} == {NAME}


@pytest.mark.parametrize("name", LMS)
def test_other_registered_models(name):
    torch.manual_seed(0)
    exact = build_model(name, LMS[name]).double().eval()
    with device():
        model, tokens = on_device(exact), there(SOURCE)
        same(model(tokens), exact(SOURCE))
        if hasattr(model, "start"):
            prompt = TARGET[:, 1:]
            for search in (greedy_decode, partial(beam_search, beam_size=3)):
                ours, theirs = (search(*one, max_length=9) for one in ((model, there(prompt)), (exact, prompt)))
                same(*(getattr(found, "tokens", found) for found in (ours, theirs)))
            sample(model, there(prompt), max_length=9)
        else:
            hidden, chosen = mask_tokens(tokens, 12, rng=generator(0))
            F.cross_entropy(model(hidden)[chosen], tokens[chosen]).backward()
            BertClassifier(model, 3).to(NAME).double()(tokens).sum().backward()


@pytest.mark.parametrize("attention", ["latent", "plain", "none"])
@pytest.mark.parametrize("encoder", ["lstm", "dictionary"])
def test_recipes(encoder, attention):
    parts = {"encoder": encoder, "attention": attention, "d_model": 16, "d_hidden": 16}
    exact = IfThenModel(IfThenConfig(13, (3, 4), **parts)).double().eval()
    batch = RecipeBatch(SOURCE, torch.ones(3, 2).long(), tuple(range(3)))
    with device():
        loss = on_device(exact).loss(there(batch)).sum
        loss.backward()
        same(loss, exact.loss(batch).sum)


def test_linear_attention():
    layers = [*(LinearAttention(8, 2, rule=rule) for rule in RULES), GatedDeltaNet(8, 4, 2, 3, 5)]
    layers = [layer.double() for layer in layers]
    x, step = torch.randn(2, 70, 8).double(), torch.randn(2, 1, 8).double()  # two chunks
    with device():
        for layer in layers:
            ours, (y, state) = on_device(layer), layer(x)
            z, other = ours(there(x))
            same(z, y)
            same(ours(there(step), other)[0], layer(step, state)[0])


def draw(model, source):
    tokens = beam_search(model, source, beam_size=2, n_best=2, max_length=5).tokens
    return F.pad(tokens, (1, 0), value=1)


@pytest.mark.parametrize("where", [NAME, "cpu"])
def test_minimum_risk_with_costs_from(where):
    cost = lambda samples, references: torch.tensor([[0.5, 0.25]] * len(samples), device=where)  # noqa: E731
    with device():
        minimum_risk_loss(there(small()), there(collate(ROWS[:6])), draw, cost).sum.backward()


@pytest.mark.parametrize("bad", [1e30, float("inf"), float("nan")])
def test_a_loss_never_sees_what_stands_at_padding(bad):
    torch.manual_seed(0)
    hidden, output, target = torch.randn(6, 4), nn.Linear(4, 9), torch.tensor([3, 0, 5, 0, 0, 8])
    hidden[target == 0] = bad

    def careless(logits, target):
        return (logits.square().sum(-1) * (target != 0)).sum()  # where 0 times infinity is not a number

    def run(where):
        layer, x = copy.deepcopy(output).to(where), hidden.to(where).clone().detach().requires_grad_()
        chunked_loss(careless, x, layer, target.to(where)).backward()
        return x.grad, layer.weight.grad, layer.bias.grad

    expected = run("cpu")
    with device():
        for one, other in zip(run(NAME), expected, strict=True):
            same(one, other, 1e-6)
            assert other.isfinite().all()


def test_r_drop_and_smoothing():
    exact, batch = small().double(), collate(ROWS[:6])
    exact.config = replace(exact.config, dropout=0.0)
    for part in exact.modules():
        part.dropout = nn.Identity() if isinstance(getattr(part, "dropout", None), nn.Dropout) else 0.0
    with device():
        model, moved = on_device(exact), there(batch)
        same(r_drop_loss(model, moved).sum, r_drop_loss(exact, batch).sum)
        same(translation_loss(model, moved, 0.1).sum, translation_loss(exact, batch, 0.1).sum)
        assert evaluate_loss(model, [batch]) == pytest.approx(evaluate_loss(exact, [batch]))


# ---------------------------------------------------------------- training

KINDS = {
    "plain": {},
    "mixed precision": {"precision": "bfloat16", "accumulate": 2},
    "averages": {"ema": 0.9, "average": 2, "schedule": "linear", "clip": None},
    "r-drop": {"consistency": 2.0, "schedule": "constant", "cooldown": 1},
    "patience": {"schedule": "plateau", "patience": 1, "smoothing": 0.0, "workers": 1},
}


UPDATES = [
    *(("transformer", kind) for kind in KINDS),
    *((name, "plain") for name in ("gru", "bahdanau", "luong", "hard")),
]


@pytest.mark.parametrize(("name", "kind"), UPDATES)
def test_an_update_does_not_wait(name, kind, tmp_path):
    with device() as waits:
        trainer = Trainer(there(small(name)), ROWS[:30], ROWS[30:], config(**KINDS[kind]), tmp_path)
        trainer.update([collate(ROWS[:6])])
        waits.clear()
        trainer.update([collate(ROWS[6:9]), collate(ROWS[9:15])])
        assert not waits


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_lowers_the_loss(kind, tmp_path):
    with device():
        trainer = Trainer(there(small()), ROWS[:24], ROWS[36:], config(**KINDS[kind]), tmp_path)
        assert trainer.fit()
        log = trainer.progress.log
        assert log[-1]["loss"] < log[0]["loss"]
        assert all(x.device.type == NAME for x in trainer.model.parameters())


def test_another_optimizer_and_loss():
    def loss(model, batch):
        return minimum_risk_loss(model, batch, draw, lambda samples, _: torch.ones(samples.shape[:2], device=NAME))

    with device():
        model = there(small())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        assert Trainer(model, ROWS[:12], ROWS[30:], config(epochs=1, warmup=0), loss=loss, optimizer=optimizer).fit()


def test_a_validation_waits_once():
    with device() as waits:
        trainer = Trainer(there(small()), ROWS[:30], ROWS[30:], config(max_tokens=20))
        trainer.evaluate()
        waits.clear()
        trainer.evaluate()
        assert waits.total() <= 1, waits


def test_the_short_loop_waits_once():
    with device() as waits:
        model = there(small("gru"))
        adam = torch.optim.Adam(model.parameters(), fused=True)
        train_on(model, [collate(ROWS[:6])], adam)
        counts = []
        for n in (2, 4):
            waits.clear()
            train_on(model, [collate(ROWS[:6])] * n, adam)
            counts.append(waits.total())
        assert counts[0] == counts[1] <= 1, waits


def test_the_update_that_was_not_finite_is_named():
    calls = []

    def third_is_bad(model, batch):
        calls.append(batch)
        nats, n_tokens = translation_loss(model, batch)
        return Loss(nats * (float("nan") if len(calls) == 3 else 1.0), n_tokens)

    with device(), pytest.raises(ValueError, match="update 3:"):
        Trainer(there(small("gru")), ROWS[:30], ROWS[30:], config(), loss=third_is_bad).fit()


@pytest.mark.skipif(NAME != "gpu", reason="this machine has as many GPUs as it has")
def test_several_devices_give_no_warning(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.random, "_fork_rng_warned_already", False)
    (tmp_path / "pairs.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS))
    sizes = {"d_model": 8, "d_hidden": 8}
    plan = TrainOptions(data=str(tmp_path / "pairs.tsv"), model="gru", model_options=sizes, training={"epochs": 1})
    with device(count=2), warnings.catch_warnings():
        warnings.simplefilter("error")
        create_run(plan, tmp_path / "run")
        assert open_run(tmp_path / "run", torch.device(NAME)).trainer.fit()


def trained_in(folder, place, stop=None, resume=False):
    trainer, losses = Trainer(small().to(place), ROWS[:30], ROWS[30:], config(ema=0.9, average=2), folder), []
    if resume:
        trainer.resume()
    trainer.fit(watch=lambda loss: losses.append(loss) or len(losses) == stop)
    return trainer


@pytest.mark.parametrize(("first", "then"), [(NAME, NAME), (NAME, "cpu"), ("cpu", NAME)])
def test_a_run_goes_on_elsewhere(first, then, tmp_path):
    with device():
        trained_in(tmp_path / "a", first, stop=4)
        run = trained_in(tmp_path / "a", then, resume=True)
        state = [x for slots in run.optimizer.state.values() for name, x in slots.items() if name != "step"]
        assert {x.device.type for x in (*run.model.parameters(), *run.ema, *state)} == {then}
        assert run.model.output.weight is run.model.target_embedding.weight
        if first == then:
            whole = trained_in(tmp_path / "b", first).model.state_dict()
            exactly = {"rtol": 0, "atol": 0 if NAME == "gpu" else 1e-4}  # CUDA adds up in any order
            for name, x in run.model.state_dict().items():
                torch.testing.assert_close(plain(x), plain(whole[name]), **exactly)


# ---------------------------------------------------------------- the waits of searches

SEARCHES = {"greedy": greedy_decode, "beam": partial(beam_search, beam_size=3), "sample": sample}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_waits_once_a_step(name):
    with device() as waits:
        model, source, counts = there(small().eval()), there(collate(ROWS[:6]).source), []
        for length in (2, 4, 8):  # the first makes the table of positions
            waits.clear()
            SEARCHES[name](model, source, max_length=length, min_length=length)
            counts.append(waits.total())
        assert counts[2] - counts[1] == 4 and counts[1] - 4 <= 3, waits  # one of them checks min_length


def test_a_stream_waits_twice_a_step():
    with device() as waits:
        translator, counts = Translator(there(small().eval()), EN, DE), []
        for length in (2, 4, 8):
            waits.clear()
            list(translator.stream("a dog", max_length=length, min_length=length))
            counts.append(waits.total())
        assert counts[2] - counts[1] == 8, waits


# ---------------------------------------------------------------- translators, conversion, pictures

TEXTS = ["The dog is sleeping.", "", "A man in a blue shirt is running."]


def test_a_translator(tmp_path):
    exact = Translator.from_pretrained("captions-en-de", device="cpu")
    with device():
        ours = Translator.from_pretrained("captions-en-de")
        assert ours.device.type == NAME  # which auto chooses
        for call in (
            lambda one: one.translate(TEXTS, beam_size=1),
            lambda one: [[x.text for x in y] for y in one.search(TEXTS, beam_size=3, n_best=2, max_ratio=2.0)],
            lambda one: list(one.stream(TEXTS[0])),
            lambda one: one.attention(TEXTS[2]).target,
        ):
            assert call(ours) == call(exact)
        maps, expected = (one.attention(TEXTS[0], "der Hund schläft") for one in (ours, exact))
        for kind in ("cross", "encoder", "decoder"):
            torch.testing.assert_close(getattr(maps, kind), getattr(expected, kind), rtol=1e-4, atol=1e-5)
        ours.save_pretrained(tmp_path / "half", precision="float16")
        again = Translator.from_pretrained(tmp_path / "half", device=NAME)
        assert again.translate(TEXTS, beam_size=1) == exact.translate(TEXTS, beam_size=1)
        again.decoding = replace(again.decoding, beam_size=1)
        decoding_viewer(again, TEXTS[0]), beam_viewer(again, TEXTS[0]), translation_viewer(again, TEXTS[::2])


LAYER = {"d_model": 16, "nhead": 2, "dim_feedforward": 32, "batch_first": True}
PEERS = {
    "attention": lambda: nn.MultiheadAttention(16, 2, batch_first=True),
    "encoder layer": lambda: nn.TransformerEncoderLayer(**LAYER),
    "decoder layer": lambda: nn.TransformerDecoderLayer(**LAYER, activation="gelu"),
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER), 2, enable_nested_tensor=False),
    "decoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(**LAYER), 2, nn.LayerNorm(16)),
}


@pytest.mark.parametrize("kind", PEERS)
def test_pytorchs_modules_stay_on_the_device(kind):
    with device():
        ours = from_torch(there(PEERS[kind]()))
        assert {p.device.type for one in (ours, to_torch(ours)) for p in one.parameters()} == {NAME}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["marian", "gpt-lm", "llama-lm", "bert"])
def test_hugging_faces_models_stay_on_the_device(name):
    pytest.importorskip("transformers", minversion="5")
    with device():
        peer = LM | ({"n_kv_heads": 1} if name == "llama-lm" else {})
        exact = from_hf(marian_model(13, 8, 2, (1, 1), 16, 24, 0.5)) if name == "marian" else build_model(name, peer)
        theirs = to_hf(there(exact.eval()))
        ours = from_hf(theirs)
        assert {p.device.type for one in (ours, theirs) for p in one.parameters()} == {NAME}
        inputs = (SOURCE, TARGET)[: 1 + (name == "marian")]
        same(ours(*map(there, inputs)), plain(exact(*map(there, inputs))), 1e-5)


def test_an_activation_with_parameters_is_refused_here_too():
    with device(), pytest.raises(ValueError, match="activation"):
        from_torch(there(nn.TransformerEncoderLayer(**LAYER, activation=nn.PReLU())))


# ---------------------------------------------------------------- what people run


def test_two_commands_choose_a_device_alike(capsys, monkeypatch):
    pytest.importorskip("scipy")  # of the experiments
    from experiments.__main__ import main as experiments

    monkeypatch.setenv("DEVICE", "cpu")

    def told(main, *words):
        monkeypatch.setattr(sys, "argv", ["it", *words])
        with suppress(SystemExit):
            main()
        return " ".join("".join(capsys.readouterr()).split())

    for main, words in ((command, ["train"]), (experiments, ["list"])):
        assert "auto, cpu, cuda, cuda:1, mps." in told(main, *words, "--help")
    wrong = [
        told(command, "train", "--output", "x", "--device", "abacus"),
        told(experiments, "list", "--device", "abacus"),
    ]
    errors = {text.split("error: ")[1] for text in wrong}
    assert len(errors) == 1 and errors.pop().startswith("device='abacus' is not to be had here")


def test_an_experiment_trains_on_the_device(monkeypatch):
    monkeypatch.setenv("DEVICE", NAME)
    seen, rows = [], Rows(SOURCE, TARGET)

    def loss(model, batch):
        seen.append({model.output.weight.device.type, *(part.device.type for part in batch)})
        return mean_cross_entropy(model, batch)

    with device():
        model = fit(copy.deepcopy(trained("gru")), loss, [rows, rows], 1e-3, 2)
    assert seen == [{NAME}] * 2 and model.output.weight.device.type == "cpu"


CHOOSES = re.compile(r"cuda|pick_device|torch\.accelerator|\bTranslator\.from_pretrained\((?![^)]*device=)")


def cells(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(codes, shrink=()):
    """Run pieces of a page one after the other."""
    names = {"__name__": "__main__"}
    for code in codes:
        for large, little in shrink:
            code = code.replace(large, little)
        if code.startswith("%%writefile "):
            first, _, text = code.partition("\n")
            Path(first.split()[1]).write_text(text, encoding="utf-8")
        else:
            exec(compile(code, "a page", "exec"), names)


@pytest.mark.parametrize("page", ["README.md", "book/api/viz.md"])
def test_the_blocks_of(page, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(pyplot, "show", pyplot.close)
    pieces = blocks((ROOT / page).read_text(encoding="utf-8"), "python")
    with device():
        run(code for code in pieces if not code.startswith(">>>"))  # another test runs those
    pyplot.close("all")


CHOOSERS = [path for path in sorted(ROOT.glob("book/**/*.ipynb")) if any(map(CHOOSES.search, cells(path)))]
if not os.environ.get("CI"):  # those that changed, and the one that is about it
    CHOOSERS = [path for path in CHOOSERS if path in compare.changed() or path.stem == "train_on_a_gpu"]


@pytest.mark.filterwarnings("ignore:__array_wrap__")  # of matplotlib, given a tensor
@pytest.mark.parametrize("path", CHOOSERS, ids=lambda path: path.stem)
def test_a_chapter_that_chooses_a_device(path, monkeypatch, tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pyplot, "show", pyplot.close)
    small = [
        ("T, WIDTH, CHIP = 1024", "T, WIDTH, CHIP = 256"),
        ("4096", "256"),
        ("2048", "128"),
        ("1024", "128"),
        ("512", "64"),
        ("(1, 7, 32, 100)", "(32, 100)"),
        ('"n_captions": 400', '"n_captions": 60'),
        ('"average": 0', '"average": 0, "max_tokens": 4000'),
        ("30 if gpu else 4", "1"),
        ("1000 if gpu else 20", "2"),
        ('"cuda" if torch.cuda.is_available() else "cpu"', repr(NAME)),
    ]
    with device():
        run([code for code in cells(path) if "google.colab" not in code], small)
    torch.set_flush_denormal(False)  # some pages switch it on
    pyplot.close("all")
