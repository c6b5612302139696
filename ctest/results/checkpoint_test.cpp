#include "results/checkpoint.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>

#include "checkpoint_support.hpp"
#include "ctest/support/seed.hpp"
#include "results/checkpoint_directory.hpp"
#include "results/h5.hpp"
#include "results/part_file.hpp"
#include "results/seal.hpp"
#include "scratch_folder.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;
using execution::Dtype;
using execution::Exit;
using test::expect_error;
using test::from_memory;
using test::save_checkpoint;
using test::ScratchFolder;
using test::to_memory;

/// Tensors with random bits: NaNs, infinities and denormals must come back as they are.
class Model {
 public:
  explicit Model(std::uint64_t seed) : generator_(seed) {
    add({"layers.0.mamba.in_proj.weight", Dtype::bf16, {300, 64}});
    add({"layers.0.mamba.in_proj.weight.master", Dtype::fp32, {300, 64}});
    add({"layers.1.moe.experts.fc1.weight", Dtype::fp32, {4, 96, 3000}});  // 4.4 MiB: 5 chunks
    add({"layers.1.moe.expert_bias", Dtype::fp32, {4}});
    add({"state/tokens", Dtype::int64, {}});
    add({"state/empty", Dtype::fp32, {0, 3}});
    add({"embedding", Dtype::fp64, {17, 5}});
    add({"mask", Dtype::uint8, {1001}});
    add({"counts", Dtype::int32, {7}});
  }

  std::vector<TensorSource> sources() const {
    std::vector<TensorSource> list;
    for (std::size_t i = 0; i < specs.size(); ++i)
      list.push_back(from_memory(specs[i], bytes[i].data()));
    return list;
  }

  std::vector<TensorTarget> targets() {
    std::vector<TensorTarget> list;
    for (std::size_t i = 0; i < specs.size(); ++i)
      list.push_back(to_memory(specs[i], bytes[i].data()));
    return list;
  }

  void poison() {
    for (auto& buffer : bytes) std::fill(buffer.begin(), buffer.end(), std::byte{0xA5});
  }

  std::vector<TensorSpec> specs;
  std::vector<std::vector<std::byte>> bytes;

 private:
  void add(TensorSpec spec) {
    std::vector<std::byte> buffer(spec.bytes());
    for (auto& byte : buffer) byte = static_cast<std::byte>(generator_() & 0xffU);
    specs.push_back(std::move(spec));
    bytes.push_back(std::move(buffer));
  }

  std::mt19937_64 generator_;
};

CheckpointState state_at(std::int64_t step) {
  return {.step = step,
          .values = {{"loader.epoch", std::int64_t{2}},
                     {"loader.position", std::int64_t{1} << 40},
                     {"data.digest", std::string("0123")}},
          .deck = "[train]\n"};
}

TEST(checkpoint, comes_back_to_the_bit) {
  const ScratchFolder folder;
  Model model(ctest::seed());
  const auto saved = model.bytes;
  const auto bytes = save_checkpoint(folder / "a.h5", state_at(7), model.sources());
  EXPECT_EQ(bytes, static_cast<std::int64_t>(fs::file_size(folder / "a.h5")));
  EXPECT_FALSE(fs::exists(folder / "a.h5.part"));
  model.poison();
  const Checkpoint file(folder / "a.h5");
  file.load(model.targets());
  EXPECT_EQ(model.bytes, saved);
  EXPECT_EQ(file.state().step, 7);
  EXPECT_EQ(integer_value(file.state(), "loader.position"), std::int64_t{1} << 40);
  EXPECT_EQ(text_value(file.state(), "data.digest"), "0123");
  EXPECT_EQ(file.state().deck, "[train]\n");
  EXPECT_EQ(file.tensors().size(), model.specs.size());
}

TEST(checkpoint, order_of_tensors_does_not_matter) {
  const ScratchFolder folder;
  Model model(1);
  const auto saved = model.bytes;
  save_checkpoint(folder / "a.h5", state_at(1), model.sources());
  model.poison();
  auto targets = model.targets();
  std::reverse(targets.begin(), targets.end());
  Checkpoint(folder / "a.h5").load(targets);
  EXPECT_EQ(model.bytes, saved);
}

TEST(checkpoint, sources_are_read_in_order_and_in_pieces) {
  const ScratchFolder folder;
  const TensorSpec spec{"big", Dtype::fp32, {3000, 1024}};  // 11.7 MiB
  std::size_t next = 0;
  std::size_t largest = 0;
  const TensorSource source{spec, [&](std::size_t offset, std::span<std::byte> to) {
                              EXPECT_EQ(offset, next);
                              next += to.size();
                              largest = std::max(largest, to.size());
                              std::fill(to.begin(), to.end(), std::byte{1});
                            }};
  save_checkpoint(folder / "a.h5", state_at(1), std::span(&source, 1));
  EXPECT_EQ(next, spec.bytes());
  EXPECT_LE(largest, std::size_t{4} << 20);
}

TEST(checkpoint, mismatches_name_file_and_tensor_and_load_nothing) {
  const ScratchFolder folder;
  Model model(1);
  save_checkpoint(folder / "a.h5", state_at(1), model.sources());
  const Checkpoint file(folder / "a.h5");
  model.poison();
  const auto poisoned = model.bytes;
  auto changed = [&](auto&& change) {
    auto targets = model.targets();
    change(targets);
    return [&file, targets] { file.load(targets); };
  };
  expect_error(Exit::usage, {"a.h5", "'embedding' is fp64 (17, 5), the model wants fp64 (17, 6)"},
               changed([](auto& t) {
                 t[6].spec.shape = {17, 6};
               }));
  expect_error(Exit::usage, {"'counts' is int32 (7), the model wants fp32 (7)"},
               changed([](auto& t) { t[8].spec.dtype = Dtype::fp32; }));
  expect_error(Exit::usage, {"a.h5", "has no tensor 'other'"},
               changed([](auto& t) { t[0].spec.name = "other"; }));
  expect_error(Exit::usage, {"holds tensor 'counts'", "which the model does not have"},
               changed([](auto& t) { t.pop_back(); }));
  EXPECT_EQ(model.bytes, poisoned);
  auto fewer = model.targets();
  fewer.pop_back();
  file.load(fewer, true);
}

TEST(checkpoint, files_that_are_not_ours_or_cut_are_refused) {
  const ScratchFolder folder;
  const Model model(1);
  test::write_all(folder / "text", "hello");
  h5::File::create(folder / "other.h5").close();
  save_checkpoint(folder / "cut.h5", state_at(1), model.sources());
  test::truncate_to_half(folder / "cut.h5");
  for (const auto& [name, word] : {std::pair{"text", "not a stowage-checkpoint file"},
                                   {"other.h5", "format 1, which this version does not read"},
                                   {"cut.h5", "truncated"},
                                   {"none.h5", "no such file"}})
    expect_error(Exit::usage, {name, word}, [&, n = name] { Checkpoint(folder / n); });
}

// Bytes of a tensor are changed in place: the file opens, the checksum tells.
void damage(const fs::path& path, const Model& model, std::size_t tensor) {
  std::string bytes = test::read_all(path);
  const std::string piece(reinterpret_cast<const char*>(model.bytes[tensor].data()), 64);
  const std::size_t at = bytes.find(piece);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 5] = static_cast<char>(bytes[at + 5] ^ 0x10);
  test::write_all(path, bytes);
}

TEST(checkpoint, one_flipped_bit_is_found_and_its_tensor_named) {
  const ScratchFolder folder;
  Model model(1);
  save_checkpoint(folder / "a.h5", state_at(1), model.sources());
  damage(folder / "a.h5", model, 7);
  const Checkpoint file(folder / "a.h5");
  expect_error(Exit::usage, {"a.h5", "tensor 'mask' is damaged"}, [&] { file.verify(); });
  expect_error(Exit::usage, {"tensor 'mask' is damaged"}, [&] { file.load(model.targets()); });
}

/// Bytes that this process has asked files for.
std::size_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string word;
  std::size_t bytes = 0;
  io >> word >> bytes;
  EXPECT_EQ(word, "rchar:");
  return bytes;
}

TEST(checkpoint, shares_add_up_and_each_reads_its_part) {
  const ScratchFolder folder;
  const std::vector<std::uint16_t> big(700001, 0x3F80);
  const std::int64_t one = 5;
  const std::vector<double> some(100001, 0.5);
  const TensorSource sources[] = {from_memory({"a", Dtype::bf16, {700001}}, big.data()),
                                  from_memory({"b", Dtype::int64, {}}, &one),
                                  from_memory({"c", Dtype::fp32, {0, 4}}, nullptr),
                                  from_memory({"d", Dtype::fp64, {100001}}, some.data())};
  save_checkpoint(folder / "a.h5", state_at(1), sources);
  const Checkpoint file(folder / "a.h5");
  const std::size_t all = 2 * 700001 + 8 + 8 * 100001;
  for (const int shares : {1, 2, 3, 7, 64}) {
    std::vector<TensorDigest::Sums> sums(4, {0, 0});
    for (int share = 0; share < shares; ++share) {
      const std::size_t before = bytes_read();
      const std::vector<TensorDigest::Sums> part = file.sums(share, shares, 1 + share % 3);
      EXPECT_LE(bytes_read() - before, all / static_cast<std::size_t>(shares) + 40000)
          << share << " of " << shares;
      ASSERT_EQ(part.size(), sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i)
        for (std::size_t half = 0; half < 2; ++half) sums[i][half] += part[i][half];
    }
    file.require_sums(sums);
    sums[3][1] ^= 1;
    expect_error(Exit::usage, {"a.h5", "tensor 'd' is damaged"}, [&] { file.require_sums(sums); });
  }
}

/// A file small enough to be damaged everywhere; returns its bytes.
std::string save_small(const fs::path& path) {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  const std::int64_t tokens = 77;
  const TensorSource sources[] = {from_memory({"weight", Dtype::fp32, {2, 3}}, weight.data()),
                                  from_memory({"tokens", Dtype::int64, {}}, &tokens)};
  save_checkpoint(path, state_at(5), sources);
  return test::read_all(path);
}

/// Opens and reads all of a checkpoint; returns the message of the usage error, or "whole".
std::string verdict_of(const fs::path& path) {
  try {
    Checkpoint(path).verify();
    return "whole";
  } catch (const execution::Error& error) {
    EXPECT_EQ(static_cast<int>(error.exit()), static_cast<int>(Exit::usage)) << error.what();
    return error.what();
  }
}

TEST(checkpoint, a_bit_flipped_anywhere_is_found) {
  const ScratchFolder folder;
  const fs::path path = folder / "a.h5";
  const std::string whole = save_small(path);
  EXPECT_EQ(verdict_of(path), "whole");
  int tensors = 0, records = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    test::write_all(path, bytes);
    const std::string found = verdict_of(path);
    ASSERT_NE(found.find("a.h5"), std::string::npos) << "byte " << at << ": " << found;
    tensors += found.find("tensor '") != std::string::npos ? 1 : 0;
    records += found.find("step, state, deck") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(tensors, 24 + 8);  // one for each byte of the two tensors, named
  EXPECT_GT(records, 1000);
}

TEST(checkpoint, a_bit_flipped_behind_the_last_tensor_is_found) {
  const ScratchFolder folder;
  const fs::path path = folder / "a.h5";
  const std::vector<float> weight(6, 1.5F);
  std::vector<TensorSource> sources;
  for (int i = 0; i < 40; ++i)  // more than HDF5 describes in the blocks in front of the first
    sources.push_back(
        from_memory({fmt::format("layers.{}.weight", i), Dtype::fp32, {2, 3}}, weight.data()));
  save_checkpoint(path, state_at(5), sources);
  const std::string whole = test::read_all(path);
  const Seal seal = read_seal(path);
  const SealedTensor& last = *std::ranges::max_element(seal.tensors, {}, &SealedTensor::offset);
  const auto behind = static_cast<std::size_t>(last.offset + last.bytes);
  ASSERT_LT(behind, whole.size()) << "nothing is behind the last tensor";
  for (std::size_t at = whole.size() - 1; at >= behind; at -= 7) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    test::write_all(path, bytes);
    ASSERT_NE(verdict_of(path).find("step, state, deck"), std::string::npos) << "byte " << at;
  }
}

TEST(checkpoint, any_other_length_is_found) {
  const ScratchFolder folder;
  const fs::path path = folder / "a.h5";
  const std::string whole = save_small(path);
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 1 + bytes / 50) {
    test::write_all(path, whole.substr(0, bytes));
    ASSERT_NE(verdict_of(path), "whole") << bytes;
  }
  test::write_all(path, whole + '\0');
  EXPECT_NE(verdict_of(path).find("damaged"), std::string::npos);
}

TEST(checkpoint, another_format_is_refused_by_its_version) {
  const ScratchFolder folder;
  const fs::path path = folder / "a.h5";
  std::string bytes = save_small(path);
  bytes.replace(bytes.find(" 3.0"), 4, " 4.1");
  test::write_all(path, bytes);
  EXPECT_NE(verdict_of(path).find("format '4.1'; this version reads 3.0"), std::string::npos);
}

TEST(checkpoint, what_a_program_edits_in_place_is_named) {
  const ScratchFolder folder;
  const fs::path path = folder / "a.h5";
  const std::string whole = save_small(path);
  const Seal seal = read_seal(path);
  for (const SealedTensor& tensor : seal.tensors) {
    std::string bytes = whole;
    bytes.replace(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.bytes),
                  static_cast<std::size_t>(tensor.bytes), '\0');
    test::write_all(path, bytes);
    EXPECT_NE(verdict_of(path).find("tensor '" + tensor.name + "' is damaged"), std::string::npos);
  }
}

TEST(checkpoint, random_bytes_are_refused) {
  const ScratchFolder folder;
  std::mt19937_64 random(ctest::seed());
  const fs::path path = folder / "a.h5";
  const std::string whole = save_small(path);
  for (int round = 0; round < 500; ++round) {
    std::string bytes = whole;
    const std::size_t at = random() % bytes.size();
    const std::size_t length = std::min<std::size_t>(1 + random() % 300, bytes.size() - at);
    for (std::size_t i = 0; i < length; ++i) bytes[at + i] = static_cast<char>(random());
    if (bytes == whole) continue;
    test::write_all(path, bytes);
    ASSERT_NE(verdict_of(path), "whole") << at << " " << length;
  }
}

TEST(checkpoint, state_of_the_wrong_kind_is_refused) {
  const auto state = state_at(1);
  expect_error(Exit::usage, {"no state 'none'"}, [&] { integer_value(state, "none"); });
  expect_error(Exit::usage, {"'data.digest' is not an integer"},
               [&] { integer_value(state, "data.digest"); });
}

TEST(checkpoint, a_writer_killed_midway_leaves_no_final_file) {
  const ScratchFolder folder;
  const Model model(1);
  const CheckpointDirectory directory(folder / "ckpt");
  directory.save(state_at(1), model.sources());
  const pid_t child = fork();
  if (child == 0) {
    auto sources = model.sources();
    sources.back().read = [](std::size_t, std::span<std::byte>) { raise(SIGKILL); };
    directory.save(state_at(2), sources);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(directory.steps(), std::vector<std::int64_t>{1});
  EXPECT_EQ(directory.latest().path, directory.file_of(1));
}

TEST(checkpoint, a_source_that_throws_leaves_nothing) {
  const ScratchFolder folder;
  auto sources = Model(1).sources();
  sources.back().read = [](std::size_t, auto) { throw std::runtime_error("lost"); };
  sources.resize(sources.size());
  for (auto& source : sources) source.read = sources.back().read;
  EXPECT_THROW(save_checkpoint(folder / "a.h5", state_at(1), sources), std::runtime_error);
  EXPECT_FALSE(fs::exists(folder / "a.h5"));
  EXPECT_FALSE(fs::exists(folder / "a.h5.part"));
}

TEST(checkpoint_directory, takes_no_unfinished_link_of_somebody_else) {
  const ScratchFolder folder;
  const fs::path part = folder / "ckpt/latest.part";
  fs::create_directories(folder / "ckpt/full");
  const auto refused = [&] {
    expect_error(Exit::usage, {"latest.part", "no link to a checkpoint"},
                 [&] { CheckpointDirectory(folder / "ckpt").claim(); });
    EXPECT_TRUE(fs::exists(fs::symlink_status(part)));
    fs::remove_all(part);
  };
  test::write_all(part, "mine");
  refused();
  fs::create_directories(part / "of/somebody");
  refused();
  fs::create_symlink(folder / "ckpt/full", part);
  refused();
  fs::create_symlink("step_00000003.h5", part);
  CheckpointDirectory(folder / "ckpt").claim();
  EXPECT_FALSE(fs::exists(fs::symlink_status(part))) << "of a run that died";
  test::write_all(part, "mine");
  expect_error(Exit::runtime, {"latest.part", "File exists"},
               [&] { replace_link(folder / "ckpt/latest", "step_00000003.h5"); });
  EXPECT_EQ(test::read_all(part), "mine");
}

TEST(checkpoint_directory, keeps_the_last_and_links_the_latest) {
  const ScratchFolder folder;
  const Model model(1);
  CheckpointDirectory directory(folder / "ckpt", {.last = 2, .every = 0});
  directory.claim();
  EXPECT_FALSE(directory.latest().path);
  for (const std::int64_t step : {10, 20, 30}) directory.save(state_at(step), model.sources());
  EXPECT_EQ(directory.steps(), (std::vector<std::int64_t>{20, 30}));
  EXPECT_EQ(Checkpoint(folder / "ckpt/latest").state().step, 30);
}

TEST(checkpoint_directory, keeps_multiples_besides_the_last) {
  const ScratchFolder folder;
  const Model model(1);
  CheckpointDirectory directory(folder / "ckpt", {.last = 1, .every = 20});
  directory.claim();
  for (const std::int64_t step : {10, 20, 30, 40, 50})
    directory.save(state_at(step), model.sources());
  EXPECT_EQ(directory.steps(), (std::vector<std::int64_t>{20, 40, 50}));
}

TEST(checkpoint_directory, goes_back_to_the_newest_that_is_whole) {
  const ScratchFolder folder;
  const Model model(1);
  const CheckpointDirectory directory(folder / "ckpt");
  for (const std::int64_t step : {10, 20, 30}) directory.save(state_at(step), model.sources());
  test::truncate_to_half(directory.file_of(30));
  damage(directory.file_of(20), model, 7);
  const auto found = directory.latest();
  EXPECT_EQ(found.path, directory.file_of(10));
  ASSERT_EQ(found.skipped.size(), 2U);
  EXPECT_NE(found.skipped[0].find("truncated"), std::string::npos);
  EXPECT_NE(found.skipped[1].find("mask"), std::string::npos);
}

TEST(checkpoint_directory, the_link_decides_after_going_back) {
  const ScratchFolder folder;
  const Model model(1);
  const CheckpointDirectory directory(folder / "ckpt", {.last = 1, .every = 0});
  directory.save(state_at(30), model.sources());
  directory.save(state_at(15), model.sources());  // resumed from step 10, say
  EXPECT_EQ(directory.latest().path, directory.file_of(15));
  EXPECT_EQ(directory.steps(), (std::vector<std::int64_t>{15, 30}));
  fs::remove(folder / "ckpt/latest");
  EXPECT_EQ(directory.latest().path, directory.file_of(30));
}

TEST(checkpoint_directory, a_link_that_leads_nowhere_is_told) {
  const ScratchFolder folder;
  const Model model(1);
  const CheckpointDirectory directory(folder / "ckpt");
  for (const std::int64_t step : {10, 20, 30, 40}) directory.save(state_at(step), model.sources());
  const auto expect = [&](const std::string& target, std::optional<std::int64_t> step) {
    replace_link(folder / "ckpt/latest", target);
    const auto found = directory.latest();
    if (step) {
      EXPECT_EQ(found.path, directory.file_of(*step));
    } else {
      EXPECT_FALSE(found.path);
    }
    ASSERT_FALSE(found.skipped.empty());
    EXPECT_NE(found.skipped[0].find("leads to '" + target + "'"), std::string::npos);
  };
  fs::remove(directory.file_of(30));
  expect("step_00000030.h5", 20);  // the newest before it
  expect("step_00000005.h5", 40);  // none before it: the newest
  expect("elsewhere", 40);
  for (const std::int64_t step : directory.steps()) fs::remove(directory.file_of(step));
  expect("step_00000030.h5", std::nullopt);
}

TEST(checkpoint_directory, a_file_under_another_step_is_passed_over) {
  const ScratchFolder folder;
  const Model model(1);
  const CheckpointDirectory directory(folder / "ckpt");
  for (const std::int64_t step : {10, 20}) directory.save(state_at(step), model.sources());
  fs::copy_file(directory.file_of(10), directory.file_of(20), fs::copy_options::overwrite_existing);
  const auto found = directory.latest();
  EXPECT_EQ(found.path, directory.file_of(10));
  ASSERT_EQ(found.skipped.size(), 1U);
  EXPECT_NE(found.skipped[0].find("holds step 10"), std::string::npos);
}

TEST(checkpoint_directory, unwritable_folder_is_told_before_the_run) {
  const ScratchFolder folder;
  test::write_all(folder / "file", "");
  expect_error(Exit::usage, {"the checkpoint", "file"},
               [&] { CheckpointDirectory(folder / "file").claim(); });
}

TEST(checkpoint_directory, a_second_run_is_refused_until_the_first_has_ended) {
  const ScratchFolder folder;
  {
    CheckpointDirectory first(folder / "ckpt");
    first.claim();
    expect_error(Exit::usage, {"ckpt", "another run saves here"},
                 [&] { CheckpointDirectory(folder / "ckpt").claim(); });
  }
  CheckpointDirectory(folder / "ckpt").claim();
}

TEST(checkpoint_directory, half_checkpoints_of_dead_runs_are_named_and_removed) {
  const ScratchFolder folder;
  fs::create_directory(folder / "ckpt");
  test::write_all(folder / "ckpt/step_00000007.h5.part", "half");
  test::write_all(folder / "ckpt/notes.part", "mine");
  CheckpointDirectory directory(folder / "ckpt");
  testing::internal::CaptureStderr();
  directory.claim();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("step_00000007.h5.part"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(folder / "ckpt/step_00000007.h5.part"));
  EXPECT_TRUE(fs::exists(folder / "ckpt/notes.part"));
}

TEST(checkpoint_directory, a_folder_that_vanished_is_a_failure_of_the_run) {
  const ScratchFolder folder;
  const Model model(1);
  CheckpointDirectory directory(folder / "ckpt");
  directory.claim();
  fs::remove_all(folder / "ckpt");
  expect_error(Exit::runtime, {"ckpt", "removed or replaced"},
               [&] { directory.save(state_at(1), model.sources()); });
  EXPECT_FALSE(fs::exists(folder / "ckpt"));
}

TEST(checkpoint_directory, a_full_disk_leaves_the_last_checkpoint_and_no_half_one) {
  const ScratchFolder folder;
  const Model model(1);
  CheckpointDirectory directory(folder / "ckpt");
  directory.claim();
  directory.save(state_at(1), model.sources());
  const auto limited = [&](rlim_t bytes) {
    struct rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);  // a write beyond it fails, as on a full disk
    std::signal(SIGXFSZ, SIG_IGN);
    try {
      directory.save(state_at(2), model.sources());
    } catch (const execution::Error& error) {
      _exit(static_cast<int>(error.exit()));
    }
    _exit(0);
  };
  for (const rlim_t bytes : {0, 1000, 100000, 4 << 20}) {
    const pid_t child = fork();
    if (child == 0) limited(bytes);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << bytes;
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(Exit::runtime)) << bytes;
    EXPECT_FALSE(fs::exists(directory.file_of(2).string() + ".part")) << bytes;
    EXPECT_EQ(directory.latest().path, directory.file_of(1)) << bytes;
  }
}

}  // namespace
}  // namespace stowage::results
