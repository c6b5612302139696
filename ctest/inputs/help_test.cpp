#include "inputs/deck/help.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "ctest/inputs/support.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;

TEST(help, names_every_key) {
  const std::string keys = help_keys(), page = reference_page();
  for (const Parameter& row : registry()) {
    expect_parts(keys, {row.name()});
    expect_parts(page, {"| `" + std::string(row.name()) + "` |"});
    expect_parts(help_key(row.key), {row.key, "default:", to_toml(row.fallback)});
  }
}

TEST(help, of_a_key_and_a_section) {
  expect_parts(help_key("optim.lr"), {"optim.lr", "Largest learning rate", "[0, inf)", "decides"});
  expect_parts(help_key("offload.min_tensor_bytes"), {"64 GiB", "unit:    B", "changes no bit"});
  expect_parts(help_key("graphs"), {"[graphs]", "graphs.mode", "graphs.scopes"});
  expect_parts(help_key("expects"), {"loss_at_<step>"});
  expect_parts(testing::usage_error([] { help_key("optim.rl"); }), {"optim.rl", "'optim.lr'"});
}

// The page of the user's guide is what the registry says.
TEST(help, page_is_up_to_date) {
  if (!std::filesystem::exists(STOWAGE_DECK_PAGE)) GTEST_SKIP() << "no page of decks in this tree";
  std::ifstream file(STOWAGE_DECK_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, reference_page()) << "run: stowage_deck_reference > docs/reference/deck.md";
}

}  // namespace
}  // namespace stowage::inputs
