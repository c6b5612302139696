#!/usr/bin/env python3
"""Times quack's norm and fused linear cross-entropy: peers of add_rmsnorm_forward,
rmsnorm_backward, linear_cross_entropy and linear_cross_entropy_loss of stowage_bench_kernels, on
their shapes, with random operands and a cold L2. Compile and tuning time is left out. Needs PyTorch
and, in an environment of their own, the wheels

    quack-kernels nvidia-cutlass-dsl apache-tvm-ffi torch-c-dlpack-ext

Writes one JSON object a line, as attention_varlen.py does. Where it differs from ours: its loss is
one sum over the rows, and the gradient of w has the type of w, bf16; ours is fp32.
"""

import argparse
import importlib.metadata
import itertools
import json
import statistics

import needs_torch  # noqa: F401
import torch

import attention_varlen as packed
from stowage_results import outputs
from stowage_results.packages import require

NORM_SHAPES = ((16384, 2048), (65536, 768), (16384, 2688))  # rows, width
HEAD_SHAPES = ((16384, 65536, 2048), (65536, 50304, 768))   # rows, vocabulary, width


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def row(operator, shape, flops, times):
    return {
        "operator": operator,
        "implementation": f"quack {importlib.metadata.version('quack-kernels')}",
        "device": torch.cuda.get_device_name(),
        "shape": shape,
        "flops": flops,
        "median_s": statistics.median(times),
        "time_s": times,
    }


def norm_rows(n, width, samples, flush):
    from quack.rmsnorm import rmsnorm
    x, delta, d_out, d_sum = (normal(n, width) for _ in range(4))
    weight = normal(width).requires_grad_()
    x.requires_grad_()

    def forward():
        return rmsnorm(x, weight, residual=delta, prenorm=True)

    shape = {"n": n, "D": width}
    yield row("add_rmsnorm_forward", shape, 0, packed.time_s(forward, samples, flush))
    outs = forward()
    yield row("rmsnorm_backward", shape, 0, packed.time_s(
        lambda: torch.autograd.grad(outs, (x, weight), (d_out, d_sum), retain_graph=True),
        samples, flush))


def head_rows(n, vocabulary, width, samples, flush):
    from quack.linear_cross_entropy import chunked_linear_cross_entropy
    h = normal(n, width).requires_grad_()
    weight = (normal(vocabulary, width) / width ** 0.5).requires_grad_()
    targets = torch.randint(vocabulary, (n,), device="cuda")

    def loss():
        return chunked_linear_cross_entropy(h, weight, targets, reduction="sum")

    def all_of_it():
        return torch.autograd.grad(loss(), (h, weight))

    shape, product = {"n": n, "V": vocabulary, "D": width}, 2 * n * vocabulary * width
    yield row("linear_cross_entropy", shape, 3 * product, packed.time_s(all_of_it, samples, flush))
    with torch.no_grad():
        yield row("linear_cross_entropy_loss", shape, product, packed.time_s(loss, samples, flush))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--out", type=outputs.timings, required=True)
    options = parser.parse_args()
    require("quack")
    flush = torch.empty(packed.FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    timed = [norm_rows(*shape, options.samples, flush) for shape in NORM_SHAPES]
    timed += [head_rows(*shape, options.samples, flush) for shape in HEAD_SHAPES]
    with outputs.opened(options.out) as out:
        for one in itertools.chain.from_iterable(timed):
            out.write(json.dumps(one) + "\n")
            out.flush()
            print(f"{one['operator']:<28} {one['shape']} {one['median_s'] * 1e6:10.1f} us",
                  flush=True)


if __name__ == "__main__":
    main()
