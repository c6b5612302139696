"""The layers of a deck in PyTorch, as step_torch.py times them.

A layer takes the residual stream and what the layer before it adds, and leaves both the same way:
the sum is made where the next norm reads it. Functions are compiled one by one, or all of them as
one graph if a caller compiles what calls them.
"""

import functools
from typing import Optional

import torch
import torch.nn.functional as F
import torch_delta
from torch import Tensor

DEVICE = torch.device("cuda")
EPS, ONE_PLUS = 1e-5, False  # of norms, by the deck: whether weights are added to 1
PEER = None  # mamba_ssm's module ssd_combined

compiled = functools.partial(torch.compile, dynamic=False)  # shapes are few, and known to kernels


def project(x, weight):
    """x weight^T: by a matrix, or by a module that rounds its factors."""
    return F.linear(x, weight) if isinstance(weight, Tensor) else weight(x)


def rms_norm(x, weight):
    if ONE_PLUS:
        return F.rms_norm(x.float(), (x.shape[-1],), 1 + weight.float(), EPS).to(x.dtype)
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


@compiled
def add_norm(x, y, norm):
    """The residual stream with y, and its norm."""
    x = x if y is None else x + y
    return x, rms_norm(x, norm)


@compiled
def add_norm_linear(x, y, norm, weight):
    x = x if y is None else x + y
    return x, project(rms_norm(x, norm), weight)


@compiled
def activate(h):
    return F.relu(h).square()


@compiled
def activate_gated(h):
    gate, up = h.chunk(2, dim=-1)
    return F.silu(gate) * up


@compiled
def activate_weighted(h, weights):
    """Rows of experts times the weights that their tokens give them."""
    return (F.relu(h.float()).square() * weights.unsqueeze(-1)).to(h.dtype)


@compiled
def convolve(x, weight, bias, seq_idx):
    """Causal over T, within a document: x (B, T, C), weight (C, W)."""
    y = weight[:, -1] * x
    if bias is not None:
        y = y + bias
    for back in range(1, weight.shape[1]):
        earlier = F.pad(x, (0, 0, back, 0))[:, :x.shape[1]]
        if seq_idx is not None:
            same = F.pad(seq_idx, (back, 0), value=-1)[:, :x.shape[1]] == seq_idx
            earlier = earlier * same.unsqueeze(-1)
        y = y + weight[:, -1 - back] * earlier
    return F.silu(y).to(x.dtype)


@compiled
def gated_norm_linear(y, z, norm, weight, groups):
    gated = (y * F.silu(z.float())).unflatten(-1, (groups, -1)).float()
    normed = gated * torch.rsqrt(gated.square().mean(-1, keepdim=True) + EPS)
    return project((normed.flatten(-2) * norm).to(y.dtype), weight)


@compiled
def gated_head_norm_linear(y, z, norm, weight):
    """The gate comes after the norm of each head."""
    heads = y.float().unflatten(-1, (-1, norm.shape[0]))
    normed = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + EPS) * norm
    return project((normed.flatten(-2) * F.silu(z.float())).to(y.dtype), weight)


@compiled
def gate_linear(y, gate, weight):
    return project(y * torch.sigmoid(gate) if gate is not None else y, weight)


@compiled
def norm_and_turn(heads, norm, places, dims, theta):
    """Heads (B, T, H, P), normed; pairs i, i + dims / 2 of the first dims turned by positions."""
    if norm is not None:
        heads = rms_norm(heads, norm)
    if dims == 0:
        return heads
    steps = theta ** (torch.arange(0, dims, 2, device=heads.device) / -dims)
    angles = (places.unsqueeze(-1) * steps).unsqueeze(-2)
    x, y, rest = heads.split([dims // 2, dims // 2, heads.shape[-1] - dims], dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((x * cos - y * sin, y * cos + x * sin, rest), -1).to(heads.dtype)


@compiled
def places_of(tokens, seq_idx, starts):
    """The position of each token (B, T) in its document."""
    if seq_idx is None:
        return torch.arange(tokens.shape[1], device=tokens.device)
    return torch.arange(tokens.numel(), device=tokens.device).view_as(tokens) - starts[seq_idx]


@compiled
def route(x, weight, top):
    """Weights and experts of each row, the most likely `top` of them."""
    scores = torch.sigmoid(F.linear(x.float(), weight))
    chosen, experts = scores.topk(top, dim=-1)
    return chosen / chosen.sum(-1, keepdim=True), experts


@compiled
def sums_of_rows(rows, back, top):
    return rows[back].unflatten(0, (-1, top)).float().sum(1).to(rows.dtype)


@compiled
def add_sums_of_rows(y, rows, back, top):
    return (y + rows[back].unflatten(0, (-1, top)).float().sum(1)).to(rows.dtype)


@compiled
def loss_and_gradient(logits, targets):
    """The mean loss of rows that have a target; its gradient takes the place of the logits."""
    values = logits.float()
    counts = targets >= 0
    share = counts.float() / counts.sum()
    log_sum = torch.logsumexp(values, -1, keepdim=True)
    hit = torch.arange(logits.shape[-1], device=logits.device) == targets.unsqueeze(-1)
    chosen = torch.where(hit, values, 0.0).sum(-1)
    gradient = ((values - log_sum).exp() - hit.float()) * share.unsqueeze(-1)
    logits.copy_(gradient)
    return ((log_sum.squeeze(-1) - chosen) * share).sum()


class Head(torch.autograd.Function):
    """The head and its loss, from which a backward pass starts: the gradient of the loss is 1."""

    @staticmethod
    def forward(ctx, x, weight, targets):
        logits = F.linear(x, weight)
        loss = loss_and_gradient(logits, targets)
        ctx.gradients = [(logits @ weight, logits.t() @ x)]
        return loss

    @staticmethod
    def backward(ctx, _):
        return *ctx.gradients.pop(), None


class Gather(torch.autograd.Function):
    """Rows in the order of their experts: each row is there `top` times."""

    @staticmethod
    def forward(ctx, x, order, back, top):
        ctx.save_for_backward(back)
        ctx.top = top
        return x[order // top]

    @staticmethod
    def backward(ctx, dy):
        back, = ctx.saved_tensors
        return sums_of_rows(dy, back, ctx.top), None, None, None


class Collect(torch.autograd.Function):
    """y and what the experts of each row made of it."""

    @staticmethod
    def forward(ctx, y, rows, order, back, top):
        ctx.save_for_backward(order)
        ctx.top = top
        return add_sums_of_rows(y, rows, back, top)

    @staticmethod
    def backward(ctx, dy):
        order, = ctx.saved_tensors
        return dy, dy[order // ctx.top], None, None, None


class Permute(torch.autograd.Function):
    """Values in another order, and back."""

    @staticmethod
    def forward(ctx, x, order, back):
        ctx.save_for_backward(back)
        return x[order]

    @staticmethod
    def backward(ctx, dy):
        back, = ctx.saved_tensors
        return dy[back], None, None


def columns(xbc, sizes):
    """X, B and C of the scan as columns of one matrix; sizes: heads, groups, state, chunk."""
    heads, groups, state, _ = sizes
    inner = xbc.shape[-1] - 2 * groups * state
    x, b, c = xbc.split([inner, groups * state, groups * state], dim=-1)
    return (x.unflatten(-1, (heads, -1)), b.unflatten(-1, (groups, -1)),
            c.unflatten(-1, (groups, -1)))


@torch.library.custom_op("stowage_peer::scan", mutates_args=())
def scan(xbc: Tensor, dt: Tensor, a: Tensor, d: Tensor, dt_bias: Tensor,
         seq_idx: Optional[Tensor], sizes: list[int]) -> Tensor:
    x, b, c = columns(xbc, sizes)
    y = PEER._mamba_chunk_scan_combined_fwd(x, dt, a, b, c, sizes[-1], D=d, dt_bias=dt_bias,
                                            dt_softplus=True, seq_idx=seq_idx)[0]
    return y.flatten(-2)


@scan.register_fake
def _(xbc, dt, a, d, dt_bias, seq_idx, sizes):
    return xbc.new_empty(*xbc.shape[:2], xbc.shape[-1] - 2 * sizes[1] * sizes[2])


@torch.library.custom_op("stowage_peer::scan_backward", mutates_args=())
def scan_backward(dy: Tensor, xbc: Tensor, dt: Tensor, a: Tensor, d: Tensor, dt_bias: Tensor,
                  seq_idx: Optional[Tensor], y: Tensor, sizes: list[int]
                  ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of X, B and C go to columns of one matrix, as the convolution's backward reads."""
    d_xbc = torch.empty_like(xbc, memory_format=torch.contiguous_format)
    (x, b, c), (dx, db, dc) = columns(xbc, sizes), columns(d_xbc, sizes)
    dy, y = (rows.unflatten(-1, (sizes[0], -1)) for rows in (dy, y))
    _, d_dt, da, _, _, dd, _, d_dt_bias, _ = PEER._mamba_chunk_scan_combined_bwd(
        dy, x, dt, a, b, c, y, sizes[-1], D=d, dt_bias=dt_bias, dt_softplus=True, seq_idx=seq_idx,
        dx=dx, dB=db, dC=dc)
    return d_xbc, d_dt, da, dd, d_dt_bias


@scan_backward.register_fake
def _(dy, xbc, dt, a, d, dt_bias, seq_idx, y, sizes):
    return (xbc.new_empty(xbc.shape), dt.new_empty(dt.shape),
            *(torch.empty_like(each) for each in (a, d, dt_bias)))


def _scan_context(ctx, inputs, output):
    *tensors, sizes = inputs
    ctx.save_for_backward(*tensors, output)
    ctx.sizes = sizes


def _scan_gradients(ctx, dy):
    return *scan_backward(dy, *ctx.saved_tensors, ctx.sizes), None, None


scan.register_autograd(_scan_gradients, setup_context=_scan_context)


class Weights:
    """bf16 weights by name, normal with sigma 0.02 unless said otherwise."""

    def __init__(self, rounded=None):
        """rounded(linear): what computes a product in place of a torch.nn.Linear, or None."""
        self.all, self.rounded = {}, rounded

    def make(self, name, *shape, dtype=torch.bfloat16, sigma=0.02, mean=0.0):
        value = mean + sigma * torch.randn(*shape, device=DEVICE)
        self.all[name] = torch.nn.Parameter(value.to(dtype))
        return self.all[name]

    def norm(self, name, width):
        return self.make(name, width, sigma=0, mean=0 if ONE_PLUS else 1)

    def projection(self, name, outputs, inputs):
        """What project() takes: those products that ours computes in 8 bits."""
        weight = self.make(name, outputs, inputs)
        if self.rounded is None:
            return weight
        linear = torch.nn.Linear(inputs, outputs, bias=False, device="meta")
        linear.weight = weight
        made = self.rounded(linear)
        if made.weight is not weight:
            raise ValueError(f"{name}: the product of 8 bits has another weight than the optimizer")
        return made


class Mamba:
    def __init__(self, deck, weights, name):
        make, projection = weights.make, weights.projection
        self.heads, self.head_dim = deck["mamba_num_heads"], deck["mamba_head_dim"]
        self.groups, self.state = deck["mamba_num_groups"], deck["mamba_state_dim"]
        self.chunk = deck["mamba_chunk_size"]
        self.inner = self.heads * self.head_dim
        self.channels = self.inner + 2 * self.groups * self.state
        width = deck["hidden_size"]
        fp32 = {"dtype": torch.float32}
        self.norm = weights.norm(f"{name}.norm", width)
        self.in_proj = projection(f"{name}.in_proj", self.inner + self.channels + self.heads,
                                  width)
        self.conv = make(f"{name}.conv", self.channels, deck.get("mamba_conv_width", 4),
                         sigma=0.3, **fp32)
        self.conv_bias = make(f"{name}.conv_bias", self.channels, sigma=0, **fp32)
        self.a_log = make(f"{name}.a_log", self.heads, mean=1.4, sigma=0.7, **fp32)
        self.d = make(f"{name}.d", self.heads, mean=1, sigma=0, **fp32)
        self.dt_bias = make(f"{name}.dt_bias", self.heads, mean=-4.6, sigma=0.5, **fp32)
        self.gated_norm = make(f"{name}.gated_norm", self.inner, sigma=0, mean=1, **fp32)
        self.out_proj = projection(f"{name}.out_proj", width, self.inner)

    def __call__(self, x, y, batch):
        x, zxbcdt = add_norm_linear(x, y, self.norm, self.in_proj)
        z, xbc, dt = zxbcdt.split([self.inner, self.channels, self.heads], dim=-1)
        xbc = convolve(xbc, self.conv, self.conv_bias, batch.seq_idx)
        y = scan(xbc, dt, -torch.exp(self.a_log), self.d, self.dt_bias, batch.seq_idx,
                 [self.heads, self.groups, self.state, self.chunk])
        return x, gated_norm_linear(y, z, self.gated_norm, self.out_proj, self.groups)


class GatedDelta:
    def __init__(self, deck, weights, name):
        make, projection = weights.make, weights.projection
        self.sizes = [deck[f"delta_{key}"] for key in ("num_key_heads", "num_value_heads",
                                                       "key_head_dim", "value_head_dim")]
        key_heads, self.heads, n, p = self.sizes
        width, self.values = deck["hidden_size"], self.heads * p
        self.channels = 2 * key_heads * n + self.values
        fp32 = {"dtype": torch.float32}
        self.norm = weights.norm(f"{name}.norm", width)
        self.in_proj = projection(f"{name}.in_proj",
                                  self.values + self.channels + 2 * self.heads, width)
        self.conv = make(f"{name}.conv", self.channels, 4, sigma=0.3, **fp32)
        self.a_log = make(f"{name}.a_log", self.heads, mean=1.4, sigma=0.7, **fp32)
        self.dt_bias = make(f"{name}.dt_bias", self.heads, mean=-4.6, sigma=0.5, **fp32)
        self.gated_norm = make(f"{name}.gated_norm", p, sigma=0, mean=1, **fp32)
        self.out_proj = projection(f"{name}.out_proj", width, self.values)

    def __call__(self, x, y, batch):
        x, rows = add_norm_linear(x, y, self.norm, self.in_proj)
        z, qkv, b, a = rows.split([self.values, self.channels, self.heads, self.heads], dim=-1)
        qkv = convolve(qkv, self.conv, None, batch.seq_idx)
        y = torch_delta.rule(qkv, b, a, self.a_log, self.dt_bias, batch, self.sizes)
        return x, gated_head_norm_linear(y, z, self.gated_norm, self.out_proj)


class Attention:
    def __init__(self, deck, weights, name):
        projection = weights.projection
        self.heads, self.kv_heads = deck["num_attention_heads"], deck["num_query_groups"]
        self.head_dim = deck["head_dim"]
        self.gated = deck.get("attention_output_gate", False)
        self.turned = 0
        if deck.get("position_embedding") == "rope":
            self.turned = int(self.head_dim * deck.get("rotary_percent", 1))
        self.theta = deck.get("rope_theta", 1e4)
        width, gates = deck["hidden_size"], self.heads if self.gated else 0
        self.norm = weights.norm(f"{name}.norm", width)
        self.qkv = projection(f"{name}.qkv",
                              (self.heads + gates + 2 * self.kv_heads) * self.head_dim, width)
        self.norms = [weights.norm(f"{name}.{of}_norm", self.head_dim) for of in "qk"
                      ] if deck.get("qk_layernorm") else [None, None]
        self.proj = projection(f"{name}.proj", width, self.heads * self.head_dim)

    def __call__(self, x, y, batch):
        x, qkv = add_norm_linear(x, y, self.norm, self.qkv)
        q, k, v, gate = qkv.unflatten(-1, (-1, self.head_dim)).split(
            [self.heads, self.kv_heads, self.kv_heads, self.heads if self.gated else 0], dim=-2)
        if self.turned or self.norms[0] is not None:
            places = places_of(batch.tokens, batch.seq_idx, batch.starts)
            q, k = (norm_and_turn(each, norm, places, self.turned, self.theta)
                    for each, norm in zip((q, k), self.norms))
        if batch.seq_idx is None:
            y = F.scaled_dot_product_attention(
                *(t.transpose(1, 2) for t in (q, k, v)), is_causal=True,
                enable_gqa=self.heads != self.kv_heads).transpose(1, 2)
        else:
            y = torch.ops.aten._flash_attention_forward(
                *(t.flatten(0, 1) for t in (q, k, v)), batch.starts, batch.starts, batch.longest,
                batch.longest, 0.0, True, False)[0].view_as(q)
        return x, gate_linear(y.flatten(-2), gate.flatten(-2) if self.gated else None, self.proj)


class Mlp:
    def __init__(self, deck, weights, name):
        projection = weights.projection
        width, hidden = deck["hidden_size"], deck["ffn_hidden_size"]
        self.gated = deck.get("activation") == "swiglu"
        self.norm = weights.norm(f"{name}.norm", width)
        self.fc1 = projection(f"{name}.fc1", 2 * hidden if self.gated else hidden, width)
        self.fc2 = projection(f"{name}.fc2", width, hidden)

    def __call__(self, x, y, batch):
        x, h = add_norm_linear(x, y, self.norm, self.fc1)
        return x, project((activate_gated if self.gated else activate)(h), self.fc2)


class Experts:
    """Sorted by expert, then products of groups of rows; no count is waited for by the host."""

    def __init__(self, deck, weights, name):
        make, projection = weights.make, weights.projection
        width, hidden = deck["hidden_size"], deck["moe_ffn_hidden_size"]
        shared = deck["moe_shared_expert_hidden_size"]
        self.experts, self.top = deck["num_moe_experts"], deck["moe_router_topk"]
        self.norm = weights.norm(f"{name}.norm", width)
        self.router = make(f"{name}.router", self.experts, width, dtype=torch.float32)
        self.fc1 = make(f"{name}.fc1", self.experts, hidden, width)
        self.fc2 = make(f"{name}.fc2", self.experts, width, hidden)
        self.shared_fc1 = projection(f"{name}.shared_fc1", shared, width)
        self.shared_fc2 = projection(f"{name}.shared_fc2", width, shared)

    def sort(self, experts):
        """The order of rows, the place of each in it, and where each expert's rows end."""
        chosen, order = experts.flatten().to(torch.int16).sort(stable=True)
        back = torch.empty_like(order)
        back.scatter_(0, order, torch.arange(order.numel(), device=order.device))
        each = torch.arange(self.experts, device=order.device, dtype=torch.int32)
        return order, back, torch.searchsorted(chosen.int(), each, right=True, out_int32=True)

    def __call__(self, x, y, batch):
        x, normed = add_norm(x, y, self.norm)
        flat = normed.flatten(0, -2)
        weights, experts = route(flat, self.router, self.top)
        order, back, ends = self.sort(experts)
        rows = Gather.apply(flat, order, back, self.top)
        hidden = torch._grouped_mm(rows, self.fc1.transpose(-2, -1), offs=ends)
        hidden = activate_weighted(hidden, Permute.apply(weights.flatten(), order, back))
        rows = torch._grouped_mm(hidden, self.fc2.transpose(-2, -1), offs=ends)
        shared = project(activate(project(flat, self.shared_fc1)), self.shared_fc2)
        return x, Collect.apply(shared, rows, order, back, self.top).view_as(x)


class Model:
    def __init__(self, deck, weights):
        global EPS, ONE_PLUS
        EPS, ONE_PLUS = deck.get("norm_epsilon", 1e-5), deck.get("apply_layernorm_1p", False)
        make, width, vocabulary = weights.make, deck["hidden_size"], deck["vocab_size"]
        self.embedding = make("embedding", vocabulary, width)
        kinds = {"*": Attention, "-": Mlp, "E": Experts, "G": GatedDelta, "M": Mamba}
        self.layers = [kinds[letter](deck, weights, str(place))
                       for place, letter in enumerate(deck["pattern"])]
        self.norm = weights.norm("norm", width)
        tied = not deck.get("untie_embeddings", True)
        self.head = self.embedding if tied else make("head", vocabulary, width)

    def hidden(self, x, batch):
        y = None
        for layer in self.layers:
            x, y = layer(x, y, batch)
        return add_norm(x, y, self.norm)[1].flatten(0, -2)

    def loss(self, batch):
        x = F.embedding(batch.tokens, self.embedding)
        return Head.apply(self.hidden(x, batch), self.head, batch.targets)
