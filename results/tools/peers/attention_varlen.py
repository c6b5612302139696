#!/usr/bin/env python3
"""Times PyTorch's attention over packed documents: the peer of attention_packed_* of
stowage_bench_kernels, on the same lengths, with random operands and a cold L2. Needs only PyTorch.

Writes one JSON object a line: operator, implementation, shape, flops, every sample in seconds.
"""

import argparse
import json
import pathlib
import statistics
import tomllib

import needs_torch  # noqa: F401
import torch

from stowage_results import outputs

LENGTHS = pathlib.Path(__file__).resolve().parents[3] / "inputs/lengths/packed_65536.toml"
FLUSHED_BYTES = 256 << 20  # several times the L2 cache


def read_lengths(path):
    return tomllib.loads(path.read_text(encoding="utf-8"))["data"]["synthetic_lengths"]


def time_s(work, samples, flush):
    """Durations of `work` by events, each after the cache was overwritten."""
    taken = []
    for _ in range(samples + 5):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) * 1e-3)
    return taken[5:]


def operands(lengths, heads, head_dim):
    """q, k, v as columns of one projection, document starts, and the gradient of the output."""
    tokens = sum(lengths)
    qkv = torch.randn(tokens, 3, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    starts = torch.tensor([0] + lengths, device="cuda").cumsum(0, dtype=torch.int32)
    d_out = torch.randn(tokens, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    return qkv, starts, d_out


def measure(lengths, heads, head_dim, samples):
    """Seconds of each forward, and of each backward."""
    qkv, starts, d_out = operands(lengths, heads, head_dim)
    q, k, v = (x.detach().requires_grad_() for x in qkv.unbind(1))
    longest = max(lengths)
    flush = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")

    def forward():
        # What torch.nn.attention.varlen calls: no dropout, causal, no debug mask.
        return torch.ops.aten._flash_attention_forward(
            q, k, v, starts, starts, longest, longest, 0.0, True, False)[0]

    forward_s = time_s(forward, samples, flush)
    out = forward()

    def backward():
        torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)

    return forward_s, time_s(backward, samples, flush)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--lengths", type=pathlib.Path, default=LENGTHS)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--out", type=outputs.timings, required=True)
    options = parser.parse_args()
    lengths = read_lengths(options.lengths)
    pairs = sum(length * (length + 1) // 2 for length in lengths)
    product_flops = 2 * pairs * options.heads * options.head_dim
    results = measure(lengths, options.heads, options.head_dim, options.samples)
    with outputs.opened(options.out) as out:
        for direction, products, samples in zip(("forward", "backward"), (2, 5), results):
            median = statistics.median(samples)
            row = {
                "operator": f"attention_packed_{direction}",
                "implementation": f"PyTorch {torch.__version__} varlen attention",
                "device": torch.cuda.get_device_name(),
                "shape": {"tokens": sum(lengths), "documents": len(lengths),
                          "H": options.heads, "K": options.heads, "P": options.head_dim},
                "flops": products * product_flops,
                "median_s": median,
                "time_s": samples,
            }
            out.write(json.dumps(row) + "\n")
            rate = products * product_flops / median * 1e-12
            print(f"{row['operator']:<28} {median * 1e6:10.1f} us {rate:8.1f} TFLOP/s")


if __name__ == "__main__":
    main()
