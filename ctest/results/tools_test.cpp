// The Python tools on files that the C++ writer made: STOWAGE_TOOLS is their folder.
#include <regex>

#include "planted_secrets.hpp"
#include "results/ceilings_reference.hpp"
#include "results/h5.hpp"
#include "tools_fixture.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;
using test::Ran;
using test::tool;
using tools = test::ToolsFixture;

TEST_F(tools, validate_accepts_what_the_writer_writes) {
  Verdict stopped = test::good_verdict();
  stopped.stop();
  Verdict failed;
  failed.add(equal("skipped_steps", 0, 0, "steps"));
  failed.add(at_most("finite_loss", test::loss_at({}, 60), test::kLargest, "loss"));
  failed.add(at_most("finite_val_loss", 2.1, test::kLargest, "loss"));
  failed.add(at_most("val_loss", 2.1, 2, "loss"));
  const Ran ran = tool("validate", {sample("a.h5"), sample("long.h5", {.steps = 20000}),
                                    sample("none.h5", {.steps = 0}), sample("s.h5", {}, stopped),
                                    sample("f.h5", {}, failed)});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("conforms to schema 1.8, VALID"), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("STOPPED"), std::string::npos);
}

TEST_F(tools, validate_finds_each_defect) {
  const std::vector<std::pair<std::string, std::string>> defects = {
      {"f[\"extra\"] = 1", "/extra: not in the schema"},
      {"del f[\"config/deck_resolved\"]", "/config/deck_resolved: is missing"},
      {"f.attrs[\"more\"] = 1", "/: more is not in the schema"},
      {"del f[\"metrics/train/val_loss\"].attrs[\"units\"]",
       "/metrics/train/val_loss: units is missing"},
      {"f[\"metrics/train/tokens_per_s\"].attrs[\"units\"] = \"<script>alert(1)</script>\"",
       "/metrics/train/tokens_per_s: units are '<script>alert(1)</script>', wanted '1/s'"},
      {"f[\"metrics/train/step_time\"].attrs[\"units\"] = \"ms\"",
       "/metrics/train/step_time: units are 'ms', wanted 's'"},
      {"f[\"metrics/train/step_time\"].attrs[\"better\"] = \"higher\"",
       "/metrics/train/step_time: better is 'higher', wanted 'lower'"},
      {"f.move(\"metrics/train/val_loss\", \"metrics/train/more\")",
       "/metrics/train/more: no metric of the tables in metrics.toml"},
      {"f[\"samples/train/step_time\"].attrs[\"units\"] = \"ms\"",
       "/samples/train/step_time: units are 'ms', wanted 's'"},
      {"f[\"series/train/loss\"].attrs[\"units\"] = \"a|b\"",
       "/series/train/loss: units are 'a|b', wanted one of"},
      {"f[\"provenance/run\"].attrs[\"seed\"] = 1.5", "/provenance/run: seed is f64, wanted i64"},
      {"f[\"provenance/env\"].attrs[\"PATH\"] = \"x\"",
       "/provenance/env: PATH is not on the allow-list"},
      {"f[\"validation/val_loss\"].attrs[\"value\"] = 9.0",
       "/validation/val_loss: result contradicts its value"},
      {"del f[\"validation\"]; f.create_group(\"validation\")",
       "/: verdict is VALID, the checks say INVALID"},
      {"f[\"series/train/step\"][3] = 3", "/series/train/step: the scale does not increase"},
      {"f[\"series/train/x\"] = [1.0]", "/series/train/x: units is missing"}};
  std::vector<std::string> edits;
  for (const auto& defect : defects) edits.push_back(defect.first);
  const auto paths = edited(edits);
  const Ran ran = tool("validate", paths);
  EXPECT_EQ(ran.code, 1) << ran.output;
  for (std::size_t i = 0; i < defects.size(); ++i)
    EXPECT_NE(ran.output.find(paths[i].string() + ": " + defects[i].second), std::string::npos)
        << edits[i] << "\n"
        << ran.output;
  EXPECT_EQ(ran.output.find("conforms"), std::string::npos) << ran.output;
}

TEST_F(tools, every_tool_refuses_files_that_are_not_ours) {
  test::write_all(folder / "text.h5", "hello");
  h5::File::create(folder / "other.h5").close();
  test::truncate_to_half(sample("cut.h5"));
  const fs::path damaged = sample("damaged.h5", {.steps = 20000});
  {  // a run of bytes in the middle, where the compressed samples and series lie
    std::string bytes = test::read_all(damaged);
    for (std::size_t i = bytes.size() / 4; i < bytes.size() * 3 / 4; i += 100) bytes[i] ^= 1;
    test::write_all(damaged, bytes);
  }
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"text.h5", "not an HDF5 file"},
      {"other.h5", "not a stowage-result file"},
      {"cut.h5", "truncated"},
      {"none.h5", "no such file"},
      {"damaged.h5", "damaged.h5"}};
  const fs::path good = sample("good.h5", {.steps = 20000});
  for (const auto& [name, message] : cases)
    for (const std::string command : {"validate", "plot", "compare"}) {
      std::vector<fs::path> files = {folder / name};
      if (command == "compare") files.push_back(good);
      const Ran ran = tool(command, files);
      EXPECT_EQ(ran.code, 2) << command << " " << name << "\n" << ran.output;
      EXPECT_NE(ran.output.find(message), std::string::npos) << command << "\n" << ran.output;
      EXPECT_EQ(ran.output.find("Traceback"), std::string::npos) << command << "\n" << ran.output;
    }
}

// Of an older set too, whose writer took more variables.
TEST_F(tools, published_copies_hold_no_secret) {
  test::plant_secrets();
  const fs::path path = edited(
      {fmt::format("f['provenance/env'].attrs.update(dict(NCCL_AUTH='{0}', UCX_psk='{0}', "
                   "STOWAGE_PASS='{0}', NCCL_NET='user:{0}@host', OMPI_MCA_orte_hnp_uri='{0}'))",
                   test::kSecret)})[0];
  const Ran ran = tool("publish", {path}, "--to " + (folder / "out").string());
  EXPECT_EQ(ran.code, 0) << ran.output;
  const std::string bytes = test::read_all(folder / "out" / path.filename());
  EXPECT_NE(bytes.find("OMP_SCHEDULE"), std::string::npos);
  EXPECT_EQ(bytes.find(test::kSecret), std::string::npos);
}

// What the programs read of a set of somebody else: `--from`, `--ceilings` and `--links`.
TEST_F(tools, programs_read_what_lies_in_the_file_itself) {
  test::write_all(folder / "secret", "[run]\nname = 'of somebody'\n");
  const std::string deck = "d = 'config/deck_resolved'; del f[d]; ";
  const std::string other = sample("other.h5").string();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {deck + fmt::format("f.create_dataset(d, (1,), 'S24', external=[('{}', 0, 24)])",
                          (folder / "secret").string()),
       "lie elsewhere"},
      {deck + "f['config/x'] = 'a'; f[d] = h5py.SoftLink('/config/x')", "soft or an external link"},
      {deck + fmt::format("f[d] = h5py.ExternalLink('{}', '/config/deck_resolved')", other),
       "soft or an external link"},
      {fmt::format("del f['config']; f['config'] = h5py.ExternalLink('{}', '/config')", other),
       "soft or an external link"},
      {deck + "f.create_group(d)", "damaged"},
      {deck + "f[d] = [1.0, 2.0]", "not a text of ours"},
      {"f.create_dataset('ceilings/x', (5000000000,), 'f8', chunks=(4096,))", "more than"},
      {"g = f.require_group('ceilings'); g['x'] = g", "deep"},
      {fmt::format("f['ceilings/x'] = h5py.ExternalLink('{}', '/config/deck_resolved')", other),
       "soft or an external link"},
      {"f['ceilings/x'] = 'text'", "damaged"}};
  std::vector<std::string> edits;
  for (const auto& one : cases) edits.push_back(one.first);
  const auto paths = edited(edits);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(edits[i]);
    test::expect_error(execution::Exit::usage, {paths[i].string(), cases[i].second}, [&] {
      (void)read_config(paths[i]);
      (void)ceilings_digest(paths[i]);
    });
  }
}

TEST_F(tools, numbers_of_another_shape_are_no_value) {
  const fs::path path = edited({"f['a'] = [[1.0, 2.0], [3.0, 4.0]]; f['b'] = 5.0"})[0];
  const h5::File file = h5::File::open(path, kResultSchema);
  EXPECT_EQ(file.dataset("a").values(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(file.dataset("b").value(), 5);
  test::expect_error(execution::Exit::usage, {"edited0.h5", "4 values, wanted one"},
                     [&] { (void)file.dataset("a").value(); });
}

TEST_F(tools, unfinished_results_are_not_compared) {
  const fs::path part = edited({"f.attrs['verdict'] = 'UNFINISHED'"})[0];
  EXPECT_EQ(tool("compare", {part, part}).code, 2);
  EXPECT_EQ(tool("validate", {part}).code, 2);
  EXPECT_EQ(tool("plot", {part}).code, 0) << "a look at a run that failed";
}

TEST_F(tools, plot_writes_an_image) {
  const Ran ran = tool("plot", {sample("a.h5"), sample("b.h5", {.step_time_s = 1})});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(test::read_all(folder / "a.png").substr(1, 3), "PNG");
  EXPECT_EQ(tool("plot", {sample("empty.h5", {.steps = 0})}).code, 0);
  const Ran refused =
      tool("plot", {sample("a.h5")}, fmt::format("--out {}", (folder / "no/a.png").string()));
  EXPECT_EQ(refused.code, 2) << refused.output;
}

// The noise is 2 % of 60 samples: the median has a standard error of 1.253 * 0.02 / sqrt(60), the
// ratio of two one of 0.0046; five times that is allowed.
TEST_F(tools, compare_tells_same_faster_and_slower) {
  struct Case {
    double ratio;
    std::string word;
    int code;
  };
  const fs::path base = sample("base.h5", {.step_time_s = 0.5, .seed = 1});
  for (const Case& wanted :
       {Case{1.0, "same", 0}, Case{1.1, "slower", 1}, Case{0.9, "faster", 0}}) {
    const fs::path other = sample("other.h5", {.step_time_s = 0.5 * wanted.ratio, .seed = 2});
    const Ran ran = tool("compare", {base, other}, "--tolerance 0.02");
    EXPECT_EQ(ran.code, wanted.code) << ran.output;
    const std::regex line(R"(train/step_time +(\w+) +B/A = ([\d.]+)  \[([\d.]+), ([\d.]+)\])");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(ran.output, found, line)) << ran.output;
    EXPECT_EQ(found[1], wanted.word);
    EXPECT_NEAR(std::stod(found[2]), wanted.ratio, 5 * 0.0046);
    EXPECT_LT(std::stod(found[3]), std::stod(found[2]));
    EXPECT_GT(std::stod(found[4]), std::stod(found[2]));
  }
}

TEST_F(tools, compare_names_the_first_step_that_differs) {
  const fs::path base = sample("a.h5", {.seed = 1});
  const Ran equal = tool("compare", {base, sample("b.h5", {.seed = 1})}, "--equal-loss");
  EXPECT_EQ(equal.code, 0) << equal.output;
  EXPECT_NE(equal.output.find("equal to the bit at all 60 common steps"), std::string::npos);
  const Ran other = tool("compare", {base, sample("c.h5", {.differs_from = 23})}, "--equal-loss");
  EXPECT_EQ(other.code, 1) << other.output;
  EXPECT_NE(other.output.find("train/loss                       differs first at step 23"),
            std::string::npos)
      << other.output;
}

TEST_F(tools, series_have_their_step_as_a_dimension_scale) {
  const fs::path path = sample("a.h5");
  test::write_all(folder / "look.py",
                  "import h5py, sys\n"
                  "f = h5py.File(sys.argv[1])\n"
                  "loss = f['series/train/val_loss']\n"
                  "scale = loss.dims[0][0]\n"
                  "print(scale[()].tolist(), scale.name, h5py.h5ds.is_scale(scale.id),\n"
                  "      h5py.h5ds.is_attached(loss.id, scale.id, 0))\n"
                  "print(f['series/train/step'].attrs['REFERENCE_LIST'].shape)\n");
  const Ran ran = test::python({folder / "look.py", path});
  EXPECT_EQ(ran.output, "[20, 40, 60] /series/train/val_step True True\n(6,)\n");
}

TEST_F(tools, text_that_another_program_stored_as_ascii_is_read) {
  const std::vector<fs::path> paths = edited(
      {"fixed = h5py.string_dtype(\"ascii\", 5); f.create_dataset(\"kept\", data=b\"plain\", "
       "dtype=fixed); f.attrs.create(\"fixed\", b\"plain\", dtype=fixed); "
       "f.attrs.create(\"free\", b\"plain\", dtype=h5py.string_dtype(\"ascii\"))"});
  const h5::File file = h5::File::open(paths.front(), kResultSchema);
  EXPECT_EQ(file.read_text("kept"), "plain");
  for (const char* name : {"fixed", "free"})
    EXPECT_EQ(file.attribute(name), Value(std::string("plain"))) << name;
}

}  // namespace
}  // namespace stowage::results
