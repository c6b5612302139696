#!/usr/bin/env python3
"""Times layers of an MLP whose columns are shared by ranks, forward and backward: the peer of
`parallel.tensor` on a deck of letters `-` (docs/guides/tensor.md says how the two are compared).

    torchrun --nproc-per-node 2 results/tools/peers/tensor_torch.py --out FILE

Rows are shared between layers: norm, gather, two products with relu squared between them, sums
scattered, residual. Three ways, of which the best counts: all in turn (`in_turn`); the exchanges of
the backward beside the weights' products, as Megatron-LM does (`beside`); PyTorch's products fused
with their exchange over symmetric memory (`fused`), where it has them. Gradients of weights are
bf16 and stored, not added. Writes one JSON object a line, of rank 0, with the samples of the
slowest rank.
"""

import argparse
import json
import os
import statistics

import needs_torch  # noqa: F401
import torch
import torch.distributed as dist
import torch.nn.functional as F

from stowage_results import outputs

EPS = 1e-5
WARM_UP = 10


@torch.compile
def norm_of(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


@torch.compile
def squared(h):
    return F.relu(h).square()


@torch.compile
def squared_gradient(d_act, h):
    return d_act * 2 * F.relu(h)


def gather(rows):
    whole = rows.new_empty(dist.get_world_size() * rows.shape[0], rows.shape[1])
    return whole, dist.all_gather_into_tensor(whole, rows, async_op=True)


def scatter(whole):
    rows = whole.new_empty(whole.shape[0] // dist.get_world_size(), whole.shape[1])
    return rows, dist.reduce_scatter_tensor(rows, whole, async_op=True)


class InTurn(torch.autograd.Function):
    """A rank's columns of both products; nothing runs beside an exchange."""

    beside = False

    @classmethod
    def wait(cls, work):
        if not cls.beside:
            work.wait()

    @staticmethod
    def forward(ctx, rows, fc1, fc2):
        whole, work = gather(rows)
        work.wait()
        hidden = F.linear(whole, fc1)
        out, work = scatter(F.linear(squared(hidden), fc2))
        ctx.save_for_backward(rows, hidden, fc1, fc2)
        work.wait()
        return out

    @classmethod
    def gradients(cls, ctx, d_out):
        rows, hidden, fc1, fc2 = ctx.saved_tensors
        d_whole, work = gather(d_out.contiguous())
        work.wait()
        whole, work = gather(rows)
        cls.wait(work)
        d_hidden = squared_gradient(d_whole @ fc2, hidden)
        d_fc2 = d_whole.t() @ squared(hidden)
        work.wait()
        d_rows, work = scatter(d_hidden @ fc1)
        cls.wait(work)
        d_fc1 = d_hidden.t() @ whole
        work.wait()
        return d_rows, d_fc1, d_fc2

    @staticmethod
    def backward(ctx, d_out):
        return InTurn.gradients(ctx, d_out)


class Beside(InTurn):
    """The backward's second gather and its scatter run beside products that need neither."""

    beside = True

    @staticmethod
    def forward(ctx, rows, fc1, fc2):
        return InTurn.forward(ctx, rows, fc1, fc2)

    @staticmethod
    def backward(ctx, d_out):
        return Beside.gradients(ctx, d_out)


class Fused(torch.autograd.Function):
    """Each product in pieces, each with its piece of the exchange."""

    @staticmethod
    def gathered(rows, *weights):
        whole, products = torch.ops.symm_mem.fused_all_gather_matmul(
            rows, list(weights), 0, dist.group.WORLD.group_name)
        return whole, products

    @staticmethod
    def scattered(rows, weight):
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(
            rows, weight, "sum", 0, dist.group.WORLD.group_name)

    @staticmethod
    def forward(ctx, rows, fc1, fc2):
        _, (hidden,) = Fused.gathered(rows, fc1.t())
        ctx.save_for_backward(rows, hidden, fc1, fc2)
        return Fused.scattered(squared(hidden), fc2.t())

    @staticmethod
    def backward(ctx, d_out):
        rows, hidden, fc1, fc2 = ctx.saved_tensors
        whole, work = gather(rows)
        d_whole, (d_act,) = Fused.gathered(d_out.contiguous(), fc2)
        d_hidden = squared_gradient(d_act, hidden)
        d_rows = Fused.scattered(d_hidden, fc1)
        d_fc2 = d_whole.t() @ squared(hidden)
        work.wait()
        return d_rows, d_hidden.t() @ whole, d_fc2


WAYS = {"in_turn": InTurn, "beside": Beside, "fused": Fused}


def layers_of(options):
    ranks = dist.get_world_size()

    def make(*shape):
        return (0.02 * torch.randn(*shape, device="cuda")).bfloat16().requires_grad_()

    return [(torch.ones(options.width, device="cuda", dtype=torch.bfloat16, requires_grad=True),
             make(options.hidden // ranks, options.width),
             make(options.width, options.hidden // ranks)) for _ in range(options.layers)]


def time_way(way, layers, options):
    """Seconds of a layer's forward and backward, sample by sample: the slowest rank's."""
    shape = options.rows // dist.get_world_size(), options.width
    x = torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    d_y = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    marks = []
    for _ in range(WARM_UP + options.samples + 1):
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        y = x
        for norm, fc1, fc2 in layers:
            y = y + way.apply(norm_of(y, norm), fc1, fc2)
        y.backward(d_y)
        for weight in [x, *(w for layer in layers for w in layer)]:
            weight.grad = None
    torch.cuda.synchronize()
    times = torch.tensor([a.elapsed_time(b) * 1e-3 / len(layers)
                          for a, b in zip(marks[WARM_UP:], marks[WARM_UP + 1:])], device="cuda")
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return y.detach(), times.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=16384,
                        help="of all ranks (default %(default)s)")
    parser.add_argument("--width", type=int, default=2048, help="default %(default)s")
    parser.add_argument("--hidden", type=int, default=8192, help="default %(default)s")
    parser.add_argument("--layers", type=int, default=8, help="default %(default)s")
    parser.add_argument("--samples", type=int, default=40, help="default %(default)s")
    parser.add_argument("--out", type=outputs.timings, required=True, help="JSON lines")
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    import torch.distributed._symmetric_memory as symmetric
    if hasattr(symmetric, "enable_symm_mem_for_group"):
        symmetric.enable_symm_mem_for_group(dist.group.WORLD.group_name)
    torch.manual_seed(1)
    layers = layers_of(options)
    lines = []
    for name, way in WAYS.items():
        try:
            _, times = time_way(way, layers, options)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            print(f"{name}: {str(error).splitlines()[0]}")
            continue
        lines.append({
            "operator": "tensor_mlp",
            "implementation": f"PyTorch {torch.__version__}, torch.distributed, {name}",
            "device": torch.cuda.get_device_name(),
            "ranks": dist.get_world_size(),
            "shape": {"n": options.rows, "D": options.width, "F": options.hidden,
                      "layers": options.layers},
            "flops": 12 * options.rows * options.width * options.hidden / dist.get_world_size(),
            "median_s": statistics.median(times),
            "time_s": times,
        })
    if dist.get_rank() == 0:
        with outputs.opened(options.out) as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
        for line in lines:
            print(f"{line['implementation']:<56}{line['median_s'] * 1e6:>10.1f} us a layer")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
