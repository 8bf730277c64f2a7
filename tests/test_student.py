"""The student's edition: the reference passes every test, every stub fails one, and slips are caught and named."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import student
import torch

from transformer_lib.student import __main__ as command
from transformer_lib.student import grading

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
FILES = student.pages()
PAGES = {page.path.stem: page for page in FILES.values()}
CELLS = {name: [cell.source if "export" in cell.marks else "" for cell in page.cells] for name, page in PAGES.items()}
KEPT = {  # what learners get, beside constructors, properties, and functions without a docstring
    "MultiHeadAttention.attend": "the recorder's bookkeeping",
    "record_attention": "the recorder's bookkeeping",
    "LuongSeq2Seq.encode": "as in Bahdanau's model",
    "LuongSeq2Seq.align": "as in Bahdanau's model",
    "make_score": "a choice by name",
    "make_attention": "a choice by name",
    "GatedDeltaNet.project": "a part of forward",
    "GatedDeltaNet.share": "a part of forward",
    "GatedDeltaNet.gates": "a part of forward",
    "BertConfig.encoder": "a copy of settings",
    "add_up": "two sums, which the tests of evaluate_loss check",
    "GPT.block": "a choice of parts",
    "GPT.add_positions": "a table, as in the constructor",
    "GPT.loss": "a sum of token_losses",
    "Llama.block": "a choice of parts",
    "Llama.add_positions": "nothing",
    "Bert.loss": "a sum of token_losses",
    "HardSeq2Seq.guess": "a call of the baseline",
    "_check_corpus": "error messages",
    "Tokenizer.save": "a file",
}
SLIPS = [  # a function, what is written right, what wrong, and the slip that the learner reads
    ("attention_weights", "math.sqrt(q.shape[-1])", "(q.shape[-1] ** 1 / 2)", "Dividing the scores by half the width"),
    (
        "attention_weights",
        "k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)",
        "k.repeat(1, 2, 1, 1)",
        "Shared keys",
    ),
    ("attention_weights", "k.dim() > 3 and ", "", None),
    ("attention", "causal, dropout)", "causal, 0.0)", None),
    ("fused_attention", "kernel(*wide, mask, dropout,", "kernel(*wide, mask, 0.0,", None),
    ("fused_attention", "kernel(q, k, v, mask, dropout, causal,", "kernel(q, k, v, mask, dropout, False,", None),
    ("train_on", "nn.utils.clip_grad_norm_(parameters, clip, error_if_nonfinite=check)", "pass", None),
    ("train_on", "optimizer.zero_grad()", "pass", None),
    ("train_on", "model.train()", "pass", None),
    ("train_on", "loss.mean.backward()", "loss.sum.backward()", None),
    ("train_on", "losses.append(Loss(loss.sum.detach(), loss.n_tokens))", "losses = [loss]", None),
    ("evaluate_loss", "with eval_mode(model)", "if True", None),
    ("GRU.forward", "self.training)", "True)", None),
    ("RecurrentEncoder.forward", "if self.reverse", "if False", None),
    ("EncoderLayer.forward", "self.norm2)", "self.norm1)", None),
    ("DecoderLayer.forward", "self.norm2)", "self.norm3)", None),
    ("DecoderLayer.forward", "y, memory, padding", "y, y, padding | True", None),
    (
        "Transformer.forward",
        "self.embed(target, self.target_embedding)",
        "self.embed(target, self.source_embedding)",
        None,
    ),
    (
        "the_transformer/Attention.forward",
        "self.split(F.linear(memory, W_V, b_V))",
        "self.split(F.linear(x, W_V, b_V))",
        None,
    ),
    ("the_transformer/Attention.forward", "masked_fill(~mask", "masked_fill(mask", "True means the opposite"),
    (
        "Attention.split",
        ".unflatten(2, (self.n_heads, -1)).transpose(1, 2)",
        ".reshape(x.shape[0], self.n_heads, x.shape[1], -1)",
        "Heads split by view alone",
    ),
    ("the_transformer/translate", "scores[:, [PAD, BOS]] = -torch.inf", "pass", None),
    ("the_transformer/translate", "<= max_length", "< max_length", None),
    ("the_transformer/translate", "model.eval()(", "model(", None),
    ("Transformer.forward", ".tril()", ".tril() | (not self.training)", None),
    ("group_advantages", "1e-4", "0", None),
    ("choose", "-math.inf", "0", None),
    ("Indexer.forward", "q, k = self.turn(q), self.turn(k)", "q = self.turn(q)", None),
    ("IndexedAttention.pick", "x.detach()", "x", None),
    ("Experts.forward", "scores * visits", "(scores + self.bias) * visits", None),
    ("Trainer.evaluate", "self.model.eval()", "pass", None),
    ("attention", "    T, S = ", "    B, H, T, _ = q.shape\n    T, S = ", None),
    ("Score.forward", ".squeeze(-1)", "", None),
    ("learning_to_align/Attention.forward", "masked_softmax(scores, mask)", "scores.softmax(-1)", None),
    ("learning_to_align/Attention.forward", "return context, weights", "return weights, context", None),
    (
        "learning_to_align/Encoder.forward",
        "self.gru(packed)",
        "self.gru(words); return vectors, last[1]",
        "States that run on over the padding",
    ),
    ("learning_to_align/Encoder.forward", "last[1]", "last[0]", None),
    ("Bahdanau.start", "!= PAD", "== PAD", "True means the opposite"),
    ("Bahdanau.start", "torch.tanh(self.bridge(last))", "self.bridge(last)", None),
    ("Bahdanau.step", "[word, state[0], context]", "[word, context, state[0]]", None),
    ("Bahdanau.step", "torch.cat([word, context], -1)", "torch.cat([context, word], -1)", None),
    ("Bahdanau.forward", "torch.stack(steps, 1)", "torch.stack(steps)", None),
    ("learning_to_align/translate", "logits[:, EOS:].argmax(-1) + EOS", "logits.argmax(-1)", None),
    ("learning_to_align/translate", "words[1:]", "words", None),
    ("learning_to_align/translate", "(torch.stack(words) == EOS).any(0).all()", "False", None),
    ("best_links", " and w > 0", "", None),
    ("EncoderLayer.forward", "y, y, mask", "y, y, mask | True", None),
    ("Stack.forward", "self.norm(x)", "x", None),
    ("MultiHeadAttention.forward", "(k, v), causal = cache.append(k, v), True", "k, v = cache.append(k, v)", None),
    ("beam_search", "live, 2 * w)", "live, w)", None),
    ("beam_search", "candidates[:w] if last", "candidates if last", None),
    ("extend", "torch.tensor([[total] for _, total in live]) + log_p", "log_p", None),
    ("next_words", "[BOS, *words]", "[*words] or [BOS]", None),
    ("masked_softmax", "lowest).softmax(-1)", "lowest).softmax(0)", "Softmax along the wrong axis"),
    ("masked_softmax", "(~mask, lowest)", "(mask, lowest)", "True means the opposite"),
    (
        "masked_softmax",
        "scores.masked_fill(~mask, lowest).softmax(-1) * mask",
        "(scores * mask).softmax(-1)",
        "Multiplying",
    ),
    ("masked_softmax", "torch.finfo(scores.dtype).min", "-torch.inf", "Masking with minus infinity"),
    ("masked_softmax", ".softmax(-1) * mask", ".softmax(-1)", "Masking with a large negative number"),
    (
        "masked_softmax",
        "scores.masked_fill(~mask, lowest).softmax(-1) * mask",
        "(scores + mask.float().log()).softmax(-1).nan_to_num()",
        "Masking with minus infinity",
    ),
    ("padding_mask", "(tokens != PAD)[:, None, None]", "tokens != PAD", "A mask without its middle axes"),
    ("padding_mask", "!=", "==", "True means the opposite"),
    ("causal_mask", ".tril(past)", ".tril()", None),
    (
        "MultiHeadAttention.project",
        "parts[i].unflatten(2, (-1, width)).transpose(1, 2)",
        "parts[i].reshape(x.shape[0], -1, x.shape[1], width)",
        "Heads cut without the transpose",
    ),
    ("KVCache.append", "[self.k, k]", "[k, self.k]", None),
    ("MultiHeadAttention.forward", "q, k, v = self.project(x)", "k, q, v = self.project(x)", None),
    ("sinusoids", "angle.cos()", "(angle * 10_000 ** (-1 / d_model)).cos()", "Sine and cosine of different frequency"),
    ("Positions.forward", "[start:end]", "[: x.shape[1]]", "Every cached token at position zero"),
    (
        "LayerNorm.forward",
        "F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)",
        "(x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + self.eps) * self.weight + self.bias",
        "A layer norm that is almost",
    ),
    ("FeedForward.forward", "self.activation(", "F.gelu(", "The paper uses GELU"),
    ("EncoderLayer.add", "if self.norm_first", "if False", None),
    (
        "EncoderLayer.add",
        "norm(x + self.dropout(sublayer(x)))",
        "self.dropout(norm(x + sublayer(x)))",
        "Dropout in another place",
    ),
    ("DecoderLayer.forward", "y, y, causal", "y, y, causal | True", None),
    ("Transformer.embed", " * math.sqrt(table.embedding_dim)", "", None),
    ("run_gru", "torch.where(mask[:, s, None], new, h)", "new", "States that run on over the padding"),
    ("evaluate_loss", "add_up(losses)", "sum(loss.mean.item() for loss in losses), len(losses)", "A mean of means"),
    (
        "attend_window",
        "positions - centres[:, :, None]",
        "positions - centres[:, :, None].round()",
        "A window that no gradient",
    ),
    ("HardAttention.perturb", "if self.training else scores", "", "Noise in evaluation mode"),
    ("HardAttention.forward", "weights + (relaxed - relaxed.detach())", "weights", "A choice that cuts the gradient"),
    ("reinforce", "guess.detach()", "guess", "A reward that isn't detached"),
    (
        "LatentAttention.forward",
        "(active @ latent[..., None])[..., 0]",
        "(latent[:, :, None] @ active)[:, :, 0]",
        "Active weights",
    ),
    ("rate_factor", "return step / warmup", "return (step - 1) / warmup", "The first update is number zero"),
    (
        "beam_search",
        "live[0][1] / lp(max_length, penalty)",
        "live[0][1] / lp(length, penalty)",
        "A search that stops too early",
    ),
    ("probabilities", "logits / temperature", "logits * temperature", None),
    ("probabilities", "p[:, top_k or p.shape[1] :] = 0", "p[p < p[:, [(top_k or p.shape[1]) - 1]]] = 0", None),
    ("sample", "word[ended] = PAD", "pass", None),
    ("mask_tokens", "dice >= 0.9", "dice >= 0.8", None),
    ("rotate", "if interleaved:", "if True:", "Two layouts of rotary positions"),
    ("linear_attention", "since.masked_fill(future, -math.inf)", "since", "A cumulative sum that includes the future"),
    (
        "LinearAttention.forward",
        "q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)",
        "pass",
        "Keys whose length isn't 1",
    ),
]


def of(target: str) -> str:
    """The chapter in which a function is written."""
    return next(name for name in PAGES if any(one.target == target for one in grading.checks(name)))


def problems(chapter: str, target: str, answers: grading.Answers) -> list[str]:
    """What the tests of a function say, with some functions in the place of the library's."""
    with grading.planted(chapter, answers):
        found = [grading.tried(one) for one in grading.checks(chapter) if one.target == target]
    return [problem for problem in found if problem is not None]


@pytest.mark.parametrize("chapter", PAGES)
def test_the_reference_passes_and_every_stub_fails(chapter: str) -> None:
    answers, others = grading.read(CELLS[chapter])
    targets = [one.target for one in grading.checks(chapter)]
    assert 3 <= len(targets) <= 20
    with grading.planted(chapter, answers, others):
        wrong = {one.target: problem for one in grading.checks(chapter) if (problem := grading.tried(one))}
    assert wrong == {}
    for target in dict.fromkeys(targets):
        node, cell = answers[target]
        stub = ast.parse(f"def {node.name}(*arguments, **options):\n    raise NotImplementedError").body[0]
        assert problems(chapter, target, {target: (stub, cell)}), target


def test_all_that_chapters_export_is_written_by_learners_or_kept_for_a_reason() -> None:
    kept = set()
    for chapter in PAGES:
        answers, _ = grading.read(CELLS[chapter])
        targets = {one.target for one in grading.checks(chapter)}
        for name, (node, _) in answers.items():
            plain = {ast.unparse(one) for one in node.decorator_list} <= {"torch.no_grad()", "contextmanager"}
            if name not in targets and plain and ast.get_docstring(node):
                kept.add(name)
    new, gone = sorted(kept - set(KEPT)), sorted(set(KEPT) - kept)
    assert not new, f"write a learner's test of {new} in transformer_lib/student/, or say in KEPT why there is none"
    assert not gone, f"{gone} stand in KEPT, but learners write them, or no chapter exports them: take them out"


@pytest.mark.parametrize(("target", "right", "wrong", "name"), SLIPS, ids=[f"{s[0]}-{i}" for i, s in enumerate(SLIPS)])
def test_a_slip_is_caught_by_the_test_of_its_function(target: str, right: str, wrong: str, name: str | None) -> None:
    chapter, _, target = target.rpartition("/")
    chapter = chapter or of(target)
    text = grading.source(chapter, target)
    assert right in text
    node = ast.parse(text.replace(right, wrong)).body[0]
    found = "\n".join(problems(chapter, target, {target: (node, "cell 0")}))
    assert found and (name is None or f'"{name}' in found.replace('""', '"')), found


def test_a_method_that_is_added_to_its_class_is_left_out_and_graded_like_one_inside() -> None:
    text = f"@extends(KVCache)\n{grading.source('multi_head_attention', 'KVCache.append')}"
    right, others = grading.read([text])
    assert others == [] and problems("multi_head_attention", "KVCache.append", right) == []
    wrong, _ = grading.read([text.replace("[self.k, k]", "[k, self.k]")])
    assert problems("multi_head_attention", "KVCache.append", wrong)
    stub, owners = student.stubs(text, {"KVCache.append"})
    assert (
        owners == ["KVCache.append"] and stub.endswith("raise NotImplementedError") and grading.read([stub]) == ({}, [])
    )


def test_there_are_thirty_slips_and_eleven_famous_ones() -> None:
    assert len(SLIPS) >= 30 and len({name for *_, name in SLIPS} - {None}) >= 11


def test_messages_name_sections_and_slips_that_exist() -> None:
    page = (ROOT / "book/appendix/slips.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"(?m)^### (.+)", page))
    for chapter, notebook in PAGES.items():
        headings = set(re.findall(r"(?m)^##+ (.+)$", "\n".join(cell.source for cell in notebook.cells)))
        sections = {one.section for one in grading.checks(chapter)}
        assert sections <= headings, (chapter, sections - headings)
        text = (ROOT / f"transformer_lib/student/{chapter}.py").read_text(encoding="utf-8")
        named = set(re.findall(r"[\"'](\"?[A-Z][^'\"\n]*\w\"?)[\"']: ", text.replace("isn't", "isn’t")))
        assert {name.replace("’", "'") for name in named} <= titles, (chapter, named - titles)


def test_commands_in_the_text_name_chapters_and_functions_that_exist() -> None:
    files = ["README.md", "Makefile", "book/appendix/write_it_yourself.md", "tools/student.py"]
    files += ["transformer_lib/student/__init__.py", "transformer_lib/student/__main__.py"]
    text = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    for file, words in text.items():
        named = re.findall(r"(?:CHAPTER=|--chapter )(\w+)", words)
        assert named and set(named) <= set(PAGES), (file, named)
        for chapter, target in re.findall(r"CHAPTER=(\w+) TAKE=([\w.]+)", words):
            assert grading.source(chapter, target)
    chapter, slip = re.search(r'CHAPTER=(\w+)` names your slip \("(.+?)"\)', text["README.md"]).groups()
    assert f'"{slip}": ' in (ROOT / f"transformer_lib/student/{chapter}.py").read_text(encoding="utf-8")


def test_the_edition_has_stubs_and_no_answers() -> None:
    pytest.importorskip("myst_parser")
    for chapter, page in PAGES.items():
        notebook = student.edition(page)
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        answers, _ = grading.read(["".join(cell["source"]) for cell in code])
        assert not answers.keys() & {one.target for one in grading.checks(chapter)}
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
        assert "google.colab" not in code[0]["source"] or "OWNER" not in code[0]["source"]
        assert any(cell["source"] == student.START for cell in code[:2])
        told = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
        assert not re.search(r"\{[\w:-]+\}`|^[`:]{3,}\{", told, re.M) and "](../" not in told
        assert all(f"- `{one.target}`: {one.expects}" in told for one in grading.checks(chapter))


def test_a_chapter_links_to_its_notebook_if_the_book_has_an_address() -> None:
    book_pages = pytest.importorskip("book_pages")
    page = "<blockquote>promise</blockquote><p>"
    assert book_pages.write_it_yourself(page, "book/transformer/masks", "") == page
    assert book_pages.write_it_yourself(page, "book/appendix/slips", "https://github.com/me/it") == page
    linked = {
        re.search(r"/github/me/it/blob/student/(\S+?)\"", text)[1]
        for one in PAGES.values()
        if (text := book_pages.write_it_yourself(page, one.name.removesuffix(".ipynb"), "https://github.com/me/it"))
    }
    assert linked == set(FILES)


def test_a_folder_is_graded_and_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("myst_parser")
    two = {name: page for name, page in FILES.items() if name[3:-6] in ("scaled_dot_product_attention", "masks")}
    monkeypatch.setattr(student, "pages", lambda: two)
    student.main(tmp_path)
    path = tmp_path / "10_masks.ipynb"
    fresh = path.read_text(encoding="utf-8")
    text = fresh.replace('raise NotImplementedError"', 'return (tokens != 0)[:, None, None]"', 1)
    path.write_text(text, encoding="utf-8")
    student.main(tmp_path)
    assert path.read_text(encoding="utf-8") == text != fresh
    capsys.readouterr()
    assert command.main([str(tmp_path), "--chapter", "10", "--mine"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("✓") == 2 and shown.count("·") == 3 and shown.endswith("2 of 5\n")
    command.main([str(tmp_path), "--chapter", "masks", "--take", "causal_mask"])
    assert "tril(past)" in capsys.readouterr().out
    broken = json.loads(text)
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    return 1 / 0"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "10"])
    shown = capsys.readouterr().out
    assert "ZeroDivisionError" in shown and "line 2: return 1 / 0" in shown and 'under "The causal mask"' in shown
    assert shown.count("The same error as above.") == 2
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    return (1"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "masks"])
    shown = capsys.readouterr().out
    assert 'the cell "def causal_mask(length, past=0):" is left out' in shown and "! causal_mask: its cell" in shown
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    length + past"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "10_masks"])
    assert "None: is a return missing?" in capsys.readouterr().out
    monkeypatch.setattr(grading, "LIMIT", 1)
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    while True:\n        pass"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "10"])
    assert "still running after 1 seconds" in capsys.readouterr().out
    for words, said in (
        ([str(path)], "give the folder"),
        ([str(tmp_path), "--chapter", "mask"], "there is in 9 scaled_dot_product_attention, 10 masks"),
        ([str(tmp_path), "--chapter", "masks", "--take", "mask"], "'mask' is none of"),
    ):
        with pytest.raises(SystemExit):
            command.main(words)
        assert said in capsys.readouterr().err


def test_a_notebook_grades_and_takes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Of two attempts the later one counts, and what is taken works in the notebook."""
    cells = [cell.source for cell in PAGES["multi_head_attention"].cells if "export" in cell.marks]
    cells = [student.stubs(cell, {"KVCache.append", "MultiHeadAttention.project"})[0] for cell in cells]
    cells += [
        "class KVCache:\n    def append(self, k, v):\n        return one(k), v",
        "%pip install x\none = 1\ndef one(x): return [x]",
    ]
    scope: dict = {"In": cells}
    for cell in cells[:-2]:
        exec(cell, scope)
    monkeypatch.setattr("builtins.get_ipython", lambda: SimpleNamespace(user_ns=scope), raising=False)
    grading.grade("multi_head_attention", "KVCache", "MultiHeadAttention.project")
    shown = capsys.readouterr().out
    assert (
        shown.count("·") == 3
        and shown.count("✗") == 1
        and shown.endswith("0 of 4\n")
        and "expected in result 0" in shown
    )
    for name in ("MultiHeadAttention.project", "KVCache.append"):
        grading.take("multi_head_attention", name)
    assert "torch.cat([self.k, k], 2)" in capsys.readouterr().out
    x = torch.randn(2, 5, 12)
    layer = scope["MultiHeadAttention"](12, 3)
    assert torch.allclose(layer(x, cache=scope["KVCache"]()), layer(x, causal=True))
    grading.take("multi_head_attention", "MultiHeadAttention.attend")
    grading.grade("multi_head")
    shown = capsys.readouterr().out
    assert "none of KVCache.append" in shown.replace("MultiHeadAttention.project, ", "") and "'multi_head'" in shown


def test_grading_leaves_the_library_as_it_was() -> None:
    from transformer_lib.models import attention, multi_head

    before = attention.attention, vars(multi_head.MultiHeadAttention)["forward"]
    for chapter in ("scaled_dot_product_attention", "multi_head_attention"):
        with grading.planted(chapter, grading.read(CELLS[chapter])[0]):
            now = attention.attention, vars(multi_head.MultiHeadAttention)["forward"]
            assert now != before and multi_head.attention is attention.attention
    assert (attention.attention, vars(multi_head.MultiHeadAttention)["forward"]) == before
