// Several writers of one checkpoint, in one process.
#include "run/checkpoints/checkpoint_job.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "execution/error.hpp"
#include "execution/philox.hpp"
#include "kernels/digest/digest.hpp"

namespace stowage::run {
namespace {

namespace fs = std::filesystem;
using execution::Dtype;
using execution::GlobalIndex;
using results::TensorDigest;
using results::TensorSpec;

class checkpoint_writer : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "stowage_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Columns [begin, begin + length) of a (rows, columns) matrix.
GlobalIndex columns_of(std::int64_t rows, std::int64_t columns, std::int64_t begin,
                       std::int64_t length) {
  GlobalIndex index;
  index.dimensions = 2;
  index.dimension[0] = {.local = rows, .global = rows};
  index.dimension[1] = {
      .local = length, .global = columns, .ranges = 1, .begin = {begin}, .length = {length}};
  return index;
}

const std::vector<TensorSpec> kTensors = {{"cut", Dtype::bf16, {37, 50}},
                                          {"shared", Dtype::fp32, {1001}},
                                          {"count", Dtype::int64, {1}},
                                          {"empty", Dtype::fp32, {0, 4}}};

/// What rank 0 or 1 of two has of the tensors above, in one block of device memory each.
struct Rank {
  Rank(execution::Backend& backend, int rank, const std::vector<std::vector<std::byte>>& wholes)
      : memory(backend.allocate(execution::MemoryKind::device, 16384)) {
    const GlobalIndex cut = rank == 0 ? columns_of(37, 50, 0, 19) : columns_of(37, 50, 19, 31);
    add(0, cut, 37 * (rank == 0 ? 19 : 31), wholes);
    GlobalIndex share;
    share.first = rank == 0 ? 0 : 333;
    add(1, share, rank == 0 ? 333 : 668, wholes);
    add(2, {}, rank == 0 ? 1 : 0, wholes);
    add(3, {}, 0, wholes);
  }

  void add(std::size_t tensor, const GlobalIndex& index, std::int64_t elements,
           const std::vector<std::vector<std::byte>>& wholes) {
    const std::size_t size = execution::size_bytes(kTensors[tensor].dtype);
    std::byte* data = memory->data() + used;
    for (std::int64_t i = 0; i < elements; ++i)
      std::memcpy(data + static_cast<std::size_t>(i) * size,
                  wholes[tensor].data() + static_cast<std::size_t>(index(i)) * size, size);
    parts.push_back({kTensors[tensor], {index, elements, data}});
    used += (static_cast<std::size_t>(elements) * size + 63) / 64 * 64;
  }

  std::unique_ptr<execution::Arena> memory;
  std::vector<CheckpointWriter::Part> parts;
  std::size_t used = 0;
};

TEST_F(checkpoint_writer, two_ranks_make_one_file_from_copies_made_before) {
  const auto backend = execution::make_host_backend();
  std::vector<std::vector<std::byte>> wholes;
  for (const TensorSpec& spec : kTensors)
    wholes.push_back(random_bytes(spec.bytes(), static_cast<unsigned>(wholes.size())));
  Rank ranks[] = {{*backend, 0, wholes}, {*backend, 1, wholes}};
  const auto queue = backend->make_queue(execution::Lane::compute, "compute");
  const std::vector<std::byte> other(std::size_t{1} << 24, std::byte{0x5A});
  for (const forecast::CopyPlace copy : {forecast::CopyPlace::device, forecast::CopyPlace::host}) {
    CheckpointWriter writers[] = {{*backend, ranks[0].parts, copy, {.overlapping = 1, .alone = 1}},
                                  {*backend, ranks[1].parts, copy, {.overlapping = 3, .alone = 1}}};
    EXPECT_EQ(writers[0].copy(), copy);
    const results::CheckpointDirectory directory(folder_ / std::string(name(copy)));
    auto draft = directory.begin({.step = 7, .values = {}, .deck = "[train]\n"}, kTensors);
    const fs::path part = draft->part();
    results::SumsFile::make(sums_path(part), 2, kTensors.size());
    const std::vector<std::int64_t> offsets = draft->offsets();
    std::vector<std::byte> kept[2];
    for (int r = 0; r < 2; ++r)
      kept[r].assign(ranks[r].memory->data(), ranks[r].memory->data() + ranks[r].used);
    for (CheckpointWriter& writer : writers) writer.take(*queue);
    // The next step changes everything as soon as it may; what was copied stays.
    for (const Rank& rank : ranks) {
      ASSERT_LE(rank.used, other.size());
      queue->copy(rank.memory->data(), other.data(), rank.used);
    }
    {
      CheckpointJob first({.step = 7, .part = part, .offsets = offsets, .rank = 0, .ranks = 2},
                          std::move(draft), writers[0], directory);
      EXPECT_FALSE(first.ended());
      CheckpointJob second({.step = 7, .part = part, .offsets = offsets, .rank = 1, .ranks = 2},
                           nullptr, writers[1], directory);
      (void)second.finish();
      const CheckpointJob::Written written = first.finish();
      EXPECT_EQ(written.bytes, static_cast<std::int64_t>(fs::file_size(directory.file_of(7))));
    }
    queue->synchronize();
    for (int r = 0; r < 2; ++r) std::copy(kept[r].begin(), kept[r].end(), ranks[r].memory->data());
    EXPECT_FALSE(fs::exists(sums_path(part)));
    const results::Checkpoint found(directory.file_of(7));
    found.verify();
    for (std::size_t i = 0; i < kTensors.size(); ++i) {
      std::vector<std::byte> read(kTensors[i].bytes());
      if (!read.empty()) found.read(kTensors[i].name, 0, read);
      EXPECT_EQ(read, wholes[i]) << kTensors[i].name;
    }
  }
}

TEST_F(checkpoint_writer, one_that_fails_ends_it_and_one_that_is_given_up_leaves_nothing) {
  const auto backend = execution::make_host_backend();
  std::vector<std::vector<std::byte>> wholes;
  for (const TensorSpec& spec : kTensors) wholes.emplace_back(spec.bytes());
  const Rank rank(*backend, 0, wholes);
  CheckpointWriter writer(*backend, rank.parts, forecast::CopyPlace::none,
                          {.overlapping = 1, .alone = 2});
  const results::CheckpointDirectory directory(folder_);
  const auto task = [&](const results::CheckpointDraft& draft) {
    results::SumsFile::make(sums_path(draft.part()), 2, kTensors.size());
    return CheckpointJob::Task{.step = 1,
                               .part = draft.part(),
                               .offsets = draft.offsets(),
                               .rank = 0,
                               .ranks = 2,
                               .as_it_is = true};
  };
  auto draft = directory.begin({.step = 1, .values = {}, .deck = {}}, kTensors);
  const fs::path part = draft->part();
  CheckpointJob::Task first = task(*draft);
  results::SumsFile(sums_path(part), kTensors.size()).failed(1, "no space left on its host");
  CheckpointJob job(std::move(first), std::move(draft), writer, directory);
  try {
    (void)job.finish();
    FAIL() << "rank 1 has failed";
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::runtime);
    EXPECT_NE(std::string(error.what()).find("stay: rank 1: no space left on its host"),
              std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  {
    auto again = directory.begin({.step = 1, .values = {}, .deck = {}}, kTensors);
    CheckpointJob::Task second = task(*again);
    const CheckpointJob waits_for_rank_1(std::move(second), std::move(again), writer, directory);
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(checkpoint_writer, digests_of_parts_add_up_to_the_state_digest_s) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp32, Dtype::fp64, Dtype::int64, Dtype::uint8}) {
    const std::int64_t count = 1003;
    const std::vector<std::byte> bytes = random_bytes(1003 * execution::size_bytes(dtype), 3);
    TensorDigest whole("a.weight", dtype), parts("a.weight", dtype);
    whole.add(0, bytes);
    std::int64_t at = count;
    for (const std::int64_t length : {1, 2, 5, 8, 13, 400, 574}) {  // from the end to the start
      at -= length;
      TensorDigest part("a.weight", dtype);
      part.add(at, std::span(bytes).subspan(
                       static_cast<std::size_t>(at) * execution::size_bytes(dtype),
                       static_cast<std::size_t>(length) * execution::size_bytes(dtype)));
      parts.add(part.sums());
    }
    ASSERT_EQ(at, 0);
    EXPECT_EQ(parts.text(), whole.text());
    std::uint64_t sums[2] = {0, 0};
    kernels::digest_ref({execution::stream_of("a.weight"), {}}, dtype, count, bytes.data(), sums);
    EXPECT_EQ(whole.text(), kernels::digest_text(sums)) << execution::name(dtype);
  }
}

}  // namespace
}  // namespace stowage::run
