// The decks of the suite as folders that others load: which family says each of them. The table of
// docs/guides/interop.md has the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "inputs/deck/deck.hpp"
#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/family.hpp"

namespace stowage::run {
namespace {

namespace hf = inputs::huggingface;

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(std::string(STOWAGE_SOURCE) + path).rdbuf();
  return text.str();
}

/// The families by deck that the guide tells: rows such as "| `dense-124m` | `nemotron_h` |".
std::map<std::string, std::string> told() {
  const std::string page = read("/docs/guides/interop.md");
  const std::regex row("\\n\\| `([a-z0-9-]+)` \\| `([a-z0-9_]+)` \\|");
  std::map<std::string, std::string> all;
  for (std::sregex_iterator found(page.begin(), page.end(), row), end; found != end; ++found)
    all[(*found)[1]] = (*found)[2];
  return all;
}

TEST(deck_families, every_deck_can_be_exported_as_the_guide_tells) {
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(STOWAGE_SOURCE "/inputs")) {
    if (entry.path().extension() != ".toml") continue;
    const std::string name = entry.path().stem();
    const inputs::Deck deck = inputs::Deck::load(entry.path(), {});
    const hf::Family& family = hf::family_of(deck);
    EXPECT_FALSE(hf::config_text(family, deck, "").empty()) << name;
    found[name] = family.model_type;
  }
  EXPECT_EQ(found, told());
}

}  // namespace
}  // namespace stowage::run
