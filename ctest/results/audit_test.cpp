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
       "/series/train/step_time: holds a value that is not finite"},
      {"f['series/train/loss'][7] = float('nan')", "/series/train/loss: holds a loss that is not"},
      {"f['metrics/train/tokens_per_s'][()] *= 1.01", tokens + ": is "},
      {"f['metrics/train/tokens_per_s'].attrs['ci95_low'] *= 1.001", tokens + ": has the interval"},
      {"f['metrics/train/tokens_per_s'][()] = float('nan')", tokens + ": is nan"},
      {"f['metrics/train/tokens_per_s'][()] *= -1", tokens + ": is negative"},
      {"f['config'].attrs['train.seq_length'] = 2048", tokens + ": cannot be recomputed"},
      {"del f['metrics/train/step_time']", "/metrics/train/step_time: is missing"},
      {"del f['samples/train/step_time']", "/samples/train/step_time: is missing"},
      {"f.copy('metrics/train/val_loss', 'metrics/train/new')",
       "/metrics/train/new: no metric of the table"},
      {"f['metrics/train/val_loss'][()] = 2.0", "/metrics/train/val_loss: is 2, its samples say"},
      {"f['metrics/train/val_targets'][()] = 640", "/metrics/train/val_targets: is 640, its"},
      {"f['ceilings/h2d'][0] = 0", "/ceilings/h2d: holds a limit that is not positive"},
      {"f['metrics/train/peak_device_bytes'][()] *= 0.1",
       "/metrics/train/peak_device_bytes: is 100000000, /series/train/mem_device says 1e+09"},
      {"f['metrics/train/transient_bytes'][()] *= 2",
       "/metrics/train/peak_device_bytes: is 1e+09, persistent and transient bytes"},
      {"f['metrics/train/wall_time'][()] *= 0.5", "/metrics/train/wall_time: is "}};
  expect_found(edited(firsts(defects)), defects);
}

TEST_F(audit, what_was_taken_out_is_missed) {
  std::vector<std::pair<std::string, std::string>> defects;
  for (const std::string name :
       {"metrics/train/tokens_per_s", "metrics/train/model_flops_per_s", "metrics/train/loss",
        "metrics/train/val_loss", "metrics/train/val_tokens", "metrics/train/skipped_steps",
        "metrics/train/parameters", "metrics/train/peak_device_bytes", "series/train/grad_norm",
        "series/train/ok"})
    defects.emplace_back(fmt::format("del f['{}']", name), fmt::format("/{}: is missing", name));
  // A claim to be of before 1.7 excuses nothing that was always there.
  defects.emplace_back("f.attrs['schema_version'] = '1.4'; del f['metrics/train/step_time']",
                       "/metrics/train/step_time: is missing");
  expect_found(edited(firsts(defects)), defects);
  const fs::path ceilings = folder / "ceilings.h5", kernels = folder / "kernels.h5";
  test::write_ceilings(ceilings);
  test::write_kernels(kernels, ceilings);
  edit(kernels, "del f['metrics/kernels/scale/n8/ours/pct_ceiling']");
  edit(ceilings, "del f['ceilings/gemm_bf16']");
  const Ran ran = tool("validate", {kernels, ceilings});
  EXPECT_EQ(ran.code, 1) << ran.output;
  expect_line(ran, "/metrics/kernels/scale/n8/ours/pct_ceiling: is missing");
  expect_line(ran, "/ceilings/gemm_bf16: is missing");
  test::expect_error(execution::Exit::usage, {"--ceilings", "positive limits gemm_bf16"},
                     [&] { (void)read_ceilings(ceilings, ""); });
}

TEST_F(audit, quantities_over_steps_are_numbers_that_can_be) {
  const std::vector<std::pair<std::string, std::string>> defects = {
      {"f['series/train/grad_norm'][7] = float('nan')",
       "/series/train/grad_norm: holds a value that is not finite"},
      {"f['series/train/lr'][7] = -1", "/series/train/lr: holds a value that is negative"},
      {"f['series/train/mem_device'][7] = float('inf')",
       "/series/train/mem_device: holds a value that is not finite"},
      {"f['series/train/loss'][7] *= -1", "/series/train/loss: holds a value that is negative"},
      {"f['samples/train/step_time'].attrs['hw_flops'] = float('nan')",
       "/samples/train/step_time: hw_flops is nan"}};
  expect_found(edited(firsts(defects)), defects);
}

TEST_F(audit, provenance_agrees_with_itself) {
  const std::vector<std::pair<std::string, std::string>> defects = {
      {"f['provenance/software'].attrs['git_describe'] = 'v1-dirty'",
       "/provenance/software: git_describe is not that of /"},
      {"f['provenance/run'].attrs['stop'] = '2020-01-01T00:00:00.000Z'",
       "/provenance/run: start, created and stop are "},
      {"f['provenance/run'].attrs['start'] = 'noon'",
       "/provenance/run: start is not a time in UTC"},
      {"f['provenance/run'].attrs['uuid'] = 'x'", "/: uuid is not a uuid, or differs from that of"},
      {"f['provenance/run'].attrs['ranks'] = 3",
       "/provenance/system/ranks: has not one row per rank"},
      {"f['config'].attrs['run.seed'] = 7", "/provenance/run: seed is 1234, run.seed of the deck"}};
  expect_found(edited(firsts(defects)), defects);
}

// An energy is that of the power that the board had in as many seconds.
TEST_F(audit, energy_agrees_with_power) {
  const std::string power =
      "n = len(f['series/train/step']); g = f.create_group('series/gpu'); "
      "g['step'] = f['series/train/step'][()]; g['step'].make_scale('step'); "
      "g['power'] = [300.0] * n; g['power'].dims[0].attach_scale(g['step']); "
      "g['power'].attrs['units'] = 'W'; g['power'].attrs['long_name'] = 'x'; "
      "t = f['series/train/step_time'][()].sum(); f.copy('metrics/train/parameters', "
      "'metrics/energy/j_per_token'); m = f['metrics/energy/j_per_token']; "
      "m.attrs['units'] = 'J'; m.attrs['better'] = 'lower'; m[()] = {} * 2 * 300.0 * t / "
      "(n * 4096)";
  const auto said = [&](double factor) {
    return tool("validate", edited({fmt::format(fmt::runtime(power), factor)}));
  };
  expect_line(said(1.05), "conforms");
  expect_line(said(0.1), "/metrics/energy/j_per_token: makes ");
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
      {"c = f['validation/finite_loss'].attrs; c['high'] = 9.0; c['threshold'] = '<= 9'",
       "/validation/finite_loss: its bound is -inf .. 9, that of this check is "},
      {"f['config'].attrs['validate.val_loss_below'] = 2.15",
       "/validation/val_loss: its bound is -inf .. 2.2, that of this check is -inf .. 2.15"},
      {"f.move('validation/skipped_steps', 'validation/replayed_step'); "
       "c = f['validation/replayed_step'].attrs; c['high'] = 1.0; c['low'] = 0.0; "
       "c['threshold'] = '0..1'",
       "/validation/replayed_step: its bound is 0 .. 1, that of this check is 0 .. 0"},
      {"c = f['validation/skipped_steps'].attrs; c['value'] = -1.0; c['low'] = -float('inf'); "
       "c['threshold'] = '<= 0'",
       "/validation/skipped_steps: value is negative: -1"},
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
      "; f['metrics/train/skipped_steps'][()] = 1; l = f['series/train/loss'][()]"
      "; f['metrics/train/loss'][()] = sum(l[l == l][-5:]) / 5; c = "
      "f['validation/skipped_steps'].attrs"
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
  for (const fs::path& path : {first, same, differs, elsewhere, changed})
    edit(path, "f.attrs['git_describe'] = f['provenance/software'].attrs['git_describe'] = 'v1'");
  edit(elsewhere, "t = f['provenance/system/ranks']; r = t[()]; r['threads'] += 1; t[...] = r");
  edit(changed, "del f['config/numerics_sha256']; f['config/numerics_sha256'] = 'b' * 64");
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
  const fs::path quicker = folder / "quicker.h5";
  test::write_ceilings(quicker, "GPU-1", 8e12);
  edit(quicker, fmt::format("o = h5py.File('{}'); f.attrs['uuid'] = o.attrs['uuid']; "
                            "f['provenance/run'].attrs['uuid'] = o.attrs['uuid']",
                            ceilings.string()));
  expect_line(tool("validate", {kernels, quicker}), "another digest");
  edit(kernels,
       "r = f['provenance/ceilings'].attrs; r['bytes_per_s'] = r['bytes_per_s'] / 1.2; "
       "[n.__setitem__((), n[()] * 1.2) for n in (f['metrics/kernels/scale/n8/ours/pct_ceiling'], "
       "f['metrics/kernels/scale/n8/cublas/pct_ceiling'])]");
  expect_line(tool("validate", {kernels, ceilings}),
              "the device_copy rate that its shares are of is not that of its ceilings");
  test::write_kernels(kernels, ceilings, {.bytes = 2.4e10});
  expect_line(tool("validate", {kernels, ceilings}),
              "scale/n8/cublas is at 150 % of its ceiling (and 1 more rows)");
  test::write_kernels(kernels, ceilings);
  edit(ceilings, "f['samples/ceilings/gemm_bf16/cube'][0] = -1");
  expect_line(tool("validate", {kernels, ceilings}), "are not among the files");
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

TEST_F(audit, errors_of_operators_are_what_was_checked) {
  const fs::path ceilings = folder / "ceilings.h5", kernels = folder / "kernels.h5";
  test::write_ceilings(ceilings);
  const std::string row = "f['samples/kernels/scale/n8/ours'].attrs";
  for (const auto& [statement, message] : std::vector<std::pair<std::string, std::string>>{
           {row + "['error'] = 1e-9", "ours: error is 1e-09, the largest of its results' is 0.001"},
           {"del " + row + "['error.y']", "ours: has an error without the results it is of"},
           {"c = f['validation/scale.n8.ours.y'].attrs; c['high'] = 1.0; c['threshold'] = '<= 1'",
            "/validation/scale.n8.ours.y: 1 is no bound of an operator's error"},
           {"f['config'].attrs['bench.samples'] = 7", "ours: has 50 samples, 7 were made"},
           {row + "['clock_hz'] = -1.0", "ours: clock_hz is -1.0"}}) {
    test::write_kernels(kernels, ceilings);
    edit(kernels, statement);
    expect_line(tool("validate", {kernels}), message);
  }
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

TEST_F(audit, a_forced_load_is_not_official) {
  const std::string reason = "model.moe_router_force_load is zipf";
  EXPECT_EQ(tool("validate", {sample("a.h5")}).output.find(reason), std::string::npos);
  expect_line(
      tool("validate", edited({"f['config'].attrs['model.moe_router_force_load'] = 'zipf'"})),
      reason);
}

TEST_F(audit, losses_are_of_three_seeds) {
  const auto paths =
      edited({"f['provenance/run'].attrs['seed'] = 1",
              "f['provenance/run'].attrs['seed'] = 2; f['series/train/loss'][0] += 1",
              "f['provenance/run'].attrs['seed'] = 2; f['series/train/loss'][0] += 2"});
  expect_line(tool("validate", paths), "and 2 more: the loss is of 2 of 3 seeds: not official");
  const std::string seed = "f['provenance/run'].attrs['seed'] = {0}",
                    losses = "; f['series/train/loss'][0] += {0}";
  const auto with = [](const std::string& edit, int number) {
    return fmt::format(fmt::runtime(edit), number);
  };
  expect_line(tool("validate", edited({with(seed, 1), with(seed, 2), with(seed, 3)})),
              "the loss is of 1 of 3 seeds: not official");  // one run under three names
  const auto third =
      edited({with(seed + losses, 1), with(seed + losses, 2), with(seed + losses, 3)});
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
                             "f['provenance/env'].attrs['UCX_X'] = 'at node17:5000'",
                             "f['provenance/run'].attrs['nodelist'] = 'n7,n8'; "
                             "f['provenance/run'].attrs['argv'] = 'train run.output=n8_a.h5'",
                             "f['provenance/run'].attrs['nodelist'] = 'node17.site.org'; "
                             "f['config'].attrs['run.name'] = 'on NODE17.site.org'",
                             "f['provenance/run'].attrs['nodelist'] = '10.0.0.5,10.0.0.6'; "
                             "f['provenance/env'].attrs['UCX_X'] = 'at 10.0.0.6'",
                             "f.attrs['remark'] = 'see /someone'",
                             "f['metrics/train/step_time'][()] = float('nan')"});
  const fs::path out = folder / "published";
  for (const auto& path : paths) {
    const Ran ran = tool("publish", {path}, "--to " + out.string());
    EXPECT_EQ(ran.code, 2) << ran.output;
    EXPECT_EQ(ran.output.find("Traceback"), std::string::npos) << ran.output;
    EXPECT_TRUE(fs::is_empty(out)) << path;
  }
  const Ran file = tool("publish", {sample("a.h5")}, "--to " + paths[0].string());
  EXPECT_EQ(file.code, 2) << file.output;
  expect_line(file, "File exists");
}

TEST_F(audit, sets_without_what_tools_read_have_no_traceback) {
  const fs::path bare = edited({"del f.attrs['uuid'], f.attrs['driver'], f['provenance']"})[0];
  for (const std::string name : {"validate", "table", "compare", "publish"}) {
    const Ran ran =
        name == "compare"
            ? tool(name, {bare, bare})
            : tool(name, {bare}, name == "publish" ? "--to " + (folder / "out").string() : "");
    EXPECT_EQ(ran.code, name == "validate" ? 1 : 2) << name << "\n" << ran.output;
    EXPECT_EQ(ran.output.find("Traceback"), std::string::npos) << name << "\n" << ran.output;
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
