"""Published tensors as ours, and back, by numpy alone: the tests' own reading of the formats."""
import json
import pathlib
import re
import struct

import numpy

TYPES = {"F64": "<f8", "F32": "<f4", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}


def read_safetensors(path):
    """Name to array; bf16 as its bits."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: numpy.frombuffer(data[8 + length + entry["data_offsets"][0]:
                                        8 + length + entry["data_offsets"][1]],
                                   TYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}


def read_folder(folder):
    """All tensors of a published folder, of one file or of shards."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(read_safetensors(path))
    return tensors


def write_safetensors(path, tensors, dtype="F32"):
    header, data = {}, b""
    for name, values in tensors.items():
        part = values.astype(TYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def nemotron_h(name, get):
    """Our tensor of this name, of theirs."""
    outside = {"embedding.weight": "backbone.embeddings.weight",
               "final_norm.weight": "backbone.norm_f.weight", "output.weight": "lm_head.weight"}
    if name in outside:
        return get(outside[name])
    joins = re.fullmatch(r"mtp\.(\d+)\.(.*)\.weight", name)
    if joins:  # of a block, which has two layers
        first, what = 2 * int(joins[1]), joins[2]
        at = {"embedding_norm": (first, "enorm"), "hidden_norm": (first, "hnorm"),
              "embedding_proj": (first, "eh_proj"), "hidden_proj": (first, "eh_proj"),
              "final_norm": (first + 1, "final_layernorm")}[what]
        values = get("mtp.layers.{}.{}.weight".format(*at))
        half = values.shape[-1] // 2
        return {"embedding_proj": values[..., :half], "hidden_proj": values[..., half:]}.get(
            what, values)
    further, layer, rest = re.fullmatch(r"(mtp\.)?layers\.(\d+)\.(.*)", name).groups()
    here = f"{further or 'backbone.'}layers.{layer}."
    if rest == "norm.weight":
        return get(here + rest)
    mixer, kind, what = here + "mixer.", *rest.split(".", 1)
    matrix = {"fc1.weight": "up_proj.weight", "fc2.weight": "down_proj.weight"}
    if kind == "mamba":
        values = get(mixer + what)
        return values[:, 0] if what == "conv1d.weight" else values
    if rest == "attn.qkv.weight":
        return numpy.concatenate([get(f"{mixer}{x}_proj.weight") for x in "qkv"])
    if rest == "attn.proj.weight":
        return get(mixer + "o_proj.weight")
    if kind == "mlp":
        return get(mixer + matrix[what])
    if kind == "router":
        return get(mixer + {"weight": "gate.weight", "bias": "gate.e_score_correction_bias"}[what])
    if kind == "latent":
        return get(f"{mixer}{what.replace('.weight', '_latent_proj.weight')}")
    if kind == "shared":
        return get(f"{mixer}shared_experts.{matrix[what]}")
    assert kind == "experts", name
    return numpy.stack([get(f"{mixer}experts.{e}.{matrix[what]}") for e in range(4)])


def nemotron_h_mtp(name, get):
    return nemotron_h(name, get)


def mamba2(name, get):
    return nemotron_h(name, get)


def llama(name, get):
    outside = {"embedding.weight": "model.embed_tokens.weight",
               "final_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    if name in outside:
        return get(outside[name])
    layer, rest = re.fullmatch(r"layers\.(\d+)\.(.*)", name).groups()
    block, second = divmod(int(layer), 2)
    here = f"model.layers.{block}."
    if rest == "norm.weight":
        return get(here + ("post_attention_layernorm" if second else "input_layernorm") + ".weight")
    parts = {"attn.qkv.weight": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
             "attn.proj.weight": ["self_attn.o_proj"],
             "mlp.fc1.weight": ["mlp.gate_proj", "mlp.up_proj"],
             "mlp.fc2.weight": ["mlp.down_proj"], "attn.q_norm.weight": ["self_attn.q_norm"],
             "attn.k_norm.weight": ["self_attn.k_norm"], "router.weight": ["mlp.gate"],
             "experts.fc1.weight": ["mlp.experts.{e}.gate_proj", "mlp.experts.{e}.up_proj"],
             "experts.fc2.weight": ["mlp.experts.{e}.down_proj"]}[rest]
    if rest.startswith("experts."):
        return numpy.stack([numpy.concatenate([get(f"{here}{part}.weight".format(e=e))
                                               for part in parts]) for e in range(4)])
    return numpy.concatenate([get(f"{here}{part}.weight") for part in parts])


def llama3(name, get):
    return llama(name, get)


def qwen3(name, get):
    return llama(name, get)


def qwen3_moe(name, get):
    return llama(name, get)


# Of the models that qwen3_next and its like of make_reference.py make.
HEADS, HEAD_DIM, KEY_HEADS, KEY_DIM, VALUES = 4, 16, 2, 8, 12  # VALUES: columns of v of a key head


def gated_attention(rest, here, get):
    queries = get(here + "self_attn.q_proj.weight")
    of_heads = queries.reshape(HEADS, 2, HEAD_DIM, -1)  # query and gate
    query, gate = of_heads[:, 0], of_heads[:, 1]
    if rest == "attn.gate.weight":
        return gate.reshape(-1, queries.shape[1])
    assert rest == "attn.qkv.weight", rest
    return numpy.concatenate([query.reshape(-1, queries.shape[1]),
                              get(here + "self_attn.k_proj.weight"),
                              get(here + "self_attn.v_proj.weight")])


def delta_projection(here, get, one_projection):
    if not one_projection:
        return numpy.concatenate([get(f"{here}in_proj_{x}.weight") for x in ("z", "qkv", "b", "a")])
    qkvz = get(here + "in_proj_qkvz.weight")
    by_head = qkvz.reshape(KEY_HEADS, -1, qkvz.shape[1])
    ends = numpy.cumsum([KEY_DIM, KEY_DIM, VALUES])
    q, k, v, z = numpy.split(by_head, ends, axis=1)
    ba = get(here + "in_proj_ba.weight").reshape(KEY_HEADS, 2, -1, qkvz.shape[1])
    return numpy.concatenate([part.reshape(-1, qkvz.shape[1])
                              for part in (z, q, k, v, ba[:, 0], ba[:, 1])])


def qwen3_next(name, get, one_projection=True):
    if not name.startswith("layers."):
        return llama(name, get)
    layer, rest = re.fullmatch(r"layers\.(\d+)\.(.*)", name).groups()
    here = f"model.layers.{int(layer) // 2}."
    if rest in ("attn.qkv.weight", "attn.gate.weight"):
        return gated_attention(rest, here, get)
    if rest == "delta.in_proj.weight":
        return delta_projection(here + "linear_attn.", get, one_projection)
    if rest.startswith("delta."):
        values = get(here + "linear_attn." + rest.removeprefix("delta."))
        return values[:, 0] if rest == "delta.conv1d.weight" else values
    shared = {"shared.fc1.weight": ["shared_expert.gate_proj", "shared_expert.up_proj"],
              "shared.fc2.weight": ["shared_expert.down_proj"],
              "shared.gate.weight": ["shared_expert_gate"]}
    if rest in shared:
        return numpy.concatenate([get(f"{here}mlp.{part}.weight") for part in shared[rest]])
    return llama(name, get)


def qwen3_5_text(name, get):
    return qwen3_next(name, get, False)


def qwen3_5_moe_text(name, get):
    return qwen3_next(name, get, False)


FAMILIES = {function.__name__: function for function in
            (nemotron_h, nemotron_h_mtp, llama, llama3, mamba2, qwen3, qwen3_moe, qwen3_next,
             qwen3_5_text, qwen3_5_moe_text)}


def tensor_of(family, name, tensors):
    return FAMILIES[family](name, tensors.__getitem__)
