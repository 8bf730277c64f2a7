"""The table of published models: every row has a source, and its sizes are those of the model's configuration class."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from transformer_lib.data.published import load_published

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
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
    "MiniMax-M3": "MiniMaxM3VLTextConfig",
    "Qwen3.8-Flash-Next (Qwen4-Exp)": "Qwen4ExpTextConfig",
    "GLM-5.3-Flash": "Glm5NextTextConfig",
    "Mistral Large 4": "MistralLarge4TextConfig",
}
# where a released model differs from its class's defaults, by the source of its row
SHARED = {layer: 35 for layer in range(39, 72, 4)}
RELEASED = {
    "Kimi Linear 48B": {
        "layer_types": ["full_attention" if i % 4 == 0 or i == 27 else "linear_attention" for i in range(1, 28)]
    },
    "Hy4 preview": {"num_hidden_layers": 78},
    "Qwen3.8-Flash-Next (Qwen4-Exp)": {
        "num_hidden_layers": 48,
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 128,
        "indexer_budget": 2048,
        "indexer_compress_ratio": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    },
    "MiniMax-M3": {"sparse_attention_config": {"sparse_attention_freq": [0] * 3 + [1] * 57}},
    "GLM-5.3-Flash": {"index_kpool": 4},
    "Mistral Large 4": {"kv_source_layers": [SHARED.get(layer, layer) for layer in range(72)]},
}
NEAR = {"sliding_attention", "hybrid_sliding"}
INDEXED = {"indexed_attention", "minimax_m3_sparse"}


def kept(config: object) -> tuple[int, int, int]:
    """Numbers kept for each token; layers and numbers of local layers."""
    c = config.to_dict()
    kinds = c.get("layer_types") or ["full_attention"] * c["num_hidden_layers"]
    kinds = kinds[: len(kinds) - (c.get("num_kv_shared_layers") or 0)]
    far = [i for i, kind in enumerate(kinds) if kind not in NEAR | {"linear_attention"}]
    if c.get("kv_lora_rank"):
        one, turned = c["kv_lora_rank"], c.get("no_rope_layers") or [1] * len(kinds)
        sources = c.get("kv_source_layers") or range(len(kinds))
        numbers = sum(one + turned[i] * c["qk_rope_head_dim"] for i in far if sources[i] == i)
    else:
        width = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        one = 2 * c["num_key_value_heads"] * width
        numbers = len(far) * one
    indexers = (c.get("indexer_types") or ["full"] * len(kinds))[: len(kinds)]
    keys = sum(kinds[i] in INDEXED and indexers[i] == "full" for i in far)
    width = c.get("index_head_dim") or c.get("indexer_head_dim") or 0
    pool = c.get("index_kpool") or c.get("indexer_compress_ratio") or 1
    return numbers + keys * width // pool, len(kinds) - len(far) - kinds.count("linear_attention"), one


@pytest.mark.parametrize("name", CLASSES)
def test_the_cache_of_a_row_is_that_of_the_model_s_configuration(name):
    row = load_published()[name]
    config = getattr(transformers, CLASSES[name])
    numbers, near, one = kept(config(**RELEASED.get(name, {})))
    assert sum(layers * each for layers, each in row["cache"]) == numbers
    assert [(layers, each) for layers, _, each in row["local"]] == ([(near, one)] if near else [])


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_model_that_differs_from_its_class_says_that_it_rests_on_the_release(name):
    row, config = load_published()[name], getattr(transformers, CLASSES[name])
    assert kept(config(**RELEASED[name])) != kept(config())
    assert row["rests"] == "released model" and row["source"] != "transformers2026"


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
        assert row["rests"] in ("paper", "model card", "released model", "class default"), name
        assert name in CLASSES or row["source"] != "transformers2026", name
        assert row["rests"] == "class default" or row["source"] != "transformers2026", name
    years = [row["year"] for row in rows.values()]
    assert years == sorted(years) and json.dumps(rows)


def test_the_page_s_table_has_every_model_and_what_it_keeps():
    lines = pytest.importorskip("book_results").published_lines()
    heads, _, *rows = (re.findall(r"[^|]+", line) for line in lines)
    assert [row[0].strip() for row in rows] == [*load_published()] and {len(row) for row in rows} == {len(heads)}
    sizes = {row[0].strip(): row[-3].strip() for row in rows}
    assert sizes["GPT-3"] == "4,718.6" and sizes["Llama 3 8B"] == "131.1" and sizes["Kimi Linear 48B"] == "8.1"


def test_callers_can_not_change_the_table():
    load_published()["GPT-3"]["year"] = 1
    load_published()["GPT-3"]["cache"][0].append(1)
    load_published()["GPT-3"]["local"].append(1)
    assert load_published()["GPT-3"]["year"] == 2020 and load_published()["GPT-3"]["local"] == []
    assert len(load_published()["GPT-3"]["cache"][0]) == 2
