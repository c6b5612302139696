// Words of a deck as options: each word that the registry allows has a meaning of its own.
#include "forecast/plan/options.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "execution/error.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/registry.hpp"
#include "layers/step/step_section.hpp"
#include "offload/offload_section.hpp"

namespace stowage::forecast {
namespace {

inputs::Deck deck_of(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"data.source=synthetic", "model.pattern=M*-E",
                                  "parallel.pipeline=2", "parallel.virtual_stages=2",
                                  "parallel.schedule=interleaved"};
  all.insert(all.end(), more.begin(), more.end());
  return inputs::Deck::parse("", "empty.toml", all);
}

/// Calls all that reads words of a deck.
void read_all(const inputs::Deck& deck) {
  (void)trainer_options(deck, {}, 4, parallel::planned_ranks({}, 0), parallel::RankOrder::partial);
  (void)inputs::read<layers::LearningRate>(deck);
  (void)nccl_options(deck);
}

TEST(options, every_word_that_the_registry_allows_has_a_meaning) {
  int words = 0;
  for (const inputs::Parameter& row : inputs::registry()) {
    if (!std::holds_alternative<std::string>(row.fallback)) continue;
    for (const std::string_view word : row.allowed) {
      const std::string given = std::string(row.key) + "=" + std::string(word);
      try {
        read_all(deck_of({given}));
        ++words;
      } catch (const execution::Error& error) {  // a word may need another key
        EXPECT_EQ(std::string(error.what()).find("has no meaning"), std::string::npos)
            << error.what();
      }
    }
  }
  EXPECT_GE(words, 40);
}

/// How many values the words of a key come to.
template <class Get>
std::size_t values(const char* key, const std::vector<std::string>& more, Get&& get) {
  std::set<int> all;
  for (const std::string_view word : inputs::find(key)->allowed) {
    std::vector<std::string> keys = more;
    keys.push_back(std::string(key) + "=" + std::string(word));
    all.insert(static_cast<int>(get(deck_of(keys))));
  }
  return all.size();
}

TEST(options, words_of_a_key_are_told_apart) {
  const auto distinct = [](const char* key, auto&& get, const std::vector<std::string>& more = {}) {
    EXPECT_EQ(values(key, more, get), inputs::find(key)->allowed.size()) << key;
  };
  using inputs::Deck;
  distinct("train.dtype", [](const Deck& d) { return read(d, &inputs::TrainConfig::dtype); });
  distinct("model.mamba_mixer", [](const Deck& d) { return model_config(d).mamba.form; });
  distinct("model.activation", [](const Deck& d) { return model_config(d).mlp.activation; });
  distinct("model.moe_router_force_load",
           [](const Deck& d) { return model_config(d).moe.forced_load; });
  distinct("parallel.context_attention",
           [](const Deck& d) { return model_config(d).attention.exchange; });
  distinct("parallel.expert_exchange", [](const Deck& d) { return model_config(d).moe.exchange; });
  distinct("optim.schedule", [](const Deck& d) { return read(d, &layers::LearningRate::shape); });
  distinct("graphs.mode", [](const Deck& d) { return graph_options(d).mode; },
           {"graphs.scopes=[\"layer\"]"});
  distinct("graphs.copies", [](const Deck& d) { return graph_options(d).copies; });
  distinct("offload.policy", [](const Deck& d) { return read(d, &offload::OffloadConfig::kind); },
           {"offload.modules=[\"mlp_norm\"]"});
}

TEST(options, only_what_saves_has_room_for_a_copy_of_its_state) {
  const inputs::Deck deck = deck_of({"checkpoint.directory=saved", "checkpoint.copy=device"});
  for (const bool saves : {false, true}) {
    const TrainerOptions options = trainer_options(
        deck, {.saves = saves}, 4, parallel::planned_ranks({}, 0), parallel::RankOrder::partial);
    EXPECT_EQ(options.state_copy, saves);
  }
}

}  // namespace
}  // namespace stowage::forecast
