#!/usr/bin/env python3
"""Times the Triton kernels of mamba_ssm: the peer of ssd_forward and ssd_backward of
stowage_bench_kernels, on the same shapes, with random operands and a cold L2.

$STOWAGE_PEER_DIR is the root of a mamba_ssm source tree; only its ops/triton and utils are
imported, so that nothing is compiled but Triton code. Each chunk length is timed, as the best one
differs. The peer's launches are captured in a graph; one by one they would wait for the host. It
searches among 121 configurations of its 14 kernels; here it does so anew for each shape and chunk
length, on a warm GPU, 25 ms a configuration. It may find something slow, so it searches several
times (--searches) and the fastest find counts, for each direction by itself.
All configurations are compiled first, by as many processes as --jobs says: one would take a minute
and a half a shape and chunk length.
Writes one JSON object a line: operator, implementation, shape, every sample in seconds of the find
that counts, and of each find its samples and configurations.

With --operands FOLDER it times nothing: it reads the operands that the test ssd_peer_gpu wrote
there and leaves the peer's results of each chunk length, as fp32, for that test to judge.
"""

import argparse
import ctypes
import functools
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import types

import needs_torch  # noqa: F401
import torch
import triton
from triton.runtime import autotuner
from triton.runtime.errors import OutOfResources, PTXASError

from stowage_results import outputs

SHAPES = (
    (2, 8192, 64, 64, 8, 128),
    (2, 8192, 128, 64, 8, 128),
    (2, 8192, 64, 64, 1, 128),
    (1, 65536, 64, 64, 8, 128),
)
SEARCH_MS = {"warmup": 5, "rep": 25}  # of one configuration
WARM_UP_S = 1.5
COMPILE_TOKENS = 4096  # as good as more: all lengths and strides are multiples of 16
FLUSHED_BYTES = 256 << 20  # several times the L2 cache


def import_peer(root):
    """The module ssd_combined, without the package's own __init__, which needs its extensions."""
    sys.path.append(str(root))
    for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "mamba_ssm.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package
    from mamba_ssm.ops.triton import ssd_combined
    return ssd_combined


class Problem:
    """Operands as the benchmark makes them: X, B, C columns of one matrix, steps near 0.01."""

    def __init__(self, shape, device="cuda"):
        batch, tokens, heads, head_dim, groups, state = shape
        bf16 = {"device": device, "dtype": torch.bfloat16}
        inner = heads * head_dim
        xbc = torch.randn(batch, tokens, inner + 2 * groups * state, **bf16)
        x, b, c = xbc.split([inner, groups * state, groups * state], dim=-1)
        self.x = x.unflatten(-1, (heads, head_dim))
        self.b = b.unflatten(-1, (groups, state))
        self.c = c.unflatten(-1, (groups, state))
        self.dt = torch.randn(batch, tokens, heads, **bf16)
        self.a = -torch.exp(1.4 + 0.7 * torch.randn(heads, device=device))
        self.d = 1 + 0.1 * torch.randn(heads, device=device)
        self.dt_bias = -4.6 + 0.5 * torch.randn(heads, device=device)
        self.dy = torch.randn(batch, tokens, heads, head_dim, **bf16)

    def forward(self, peer, chunk):
        return peer._mamba_chunk_scan_combined_fwd(
            self.x, self.dt, self.a, self.b, self.c, chunk, D=self.d, dt_bias=self.dt_bias,
            dt_softplus=True)[0]

    def backward(self, peer, chunk, out):
        return peer._mamba_chunk_scan_combined_bwd(
            self.dy, self.x, self.dt, self.a, self.b, self.c, out, chunk, D=self.d,
            dt_bias=self.dt_bias, dt_softplus=True)


def write_results(peer, folder, chunks):
    """Runs the peer on the operands of a folder; results go to its subfolders, by chunk length."""
    sizes = json.loads((folder / "shape.json").read_text())
    heads, groups, state = sizes["heads"], sizes["groups"], sizes["state"]
    inner = heads * sizes["head_dim"]

    def read(name, dtype, *shape):
        values = torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=dtype)
        return values.cuda().view(1, *shape) if shape else values.cuda()

    xbc = read("xbc.bf16", torch.bfloat16, -1, inner + 2 * groups * state)
    x, b, c = xbc.split([inner, groups * state, groups * state], dim=-1)
    x = x.unflatten(-1, (heads, -1))
    b, c = (v.unflatten(-1, (groups, state)) for v in (b, c))
    dt = read("dt.bf16", torch.bfloat16, -1, heads)
    dy = read("dy.bf16", torch.bfloat16, -1, heads, sizes["head_dim"])
    a = -torch.exp(read("a_log.f32", torch.float32))
    matrix = (heads, sizes["head_dim"], state)
    options = {
        "D": read("d.f32", torch.float32),
        "dt_bias": read("dt_bias.f32", torch.float32),
        "initial_states": read("initial_state.f32", torch.float32, *matrix),
        "seq_idx": read("seq_idx.i32", torch.int32, -1),
        "dt_softplus": True,
    }
    dfinal = read("dfinal_state.f32", torch.float32, *matrix)
    for chunk in chunks:
        out = peer._mamba_chunk_scan_combined_fwd(x, dt, a, b, c, chunk, **options)
        dx, ddt, da, db, dc, dd, _, ddt_bias, dinitial = peer._mamba_chunk_scan_combined_bwd(
            dy, x, dt, a, b, c, out[0], chunk, dfinal_states=dfinal, **options)
        results = {"y": out[0], "final_state": out[-1], "dx": dx, "ddt": ddt, "da_log": da * a,
                   "db": db, "dc": dc, "dd": dd, "ddt_bias": ddt_bias, "dinitial_state": dinitial}
        target = folder / f"chunk{chunk}"
        target.mkdir(exist_ok=True)
        for name, value in results.items():
            values = value.detach().float().contiguous().cpu()
            (target / f"{name}.f32").write_bytes(
                ctypes.string_at(values.data_ptr(), 4 * values.numel()))


def compile_share(peer, shapes, chunks, part, parts):
    """Compiles every parts-th configuration of the peer's kernels, and launches none."""
    turns = itertools.count()

    def compile_some(kernel, *args, **kwargs):
        kwargs.pop("warmup", None)
        kernel.best_config = kernel.configs[0]  # the peer asks for it
        for config in kernel.configs:
            if next(turns) % parts != part:
                continue
            try:
                kernel.fn.warmup(*args, **kwargs, **config.all_kwargs())
            except (OutOfResources, PTXASError):  # the search passes over it as well
                pass

    autotuner.Autotuner.run = compile_some
    for shape in shapes:
        problem = Problem((shape[0], min(shape[1], COMPILE_TOKENS), *shape[2:]))
        for chunk in chunks:
            problem.backward(peer, chunk, problem.forward(peer, chunk))


def compile_all(shapes, chunks, jobs):
    """Compiles in processes of their own; the results lie in Triton's cache."""
    words = [sys.executable, __file__]
    words += [f"--shape={','.join(map(str, shape))}" for shape in shapes]
    words += [f"--chunk={chunk}" for chunk in chunks]
    running = [subprocess.Popen([*words, "--compile-part", str(part), str(jobs)])
               for part in range(jobs)]
    if any([process.wait() != 0 for process in running]):
        sys.exit("a compiling process failed")


def warm_up():
    """Keeps the GPU busy until its clocks are up: a search begun at idle clocks finds anything."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    begin = time.monotonic()
    while time.monotonic() - begin < WARM_UP_S:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()


def searched_kernels():
    """The peer's kernels that search, by name."""
    return {name: kernel for module in list(sys.modules.values())
            if getattr(module, "__name__", "").startswith("mamba_ssm.")
            for name, kernel in vars(module).items() if isinstance(kernel, autotuner.Autotuner)}


def search_anew():
    """Forgets what the peer found fastest: the next launch of each kernel searches."""
    for kernel in searched_kernels().values():
        kernel.cache.clear()
        kernel.do_bench = functools.partial(triton.testing.do_bench, **SEARCH_MS)


def found():
    """What the kernels launched since search_anew found fastest."""
    return {name: [str(config) for config in kernel.cache.values()]
            for name, kernel in searched_kernels().items() if kernel.cache}


def captured(work):
    """The launches of `work` as one, in a graph; before that, once, so that the peer searches."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


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


def shape_of(text):
    sizes = tuple(int(word) for word in text.split(","))
    if len(sizes) != 6:
        raise argparse.ArgumentTypeError(f"{text}: not six sizes B,T,H,P,G,N")
    return sizes


def search_and_time(peer, problem, chunk, searches, samples, flush):
    """For each operator what each search found: median, samples, configurations."""
    finds = {"ssd_forward": [], "ssd_backward": []}
    warm_up()
    for _ in range(searches):
        search_anew()
        y = problem.forward(peer, chunk)
        work = {
            "ssd_forward": lambda: problem.forward(peer, chunk),
            "ssd_backward": lambda: problem.backward(peer, chunk, y),
        }
        for operator, run in work.items():
            taken = time_s(captured(run), samples, flush)
            finds[operator].append({"median_s": statistics.median(taken), "time_s": taken,
                                    "configurations": found()})
    return finds


def time_shapes(peer, shapes, chunks, searches, samples, out):
    """Times forward and backward; JSON lines go to `out`."""
    flush = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    torch.manual_seed(0)
    for shape, chunk in itertools.product(shapes, chunks):
        finds = search_and_time(peer, Problem(shape), chunk, searches, samples, flush)
        for operator, tried in finds.items():
            fastest = min(tried, key=lambda find: find["median_s"])
            row = {
                "operator": operator,
                "implementation": f"mamba_ssm Triton, chunk {chunk}",
                "device": torch.cuda.get_device_name(),
                "shape": dict(zip("BTHPGN", shape)),
                "median_s": fastest["median_s"],
                "time_s": fastest["time_s"],
                "searches": tried,
            }
            out.write(json.dumps(row) + "\n")
            out.flush()
            each = " ".join(f"{find['median_s'] * 1e6:10.1f}" for find in tried)
            print(f"{operator:<14} {shape} chunk {chunk:<4} us by search: {each}", flush=True)


def at_least_one(text):
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text}: less than one")
    return count


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=shape_of, action="append", help="B,T,H,P,G,N")
    parser.add_argument("--chunk", type=int, action="append", help="default: 128 and 256")
    parser.add_argument("--samples", type=at_least_one, default=50)
    parser.add_argument("--searches", type=at_least_one, default=2,
                        help="of the peer for its configurations; the fastest find counts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(),
                        help="processes that compile (one a core); 0: as the peer comes to it")
    parser.add_argument("--compile-only", action="store_true", help="time nothing")
    parser.add_argument("--compile-part", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=outputs.timings, help="JSON lines")
    parser.add_argument("--operands", type=pathlib.Path, action="append", default=[],
                        metavar="FOLDER", help="leave results for these operands, time nothing")
    options = parser.parse_args()
    if not (options.out or options.operands or options.compile_only or options.compile_part):
        parser.error("--out, --operands or --compile-only is required")
    if not os.environ.get("STOWAGE_PEER_DIR"):
        parser.error("STOWAGE_PEER_DIR is not set: the root of a mamba_ssm source tree")
    return options


def main():
    options = parse_options()
    shapes, chunks = options.shape or SHAPES, options.chunk or (128, 256)
    if options.operands:  # one configuration a kernel: tuning for speed would take minutes
        os.environ.setdefault("MAMBA_DETERMINISTIC", "1")
    peer = import_peer(pathlib.Path(os.environ["STOWAGE_PEER_DIR"]))
    if options.compile_part:
        compile_share(peer, shapes, chunks, *options.compile_part)
        return
    for folder in options.operands:
        write_results(peer, folder, options.chunk or (128, 256))
    if options.operands:
        return
    if not options.jobs and not options.out:
        sys.exit("--compile-only with --jobs 0: nothing to do")
    if options.jobs:
        compile_all(shapes, chunks, options.jobs)
    if options.out:
        with outputs.opened(options.out) as out:
            time_shapes(peer, shapes, chunks, options.searches, options.samples, out)


if __name__ == "__main__":
    main()
