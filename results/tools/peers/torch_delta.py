"""Gated DeltaNet (arXiv 2412.06464) in PyTorch: the rule of kind G of torch_layers.py.

The chunked WY form of kernels/gated_delta/gated_delta_arrays.hpp, in products of all chunks at
once. States go from chunk to chunk by pairs: two chunks are one with S' = S A + B, so what enters
each chunk is known after twice log2(chunks) products of batches. fla's kernels take the place of
all that where they can be imported.
"""

import functools

import torch
import torch.nn.functional as F

CHUNK = 64
EPS = 1e-6  # under the root of the norms of q and k
compiled = functools.partial(torch.compile, dynamic=False)

try:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule as FLA
except ImportError:
    FLA = None


class Inverse(torch.autograd.Function):
    """(I + L)^-1 of strictly lower triangular L."""

    @staticmethod
    def forward(ctx, lower):
        one = torch.eye(lower.shape[-1], device=lower.device, dtype=lower.dtype)
        inverse = torch.linalg.solve_triangular(lower + one, one.expand_as(lower), upper=False,
                                                unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, gradient):
        inverse, = ctx.saved_tensors
        turned = inverse.transpose(-2, -1)
        return -(turned @ gradient @ turned).tril(-1)


def entering(a, b):
    """S before each chunk, of S' = S A + B from 0 on: a (M, chunks, N, N), b (M, chunks, P, N)."""
    chunks = a.shape[1]
    if chunks == 1:
        return torch.zeros_like(b)
    if chunks % 2:
        a, b = (F.pad(each, (0, 0, 0, 0, 0, 1)) for each in (a, b))
    (a0, a1), (b0, b1) = ((each[:, ::2], each[:, 1::2]) for each in (a, b))
    even = entering(a0 @ a1, b0 @ a1 + b1)
    return torch.stack((even, even @ a0 + b0), 2).flatten(1, 2)[:, :chunks]


def gate(b, a, a_log, dt_bias):
    """Write strengths and logarithms of decays."""
    return torch.sigmoid(b.float()), -torch.exp(a_log) * F.softplus(a.float() + dt_bias)


def normed(x):
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS)


@compiled
def chunked_rule(qkv, b, a, a_log, dt_bias, seq_idx, sizes):
    """y (B, T, Hv P): qkv (B, T, 2 Hk N + Hv P), b and a (B, T, Hv); sizes: Hk, Hv, N, P."""
    key_heads, heads, n, p = sizes
    batch, tokens, _ = qkv.shape
    chunks, shared = -(-tokens // CHUNK), heads // key_heads
    beta, log = gate(b, a, a_log, dt_bias)

    def in_chunks(x, width):
        """(B, T, H width) as (B, H, chunks, CHUNK, width)."""
        x = F.pad(x, (0, 0, 0, chunks * CHUNK - tokens))
        return x.view(batch, chunks, CHUNK, -1, width).permute(0, 3, 1, 2, 4)

    q, k, v = qkv.split([key_heads * n, key_heads * n, heads * p], -1)
    q, k = (normed(in_chunks(x, n)).repeat_interleave(shared, 1) for x in (q, k))
    q = q * n ** -0.5
    v, (beta, log) = in_chunks(v, p), (in_chunks(x, 1).squeeze(-1) for x in (beta, log))
    sums = log.cumsum(-1)
    apart = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    reached = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=qkv.device).tril()
    enters = leaves = None
    if seq_idx is not None:
        of = F.pad(seq_idx, (0, chunks * CHUNK - tokens), value=-1).view(batch, 1, chunks, CHUNK)
        before = F.pad(of[..., -1], (1, 0))[..., :-1].unsqueeze(-1)
        before[..., :1, :] = of[..., :1, :1]
        enters, leaves = of == before, of == of[..., -1:]
        reached = reached & (of.unsqueeze(-1) == of.unsqueeze(-2))
    decay = torch.exp(torch.where(reached, apart, -torch.inf))
    enter, leave = torch.exp(sums), torch.exp(sums[..., -1:] - sums)
    if seq_idx is not None:
        enter, leave = torch.where(enters, enter, 0), torch.where(leaves, leave, 0)
    through = enter[..., -1]

    half = qkv.dtype
    inverse = Inverse.apply((beta.unsqueeze(-1) * (k @ k.transpose(-2, -1)) * decay).tril(-1))
    inverse = inverse.to(half)
    scores = ((q @ k.transpose(-2, -1)) * decay).to(half)
    own = inverse @ (beta.unsqueeze(-1) * v).to(half)
    corrects = inverse @ ((beta * enter).unsqueeze(-1) * k).to(half)
    writes = leave.unsqueeze(-1) * k
    one = torch.eye(n, device=qkv.device)
    steps = through[..., None, None] * one - corrects.float().transpose(-2, -1) @ writes
    states = entering(steps.flatten(0, 1), (own.float().transpose(-2, -1) @ writes).flatten(0, 1))
    states = states.unflatten(0, (batch, heads)).transpose(-2, -1).to(half)
    u = own - corrects @ states
    y = (enter.unsqueeze(-1) * q).to(half) @ states + scores @ u
    return y.permute(0, 2, 3, 1, 4).reshape(batch, chunks * CHUNK, heads * p)[:, :tokens]


@compiled
def fla_operands(qkv, b, a, a_log, dt_bias, sizes):
    key_heads, heads, n, p = sizes
    q, k, v = qkv.split([key_heads * n, key_heads * n, heads * p], -1)
    q, k = (x.unflatten(-1, (key_heads, n)).repeat_interleave(heads // key_heads, 2)
            for x in (q, k))
    beta, log = gate(b, a, a_log, dt_bias)
    return q, k, v.unflatten(-1, (heads, p)), log, beta.to(qkv.dtype)


def rule(qkv, b, a, a_log, dt_bias, batch, sizes):
    if FLA is None:
        return chunked_rule(qkv, b, a, a_log, dt_bias, batch.seq_idx, sizes)
    operands = fla_operands(qkv, b, a, a_log, dt_bias, sizes)
    rows = [x.flatten(0, 1).unsqueeze(0) for x in operands]  # documents of all sequences
    y, _ = FLA(*rows, use_qk_l2norm_in_kernel=True, cu_seqlens=batch.starts.long())
    return y.view(*qkv.shape[:2], -1)
