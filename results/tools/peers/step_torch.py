#!/usr/bin/env python3
"""Times whole training steps in PyTorch: the peer of stowage_train on a deck of one rank.

The same model on as many tokens: products by cuBLAS, attention by cuDNN or, over packed
documents, FlashAttention's varlen kernel, the scan by mamba_ssm's Triton kernels with their
seq_idx, the gated delta rule by fla's kernels where they can be imported and else in chunks
(torch_delta.py), experts by torch._grouped_mm, everything between them by torch.compile, the
router's products of fp32 weights in TF32. Logits are bf16, and their gradient takes their place.
Gradients of weights are stored in bf16, half the bytes of ours, and clipped; a compiled AdamW reads
them, updates fp32 masters and leaves bf16 weights in one pass. Documents are drawn from the deck's
data.synthetic_lengths and cut where a sequence ends; without that key a sequence is one document.

Ways to compile (--variant, as often as there are ways to time; the fastest is the peer):
  regions  function by function
  whole    all layers as one graph, of equal lengths only
  tuned    as whole, with Triton's products beside cuBLAS's and searched configurations: minutes

Precisions (--precision, as often): bf16; or torchao's float8 training of the products that ours
computes in 8 bits, of all layers, with a scale for each tensor or for each row:
  tensorwise  Float8LinearConfig.from_recipe_name("tensorwise")
  rowwise     the same of "rowwise"
Their rows have an operator of their own: train_step_tensorwise, train_step_rowwise.

Optimizers (--optimizer, as often): resident, the AdamW above; or cpu_offload, torchao's
CPUOffloadOptimizer around PyTorch's fused AdamW of the host. Its pinned weights and gradients and
its moments are bf16, without masters; gradients go to the host while backward runs, and are not
clipped, since no norm is known by then. So it moves and computes less than the resident one. Its
rows are of the operator train_step_cpu_offload.

$STOWAGE_PEER_DIR is the root of a mamba_ssm source tree, for decks with layers M. --finds is a file
of ssd_triton.py: its kernels then search only among the configurations that were fastest there,
else among all of them.
Writes one JSON object a deck and variant: operator, implementation, deck, variant, tokens,
documents and every sample in seconds, of steps between their ends; and what a reader needs to
believe them, as losses. A variant that fails is told, and the others run.

Started by torchrun, ranks share the data axis by DistributedDataParallel, whose sums of gradients
are bf16; the first rank is timed alone before them, for the efficiency.
"""

import argparse
import dataclasses
import gc
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import sys
import tomllib
import traceback

import needs_torch  # noqa: F401
from stowage_results import outputs
from stowage_results.packages import require
import ssd_triton
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_delta
import torch_layers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_layers import DEVICE, Model, Weights, compiled

WARM_UP_STEPS = 10
BETAS, ADAM_EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
PRECISIONS = ("bf16", "tensorwise", "rowwise")
OPTIMIZERS = ("resident", "cpu_offload")
VARIANTS = {"regions": None, "whole": {}, "tuned": {"mode": "max-autotune-no-cudagraphs"}}


def read_deck(path):
    """A deck with those that it includes, as nested dictionaries."""
    own = tomllib.loads(path.read_text())
    names = own.pop("include", [])
    merged = {}
    for deck in [read_deck(path.parent / name)
                 for name in ([names] if isinstance(names, str) else names)] + [own]:
        for section, keys in deck.items():
            merged.setdefault(section, {}).update(keys)
    return merged


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor   # (B, T)
    targets: torch.Tensor  # (B T), -100: none
    seq_idx: torch.Tensor  # (B, T), or None where every sequence is one document
    starts: torch.Tensor   # of documents among B T tokens, and their end
    longest: int

    @property
    def documents(self):
        return len(self.starts) - 1


def pieces(lengths, seq_length, choose):
    """Endless sequences, as lengths of the documents in them."""
    left = 0
    while True:
        row, room = [], seq_length
        while room:
            left = left or (choose.choice(lengths) if lengths else seq_length)
            row.append(min(left, room))
            left -= row[-1]
            room -= row[-1]
        yield row


def make_batch(rows, vocabulary):
    lengths = [length for row in rows for length in row]
    batch, seq_length = len(rows), sum(rows[0])
    ends = torch.tensor(lengths, device=DEVICE).cumsum(0)
    tokens = torch.randint(vocabulary, (batch, seq_length), device=DEVICE)
    targets = tokens.flatten().roll(-1)
    targets[ends - 1] = -100
    packed = len(lengths) > batch
    index = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return Batch(tokens, targets,
                 index.to(DEVICE, torch.int32).view(batch, seq_length) if packed else None,
                 F.pad(ends, (1, 0)).int(), max(lengths))


class Replica(torch.nn.Module):
    """The model as what DistributedDataParallel wraps."""

    def __init__(self, model, weights):
        super().__init__()
        self.model, self.weights = model, torch.nn.ParameterList(weights.all.values())

    def forward(self, batch):
        return self.model.loss(batch)


@compiled
def adamw(weight, master, mean, square, gradient, scale, rate, corrections):
    """One pass over a weight: its clipped gradient, AdamW on its master, the weight anew."""
    g = gradient.float() * scale
    mean.copy_(BETAS[0] * mean + (1 - BETAS[0]) * g)
    square.copy_(BETAS[1] * square + (1 - BETAS[1]) * g * g)
    step = (mean / corrections[0]) / ((square / corrections[1]).sqrt() + ADAM_EPS)
    master.copy_(master * (1 - rate * DECAY) - rate * step)
    weight.copy_(master)


class Trainer:
    """AdamW on fp32 masters, over `ranks`."""

    note = ""

    def __init__(self, model, weights, rate, ranks):
        self.loss = Replica(model, weights)
        if ranks > 1:
            self.loss = torch.nn.parallel.DistributedDataParallel(
                self.loss, gradient_as_bucket_view=True, broadcast_buffers=False)
        self.weights = list(weights.all.values())
        self.prepare(rate)

    def prepare(self, rate):
        masters = [w.detach().flatten().float().clone() for w in self.weights]
        self.states = [(w.detach().flatten(), master, torch.zeros_like(master),
                        torch.zeros_like(master)) for w, master in zip(self.weights, masters)]
        self.rate = torch.tensor(rate, device=DEVICE)
        self.betas = torch.tensor(BETAS, device=DEVICE)
        self.powers = torch.ones_like(self.betas)

    @torch.no_grad()
    def update(self):
        gradients = [weight.grad.flatten() for weight in self.weights]
        norms = [norm for kind in dict.fromkeys(gradient.dtype for gradient in gradients)
                 for norm in torch._foreach_norm(
                     [gradient for gradient in gradients if gradient.dtype == kind], 2,
                     dtype=torch.float32)]
        scale = (CLIP / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
        self.powers *= self.betas
        corrections = 1 - self.powers
        for state, gradient in zip(self.states, gradients):
            adamw(*state, gradient, scale, self.rate, corrections)
        for weight in self.weights:
            weight.grad = None

    def step(self, batch):
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
                          SDPBackend.MATH], set_priority=True):
            loss = self.loss(batch)
            loss.backward()
        self.update()
        return loss.detach()


class OffloadedTrainer(Trainer):
    """AdamW on the host by torchao, one rank."""

    def prepare(self, rate):
        import torchao
        from torchao.optim import CPUOffloadOptimizer
        self.note = (f", torchao {torchao.__version__} CPUOffloadOptimizer, moments of bf16, "
                     "not clipped")
        self.optimizer = CPUOffloadOptimizer(self.weights, torch.optim.AdamW, lr=rate, betas=BETAS,
                                             eps=ADAM_EPS, weight_decay=DECAY)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def keep_finds(path):
    """The kernels of the peer search only among what was fastest in that file."""
    fastest = {}
    for line in path.read_text().splitlines():
        for search in json.loads(line)["searches"]:
            for kernel, configurations in search["configurations"].items():
                fastest.setdefault(kernel, set()).update(configurations)
    for name, kernel in ssd_triton.searched_kernels().items():
        kept = [config for config in kernel.configs if str(config) in fastest.get(name, ())]
        kernel.configs = kept or kernel.configs


def kernels_of(pattern):
    """What computes the scans of a deck's layers."""
    delta = "fla" if torch_delta.FLA else "gated delta rule in chunks"
    return "".join(f", {name}" for letter, name in (("M", "mamba_ssm Triton"), ("G", delta))
                   if letter in pattern)


def rounding(precision):
    """What makes a torch.nn.Linear one of 8 bits by torchao's recipe, and its name; or neither."""
    if precision == "bf16":
        return None, ""
    import torchao
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    config = Float8LinearConfig.from_recipe_name(precision)
    return (lambda linear: convert_to_float8_training(linear, config=config),
            f", torchao {torchao.__version__} float8 {precision}")


def prepare(deck, variant, rounded, optimizer, ranks):
    """What trains the deck's model, its layers compiled as one graph if the variant says so."""
    weights = Weights(rounded)
    model = Model(deck["model"], weights)
    if VARIANTS[variant] is not None:
        if "synthetic_lengths" in deck["data"]:
            raise ValueError(f"variant {variant}: documents of many lengths are no one graph")
        model.hidden = compiled(model.hidden, fullgraph=True, **VARIANTS[variant])
    trainer = {"resident": Trainer, "cpu_offload": OffloadedTrainer}[optimizer]
    return trainer(model, weights, deck["optim"]["lr"] / 10, ranks)


def operator(precision, optimizer):
    """"train_step", or with what is not the first of its kind behind."""
    others = [name for name, first in ((precision, PRECISIONS[0]), (optimizer, OPTIMIZERS[0]))
              if name != first]
    return "_".join(["train_step", *others])


def time_deck(path, variant, precision, optimizer, steps, seed, ranks):
    deck = read_deck(path)
    model, train = deck["model"], deck["train"]
    torch.manual_seed(seed)
    rounded, library = rounding(precision)
    trainer = prepare(deck, variant, rounded, optimizer, ranks)
    if ranks > 1:
        seed += dist.get_rank()
        torch.manual_seed(seed)
    rows = pieces(deck["data"].get("synthetic_lengths"), train["seq_length"], random.Random(seed))
    batches = [make_batch([next(rows) for _ in range(train["micro_batch_size"])],
                          model["vocab_size"]) for _ in range(WARM_UP_STEPS + steps)]
    losses, ends = [], []
    for count, batch in enumerate(batches):
        if count == WARM_UP_STEPS:  # not what compiling and searching took
            torch.cuda.reset_peak_memory_stats()
        losses.append(trainer.step(batch))
        ends.append(torch.cuda.Event(enable_timing=True))
        ends[-1].record()
    torch.cuda.synchronize()
    taken = [begin.elapsed_time(end) * 1e-3 for begin, end in zip(ends, ends[1:])]
    if ranks > 1:
        slowest = torch.tensor(taken, device=DEVICE)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        taken = slowest.tolist()
    losses = [loss.item() for loss in losses]
    if not all(map(math.isfinite, losses)):
        raise ValueError(f"{path}: a loss is not finite: {losses}")
    tokens = ranks * train["micro_batch_size"] * train["seq_length"]
    timed = taken[WARM_UP_STEPS - 1:]
    return {
        "operator": operator(precision, optimizer),
        "implementation": f"PyTorch {torch.__version__}, torch.compile"
                          + kernels_of(model["pattern"]) + library + trainer.note
                          + (", DistributedDataParallel" if ranks > 1 else ""),
        "device": torch.cuda.get_device_name(),
        "deck": path.name,
        "variant": variant,
        "ranks": ranks,
        "parameters": sum(weight.numel() for weight in trainer.weights),
        "tokens": tokens,
        "documents": [batch.documents for batch in batches[WARM_UP_STEPS:]],
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "tokens_per_s": tokens / statistics.median(timed),
        "median_s": statistics.median(timed),
        "time_s": timed,
    }


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("decks", type=pathlib.Path, nargs="+")
    parser.add_argument("--variant", choices=VARIANTS, action="append",
                        help="how it is compiled (regions)")
    parser.add_argument("--precision", choices=PRECISIONS, action="append",
                        help="of the layers' products (bf16)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, action="append",
                        help="where AdamW's states are (resident)")
    parser.add_argument("--steps", type=ssd_triton.at_least_one, default=40, help="that are timed")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--finds", type=pathlib.Path, help="JSON lines of ssd_triton.py")
    parser.add_argument("--out", type=outputs.timings, required=True, help="JSON lines")
    options = parser.parse_args()
    if not os.environ.get("STOWAGE_PEER_DIR") and any(
            "M" in read_deck(deck)["model"]["pattern"] for deck in options.decks):
        parser.error("STOWAGE_PEER_DIR is not set: the root of a mamba_ssm source tree")
    if set(options.precision or []) - {"bf16"} or "cpu_offload" in (options.optimizer or []):
        require("torchao")
    return options


def time_all(options, world, rank, out):
    """Times each deck by each variant, precision and optimizer, alone and on all ranks; how many
    failed."""
    failed = 0
    for deck, variant, precision, optimizer, ranks in itertools.product(
            options.decks, options.variant or ["regions"], options.precision or ["bf16"],
            options.optimizer or ["resident"], sorted({1, world})):
        if world > 1:
            dist.all_reduce(torch.zeros(1))  # on the host: the others leave the GPU alone
        if rank >= ranks:
            continue
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        try:
            row = time_deck(deck, variant, precision, optimizer, options.steps, options.seed,
                            ranks)
        except Exception as error:  # of a compiler or for want of memory: others may do
            if world > 1:
                raise
            traceback.print_exc(limit=-4)
            print(f"{deck.name} {variant} {precision} {optimizer}: failed: "
                  f"{str(error).strip().splitlines()[:1]}", flush=True)
            failed += 1
            continue
        if rank > 0:
            continue
        out.write(json.dumps(row) + "\n")
        out.flush()
        print(f"{row['deck']:<28}{variant:<8}{precision:<11}{optimizer:<12}{ranks:>3}"
              f"{row['tokens_per_s']:>12.0f} tokens/s  "
              f"{row['median_s'] * 1e3:.2f} ms  {row['peak_bytes'] / 2**30:.1f} GiB  loss "
              f"{row['loss_first']:.3f} to {row['loss_last']:.3f}", flush=True)
    return failed


def main():
    options = parse_options()
    if os.environ.get("STOWAGE_PEER_DIR"):
        torch_layers.PEER = ssd_triton.import_peer(pathlib.Path(os.environ["STOWAGE_PEER_DIR"]))
    if options.finds:
        keep_finds(options.finds)
    torch._dynamo.config.recompile_limit = 64  # one for each shape of a weight
    torch.set_float32_matmul_precision("high")
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if world > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl")
    with outputs.opened(options.out) if rank == 0 else open(os.devnull, "w") as out:
        failed = time_all(options, world, rank, out)
    if world > 1:
        dist.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
