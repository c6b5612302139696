#!/usr/bin/env python3
"""Times FlashAttention-4's kernels for Hopper: the peer of attention_forward, attention_backward
and attention_packed_* of stowage_bench_kernels, with random operands and a cold L2; its backward as
it is by default, whose sums have no order, and deterministic, as ours always is. Compile time is
left out. Needs PyTorch and, in an environment of their own, the wheels

    flash-attn-4 quack-kernels nvidia-cutlass-dsl apache-tvm-ffi torch-c-dlpack-ext

Writes one JSON object a line, as attention_varlen.py does. With --rounds, --between takes turns
with what it is compared with, so that both find the board as warm: the words of a command, in
which {round} is the round's number.
"""

import argparse
import importlib.metadata
import json
import pathlib
import shlex
import statistics
import subprocess

import needs_torch  # noqa: F401
import torch

import attention_varlen as packed
from stowage_results import outputs
from stowage_results.packages import require

# Sequences, tokens of each, query heads, key heads, elements of a head.
SHAPES = ((4, 4096, 32, 8, 128), (2, 8192, 32, 8, 128), (1, 16384, 32, 8, 128),
          (2, 8192, 16, 4, 128), (2, 8192, 32, 32, 64), (32, 1024, 12, 12, 64))
PACKED_HEADS = (32, 32, 128)


def operands(rows, heads, kv_heads, head_dim):
    """q, k, v as columns of one projection, and the gradient of the output."""
    qkv = torch.randn(*rows, heads + 2 * kv_heads, head_dim, device="cuda", dtype=torch.bfloat16)
    parts = qkv.split([heads, kv_heads, kv_heads], dim=-2)
    d_out = torch.randn(*rows, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    return [part.detach().requires_grad_() for part in parts], d_out


def measure(attend, inputs, d_out, samples):
    """Seconds of each forward, and of each backward by default and deterministic."""
    flush = torch.empty(packed.FLUSHED_BYTES, dtype=torch.uint8, device="cuda")

    def out_of(deterministic):
        out = attend(*inputs, causal=True, deterministic=deterministic)
        return out[0] if isinstance(out, tuple) else out

    with torch.no_grad():
        times = [packed.time_s(lambda: out_of(False), samples, flush)]
    for deterministic in (False, True):
        out = out_of(deterministic)
        times.append(packed.time_s(
            lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True), samples, flush))
    return times


def rows(operator, shape, pairs, heads, head_dim, times):
    """One for each of measure()'s."""
    version = importlib.metadata.version("flash-attn-4")
    for direction, order, products, samples in zip(
            ("forward", "backward", "backward"), ("", "", ", deterministic"), (2, 5, 5), times):
        yield {
            "operator": f"{operator}_{direction}",
            "implementation": f"FlashAttention-4 {version}{order}",
            "device": torch.cuda.get_device_name(),
            "shape": shape,
            "flops": products * 2 * pairs * heads * head_dim,
            "median_s": statistics.median(samples),
            "time_s": samples,
        }


def equal(flash, shape, samples):
    sequences, length, heads, kv_heads, head_dim = shape
    inputs, d_out = operands((sequences, length), heads, kv_heads, head_dim)
    return rows("attention", dict(zip("BTHKP", shape)), sequences * length * (length + 1) // 2,
                heads, head_dim, measure(flash.flash_attn_func, inputs, d_out, samples))


def documents(flash, lengths, samples):
    heads, kv_heads, head_dim = PACKED_HEADS
    inputs, d_out = operands((sum(lengths),), heads, kv_heads, head_dim)
    starts = torch.tensor([0] + lengths, device="cuda").cumsum(0, dtype=torch.int32)

    def attend(q, k, v, **options):
        return flash.flash_attn_varlen_func(
            q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=max(lengths),
            max_seqlen_k=max(lengths), **options)

    shape = {"tokens": sum(lengths), "documents": len(lengths), "H": heads, "K": kv_heads,
             "P": head_dim}
    return rows("attention_packed", shape, sum(n * (n + 1) // 2 for n in lengths), heads, head_dim,
                measure(attend, inputs, d_out, samples))


def take_turns(work, rounds, between):
    """Each row that `work` measures, and all rows, with the samples of all rounds until then."""
    merged = {}
    for number in range(rounds):
        if between:
            command = [word.replace("{round}", str(number)) for word in shlex.split(between)]
            subprocess.run(command, check=True)
        for row in (row for measure_one in work for row in measure_one()):
            key = (row["operator"], row["implementation"], tuple(row["shape"].values()))
            kept = merged.setdefault(key, row)
            if kept is not row:
                kept["time_s"] += row["time_s"]
                kept["median_s"] = statistics.median(kept["time_s"])
            yield kept, merged.values()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=pathlib.Path, default=packed.LENGTHS)
    parser.add_argument("--samples", type=int, default=50, help="of each round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--between", default="", metavar="COMMAND")
    parser.add_argument("--out", type=outputs.timings, required=True)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be >= 1")
    require("flash_attn")
    import flash_attn.cute as flash  # here, so that --help needs no wheels
    lengths = packed.read_lengths(options.lengths)
    work = [lambda shape=shape: equal(flash, shape, options.samples) for shape in SHAPES]
    work.append(lambda: documents(flash, lengths, options.samples))
    with outputs.opened(options.out) as out:
        for row, rows_so_far in take_turns(work, options.rounds, options.between):
            out.seek(0)
            out.truncate()  # rounds change rows
            out.write("".join(json.dumps(one) + "\n" for one in rows_so_far))
            out.flush()
            rate = row["flops"] / row["median_s"] * 1e-12
            print(f"{row['operator']:<28} {row['implementation']:<44} {row['shape']} "
                  f"{row['median_s'] * 1e6:10.1f} us {rate:8.1f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
