// A new metric is a row of a file (toy_metrics.toml) and the line that records it. The registry of
// this program is made of that file too, and takes the place of the library's.
#include "tools_fixture.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;
using toy_metric = test::ToolsFixture;
using test::Ran;

Ran validate(const fs::path& set) {
  const fs::path script = fs::path(STOWAGE_TOY).parent_path() / "toy_validate.py";
  return test::python({script, STOWAGE_TOOLS, STOWAGE_TOY, set});
}

fs::path write_toys(const fs::path& path) {
  ResultSet set(path, test::sample_header());
  test::fill(set, {});
  const std::vector<double> times = {1, 2, 3, 4, 5, 6, 7};
  set.add(Samples{"toy/duck", times, 1, {{"toys", 8.0}}});
  set.add(rate_metric("toy/duck/rate", 8, summarize(times)));
  set.finish(test::good_verdict());
  return path;
}

TEST_F(toy_metric, has_its_unit_and_is_computed_again) {
  const Ran ran = validate(write_toys(folder / "a.h5"));
  EXPECT_EQ(ran.code, 0) << ran.output;
}

TEST_F(toy_metric, is_refused_where_its_row_is_not_kept) {
  const std::string toy = "/metrics/toy/duck/rate", in_file = "f['metrics/toy/duck/rate']";
  for (const auto& [edit_of, said] : std::vector<std::pair<std::string, std::string>>{
           {in_file + "[()] *= 1.01", toy + ": is 2.02, its samples say 2"},
           {in_file + ".attrs['ci95_low'] = 0.1", toy + ": has the interval 0.1 .. "},
           {in_file + "[()] *= -1", toy + ": is negative"},
           {in_file + ".attrs['units'] = 's'", toy + ": units are 's', wanted '1/s'"},
           {"del " + in_file, toy + ": is missing"},
           {"del f['samples/toy/duck'].attrs['toys']", toy + ": cannot be recomputed"},
           {"f.move('samples/toy/duck', 'samples/toy/one/duck')",
            "/samples/toy/one/duck: no metric follows from it"}}) {
    const fs::path set = write_toys(folder / "a.h5");
    edit(set, edit_of);
    const Ran ran = validate(set);
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_NE(ran.output.find(said), std::string::npos) << said << "\n" << ran.output;
  }
}

TEST_F(toy_metric, is_unknown_without_its_row) {
  const Ran ran = test::tool("validate", {write_toys(folder / "a.h5")});
  EXPECT_NE(ran.output.find("/metrics/toy/duck/rate: no metric"), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace stowage::results
