"""The table of published models: every row has a source, and its sizes are those of the model's configuration class."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from transformer_lib.data.published import load_published

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
import book_results

transformers = pytest.importorskip("transformers")
ROOT = Path(__file__).resolve().parents[1]
CLASSES = {
    "Gemma 3n E4B": "Gemma3nTextConfig",
    "gpt-oss-120b": "GptOssConfig",
    "SmolLM3 3B": "SmolLM3Config",
    "Qwen3-Next 80B": "Qwen3NextConfig",
    "MiniMax-M2": "MiniMaxM2Config",
    "Kimi Linear 48B": "KimiLinearConfig",
    "Olmo 3 7B": "Olmo3Config",
    "DeepSeek-V3": "DeepseekV3Config",
    "DeepSeek-V3.2": "DeepseekV32Config",
    "GLM-5": "GlmMoeDsaConfig",
    "Qwen3.5 9B": "Qwen3_5TextConfig",
    "Mistral Small 4": "Mistral4Config",
    "Muse Spark Open 816B": "MuseSparkTextConfig",
    "Hy4 preview": "HYV4Config",
    "Inkling 2 Small": "Inkling2TextConfig",
    "Qwen4-Exp": "Qwen4ExpTextConfig",
    "GLM-5.3-Flash": "Glm5NextTextConfig",
    "Mistral Large 4": "MistralLarge4TextConfig",
}
NEAR = {"sliding_attention", "hybrid_sliding"}


def kept(config: object) -> tuple[int, int, int]:
    """Numbers kept for each token; layers and numbers of local layers."""
    c = config.to_dict()
    kinds = c.get("layer_types") or ["full_attention"] * c["num_hidden_layers"]
    kinds = kinds[: len(kinds) - (c.get("num_kv_shared_layers") or 0)]
    if c.get("kv_lora_rank"):
        one = c["kv_lora_rank"] + c["qk_rope_head_dim"]
    else:
        width = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        one = 2 * c["num_key_value_heads"] * width
    near, far = sum(kind in NEAR for kind in kinds), [kind for kind in kinds if kind not in NEAR | {"linear_attention"}]
    indexers = (c.get("indexer_types") or ["full"] * len(kinds))[: len(kinds)]
    keys = sum(k == "indexed_attention" and i == "full" for k, i in zip(kinds, indexers, strict=True))
    return len(far) * one + keys * (c.get("index_head_dim") or 0), near, one


@pytest.mark.parametrize("name", CLASSES)
def test_the_cache_of_a_row_is_that_of_the_model_s_configuration(name):
    row = load_published()[name]
    numbers, near, one = kept(getattr(transformers, CLASSES[name])())
    assert sum(layers * each for layers, each in row["cache"]) == numbers
    assert [(layers, each) for layers, _, each in row["local"]] == ([(near, one)] if near else [])


def test_deepseek_v4_keeps_one_entry_for_4_or_for_128_tokens():
    row, c = load_published()["DeepSeek-V4-Flash"], transformers.DeepseekV4Config()
    (some, few), (others, fewer) = row["cache"]
    rates = c.compress_rates
    assert few == (c.head_dim + c.index_head_dim) / rates["compressed_sparse_attention"]
    assert fewer == c.head_dim / rates["heavily_compressed_attention"]
    assert some + others == c.num_hidden_layers - 2 and row["local"] == [[c.num_hidden_layers, c.sliding_window, 512]]


def test_every_row_says_where_it_comes_from_and_they_stand_in_order():
    works = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "book/references.bib").read_text("utf-8"), re.M))
    rows = load_published()
    for name, row in rows.items():
        assert row["source"] in works, name
        assert row["attention"] and row["positions"] and row["feed_forward"], name
        assert name in CLASSES or row["source"] != "transformers2026" or name == "MiniMax-M3"
    years = [row["year"] for row in rows.values()]
    assert years == sorted(years) and json.dumps(rows)


def test_the_page_s_table_has_every_model_and_what_it_keeps():
    heads, _, *rows = (re.findall(r"[^|]+", line) for line in book_results.published_lines())
    assert [row[0].strip() for row in rows] == [*load_published()] and {len(row) for row in rows} == {len(heads)}
    sizes = {row[0].strip(): row[-2].strip() for row in rows}
    assert sizes["GPT-3"] == "4,718.6" and sizes["Llama 3 8B"] == "131.1" and sizes["Kimi K3"] == "–"


def test_callers_can_not_change_the_table():
    load_published()["GPT-3"]["year"] = 1
    load_published()["GPT-3"]["local"].append(1)
    assert load_published()["GPT-3"]["year"] == 2020 and load_published()["GPT-3"]["local"] == []
