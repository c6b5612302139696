// Readers of decks, token files and published models among random damage: a usage error or a good
// reading, no more.
#include <gtest/gtest.h>

#include <cstring>

#include "ctest/inputs/support.hpp"
#include "ctest/support/mutate.hpp"
#include "ctest/support/seed.hpp"
#include "inputs/data/digest.hpp"
#include "inputs/deck/deck.hpp"
#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/config_json.hpp"
#include "inputs/huggingface/model_folder.hpp"

namespace stowage::inputs {
namespace {

using testing::TemporaryFolder;

/// Counts readings; fails for an error that is not the user's. `what` tells the bytes on failure.
class Outcomes {
 public:
  template <class Read>
  void add(Read&& read, const std::string& what) {
    try {
      read();
      ++good_;
    } catch (const execution::Error& error) {
      ++refused_;
      EXPECT_EQ(error.exit(), execution::Exit::usage) << error.what() << "\n" << what;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not one of our errors: " << error.what() << "\n" << what;
    }
  }
  /// Damage that is never found, or always, was no test.
  void expect_both() const {
    EXPECT_GT(good_, 0);
    EXPECT_GT(refused_, 0);
  }

 private:
  int good_ = 0, refused_ = 0;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(fuzz, decks) {
  const std::uint64_t seed = ctest::seed();
  std::mt19937_64 random(seed);
  std::vector<std::string> corpus = {Deck().text()};
  for (const auto& entry : std::filesystem::directory_iterator(STOWAGE_INPUTS_DIR))
    if (entry.path().extension() == ".toml") corpus.push_back(read_file(entry.path()));
  Outcomes outcomes;
  for (int round = 0; round < 4 * ctest::fuzz_rounds(); ++round) {
    const std::string text = ctest::mutated(corpus[random() % corpus.size()], random);
    outcomes.add([&] { (void)Deck::parse(text, "fuzzed.toml").text(); }, text);
  }
  outcomes.expect_both();
}

TEST(fuzz, overrides) {
  std::mt19937_64 random(ctest::seed());
  const std::vector<std::string> corpus = {"run.steps=3",
                                           "optim.lr=1e-3",
                                           "offload.modules=core_attn,mlp_act",
                                           "model.pattern=M*-E",
                                           "offload.min_tensor_bytes=64 GiB",
                                           "graphs.max_packed_seqs=[1, 2]",
                                           "run.name=\"a b\"",
                                           "validate.loss_below=inf",
                                           "expects.final_loss=[0, 1]"};
  Outcomes outcomes;
  for (int round = 0; round < 4 * ctest::fuzz_rounds(); ++round) {
    const std::vector<std::string> given = {
        "data.source=synthetic", "model.pattern=M",
        ctest::mutated(corpus[random() % corpus.size()], random)};
    outcomes.add([&] { (void)Deck::parse("", "fuzzed.toml", given); }, given.back());
  }
  outcomes.expect_both();
}

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Reads all of a source, as a run does.
void read_all(const std::string& path, SourceKind kind, std::int64_t document_token) {
  const auto source = open_source(
      {.kind = kind, .path = path, .vocab_size = 300, .document_token = document_token});
  (void)digest(*source);
  (void)split(*source, 0.3);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(source->tokens()));
  source->read_mask(0, mask);
  for (const std::uint8_t bit : mask) ASSERT_LE(bit, 1);
}

struct MegatronPair {
  std::string index, tokens;
};

/// Three documents of 16 tokens together.
MegatronPair megatron_pair() {
  std::string index("MMIDIDX\0\0", 9), tokens;
  put(index, std::uint64_t{1});
  put(index, std::uint8_t{8});  // uint16
  put(index, std::uint64_t{3});
  put(index, std::uint64_t{4});
  for (const std::int32_t length : {5, 1, 10}) put(index, length);
  for (const std::int64_t pointer : {0, 10, 12}) put(index, pointer);
  for (const std::int64_t bound : {0, 1, 2, 3}) put(index, bound);
  for (std::uint16_t token = 0; token < 16; ++token) put(tokens, token);
  return {index, tokens};
}

TEST(fuzz, megatron_pairs) {
  std::mt19937_64 random(ctest::seed());
  const auto [index, tokens] = megatron_pair();
  const TemporaryFolder folder;
  Outcomes outcomes;
  for (int round = 0; round < ctest::fuzz_rounds(); ++round) {
    const bool in_index = random() % 4 != 0;
    folder.write("a.idx", in_index ? ctest::mutated(index, random) : index);
    folder.write("a.bin", in_index ? tokens : ctest::mutated(tokens, random));
    outcomes.add([&] { read_all(folder / "a.idx", SourceKind::megatron, -1); },
                 ::testing::PrintToString(read_file(folder / "a.idx")));
  }
  outcomes.expect_both();
}

TEST(fuzz, masks) {
  std::mt19937_64 random(ctest::seed());
  const auto [index, tokens] = megatron_pair();
  const TemporaryFolder folder;
  folder.write("a.idx", index);
  folder.write("a.bin", tokens);
  folder.write("a.txt", std::string(16, 'x'));
  Outcomes damaged, of_another_length;
  for (int round = 0; round < ctest::fuzz_rounds(); ++round) {
    const bool as_text = random() % 2 == 0;
    const auto read = [&] {
      as_text ? read_all(folder / "a.txt", SourceKind::text, -1)
              : read_all(folder / "a.idx", SourceKind::megatron, -1);
    };
    std::string mask(16, '\0');
    for (char& bit : mask) bit = static_cast<char>(random() % 2);
    const bool in_length = random() % 4 == 0;
    if (in_length)
      mask.resize(random() % 2 == 0 ? 16 : random() % 32, '\1');
    else
      mask = ctest::mutated(mask, random);
    folder.write(as_text ? "a.txt.mask" : "a.mask", mask);
    (in_length ? of_another_length : damaged).add(read, ::testing::PrintToString(mask));
  }
  damaged.expect_both();
  of_another_length.expect_both();  // half of them have the right one
}

TEST(fuzz, llmc_shards_and_texts) {
  std::mt19937_64 random(ctest::seed());
  std::string shard;
  for (const std::int32_t word : {20240520, 1, 40}) put(shard, word);
  shard.resize(1024);
  for (std::uint16_t token = 0; token < 40; ++token) put(shard, token);
  const std::string text = "\nGenesis 1\n\nIn the beginning\n\nGenesis 2\n\nThus the heavens\n";
  const TemporaryFolder folder;
  Outcomes outcomes;
  for (int round = 0; round < ctest::fuzz_rounds(); ++round) {
    folder.write("a", ctest::mutated(random() % 2 == 0 ? shard : text, random));
    const auto kind = random() % 2 == 0 ? SourceKind::automatic : SourceKind::llmc;
    outcomes.add([&] { read_all(folder / "a", kind, 7); },
                 ::testing::PrintToString(read_file(folder / "a")));
  }
  outcomes.expect_both();
}

/// Damaged JSON, often with what JSON is not expected to hold: depth, Python's numbers, commands of
/// terminals.
std::string mutated_json(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> kPieces = {"NaN",
                                                   "-Infinity",
                                                   "\"Infinity\"",
                                                   R"({"__float__": "Infinity"})",
                                                   "null",
                                                   "18446744073709551615",
                                                   R"("\u001b[2J\u0000")",
                                                   R"("\ud800")",
                                                   "[[]]"};
  if (random() % 2 == 0) text = ctest::mutated(text, random);
  const std::size_t colon = text.find(':', text.empty() ? 0 : random() % text.size());
  if (colon == std::string::npos || random() % 4 == 0) return text;
  std::string piece = kPieces[random() % kPieces.size()];
  if (random() % 4 == 0) {  // from a depth that is allowed to one that no stack holds
    const std::size_t depth = std::size_t{1} << random() % 18;
    piece.clear();
    for (std::size_t i = 0; i < depth; ++i) piece += i % 2 == 0 ? "[" : "{\"a\":";
    piece += "1";
    for (std::size_t i = depth; i-- > 0;) piece += i % 2 == 0 ? "]" : "}";
  }
  const std::size_t end = text.find_first_of(",}", colon);
  return text.replace(colon + 1, end == std::string::npos ? end : end - colon - 1, piece);
}

/// No control byte and no long text reaches a terminal by way of a message.
template <class Read>
void add_shown(Outcomes& outcomes, Read&& read, const std::string& what) {
  outcomes.add(
      [&] {
        try {
          read();
        } catch (const execution::Error& error) {
          const std::string_view message = error.what();
          EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
          EXPECT_LT(message.size(), 4000U);
          throw;
        }
      },
      what.substr(0, 2000));
}

TEST(fuzz, config_json) {
  std::mt19937_64 random(ctest::seed());
  const std::vector<std::string> corpus = {
      R"({"model_type": "nemotron_h", "hybrid_override_pattern": "M*-E", "head_dim": 16,
          "time_step_limit": [0.0, Infinity], "moe_shared_expert_intermediate_size": 8,
          "id2label": {"0": "NaN"}, "torch_dtype": "bfloat16", "sliding_window": null})",
      R"({"model_type": "llama", "num_hidden_layers": 3, "rope_theta": 500000.0, "rope_scaling":
          {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}, "tie_word_embeddings": true})",
      R"({"model_type": "mamba2", "num_hidden_layers": 1, "expand": 2, "use_conv_bias": true,
          "time_step_limit": [0.001, {"__float__": "Infinity"}], "n_groups": 1})"};
  Outcomes outcomes;
  for (int round = 0; round < 4 * ctest::fuzz_rounds(); ++round) {
    const std::string text = mutated_json(corpus[random() % corpus.size()], random);
    const auto read = [&] {
      namespace hf = huggingface;
      const hf::Config config = hf::parse_config(text, "config.json", {.all = random() % 2 == 0});
      // The way back: what is written of it says the same, and is given back as it stood.
      const auto before = hf::detail::parse_python_json(text, "config.json");
      const std::string written = hf::detail::python_json_text(before, 2);
      ASSERT_EQ(hf::detail::python_json_text(hf::detail::parse_python_json(written, "again"), 2),
                written);
      (void)Deck::parse(config.deck_text() + "[data]\nsource = \"synthetic\"\n", "config.json");
    };
    add_shown(outcomes, read, text);
  }
  outcomes.expect_both();
}

TEST(fuzz, model_folders) {
  std::mt19937_64 random(ctest::seed());
  const std::string index =
      R"({"metadata": {"total_size": 22}, "weight_map": {"a": "one", "b": "one"}})";
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  const TemporaryFolder folder;
  Outcomes outcomes;
  for (int round = 0; round < ctest::fuzz_rounds(); ++round) {
    const bool in_index = random() % 2 == 0;
    const std::string map = in_index ? mutated_json(index, random) : index;
    const std::string names = in_index ? header : mutated_json(header, random);
    std::string file;
    put(file, std::uint64_t{names.size()});
    file += names + std::string(22, 'd');
    if (random() % 4 == 0 && !in_index) file = ctest::mutated(file, random);
    folder.write(huggingface::kIndexFile, map);
    folder.write("one", file);
    const auto read = [&] {
      const huggingface::ModelFolder model(folder / "");
      for (const std::string& name : model.names()) {
        const huggingface::Entry& entry = *model.find(name);
        std::vector<std::byte> bytes(static_cast<std::size_t>(entry.bytes()));
        model.file_of(name).read(entry, 0, bytes);
      }
    };
    add_shown(outcomes, read, map + "\n" + names);
  }
  outcomes.expect_both();
}

}  // namespace
}  // namespace stowage::inputs
