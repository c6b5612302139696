#include "inputs/deck/check.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <numeric>
#include <string>

#include "execution/error.hpp"

namespace stowage::inputs {

using execution::throw_usage;

namespace {

std::int64_t number(const Deck& deck, std::string_view key) { return deck.get<std::int64_t>(key); }

/// The pattern's letters, and its cuts.
void check_pattern(const Deck& deck) {
  const auto& pattern = deck.get<std::string>("model.pattern");
  if (pattern.empty()) throw_usage("model.pattern is empty: a model needs a letter for each layer");
  constexpr std::size_t kMostLayers = 4096;
  if (pattern.size() > kMostLayers) {
    throw_usage("model.pattern ({}) has {} letters; at most {}", deck.where("model.pattern"),
                pattern.size(), kMostLayers);
  }
  const std::size_t bad = pattern.find_first_not_of("M*-E|");
  if (bad != std::string::npos) {
    throw_usage(
        "{}: letter '{}' at position {} is unknown: M Mamba-2, * attention, - dense MLP, E mixture "
        "of experts, | pipeline cut",
        deck.cite("model.pattern"), pattern[bad], bad + 1);
  }
  const bool empty_stage =
      pattern.front() == '|' || pattern.back() == '|' || pattern.find("||") != std::string::npos;
  if (empty_stage) {
    throw_usage("{}: a pipeline cut | must stand between two layers", deck.cite("model.pattern"));
  }
}

/// `small` divides `large`, both by key.
void check_divides(const Deck& deck, std::string_view small, std::string_view large) {
  if (number(deck, large) % number(deck, small) == 0) return;
  throw_usage("{} must divide {}", deck.cite(small), deck.cite(large));
}

void check_at_most(const Deck& deck, std::string_view small, std::string_view large) {
  if (number(deck, small) <= number(deck, large)) return;
  throw_usage("{} must be at most {}", deck.cite(small), deck.cite(large));
}

void check_attention(const Deck& deck) {
  check_divides(deck, "model.num_query_groups", "model.num_attention_heads");
  if (deck.where("model.head_dim") == "derived") {
    check_divides(deck, "model.num_attention_heads", "model.hidden_size");
  }
  if (deck.get<std::string>("model.position_embedding") == "rope" &&
      number(deck, "model.head_dim") % 2 != 0) {
    throw_usage("{} must be even for {}", deck.cite("model.head_dim"),
                deck.cite("model.position_embedding"));
  }
  if (!(deck.get<double>("model.rope_scaling_low_freq_factor") <
        deck.get<double>("model.rope_scaling_high_freq_factor")))
    throw_usage("{} must be below {}", deck.cite("model.rope_scaling_low_freq_factor"),
                deck.cite("model.rope_scaling_high_freq_factor"));
}

void check_mamba(const Deck& deck) {
  const std::int64_t inner = 2 * number(deck, "model.hidden_size");
  if (deck.where("model.mamba_num_heads") == "derived" &&
      inner % number(deck, "model.mamba_head_dim") != 0) {
    throw_usage("{} must divide 2 * {}, the inner width of a Mamba layer by default",
                deck.cite("model.mamba_head_dim"), deck.cite("model.hidden_size"));
  }
  check_divides(deck, "model.mamba_num_groups", "model.mamba_num_heads");
  if (!(deck.get<double>("model.mamba_dt_min") < deck.get<double>("model.mamba_dt_max"))) {
    throw_usage("{} must be below {}", deck.cite("model.mamba_dt_min"),
                deck.cite("model.mamba_dt_max"));
  }
}

void check_experts(const Deck& deck) {
  check_at_most(deck, "model.moe_router_topk", "model.num_moe_experts");
  check_divides(deck, "model.moe_num_groups", "model.num_moe_experts");
  check_at_most(deck, "model.moe_group_topk", "model.moe_num_groups");
  const std::int64_t open =
      number(deck, "model.moe_group_topk") *
      (number(deck, "model.num_moe_experts") / number(deck, "model.moe_num_groups"));
  if (number(deck, "model.moe_router_topk") > open) {
    throw_usage("{} is more than the {} experts of {} groups that a token may choose from ({}, {})",
                deck.cite("model.moe_router_topk"), open, number(deck, "model.moe_group_topk"),
                deck.cite("model.moe_num_groups"), deck.cite("model.num_moe_experts"));
  }
}

void check_training(const Deck& deck) {
  check_divides(deck, "train.micro_batch_size", "train.global_batch_size");
  if (number(deck, "train.micro_batch_size") > 2147483647 / number(deck, "train.seq_length")) {
    throw_usage("{} times {}: a microbatch has at most 2^31 - 1 tokens",
                deck.cite("train.micro_batch_size"), deck.cite("train.seq_length"));
  }
  if (deck.get<double>("optim.min_lr") > deck.get<double>("optim.lr")) {
    throw_usage("{} must be at most {}", deck.cite("optim.min_lr"), deck.cite("optim.lr"));
  }
  const auto& schedule = deck.get<std::string>("optim.schedule");
  if (schedule != "constant") check_at_most(deck, "optim.warmup_steps", "optim.decay_steps");
  if (schedule == "wsd") check_at_most(deck, "optim.wsd_decay_steps", "optim.decay_steps");
  if (deck.get<std::string>("train.dtype") == "fp64" &&
      deck.get<std::string>("execution.backend") == "cuda") {
    throw_usage("{}: fp64 is for checks on the host, not for {}", deck.cite("train.dtype"),
                deck.cite("execution.backend"));
  }
}

void check_data(const Deck& deck) {
  const auto& source = deck.get<std::string>("data.source");
  if (source != "synthetic" && deck.get<std::string>("data.path").empty()) {
    throw_usage("data.path is empty: give the file of {}, or data.source = \"synthetic\"",
                deck.cite("data.source"));
  }
  if (number(deck, "data.document_token") >= number(deck, "model.vocab_size")) {
    throw_usage("{} must be below {}", deck.cite("data.document_token"),
                deck.cite("model.vocab_size"));
  }
  constexpr std::int64_t kMostDocuments = 1 << 28;  // their starts are held in memory
  const auto& lengths = deck.get<std::vector<std::int64_t>>("data.synthetic_lengths");
  const char* const key =
      lengths.empty() ? "data.synthetic_document_length" : "data.synthetic_lengths";
  if (!lengths.empty() && number(deck, "data.synthetic_document_length") > 0) {
    throw_usage("{} and data.synthetic_lengths are both given; allowed: one of them",
                deck.cite("data.synthetic_document_length"));
  }
  const std::int64_t mean =
      lengths.empty()
          ? number(deck, key)
          : std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) / std::ssize(lengths);
  if (source == "synthetic" && mean > 0 &&
      number(deck, "data.synthetic_tokens") / mean > kMostDocuments) {
    throw_usage("{} with {}: more than {} documents", deck.cite("data.synthetic_tokens"),
                deck.cite(key), kMostDocuments);
  }
  const auto& packing = deck.get<std::string>("data.packing");
  const bool whole = packing == "first_fit" || packing == "best_fit";
  if (source == "synthetic" && whole &&
      number(deck, "data.synthetic_tokens") / number(deck, "train.seq_length") > kMostDocuments)
    throw_usage("{} with {} and {}: more than {} sequences, which {} holds in memory",
                deck.cite("data.synthetic_tokens"), deck.cite("train.seq_length"),
                deck.cite("data.packing"), kMostDocuments, packing);
  const bool directory = !deck.get<std::string>("checkpoint.directory").empty();
  if (number(deck, "checkpoint.interval") > 0 && !directory)
    throw_usage("{} needs a checkpoint.directory", deck.cite("checkpoint.interval"));
  if (deck.get<double>("checkpoint.interval_minutes") > 0 && !directory)
    throw_usage("{} needs a checkpoint.directory", deck.cite("checkpoint.interval_minutes"));
}

/// Packing, and how many documents a microbatch can have.
void check_packing(const Deck& deck) {
  const auto& packing = deck.get<std::string>("data.packing");
  const bool whole = packing == "first_fit" || packing == "best_fit";
  const std::int64_t sequences = number(deck, "train.micro_batch_size");
  const std::int64_t documents = number(deck, "data.max_documents");
  const std::int64_t tokens = sequences * number(deck, "train.seq_length");
  if (number(deck, "data.document_multiple") > 1 && !whole) {
    throw_usage("{} needs data.packing = \"first_fit\" or \"best_fit\", not {}",
                deck.cite("data.document_multiple"), deck.cite("data.packing"));
  }
  check_divides(deck, "data.document_multiple", "train.seq_length");
  if (whole && documents > 0 && documents < sequences) {
    throw_usage("{} is less than one document for each sequence of {}",
                deck.cite("data.max_documents"), deck.cite("train.micro_batch_size"));
  }
  const auto& capacities = deck.get<std::vector<std::int64_t>>("graphs.max_packed_seqs");
  if (std::ranges::any_of(capacities, [&](std::int64_t c) { return c > tokens; })) {
    throw_usage("{}: a microbatch has {} tokens ({}, {}), and so at most as many documents",
                deck.cite("graphs.max_packed_seqs"), tokens, deck.cite("train.micro_batch_size"),
                deck.cite("train.seq_length"));
  }
}

void check_memory(const Deck& deck) {
  using Names = std::vector<std::string>;
  for (const std::string& name : deck.get<Names>("recompute.modules")) {
    if (name != "attn_norm" && name != "mlp_norm" && name != "mamba_norm") continue;
    throw_usage("{}: {} cannot be computed again: it is the layer's input, where reruns end",
                deck.cite("recompute.modules"), name);
  }
  const auto& mode = deck.get<std::string>("graphs.mode");
  if (deck.get<bool>("offload.delay_until_graph") && mode != "scopes") {
    throw_usage("{} needs graphs.mode = \"scopes\": copies wait for the next graph",
                deck.cite("offload.delay_until_graph"));
  }
  if (mode == "scopes" && deck.get<Names>("graphs.scopes").empty()) {
    throw_usage("{} needs at least one of graphs.scopes", deck.cite("graphs.mode"));
  }
  if (deck.get<std::string>("offload.policy") == "manual" &&
      deck.get<Names>("offload.modules").empty()) {
    throw_usage("{} needs at least one of offload.modules", deck.cite("offload.policy"));
  }
}

/// The elements of something are a product of sizes: refused where no machine has as much. The
/// product is made in double, which cannot overflow.
void check_product(const Deck& deck, std::string_view what,
                   std::initializer_list<std::string_view> keys, double most = 0x1p42) {
  double product = 1;
  for (const std::string_view key : keys) product *= static_cast<double>(number(deck, key));
  if (product <= most) return;
  std::string sizes;
  for (const std::string_view key : keys)
    sizes += (sizes.empty() ? "" : " times ") + deck.cite(key);
  throw_usage("{}: {:.4g} {}, no machine has more than {:.7g}", sizes, product, what, most);
}

void check_context(const Deck& deck) {
  if (deck.get<std::string>("parallel.context_tokens") == "zigzag" &&
      deck.get<std::string>("parallel.context_attention") == "all_to_all")
    throw_usage("{} is for gathered keys: {} shares the work evenly by heads",
                deck.cite("parallel.context_tokens"), deck.cite("parallel.context_attention"));
}

/// Sizes of weights, and of the largest activations, by the letters of the pattern.
void check_sizes(const Deck& deck, const std::string& pattern) {
  constexpr double kMostInner = 1 << 24;  // of a mixer: layers hold it as an int
  const std::string_view hidden = "model.hidden_size";
  const std::string_view batch = "train.micro_batch_size", length = "train.seq_length";
  const auto has = [&](char letter) { return pattern.find(letter) != std::string::npos; };
  check_product(deck, "elements of the embedding", {"model.vocab_size", hidden});
  check_product(deck, "tokens of a step", {"train.global_batch_size", length}, 0x1p36);
  check_product(deck, "elements of the residual stream", {batch, length, hidden});
  if (has('*')) {
    const std::string_view heads = "model.num_attention_heads", width = "model.head_dim";
    check_product(deck, "columns of queries", {heads, width}, kMostInner);
    check_product(deck, "elements of queries", {batch, length, heads, width});
  }
  if (has('M')) {
    const std::string_view heads = "model.mamba_num_heads", width = "model.mamba_head_dim";
    const std::string_view state = "model.mamba_state_dim";
    check_product(deck, "inner columns", {heads, width}, kMostInner);
    check_product(deck, "columns of B", {"model.mamba_num_groups", state}, kMostInner);
    check_product(deck, "elements of inner activations", {batch, length, heads, width});
    check_product(deck, "elements of the states", {batch, heads, width, state});
  }
  if (has('-')) check_product(deck, "elements of a weight", {hidden, "model.ffn_hidden_size"});
  if (has('E')) {
    check_product(deck, "elements of the experts",
                  {"model.num_moe_experts", hidden, "model.moe_ffn_hidden_size"});
    check_product(deck, "routed rows", {batch, length, "model.moe_router_topk"}, 0x1p31 - 1);
  }
}

/// The extents of the process grid, whose product is a number of ranks.
void check_grid(const Deck& deck) {
  constexpr double kMostRanks = 1 << 20;
  const std::string_view tensor = "parallel.tensor", context = "parallel.context";
  const std::string_view expert = "parallel.expert", pipeline = "parallel.pipeline";
  check_product(deck, "ranks", {tensor, context, expert, pipeline}, kMostRanks);
  check_product(deck, "stages", {pipeline, "parallel.virtual_stages"}, kMostRanks);
  if (number(deck, "parallel.data") > 0)  // 0: what is left
    check_product(deck, "ranks", {tensor, context, expert, pipeline, "parallel.data"}, kMostRanks);
}

/// Several stages of a rank, and the schedule that is for them.
void check_stages(const Deck& deck) {
  const auto& schedule = deck.get<std::string>("parallel.schedule");
  const bool several = number(deck, "parallel.virtual_stages") > 1;
  if (several && number(deck, "parallel.pipeline") == 1)
    throw_usage("{} needs parallel.pipeline of at least 2, not {}",
                deck.cite("parallel.virtual_stages"), deck.cite("parallel.pipeline"));
  if (several && schedule != "interleaved" && schedule != "auto")
    throw_usage("{} goes with parallel.schedule = \"interleaved\" or \"auto\", not {}",
                deck.cite("parallel.virtual_stages"), deck.cite("parallel.schedule"));
  if (!several && schedule == "interleaved")
    throw_usage("{} needs at least 2 stages of each rank, not {}", deck.cite("parallel.schedule"),
                deck.cite("parallel.virtual_stages"));
}

/// Microbatches side by side are for ranks that have all layers and exchange alike in them: in
/// Mamba layers the first and the last segment of a sequence exchange less than the others.
void check_overlap(const Deck& deck) {
  if (!deck.get<bool>("parallel.overlap_microbatches")) return;
  if (number(deck, "parallel.pipeline") > 1)
    throw_usage("{} needs parallel.pipeline = 1, not {}",
                deck.cite("parallel.overlap_microbatches"), deck.cite("parallel.pipeline"));
  if (number(deck, "parallel.context") > 1 &&
      deck.get<std::string>("model.pattern").find('M') != std::string::npos)
    throw_usage("{} needs parallel.context = 1 with the Mamba layers of {}, not {}",
                deck.cite("parallel.overlap_microbatches"), deck.cite("model.pattern"),
                deck.cite("parallel.context"));
}

/// It takes two.
void check_overlapped(const Deck& deck, std::int64_t microbatches) {
  if (!deck.get<bool>("parallel.overlap_microbatches") || microbatches > 1) return;
  throw_usage("{} needs several microbatches of a step; {} makes 1 on each rank",
              deck.cite("parallel.overlap_microbatches"), deck.cite("train.global_batch_size"));
}

/// Interleaved stages take microbatches in full groups.
void check_groups(const Deck& deck, std::int64_t microbatches) {
  const std::int64_t pipeline = number(deck, "parallel.pipeline");
  const std::int64_t several = number(deck, "parallel.virtual_stages");
  const auto& pattern = deck.get<std::string>("model.pattern");
  const bool cut_for_them =
      several > 1 && std::ranges::count(pattern, '|') + 1 == pipeline * several;
  if (deck.get<std::string>("parallel.schedule") != "interleaved" && !cut_for_them) return;
  if (microbatches % pipeline == 0) return;
  throw_usage("{} needs microbatches of a step that are a multiple of {}; {} makes {} on each rank",
              deck.cite("parallel.schedule"), deck.cite("parallel.pipeline"),
              deck.cite("train.global_batch_size"), microbatches);
}

}  // namespace

void check(const Deck& deck) {
  check_pattern(deck);
  const auto& pattern = deck.get<std::string>("model.pattern");
  if (pattern.find('*') != std::string::npos) check_attention(deck);
  if (pattern.find('M') != std::string::npos) check_mamba(deck);
  if (pattern.find('E') != std::string::npos) check_experts(deck);
  check_training(deck);
  check_sizes(deck, pattern);
  check_data(deck);
  check_packing(deck);
  check_memory(deck);
  check_context(deck);
  check_grid(deck);
  check_stages(deck);
  check_overlap(deck);
}

std::int64_t check_ranks(const Deck& deck, std::int64_t ranks) {
  const std::int64_t tensor = number(deck, "parallel.tensor");
  const std::int64_t context = number(deck, "parallel.context");
  const std::int64_t expert = number(deck, "parallel.expert");
  const std::int64_t pipeline = number(deck, "parallel.pipeline");
  const std::int64_t replica = tensor * context * expert * pipeline;
  if (ranks % replica != 0)
    throw_usage("{}, {}, {} and {} need a multiple of {} ranks, {} were started",
                deck.cite("parallel.tensor"), deck.cite("parallel.context"),
                deck.cite("parallel.expert"), deck.cite("parallel.pipeline"), replica, ranks);
  const std::int64_t data = number(deck, "parallel.data");
  if (data != 0 && data != ranks / replica)
    throw_usage("{} must be 0 or the number of ranks that the other axes leave, {}",
                deck.cite("parallel.data"), ranks / replica);
  const std::int64_t tokens =
      number(deck, "train.seq_length") * number(deck, "train.micro_batch_size");
  if (tokens % (tensor * context) != 0)
    throw_usage(
        "{} and {} share the {} * {} = {} tokens of a microbatch: these must be a multiple of {}",
        deck.cite("parallel.tensor"), deck.cite("parallel.context"), deck.cite("train.seq_length"),
        deck.cite("train.micro_batch_size"), tokens, tensor * context);
  const bool zigzag = deck.get<std::string>("parallel.context_tokens") == "zigzag";
  if (zigzag && context > 1 && tokens % (2 * context) != 0)
    throw_usage(
        "{} makes two stretches for each of {} ranks: the {} tokens of a microbatch must "
        "divide by {}",
        deck.cite("parallel.context_tokens"), deck.cite("parallel.context"), tokens, 2 * context);
  // Ranks with other sequences.
  const std::int64_t parts = ranks / (tensor * context * pipeline);
  const std::int64_t share = parts * number(deck, "train.micro_batch_size");
  if (number(deck, "train.global_batch_size") % share != 0)
    throw_usage(
        "{} must be a multiple of ranks with other sequences * micro_batch_size = {} * {} "
        "= {}",
        deck.cite("train.global_batch_size"), parts, number(deck, "train.micro_batch_size"), share);
  const std::int64_t microbatches = number(deck, "train.global_batch_size") / share;
  check_groups(deck, microbatches);
  check_overlapped(deck, microbatches);
  return microbatches;
}

}  // namespace stowage::inputs
