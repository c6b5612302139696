// What the decks of inputs/ record and plan, as programs.txt says: a build that changes no op and
// no plan passes. STOWAGE_WRITE_GOLDEN=1 writes the file anew (scripts/golden.sh).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "ctest/golden/golden_programs.hpp"

namespace stowage::ctest {
namespace {

const std::string kFolder = STOWAGE_SOURCE "/ctest/golden/";
const std::string kPrograms = kFolder + "programs.txt";

/// A case as its ranks record and plan it; none of a deck that is refused.
std::vector<forecast::RankText> planned(const GoldenCase& one, std::string& refusal) {
  std::vector<forecast::RankText> ranks;
  try {
    const inputs::Deck deck =
        inputs::Deck::load(STOWAGE_SOURCE "/inputs/" + one.deck + ".toml", one.overrides);
    const auto stages = deck.get<std::int64_t>("parallel.pipeline");
    for (int stage = 0; stage < stages; ++stage) ranks.push_back(forecast::rank_text(deck, stage));
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
    refusal = error.what();
    ranks.clear();
  }
  return ranks;
}

TEST(programs, are_those_of_the_file) {
  std::ifstream table(kFolder + "cases.txt");
  const std::vector<GoldenCase> cases = read_cases(table);
  ASSERT_FALSE(cases.empty());
  const bool writes = std::getenv("STOWAGE_WRITE_GOLDEN") != nullptr;
  std::ifstream file(kPrograms);
  GoldenPrograms golden = writes ? GoldenPrograms() : GoldenPrograms::read(file);
  std::set<std::string> seen;
  constexpr int kShown = 3;  // cases whose difference is printed
  int differing = 0;
  for (const GoldenCase& one : cases) {
    ASSERT_TRUE(seen.insert(one.key()).second) << one.key() << ": twice in cases.txt";
    std::string refusal;
    const std::vector<forecast::RankText> ranks = planned(one, refusal);
    EXPECT_EQ(refusal, "") << one.key();
    if (writes) {
      golden.add(one, ranks);
      continue;
    }
    const std::string differs = difference(golden, one, ranks);
    if (differs.empty()) continue;
    if (++differing > kShown) {
      ADD_FAILURE() << one.key() << " differs too";
      continue;
    }
    std::string command = "stowage_plan --digest-ops inputs/" + one.deck + ".toml";
    for (const std::string& override : one.overrides) command += " '" + override + '\'';
    ADD_FAILURE() << one.key() << ":\n" << differs << "compare builds by: " << command;
  }
  for (const auto& [key, ranks] : golden.cases)
    EXPECT_TRUE(seen.contains(key)) << key << ": in programs.txt, but not in cases.txt";
  if (!writes || HasFailure()) return;
  std::ofstream out(kPrograms);
  golden.write(out);
  ASSERT_TRUE(out.flush()) << kPrograms;
}

/// Three layers of which one op may be changed.
std::vector<forecast::RankText> small_rank(
    const std::function<void(execution::ProgramText&)>& change, std::string places = "at 0") {
  forecast::RankText::Planned planned{"train", {}, {}};
  for (int layer = 0; layer < 3; ++layer)
    for (const std::string op : {"norm", "fc1"}) {
      const std::string at = "layers." + std::to_string(layer) + ".mlp/";
      planned.program.ops.push_back({at + op, "compute", "write " + at + op, "1 flops", ""});
    }
  change(planned.program);
  planned.plan.places = std::move(places);
  return {{"layout", {planned}}};
}

TEST(programs, the_first_op_that_differs_is_named) {
  const GoldenCase one{"deck", "one", {}};
  GoldenPrograms written;
  written.add(one, small_rank([](auto&) {}));
  std::stringstream file;
  written.write(file);
  const GoldenPrograms golden = GoldenPrograms::read(file);
  const auto said = [&](const auto& change) { return difference(golden, one, small_rank(change)); };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(said([](auto&) {}), "");
  expect(said([](auto& p) { p.ops[3].uses += "(0 to 8)", p.ops[4].cost = "3 flops"; }),
         "op 3 layers.1.mlp/fc1: uses differ");
  expect(said([](auto& p) { p.ops[4].cost = "3 flops"; }), "op 4 layers.2.mlp/norm: cost differ");
  expect(said([](auto& p) { p.ops[5].communication = "sum"; }), "mlp/fc1: communication differ");
  expect(said([](auto& p) { p.ops[0].place = "comm"; }), "mlp/norm: name or place differ");
  expect(said([](auto& p) { p.ops[3].uses = "write layers.0.mlp/fc1"; }), "mlp/fc1: uses differ");
  expect(said([](auto& p) { p.ops.push_back(p.ops[0]); }), "op 6 layers.0.mlp/norm: is new");
  expect(said([](auto& p) { p.ops.pop_back(); }), "the last 1 ops are gone");
  expect(said([](auto& p) { p.sections = "body"; }), "sections");
  expect(difference(golden, one, small_rank([](auto&) {}, "at 8")), "places of the plan differ");
  expect(difference(golden, {"deck", "two", {}}, {}), "is new");
}

}  // namespace
}  // namespace stowage::ctest
