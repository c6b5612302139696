#!/usr/bin/python3
"""A folder of a published model at full size, with random weights, to measure import and export.

Usage: make_folder.py DECK FOLDER [--layers N] [--shard-bytes N]. DECK is one of
inputs/nemotron-*.toml, --layers takes the first ones of its pattern. Files are written block by
block, so that a 30B needs no more memory than a small model; needs numpy alone. Then, side by side:
  /usr/bin/time -v stowage_convert import FOLDER --out CHECKPOINTS --deck IT.toml
  /usr/bin/time -v stowage_convert export CHECKPOINTS --out OTHER
  /usr/bin/time -v python3 -c "READER" FOLDER   (a script that reads every tensor with safetensors)
"""
import argparse
import json
import pathlib
import struct
import tomllib

import numpy

BLOCK = 1 << 22  # random elements that are written again and again


def mlp_shapes(inner, width):
    return {"up_proj.weight": (inner, width), "down_proj.weight": (width, inner)}


def expert_shapes(m, width):
    experts, latent = m["num_moe_experts"], m.get("moe_latent_size", 0)
    parts = {f"experts.{e}": mlp_shapes(m["moe_ffn_hidden_size"], latent or width)
             for e in range(experts)}
    parts["shared_experts"] = mlp_shapes(m["moe_shared_expert_hidden_size"], width)
    projections = {"fc1_latent_proj.weight": (latent, width),
                   "fc2_latent_proj.weight": (width, latent)}
    return {"gate.weight": (experts, width), "gate.e_score_correction_bias": (experts,),
            **(projections if latent else {}),
            **{f"{part}.{k}": v for part, all_ in parts.items() for k, v in all_.items()}}


def layer_shapes(m, letter):
    width, inner = m["hidden_size"], m["mamba_num_heads"] * m["mamba_head_dim"]
    groups = m["mamba_num_groups"] * m["mamba_state_dim"]
    query, key = (m[k] * m["head_dim"] for k in ("num_attention_heads", "num_query_groups"))
    heads = (m["mamba_num_heads"],)
    if letter == "E":
        return {"norm.weight": (width,),
                **{f"mixer.{k}": v for k, v in expert_shapes(m, width).items()}}
    mixers = {
        "M": {"in_proj.weight": (2 * inner + 2 * groups + heads[0], width),
              "conv1d.weight": (inner + 2 * groups, 1, 4), "conv1d.bias": (inner + 2 * groups,),
              "A_log": heads, "D": heads, "dt_bias": heads, "norm.weight": (inner,),
              "out_proj.weight": (width, inner)},
        "*": {"q_proj.weight": (query, width), "k_proj.weight": (key, width),
              "v_proj.weight": (key, width), "o_proj.weight": (width, query)},
        "-": mlp_shapes(m.get("ffn_hidden_size"), width)}
    return {"norm.weight": (width,), **{f"mixer.{k}": v for k, v in mixers[letter].items()}}


def shapes(m):
    table = (m["vocab_size"], m["hidden_size"])
    yield "backbone.embeddings.weight", table
    for layer, letter in enumerate(m["pattern"]):
        for name, shape in layer_shapes(m, letter).items():
            yield f"backbone.layers.{layer}.{name}", shape
    yield "backbone.norm_f.weight", table[1:]
    yield "lm_head.weight", table


def config(m):
    names = {"hidden_size": "hidden_size", "vocab_size": "vocab_size", "head_dim": "head_dim",
             "num_attention_heads": "num_attention_heads", "ffn_hidden_size": "intermediate_size",
             "num_query_groups": "num_key_value_heads", "mamba_num_heads": "mamba_num_heads",
             "mamba_head_dim": "mamba_head_dim", "mamba_num_groups": "n_groups",
             "mamba_state_dim": "ssm_state_size", "mamba_chunk_size": "chunk_size",
             "num_moe_experts": "n_routed_experts", "moe_router_topk": "num_experts_per_tok",
             "moe_ffn_hidden_size": "moe_intermediate_size", "moe_latent_size": "moe_latent_size",
             "moe_shared_expert_hidden_size": "moe_shared_expert_intermediate_size",
             "moe_norm_topk_prob": "norm_topk_prob", "moe_num_groups": "n_group",
             "moe_router_topk_scaling_factor": "routed_scaling_factor",
             "moe_group_topk": "topk_group"}
    return {"model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"],
            "dtype": "bfloat16", "hybrid_override_pattern": m["pattern"],
            **{theirs: m[ours] for ours, theirs in names.items() if ours in m}}


def write_shard(path, tensors, block):
    header, at = {}, 0
    for name, shape in tensors:
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while at > 0:
            part = min(at, len(block))
            file.write(block[:part])
            at -= part


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("deck")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, help="all")
    parser.add_argument("--shard-bytes", type=int, default=5 << 30)
    given = parser.parse_args()
    model = tomllib.loads(pathlib.Path(given.deck).read_text())["model"]
    model["pattern"] = model["pattern"][:given.layers]
    given.folder.mkdir(parents=True)
    shards, size = [[]], 0
    for name, shape in shapes(model):
        bytes_ = 2 * int(numpy.prod(shape))
        if shards[-1] and size + bytes_ > given.shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += bytes_
    values = numpy.random.default_rng(1).standard_normal(BLOCK, "f4") * numpy.float32(0.02)
    block = (values.view("u4") >> 16).astype("<u2").tobytes()
    index = {}
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(given.folder / name, tensors, block)
        index.update({tensor: name for tensor, _ in tensors})
    (given.folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index}))
    (given.folder / "config.json").write_text(json.dumps(config(model), indent=2))
    total = sum(int(numpy.prod(shape)) for tensors in shards for _, shape in tensors)
    print(f"{given.folder}: {len(index)} tensors, {total / 1e9:.3f} B parameters, "
          f"{len(shards)} files")


if __name__ == "__main__":
    main()
