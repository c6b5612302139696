// What an auditor would try: sets that were changed by hand, at the points where that would pay.
#include "results/ceilings_reference.hpp"
#include "results/h5.hpp"
#include "tools_fixture.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;
using audit = test::ToolsFixture;
using test::Ran;
using test::tool;

void expect_line(const Ran& ran, const std::string& words) {
  EXPECT_NE(ran.output.find(words), std::string::npos) << "wanted: " << words << "\n" << ran.output;
}

// One edit of a file, and what is said of it.
void expect_found(const std::vector<fs::path>& paths,
                  const std::vector<std::pair<std::string, std::string>>& defects) {
  const Ran ran = tool("validate", paths);
  EXPECT_EQ(ran.code, 1) << ran.output;
  for (std::size_t i = 0; i < defects.size(); ++i)
    expect_line(ran, paths[i].string() + ": " + defects[i].second);
  EXPECT_EQ(ran.output.find("conforms"), std::string::npos) << ran.output;
}

template <class Pairs>
std::vector<std::string> firsts(const Pairs& pairs) {
  std::vector<std::string> made;
  for (const auto& pair : pairs) made.push_back(pair.first);
  return made;
}

TEST_F(audit, figures_follow_from_samples) {
  const std::string times = "f['samples/train/step_time']", tokens = "/metrics/train/tokens_per_s";
  const std::vector<std::pair<std::string, std::string>> defects = {
      {times + "[7] = float('nan')", "/samples/train/step_time: holds a time that is not finite"},
      {times + "[7] = -1", "/samples/train/step_time: holds a time that is not positive"},
      {times + ".resize((59,))", "/metrics/train/step_time: is the median of 60, there are 59"},
      {times + "[:] = 0.9 * " + times + "[:]",
       "/samples/train/step_time: are not steps of /series/train/step_time"},
      {"f['series/train/step_time'][7] = float('nan')",
       "/series/train/step_time: holds a time that is not finite"},
      {"f['series/train/loss'][7] = float('nan')", "/series/train/loss: holds a loss that is not"},
      {"f['metrics/train/tokens_per_s'][()] *= 1.01", tokens + ": is "},
      {"f['metrics/train/tokens_per_s'].attrs['ci95_low'] *= 1.001", tokens + ": has the interval"},
      {"f['metrics/train/tokens_per_s'][()] = float('nan')", tokens + ": is nan"},
      {"f['metrics/train/tokens_per_s'][()] *= -1", tokens + ": is negative"},
      {"f['config'].attrs['train.seq_length'] = 2048", tokens + ": is "},
      {"del f['metrics/train/step_time']", "/metrics/train/step_time: is missing"},
      {"del f['samples/train/step_time']", "/metrics/train/step_time: cannot be recomputed"},
      {"f.copy('metrics/train/val_loss', 'metrics/train/new')", "/metrics/train/new: no rule says"},
      {"f['metrics/train/val_loss'][()] = 2.0", "/metrics/train/val_loss: is 2, its samples say"},
      {"f['ceilings/h2d'][0] = 0", "/ceilings/h2d: holds a limit that is not positive"}};
  expect_found(edited(firsts(defects)), defects);
}

TEST_F(audit, checks_follow_from_what_was_measured) {
  const std::string check = "f['validation/val_loss'].attrs";
  const std::vector<std::pair<std::string, std::string>> defects = {
      {check + "['value'] = 1.5", "/validation/val_loss: value is 1.5, the samples and series say"},
      {check + "['high'] = 9.0", "/validation/val_loss: threshold <= 2.2 is not -inf .. 9.0"},
      {"f.move('validation/val_loss', 'x'); f.move('validation/finite_loss', 'validation/val_loss')"
       "; f.move('x', 'validation/finite_loss')",
       "/validation/finite_loss: value is 2.1, the samples and series say"},
      {"del f['validation/skipped_steps']", "/validation/skipped_steps: is missing"},
      {"del f['validation/val_loss']; f['config'].attrs['validate.val_loss_below'] = 2.2",
       "/validation/val_loss: is missing"},
      {"f['config'].attrs['validate.finite_differences'] = 'on'",
       "/validation/gradients: is missing"},
      {"f['config'].attrs['validate.replayed_step'] = True",
       "/validation/replayed_step: is missing"},
      {"del f['config/deck_resolved']; f['config/deck_resolved'] = "
       "'[run]\\n\\n[expects]\\nloss_at_7 = [1.0, 9.0]\\nloss_at_70 = [1.0, 9.0]\\n'",
       "/validation/loss_at_7: is missing"}};
  expect_found(edited(firsts(defects)), defects);
}

TEST_F(audit, training_without_its_checks_is_not_official) {
  const Ran ran = tool("validate", {sample("a.h5")});
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_line(ran, "no gradients were compared with finite differences");
  expect_line(ran, "its first step was not done twice");
}

TEST_F(audit, a_skipped_step_needs_no_finite_loss) {
  const std::string skipped =
      "f['series/train/ok'][{0}] = 0; f['series/train/loss'][{0}] = float('nan')"
      "; f['metrics/train/skipped_steps'][()] = 1; c = f['validation/skipped_steps'].attrs"
      "; c['value'] = 1.0; c['low'] = -float('inf'); c['high'] = 1.0; c['threshold'] = '<= 1'";
  const std::string middle = fmt::format(fmt::runtime(skipped), 7);
  const std::vector<fs::path> good = edited({middle});
  const Ran ran = tool("validate", good);
  EXPECT_EQ(ran.code, 0) << ran.output;
  const Ran same = tool("compare", {good[0], good[0]}, "--equal-loss");
  EXPECT_EQ(same.code, 0) << same.output;
  expect_line(same, "equal to the bit at all 60 common steps");
  const std::vector<std::pair<std::string, std::string>> defects = {
      {middle + "; f['series/train/loss'][8] = float('nan')",
       "/series/train/loss: holds a loss that is not finite"},
      {middle + "; f['metrics/train/skipped_steps'][()] = 0", "/metrics/train/skipped_steps: is 0"},
      {middle + "; c['value'] = 0.0", "/validation/skipped_steps: value is 0, "},
      {fmt::format(fmt::runtime(skipped), 59), "/validation/finite_loss: value is "}};
  expect_found(edited(firsts(defects)), defects);
}

TEST_F(audit, states_are_there_and_whole) {
  const std::string state = "f['validation/state_digest']";
  const std::vector<std::pair<std::string, std::string>> defects = {
      {"del " + state, "/validation/state_digest: is missing"},
      {state + "[0] = (60, b'0123')", "/validation/state_digest: 0123 of step 60 is no digest"},
      {state + "[0] = (59, " + state + "[0][1])",
       "/validation/state_digest: ends at step 59, the losses at 60"}};
  expect_found(edited(firsts(defects)), defects);
}

// Tests are built from any state of the source: the sets say that it was a committed one.
TEST_F(audit, sets_that_contradict_each_other_are_named) {
  const std::string other(32, '7');
  const fs::path first = sample("first.h5"), same = sample("same.h5"),
                 differs = sample("differs.h5", {.state = other}),
                 elsewhere = sample("elsewhere.h5", {.state = other}),
                 changed = sample("changed.h5", {.state = other});
  std::string script = "import h5py\n";
  for (const fs::path& path : {first, same, differs, elsewhere, changed})
    script += fmt::format("h5py.File('{}', 'r+').attrs['git_describe'] = 'v1'\n", path.string());
  script += fmt::format(
      "f = h5py.File('{}', 'r+')\nt = f['provenance/system/ranks']\nr = t[()]\n"
      "r['threads'] += 1\nt[...] = r\nf.close()\n"
      "f = h5py.File('{}', 'r+')\ndel f['config/numerics_sha256']\n"
      "f['config/numerics_sha256'] = 'b' * 64\n",
      elsewhere.string(), changed.string());
  test::write_all(folder / "edit.py", script);
  const Ran edit = test::run_command(test::python({folder / "edit.py"}));
  ASSERT_EQ(edit.code, 0) << edit.output;
  const Ran agree = tool("validate", {first, same, elsewhere, changed});
  EXPECT_EQ(agree.code, 0) << agree.output;
  const Ran ran = tool("validate", {first, same, elsewhere, changed, differs});
  EXPECT_EQ(ran.code, 1) << ran.output;
  expect_line(ran, differs.string() + ": after step 60 its state is not that of " + first.string());
  EXPECT_EQ(ran.output.find(elsewhere.string() + ": after"), std::string::npos) << ran.output;
  EXPECT_EQ(tool("compare", {first, same}, "--equal-state").code, 0);
  const Ran compared = tool("compare", {first, differs}, "--equal-state");
  EXPECT_EQ(compared.code, 1) << compared.output;
  expect_line(compared, "differs first after step 60 of those digested, though the decks compute");
}

TEST_F(audit, shares_are_of_the_ceilings_that_are_named) {
  const fs::path ceilings = folder / "ceilings.h5", kernels = folder / "kernels.h5";
  test::write_ceilings(ceilings);
  test::write_kernels(kernels, ceilings);
  const Ran both = tool("validate", {kernels, ceilings});
  EXPECT_EQ(both.code, 0) << both.output;
  // Tests are built from any state, official or not: the source is the one reason that may be left.
  EXPECT_EQ(both.output.find("ceilings are"), std::string::npos) << both.output;
  EXPECT_EQ(both.output.find("checked"), std::string::npos) << both.output;
  expect_line(tool("validate", {kernels}), "are not among the files");
  // Other limits under the same identity: the digest tells.
  test::run_command(test::python({"-c"}) + " \"import h5py; f = h5py.File('" + ceilings.string() +
                    "', 'r+'); f['ceilings/gemm_bf16'][0] *= 2\"");
  expect_line(tool("validate", {kernels, ceilings}), "another digest");
  test::write_kernels(folder / "far.h5", ceilings, {.gpu_uuid = "GPU-2"});
  expect_line(tool("validate", {folder / "far.h5"}), "its ceilings are another board's");
}

TEST_F(audit, official_kernels_have_samples_time_and_checks) {
  const fs::path ceilings = folder / "ceilings.h5";
  test::write_ceilings(ceilings);
  const auto said = [&](const test::SampleKernel& kernel) {
    test::write_kernels(folder / "kernels.h5", ceilings, kernel);
    return tool("validate", {folder / "kernels.h5", ceilings});
  };
  expect_line(said({.samples = 20}), "scale/n8/cublas: 20 samples < 30 (and 1 more rows)");
  expect_line(said({.bytes = 2e7, .time_s = 1e-5}), "timed for 0.0005 s < 0.001 s");
  expect_line(said({.checked = false}), "scale/n8/ours is not checked");
}

// The page is made of what validates, says who made a peer, and marks a rate above its ceiling.
TEST_F(audit, tables_name_peers_and_mark_what_cannot_be) {
  const fs::path ceilings = folder / "ceilings.h5", kernels = folder / "kernels.h5";
  test::write_ceilings(ceilings);
  test::write_kernels(kernels, ceilings, {.checked = false});
  const Ran plain = tool("table", {kernels});
  EXPECT_EQ(plain.code, 0) << plain.output;
  expect_line(plain, "| scale | n8 | ours |  | not checked | 2000 |");
  expect_line(plain, "| cublas | cuBLASLt 13.1, first of its heuristics | 2.0e-03 | 4000 |");
  expect_line(plain, "| 50.0 % |");
  // One expert has all rows, and the cost counts the weights of all: thrice the copy rate.
  test::write_kernels(folder / "above.h5", ceilings, {.bytes = 2.4e10});
  expect_line(tool("table", {folder / "above.h5"}), "| ERROR: 300 % |");
  for (const std::string edit :
       {"f['samples/train/step_time'][7] = float('nan')", "del f['samples/train/step_time']",
        "del f['config'].attrs['train.seq_length']", "del f['series/train/loss']",
        "f['metrics/train/step_time'][()] = 1", "del f['provenance/system/ranks']"}) {
    const Ran ran = tool("table", edited({edit}));
    EXPECT_EQ(ran.code, 2) << edit << "\n" << ran.output;
    EXPECT_EQ(ran.output.find("Traceback"), std::string::npos) << edit << "\n" << ran.output;
  }
}

TEST_F(audit, tables_of_sets_without_what_they_show_have_no_traceback) {
  const Ran ran = tool("table", {sample("a.h5")});  // its deck has few keys
  EXPECT_EQ(ran.code, 2) << ran.output;
  expect_line(ran, "a.h5: /config has no run.name");
  EXPECT_EQ(ran.output.find("Traceback"), std::string::npos) << ran.output;
}

TEST_F(audit, intervals_of_few_samples_are_not_printed) {
  test::write_sample(folder / "few.h5", {.steps = 5});
  const h5::File file = h5::File::open(folder / "few.h5", kResultSchema);
  const auto low = file.dataset("metrics/train/step_time").attribute("ci95_low");
  EXPECT_TRUE(std::isnan(std::get<double>(low.value())));
}

TEST_F(audit, other_work_is_not_compared) {
  const fs::path base = sample("base.h5");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"f['config'].attrs['model.pattern'] = 'M'", "model.pattern is M*-E and M"},
      {"f['config'].attrs['train.seq_length'] = 2048", "train.seq_length is 1024 and 2048"},
      {"f.attrs['driver'] = 'bench_offload'", "is of train"},
      {"f['samples/train/step_time'][7] = float('nan')", "samples/train/step_time holds a value"},
      {"f['series/train/loss'][7] = float('nan')", "series/train/loss holds a value that is not"}};
  for (const auto& [edit, message] : cases) {
    const Ran ran = tool("compare", {base, edited({edit})[0]});
    EXPECT_EQ(ran.code, 2) << edit << "\n" << ran.output;
    expect_line(ran, message);
  }
}

TEST_F(audit, a_forced_load_is_not_official) {
  const std::string reason = "model.moe_router_force_load is zipf";
  EXPECT_EQ(tool("validate", {sample("a.h5")}).output.find(reason), std::string::npos);
  expect_line(
      tool("validate", edited({"f['config'].attrs['model.moe_router_force_load'] = 'zipf'"})),
      reason);
}

TEST_F(audit, losses_are_of_three_seeds) {
  const auto paths =
      edited({"f['provenance/run'].attrs['seed'] = 1", "f['provenance/run'].attrs['seed'] = 2",
              "f['provenance/run'].attrs['seed'] = 2"});
  expect_line(tool("validate", paths), "and 2 more: the loss is of 2 of 3 seeds: not official");
  const auto third =
      edited({"f['provenance/run'].attrs['seed'] = 1", "f['provenance/run'].attrs['seed'] = 2",
              "f['provenance/run'].attrs['seed'] = 3"});
  const Ran ran = tool("validate", third);
  EXPECT_EQ(ran.output.find("seeds"), std::string::npos) << ran.output;
}

// Names are neither in a text of the copy nor in bytes that HDF5 has left over.
TEST_F(audit, published_copies_do_not_name_the_machine) {
  const fs::path path = edited(
      {"r = f['provenance/system/ranks'][()]; r = r.astype([(n, 'S99' if n in ('host', 'gpu_uuid', "
       "'nics') else r.dtype[n]) for n in r.dtype.names]); r['host'] = b'secretnode17'; "
       "r['gpu_uuid'] = b'GPU-1234-5678'; del f['provenance/system/ranks']; "
       "r['nics'] = b'mlx5_0 0000:3c:00.0 fabric 0 PIX, enx0250a1b2c3d4 0000:02:00.0 ethernet - "
       "-'; "
       "del f['provenance/system/links']; f['provenance/system/links'] = "
       "[b'  NIC0: mlx5_0 (fabric) at 0000:3c:00.0', b'  NIC1: enx0250a1b2c3d4 (Ethernet) at 0']; "
       "f['provenance/system/ranks'] = r; "
       "f['provenance/run'].attrs['nodelist'] = 'secretlist[1-4]'; "
       "f['provenance/run'].attrs['slurm_job_id'] = '998877'; "
       "f['provenance/env'].attrs['PMIX_HOSTNAME'] = 'secretnode17'"})[0];
  const fs::path out = folder / "published";
  const Ran ran = tool("publish", {path}, "--to " + out.string());
  EXPECT_EQ(ran.code, 0) << ran.output;
  const std::string bytes = test::read_all(out / path.filename().string());
  for (const char* name : {"secretnode17", "secretlist", "998877", "GPU-1234", "PMIX_HOSTNAME",
                           "mlx5_0", "0250a1b2c3d4"})
    EXPECT_EQ(bytes.find(name), std::string::npos) << name;
  for (const char* kept : {"nic0 0000:3c:00.0 fabric 0 PIX, nic1 0000:02:00.0 ethernet - -",
                           "NIC0: nic0 (fabric)", "NIC1: nic1 (Ethernet)"})
    EXPECT_NE(bytes.find(kept), std::string::npos) << kept;
  const Ran valid = tool("validate", {out / path.filename().string()});
  EXPECT_EQ(valid.code, 0) << valid.output;
  EXPECT_EQ(ceilings_digest(path), ceilings_digest(out / path.filename().string()));
}

TEST_F(audit, what_cannot_be_cleared_leaves_no_copy) {
  const auto paths = edited({"del f['provenance/env']", "f.attrs['remark'] = 'in /opt/someone/run'",
                             "f['provenance/run'].attrs['nodelist'] = 'node17'; "
                             "f['provenance/env'].attrs['UCX_X'] = 'at node17:5000'"});
  const fs::path out = folder / "published";
  for (const auto& path : paths) {
    const Ran ran = tool("publish", {path}, "--to " + out.string());
    EXPECT_EQ(ran.code, 2) << ran.output;
    EXPECT_EQ(ran.output.find("Traceback"), std::string::npos) << ran.output;
    EXPECT_TRUE(fs::is_empty(out)) << path;
  }
}

// One page without a file beside it, of files and folders; refused for what does not conform.
TEST_F(audit, reports_are_one_page_of_what_conforms) {
  const fs::path sets = folder / "sets", page = folder / "page.html";
  test::write_ceilings(sets / "ceilings.h5");
  test::write_kernels(sets / "kernels.h5", sets / "ceilings.h5", {.bytes = 2.4e10});
  const Ran ran = tool("report", {page, sets, sets / "kernels.h5"});
  EXPECT_EQ(ran.code, 0) << ran.output;
  const std::string made = test::read_all(page);
  for (const char* words : {"<h2>Limits of the machine</h2>", "<h2>Kernels</h2>", "<svg", "<style>",
                            "td class=\"wrong\">ERROR: 300 %", "cuBLASLt 13.1"})
    EXPECT_NE(made.find(words), std::string::npos) << words;
  for (const char* words : {"src=", "href=\"http", "@import", "url("})
    EXPECT_EQ(made.find(words), std::string::npos) << words;
  fs::create_directory(folder / "empty");
  for (const auto& wrong : {folder / "empty", folder / "none.h5",
                            edited({"f['metrics/train/tokens_per_s'][()] *= 2"})[0]}) {
    const Ran refused = tool("report", {folder / "no.html", wrong});
    EXPECT_EQ(refused.code, 2) << refused.output;
    EXPECT_FALSE(fs::exists(folder / "no.html"));
  }
}

}  // namespace
}  // namespace stowage::results
