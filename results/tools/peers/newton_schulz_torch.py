#!/usr/bin/env python3
"""Times five Newton-Schulz iterations by torch.compile: the peer of `stowage_bench_kernels --op
newton_schulz`, on the shapes of that benchmark and of the decks' matrices.

    results/tools/peers/newton_schulz_torch.py --out FILE [--samples N]

The iteration is that of https://kellerjordan.github.io/posts/muon in bf16: the smaller side is the
one of the Gram matrix, coefficients are 3.4445, -4.775 and 2.0315. Matrices of one shape are one
batched product. Operands rotate through more memory than the L2 cache has. Writes one JSON object a
line: `count`, `rows`, `columns`, `ms` (all samples), `median_ms`.
"""

import argparse
import json
import statistics

import needs_torch  # noqa: F401
import torch

from stowage_results import outputs

A, B, C = 3.4445, -4.775, 2.0315
WARM_UP = 5
SETS = 3
SHAPES = [(1, 10304, 2048), (1, 8192, 2048), (1, 4096, 2048), (4, 2048, 2048), (32, 1024, 2048),
          (32, 2048, 1024), (64, 1024, 2048), (256, 64, 2048)]


@torch.compile
def newton_schulz(x):
    wide = x.size(-1) >= x.size(-2)
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x if wide else x.mT


def time_shape(shape, samples):
    operands = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
    for number in range(WARM_UP):
        newton_schulz(operands[number % SETS])
    torch.cuda.synchronize()
    times = []
    for number in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        newton_schulz(operands[number % SETS])
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=outputs.timings, required=True)
    parser.add_argument("--samples", type=int, default=30)
    arguments = parser.parse_args()
    with outputs.opened(arguments.out) as out:
        for shape in SHAPES:
            torch.compiler.reset()
            times = time_shape(shape, arguments.samples)
            row = dict(zip(("count", "rows", "columns"), shape), ms=times,
                       median_ms=statistics.median(times))
            print(json.dumps(row), file=out, flush=True)
            print(f"{shape}: {row['median_ms']:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
