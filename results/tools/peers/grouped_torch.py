#!/usr/bin/env python3
"""Times torch._grouped_mm: the peer of the grouped_linear operators of stowage_bench_kernels, on
the same shapes and loads, with random operands, a cold L2 and replays of a captured graph.

Its weight gradient is stored in bf16, half the bytes of ours, and it has none that accumulates.
Writes one JSON object a line: operator, implementation, shape, every sample in seconds.
"""

import argparse
import json
import statistics

import needs_torch  # noqa: F401
import torch

from stowage_results import outputs

SHAPES = (  # experts, rows, width, columns between
    (64, 32768, 2048, 1408),
    (128, 49152, 2688, 1856),
    (32, 65536, 2048, 1024),
    (16, 16384, 2048, 5632),
    (8, 16384, 4096, 14336),
)
LOADS = ("balanced", "zipf", "one")
FLUSHED_BYTES = 256 << 20  # several times the L2 cache


def offsets_of(experts, rows, load):
    """Ends of the experts' rows: all alike, as 1 / (e + 1) in a mixed order, or all for one."""
    share = torch.ones(experts, dtype=torch.float64)
    if load == "zipf":
        share[torch.arange(experts) * 7 % experts] = 1 / torch.arange(1, experts + 1).double()
    elif load == "one":
        share.zero_()[experts // 3] = 1
    ends = torch.cumsum(share, 0) * rows / share.sum()
    return ends.round().to(torch.int32).cuda()


def captured(work):
    """`work` as a graph; run once before, so that the library has loaded what it needs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph


def time_s(work, samples, scratch):
    """Every sample; three runs warm up."""
    graph = captured(work)
    pairs = []
    for i in range(samples + 3):
        scratch.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        if i >= 3:
            pairs.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e-3 for begin, end in pairs]


def products(experts, rows, m, k, ends):
    """Name and work of the three products of y (rows, m) = x (rows, k) w[e] (m, k)^T."""
    bf16 = {"device": "cuda", "dtype": torch.bfloat16}
    x, dy = torch.randn(rows, k, **bf16), torch.randn(rows, m, **bf16)
    w = 0.02 * torch.randn(experts, m, k, **bf16)
    return (
        ("grouped_linear_forward", lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)),
        ("grouped_linear_backward_input", lambda: torch._grouped_mm(dy, w, offs=ends)),
        ("grouped_linear_backward_weight", lambda: torch._grouped_mm(dy.t(), x, offs=ends)),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=outputs.timings, default="grouped_torch.jsonl",
                        help="file of JSON lines")
    parser.add_argument("--samples", type=int, default=50)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    scratch = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    version, device = f"torch {torch.__version__}", torch.cuda.get_device_name()
    with outputs.opened(arguments.out) as out:
        for experts, rows, width, columns in SHAPES:
            for m, k in ((columns, width), (width, columns)):
                for load in LOADS:
                    ends = offsets_of(experts, rows, load)
                    shape = {"E": experts, "rows": rows, "M": m, "K": k,
                             "load": LOADS.index(load)}
                    for name, work in products(experts, rows, m, k, ends):
                        samples = time_s(work, arguments.samples, scratch)
                        median = statistics.median(samples)
                        rate = 2e-12 * rows * m * k / median
                        print(f"{name} E{experts} M{m} K{k} {load}: {rate:.1f} TFLOP/s",
                              flush=True)
                        row = {"operator": name, "implementation": version, "device": device,
                               "shape": shape, "median_s": median, "time_s": samples}
                        out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
