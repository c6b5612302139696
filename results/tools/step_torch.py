#!/usr/bin/python3
"""Times whole training steps in PyTorch: the peer of stowage_train on a deck of one rank.

The same model on as many tokens: products by cuBLAS, attention by cuDNN or, over packed
documents, FlashAttention's varlen kernel, the scan by mamba_ssm's Triton kernels with their
seq_idx, experts by torch._grouped_mm, everything between them by torch.compile, the loss from whole
logits, AdamW fused on fp32 masters of bf16 weights, gradients clipped. Gradients are stored in
bf16, half the bytes of ours. Documents are drawn from the deck's data.synthetic_lengths and cut
where a sequence ends; without that key each sequence is one document.

$STOWAGE_PEER_DIR is the root of a mamba_ssm source tree. --finds is a file of ssd_triton.py: its
kernels then search only among the configurations that were fastest there, else among all of them.
Writes one JSON object a deck: operator, implementation, deck, tokens, documents and every sample in
seconds, of steps between their ends; and what a reader needs to believe them, as losses.

Started by torchrun, ranks share the data axis by DistributedDataParallel, whose sums of gradients
are bf16; the first rank is timed alone before them, for the efficiency.
"""

import argparse
import dataclasses
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import tomllib

import ssd_triton
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM_UP_STEPS = 10
EPS = 1e-5


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
    ends = torch.tensor(lengths, device="cuda").cumsum(0)
    tokens = torch.randint(vocabulary, (batch, seq_length), device="cuda")
    targets = tokens.flatten().roll(-1)
    targets[ends - 1] = -100
    packed = len(lengths) > batch
    index = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return Batch(tokens, targets,
                 index.to("cuda", torch.int32).view(batch, seq_length) if packed else None,
                 F.pad(ends, (1, 0)).int(), max(lengths))


def rms_norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


@torch.compile
def norm_linear(x, norm, weight):
    return F.linear(rms_norm(x, norm), weight)


@torch.compile
def add_linear(x, y, weight):
    return x + F.linear(y, weight)


@torch.compile
def activate(h):
    return F.relu(h).square()


@torch.compile
def convolve(x, weight, bias, seq_idx):
    """Causal over T, within a document: x (B, T, C), weight (C, 4)."""
    y = bias + weight[:, -1] * x
    for back in range(1, weight.shape[1]):
        earlier = F.pad(x, (0, 0, back, 0))[:, :x.shape[1]]
        if seq_idx is not None:
            same = F.pad(seq_idx, (back, 0), value=-1)[:, :x.shape[1]] == seq_idx
            earlier = earlier * same.unsqueeze(-1)
        y = y + weight[:, -1 - back] * earlier
    return F.silu(y).to(x.dtype)


@torch.compile
def gated_norm_linear(x, y, z, norm, weight, groups):
    gated = (y * F.silu(z.float())).unflatten(-1, (groups, -1)).float()
    normed = gated * torch.rsqrt(gated.square().mean(-1, keepdim=True) + EPS)
    return x + F.linear((normed.flatten(-2) * norm).to(x.dtype), weight)


@torch.compile
def head_loss(x, norm, weight, targets):
    logits = F.linear(rms_norm(x, norm), weight).flatten(0, -2)
    return F.cross_entropy(logits.float(), targets)


@torch.compile
def route(x, weight, top):
    """Weights and experts of each row, the most likely `top` of them."""
    scores = torch.sigmoid(F.linear(x.float(), weight))
    chosen, experts = scores.topk(top, dim=-1)
    return chosen / chosen.sum(-1, keepdim=True), experts


@torch.compile
def combine(x, shared, rows, weights):
    return x + shared + (rows * weights.unsqueeze(-1)).sum(1).view_as(x).to(x.dtype)


class Gather(torch.autograd.Function):
    """Rows in the order of their experts: each row is there `top` times."""

    @staticmethod
    def forward(ctx, x, order, back, top):
        ctx.back, ctx.top = back, top
        return x[order // top]

    @staticmethod
    def backward(ctx, dy):
        return dy[ctx.back].unflatten(0, (-1, ctx.top)).sum(1), None, None, None


class Permute(torch.autograd.Function):
    """Rows in another order, and back."""

    @staticmethod
    def forward(ctx, x, order, back):
        ctx.back = back
        return x[order]

    @staticmethod
    def backward(ctx, dy):
        return dy[ctx.back], None, None


class Weights:
    """bf16 weights by name, normal with sigma 0.02 unless said otherwise."""

    def __init__(self):
        self.all = {}

    def make(self, name, *shape, dtype=torch.bfloat16, sigma=0.02, mean=0.0):
        value = mean + sigma * torch.randn(*shape, device="cuda")
        self.all[name] = torch.nn.Parameter(value.to(dtype))
        return self.all[name]


class Mamba:
    def __init__(self, deck, make, name, scan):
        self.heads, self.head_dim = deck["mamba_num_heads"], deck["mamba_head_dim"]
        self.groups, self.state = deck["mamba_num_groups"], deck["mamba_state_dim"]
        self.chunk, self.scan = deck["mamba_chunk_size"], scan
        self.inner = self.heads * self.head_dim
        self.channels = self.inner + 2 * self.groups * self.state
        width = deck["hidden_size"]
        fp32 = {"dtype": torch.float32}
        self.norm = make(f"{name}.norm", width, sigma=0, mean=1)
        self.in_proj = make(f"{name}.in_proj", self.inner + self.channels + self.heads, width)
        self.conv = make(f"{name}.conv", self.channels, 4, sigma=0.3, **fp32)
        self.conv_bias = make(f"{name}.conv_bias", self.channels, sigma=0, **fp32)
        self.a_log = make(f"{name}.a_log", self.heads, mean=1.4, sigma=0.7, **fp32)
        self.d = make(f"{name}.d", self.heads, mean=1, sigma=0, **fp32)
        self.dt_bias = make(f"{name}.dt_bias", self.heads, mean=-4.6, sigma=0.5, **fp32)
        self.gated_norm = make(f"{name}.gated_norm", self.inner, sigma=0, mean=1, **fp32)
        self.out_proj = make(f"{name}.out_proj", width, self.inner)

    def __call__(self, x, batch):
        z, xbc, dt = norm_linear(x, self.norm, self.in_proj).split(
            [self.inner, self.channels, self.heads], dim=-1)
        xbc = convolve(xbc, self.conv, self.conv_bias, batch.seq_idx)
        v, b, c = xbc.split([self.inner] + 2 * [self.groups * self.state], dim=-1)
        y = self.scan(v.unflatten(-1, (self.heads, -1)), dt, -torch.exp(self.a_log),
                      b.unflatten(-1, (self.groups, -1)), c.unflatten(-1, (self.groups, -1)),
                      self.chunk, D=self.d, dt_bias=self.dt_bias, dt_softplus=True,
                      seq_idx=batch.seq_idx)
        return gated_norm_linear(x, y.flatten(-2), z, self.gated_norm, self.out_proj, self.groups)


class Attention:
    def __init__(self, deck, make, name):
        self.heads, self.kv_heads = deck["num_attention_heads"], deck["num_query_groups"]
        self.head_dim = deck["head_dim"]
        width, rows = deck["hidden_size"], (self.heads + 2 * self.kv_heads) * self.head_dim
        self.norm = make(f"{name}.norm", width, sigma=0, mean=1)
        self.qkv = make(f"{name}.qkv", rows, width)
        self.proj = make(f"{name}.proj", width, self.heads * self.head_dim)

    def __call__(self, x, batch):
        qkv = norm_linear(x, self.norm, self.qkv).unflatten(-1, (-1, self.head_dim))
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=-2)
        if batch.seq_idx is None:
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION],
                             set_priority=True):
                y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)),
                                                   is_causal=True, enable_gqa=True).transpose(1, 2)
        else:
            y = torch.ops.aten._flash_attention_forward(
                *(t.flatten(0, 1) for t in (q, k, v)), batch.starts, batch.starts, batch.longest,
                batch.longest, 0.0, True, False)[0].view_as(q)
        return add_linear(x, y.flatten(-2), self.proj)


class Mlp:
    def __init__(self, deck, make, name):
        width, hidden = deck["hidden_size"], deck["ffn_hidden_size"]
        self.norm = make(f"{name}.norm", width, sigma=0, mean=1)
        self.fc1 = make(f"{name}.fc1", hidden, width)
        self.fc2 = make(f"{name}.fc2", width, hidden)

    def __call__(self, x, batch):
        return add_linear(x, activate(norm_linear(x, self.norm, self.fc1)), self.fc2)


class Experts:
    """Sorted by expert, then products of groups of rows."""

    def __init__(self, deck, make, name):
        width, hidden = deck["hidden_size"], deck["moe_ffn_hidden_size"]
        shared = deck["moe_shared_expert_hidden_size"]
        self.experts, self.top = deck["num_moe_experts"], deck["moe_router_topk"]
        self.norm = make(f"{name}.norm", width, sigma=0, mean=1)
        self.router = make(f"{name}.router", self.experts, width, dtype=torch.float32)
        self.fc1 = make(f"{name}.fc1", self.experts, hidden, width)
        self.fc2 = make(f"{name}.fc2", self.experts, width, hidden)
        self.shared_fc1 = make(f"{name}.shared_fc1", shared, width)
        self.shared_fc2 = make(f"{name}.shared_fc2", width, shared)

    def __call__(self, x, batch):
        normed = rms_norm(x, self.norm)
        flat = normed.flatten(0, -2)
        weights, experts = route(flat, self.router, self.top)
        order = experts.flatten().argsort(stable=True)
        back = order.argsort()
        ends = torch.bincount(experts.flatten(), minlength=self.experts).cumsum(0).int()
        rows = Gather.apply(flat, order, back, self.top)
        hidden = activate(torch._grouped_mm(rows, self.fc1.transpose(-2, -1), offs=ends))
        rows = torch._grouped_mm(hidden, self.fc2.transpose(-2, -1), offs=ends)
        rows = Permute.apply(rows, back, order).unflatten(0, (-1, self.top))
        shared = F.linear(activate(F.linear(normed, self.shared_fc1)), self.shared_fc2)
        return combine(x, shared, rows, weights)


class Model:
    def __init__(self, deck, weights, scan):
        make, width, vocabulary = weights.make, deck["hidden_size"], deck["vocab_size"]
        self.embedding = make("embedding", vocabulary, width)
        kinds = {"*": Attention, "-": Mlp, "E": Experts,
                 "M": lambda deck, make, name: Mamba(deck, make, name, scan)}
        self.layers = [kinds[letter](deck, make, str(place))
                       for place, letter in enumerate(deck["pattern"])]
        self.norm = make("norm", width, sigma=0, mean=1)
        self.head = make("head", vocabulary, width)

    def loss(self, batch):
        x = F.embedding(batch.tokens, self.embedding)
        for layer in self.layers:
            x = layer(x, batch)
        return head_loss(x, self.norm, self.head, batch.targets)


class Replica(torch.nn.Module):
    """The model as what DistributedDataParallel wraps."""

    def __init__(self, model, weights):
        super().__init__()
        self.model, self.weights = model, torch.nn.ParameterList(weights.all.values())

    def forward(self, batch):
        return self.model.loss(batch)


class Trainer:
    """AdamW on fp32 masters, over `ranks`."""

    def __init__(self, model, weights, rate, ranks):
        self.loss = Replica(model, weights)
        if ranks > 1:
            self.loss = torch.nn.parallel.DistributedDataParallel(
                self.loss, gradient_as_bucket_view=True, broadcast_buffers=False)
        self.weights = list(weights.all.values())
        self.masters = [w.detach().float().clone().requires_grad_() for w in self.weights]
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        self.optimizer = torch.optim.AdamW(self.masters, lr=rate, betas=(0.9, 0.95),
                                           weight_decay=0.1, fused=True)

    def step(self, batch):
        loss = self.loss(batch)
        loss.backward()
        with torch.no_grad():
            gradients = [master.grad for master in self.masters]
            torch._foreach_copy_(gradients, [weight.grad for weight in self.weights])
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            torch._foreach_mul_(gradients, (1 / (norm + 1e-6)).clamp(max=1.0))
            self.optimizer.step()
            torch._foreach_copy_(self.weights, self.masters)
            for weight in self.weights:
                weight.grad = None
        return loss.detach()


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


def time_deck(path, scan, steps, seed, ranks):
    deck = read_deck(path)
    model, train = deck["model"], deck["train"]
    torch.manual_seed(seed)
    weights = Weights()
    trainer = Trainer(Model(model, weights, scan), weights, deck["optim"]["lr"] / 10, ranks)
    if ranks > 1:
        seed += dist.get_rank()
        torch.manual_seed(seed)
    rows = pieces(deck["data"].get("synthetic_lengths"), train["seq_length"], random.Random(seed))
    batches = [make_batch([next(rows) for _ in range(train["micro_batch_size"])],
                          model["vocab_size"]) for _ in range(WARM_UP_STEPS + steps)]
    losses, ends = [], []
    for batch in batches:
        losses.append(trainer.step(batch))
        ends.append(torch.cuda.Event(enable_timing=True))
        ends[-1].record()
    torch.cuda.synchronize()
    taken = [begin.elapsed_time(end) * 1e-3 for begin, end in zip(ends, ends[1:])]
    if ranks > 1:
        slowest = torch.tensor(taken, device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        taken = slowest.tolist()
    losses = [loss.item() for loss in losses]
    if not all(map(math.isfinite, losses)):
        raise SystemExit(f"{path}: a loss is not finite: {losses}")
    tokens = ranks * train["micro_batch_size"] * train["seq_length"]
    timed = taken[WARM_UP_STEPS - 1:]
    return {
        "operator": "train_step",
        "implementation": f"PyTorch {torch.__version__}, torch.compile, mamba_ssm Triton"
                          + (", DistributedDataParallel" if ranks > 1 else ""),
        "device": torch.cuda.get_device_name(),
        "deck": path.name,
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("decks", type=pathlib.Path, nargs="+")
    parser.add_argument("--steps", type=ssd_triton.at_least_one, default=40, help="that are timed")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--finds", type=pathlib.Path, help="JSON lines of ssd_triton.py")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="JSON lines")
    options = parser.parse_args()
    if not os.environ.get("STOWAGE_PEER_DIR"):
        parser.error("STOWAGE_PEER_DIR is not set: the root of a mamba_ssm source tree")
    peer = ssd_triton.import_peer(pathlib.Path(os.environ["STOWAGE_PEER_DIR"]))
    if options.finds:
        keep_finds(options.finds)
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if world > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl")
    with options.out.open("w") if rank == 0 else open(os.devnull, "w") as out:
        for deck, ranks in itertools.product(options.decks, sorted({1, world})):
            if world > 1:
                dist.all_reduce(torch.zeros(1))  # on the host: the others leave the GPU alone
            if rank >= ranks:
                continue
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            row = time_deck(deck, peer.mamba_chunk_scan_combined, options.steps, options.seed,
                            ranks)
            if rank > 0:
                continue
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(f"{row['deck']:<32}{ranks:>3}{row['tokens_per_s']:>12.0f} tokens/s  "
                  f"{row['median_s'] * 1e3:.2f} ms  loss {row['loss_first']:.3f} to "
                  f"{row['loss_last']:.3f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
