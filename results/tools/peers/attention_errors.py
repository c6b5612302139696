#!/usr/bin/env python3
"""Errors of attention's results beside FlashAttention-4's, on the same operands, against fp64.

DUMP.h5 is what stowage_bench_kernels --op attention_backward --impl ours --dump DUMP.h5 leaves, of
causal shapes with documents of equal length. Needs PyTorch, h5py and the wheels that
attention_flash4.py names. Prints, of each result, the largest error and the root of the mean
square, both in parts of the result's own root of the mean square, and ours by theirs as they
are by default; --out keeps them as JSON lines.
"""

import argparse
import json
import pathlib
import re

import needs_torch  # noqa: F401
from stowage_results import needs  # noqa: F401
import h5py
import torch

from stowage_results import outputs
from stowage_results.packages import require

LABEL = re.compile(r"attention_backward\.B(\d+)_T(\d+)_H(\d+)_K(\d+)_P(\d+)_causal1_")
NAMES = ("o", "dq", "dk", "dv")
WHO = ("ours", "theirs", "theirs, deterministic")


def bf16(dataset, shape):
    words = torch.from_numpy(dataset[()].view("int16")).cuda()
    return words.view(torch.bfloat16).reshape(shape)


def heads_of(rows, heads, kv_heads):
    """The parts of (B, T, H + 2 K, P) that belong to q, k and v."""
    return rows.split([heads, kv_heads, kv_heads], dim=2)


def exact_head(q, k, v, d_o):
    """o, dq, dk, dv in fp64 of one query head, (T, P) each."""
    q, k, v, d_o = (part.double() for part in (q, k, v, d_o))
    scale = q.shape[1] ** -0.5
    hidden = torch.ones(len(q), len(q), dtype=torch.bool, device="cuda").triu_(1)
    weights = (q @ k.T * scale).masked_fill_(hidden, float("-inf")).softmax(dim=1)
    out = weights @ v
    d_scores = weights * (d_o @ v.T - (d_o * out).sum(dim=1, keepdim=True)) * scale
    return out, d_scores @ k, d_scores.T @ q, weights.T @ d_o


def exact(q, k, v, d_o):
    """The results of all heads; those of keys are summed over their group."""
    results = [torch.zeros(part.shape, dtype=torch.float64, device="cuda") for part in (q, q, k, v)]
    group = q.shape[2] // k.shape[2]
    for b in range(q.shape[0]):
        for head in range(q.shape[2]):
            of = head // group
            parts = exact_head(q[b, :, head], k[b, :, of], v[b, :, of], d_o[b, :, head])
            for result, part, place in zip(results, parts, (head, head, of, of)):
                result[b, :, place] += part
    return results


def theirs(flash, inputs, d_o, deterministic):
    inputs = [part.detach().requires_grad_() for part in inputs]
    out = flash.flash_attn_func(*inputs, causal=True, deterministic=deterministic)
    out = out[0] if isinstance(out, tuple) else out
    return [out.detach(), *torch.autograd.grad(out, inputs, d_o)]


def errors(result, expected):
    """(largest, root of the mean square)."""
    difference = result.double() - expected
    size = expected.square().mean().sqrt()
    return (difference.abs().max() / size).item(), (difference.square().mean().sqrt() / size).item()


def tree(group):
    """The paths of all that lies below."""
    found = set()
    group.visit(found.add)
    return found


def measure(flash, label, group):
    sequences, length, heads, kv_heads, head_dim = map(int, LABEL.match(label).groups())
    rows = (sequences, length)
    inputs = heads_of(bf16(group["inputs/qkv"], (*rows, heads + 2 * kv_heads, head_dim)),
                      heads, kv_heads)
    out, d_o = (bf16(group[f"inputs/{name}"], (*rows, heads, head_dim)) for name in ("o", "do"))
    gradients = heads_of(bf16(group["ours/dqkv"], (*rows, heads + 2 * kv_heads, head_dim)),
                         heads, kv_heads)
    expected = exact(*inputs, d_o)
    found = dict(zip(WHO, ([out, *gradients], theirs(flash, inputs, d_o, False),
                           theirs(flash, inputs, d_o, True))))
    for place, name in enumerate(NAMES):
        row = {who: errors(results[place], expected[place]) for who, results in found.items()}
        ratio = [row["ours"][i] / row["theirs"][i] for i in (0, 1)]
        yield {"shape": label, "result": name, **row, "ours_by_theirs": ratio}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=pathlib.Path)
    parser.add_argument("--out", type=outputs.timings, required=True, help="JSON lines")
    options = parser.parse_args()
    require("flash_attn")
    import flash_attn.cute as flash  # here, so that --help needs no wheels
    with h5py.File(options.dump) as dump:
        labels = [label for label in dump
                  if LABEL.match(label) and {"inputs/qkv", "ours/dqkv"} <= tree(dump[label])]
        if not labels:
            parser.error(f"{options.dump}: no attention_backward of ours")
        with outputs.opened(options.out) as out:
            for row in (row for label in labels for row in measure(flash, label, dump[label])):
                out.write(json.dumps(row) + "\n")
                shown = [f"{who} {row[who][0]:.4f} {row[who][1]:.6f}" for who in WHO]
                print(row["shape"], row["result"], *shown,
                      "ours / theirs {:.3f} {:.3f}".format(*row["ours_by_theirs"]), flush=True)


if __name__ == "__main__":
    main()
