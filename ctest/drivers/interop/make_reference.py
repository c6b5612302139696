#!/usr/bin/env python3
"""A small random model of a published family, and what transformers computes with it.

Usage: make_reference.py FAMILY FOLDER [--seed N] [--double]. Needs torch, transformers and
safetensors, on the CPU. Writes FOLDER/model as save_pretrained does, with a tokenizer.json that
stands for one, and FOLDER/reference: outputs.safetensors (tokens, logits, loss, and a prompt with
the 200 tokens that generate() takes behind it), gradient.safetensors of the mean loss, and
updated.safetensors, the weights after two steps of AdamW on the same batch. Gradients and weights
have the names of published files. With --double all of it is fp64, also what transformers computes
in fp32 whatever a model's type is: norms, rotary angles, scores of experts, scans.
"""
import argparse
import copy
import pathlib
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import save_file

VOCABULARY, SEQUENCES, TOKENS = 32, 2, 24
PROMPT, CONTINUED = 8, 200
MARGIN = 1e-3  # of logits: far above what another order of sums changes in fp32
# As the runs that are compared say it: ctest/drivers/interop/agreement.py.
RATE, DECAY, BETAS, EPSILON, CLIP = 1e-2, 0.1, (0.9, 0.95), 1e-8, 1.0


def nemotron_h(**more):
    # transformers clamps step sizes to time_step_min, whatever time_step_limit says; here both
    # say the same.
    return transformers.NemotronHForCausalLM(transformers.NemotronHConfig(
        vocab_size=VOCABULARY, hidden_size=16,
        layers_block_type=["mamba", "moe", "attention", "mlp"],
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=24,
        mamba_num_heads=6, mamba_head_dim=8, n_groups=2, ssm_state_size=8, chunk_size=16,
        n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
        moe_shared_expert_intermediate_size=20, routed_scaling_factor=2.5,
        time_step_limit=(0.001, float("inf")), **more))


class MultiTokenPrediction(torch.nn.Module):
    """Two depths, which transformers does not have, as DeepSeek-V3 (arXiv 2412.19437, section 2.2)
    writes them, with layers of transformers and the names of published files."""

    DEPTHS, FACTOR = 2, 0.3

    def __init__(self, config):
        super().__init__()
        layers = transformers.models.nemotron_h.modeling_nemotron_h
        kinds = config.mtp_layers_block_type
        self.kinds = len(kinds)
        inner = copy.deepcopy(config)
        inner.layers_block_type = kinds * self.DEPTHS
        inner._experts_implementation = "eager"  # the other has no fp64

        def norm():
            return layers.NemotronHRMSNorm(config.hidden_size, eps=config.layer_norm_epsilon)

        self.layers = torch.nn.ModuleList(
            layers.NemotronHBlock(inner, i) for i in range(self.DEPTHS * self.kinds))
        for first in self.layers[::self.kinds]:
            first.enorm, first.hnorm = norm(), norm()
            first.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        for last in self.layers[self.kinds - 1::self.kinds]:
            last.final_layernorm = norm()

    def losses(self, model, hidden, tokens):
        """Of each depth, summed over its targets."""
        found, width = [], tokens.shape[1]
        mask = torch.full((width, width), float("-inf"), dtype=hidden.dtype).triu(1)[None, None]
        for depth in range(1, self.DEPTHS + 1):
            block = self.layers[(depth - 1) * self.kinds:depth * self.kinds]
            # The last tokens have none so much later: what stands there reaches no target.
            later = torch.nn.functional.pad(tokens[:, depth:], (0, depth))
            embedded = block[0].enorm(model.model.embeddings(later))
            hidden = block[0].eh_proj(torch.cat([embedded, block[0].hnorm(hidden)], dim=-1))
            for layer in block:
                hidden = layer(hidden, attention_mask=mask)
            hidden = block[-1].final_layernorm(hidden)
            logits = model.lm_head(hidden)[:, :width - 1 - depth]
            found.append(torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), tokens[:, depth + 1:].reshape(-1),
                reduction="sum"))
        return found


def nemotron_h_mtp():
    model = nemotron_h(moe_latent_size=8, num_nextn_predict_layers=MultiTokenPrediction.DEPTHS,
                       mtp_layers_block_type=["attention", "moe"])
    model.mtp = MultiTokenPrediction(model.config)
    for parameter in model.mtp.parameters():
        if parameter.dim() >= 2:
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, rope_theta=5000.0))


def llama3():
    # 24 positions see waves that stay, are slowed, and lie between.
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64}))


def qwen3():
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True))


def qwen3_moe():
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=12, norm_topk_prob=True))


# Positions turn a quarter of a head.
HYBRID = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2,
              layer_types=["linear_attention", "full_attention"], num_attention_heads=4,
              num_key_value_heads=2, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
              linear_key_head_dim=8, linear_value_head_dim=6)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
               shared_expert_intermediate_size=20)


def qwen3_next():
    return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**HYBRID, **EXPERTS))


def qwen3_5_text():
    return transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(
        **HYBRID, intermediate_size=24, tie_word_embeddings=True))


def qwen3_5_moe_text():
    return transformers.Qwen3_5MoeForCausalLM(transformers.Qwen3_5MoeTextConfig(
        **HYBRID, **EXPERTS))


def mamba2():
    return transformers.Mamba2ForCausalLM(transformers.Mamba2Config(
        vocab_size=VOCABULARY, hidden_size=16, num_heads=4, head_dim=8, n_groups=1, state_size=8,
        num_hidden_layers=1, chunk_size=16, tie_word_embeddings=True))


FAMILIES = {function.__name__: function for function in
            (nemotron_h, nemotron_h_mtp, llama, llama3, mamba2, qwen3, qwen3_moe, qwen3_next,
             qwen3_5_text, qwen3_5_moe_text)}


def compute_in_double():
    """What asks for fp32 gets fp64."""
    torch.set_default_dtype(torch.float64)
    single, double, to = torch.float32, torch.float64, torch.Tensor.to

    def wide(value):
        return double if value is single else value

    torch.Tensor.float = torch.Tensor.double
    torch.Tensor.to = lambda self, *given, **named: to(
        self, *map(wide, given), **{key: wide(value) for key, value in named.items()})
    torch.float32 = torch.float = double


def disturb(model):
    """No weight keeps a value at which an error would not show, such as 1 or 0."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # A state that decays within a token or two has gradients of A and dt near 0, which are
            # sums of larger ones: nothing is left of their digits.
            if name.endswith("linear_attn.A_log"):
                parameter.uniform_(-3.0, -1.0)
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for name, buffer in model.named_buffers():
            if "correction_bias" in name:
                buffer.add_(torch.randn_like(buffer) * 0.1)


def loss_and_gradients(model, tokens):
    model.zero_grad()
    found = model(tokens, use_cache=False, output_hidden_states=True)
    logits = found.logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]),
                                             tokens[:, 1:].reshape(-1))
    further = []
    if hasattr(model, "mtp"):
        # The last hidden states are those behind the last norm.
        further = model.mtp.losses(model, found.hidden_states[-1], tokens)
    targets = tokens[:, 1:].numel()
    whole = loss + sum(MultiTokenPrediction.FACTOR / len(further) / targets * one
                       for one in further)
    whole.backward()
    return loss, logits, further


def continue_greedily(model, tokens):
    """Of the prompts whose continuation is clear, with the likeliest token ahead everywhere, the
    one with the most different tokens behind it."""
    found = []
    for prompt in tokens.unfold(1, PROMPT, 4).reshape(-1, PROMPT):
        with torch.no_grad():
            made = model.generate(prompt[None], do_sample=False, eos_token_id=None, pad_token_id=0,
                                  max_new_tokens=CONTINUED)[0]
            logits = model(made[None], use_cache=False).logits[0, PROMPT - 1:-1]
        assert len(made) == PROMPT + CONTINUED, made
        best = logits.topk(2).values
        clear = (best[:, 0] - best[:, 1]).min().item() > MARGIN
        if clear and torch.equal(logits.argmax(-1), made[PROMPT:]):
            found.append((len(set(made[PROMPT:].tolist())), made))
    different, made = max(found, key=lambda one: one[0])
    print(f"{different} different tokens of {CONTINUED} behind {made[:PROMPT].tolist()}")
    return made


def save_as_published(model, tensors, path):
    """Tensors with the names of parameters in memory, under the names that files have."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict=tensors)
        shutil.copy(pathlib.Path(folder) / "model.safetensors", path)


def two_steps(model, tokens):
    """AdamW as the suite has it: matrices decay, convolutions and vectors do not."""
    decays = [p for n, p in model.named_parameters() if p.dim() >= 2 and "conv1d" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() < 2 or "conv1d" in n]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": DECAY},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=RATE, betas=BETAS, eps=EPSILON)
    for _ in range(2):
        loss_and_gradients(model, tokens)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--double", action="store_true")
    arguments = parser.parse_args()
    if arguments.double:
        compute_in_double()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    model = FAMILIES[arguments.family]().float()
    if arguments.double and hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the other has no fp64
    disturb(model)
    published, reference = arguments.folder / "model", arguments.folder / "reference"
    reference.mkdir(parents=True)
    model.save_pretrained(published)
    (published / "tokenizer.json").write_text('{"stands": "for one"}\n')
    tokens = torch.randint(VOCABULARY, (SEQUENCES, TOKENS))
    loss, logits, further = loss_and_gradients(model, tokens)
    outputs = {"tokens": tokens.int(), "loss": loss.detach().reshape(1),
               "logits": logits.detach().contiguous()}
    outputs["greedy"] = continue_greedily(model, tokens).int()
    if further:
        counts = [SEQUENCES * (TOKENS - 1 - depth) for depth in range(1, len(further) + 1)]
        outputs["mtp_losses"] = torch.stack(further).detach() / torch.tensor(counts)
    save_file(outputs, reference / "outputs.safetensors")
    gradients = {name: p.grad.detach().clone() for name, p in model.named_parameters()}
    save_as_published(model, gradients, reference / "gradient.safetensors")
    two_steps(model, tokens)
    save_as_published(model, model.state_dict(), reference / "updated.safetensors")
    print(f"{arguments.family}: {sum(p.numel() for p in model.parameters())} parameters, "
          f"loss {loss.item():.6f}, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
