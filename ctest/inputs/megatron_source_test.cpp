#include <gtest/gtest.h>

#include "ctest/inputs/support.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {
namespace {

using testing::append;
using testing::expect_parts;
using testing::TemporaryFolder;
using testing::usage_error;

/// A data set in the form that Megatron's IndexedDatasetBuilder writes.
struct DataSet {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t dtype = 8;
  std::vector<std::vector<std::int32_t>> sequences;
  std::vector<std::int64_t> documents;  // bounds in sequences, the first 0
  std::int64_t pointer_shift = 0;       // bytes before the first sequence

  std::int64_t width() const { return dtype == 8 ? 2 : 4; }

  std::string index() const {
    std::string all = magic;
    append(all, version);
    append(all, dtype);
    append(all, static_cast<std::uint64_t>(sequences.size()));
    append(all, static_cast<std::uint64_t>(documents.size()));
    for (const auto& s : sequences) append(all, static_cast<std::int32_t>(s.size()));
    std::int64_t pointer = pointer_shift;
    for (const auto& s : sequences) {
      append(all, pointer);
      pointer += std::ssize(s) * width();
    }
    for (const std::int64_t bound : documents) append(all, bound);
    return all;
  }

  std::string tokens() const {
    std::string all(static_cast<std::size_t>(pointer_shift), '\xff');
    for (const auto& s : sequences) {
      for (const std::int32_t token : s) {
        if (dtype == 8) append(all, static_cast<std::uint16_t>(token));
        if (dtype != 8) append(all, token);
      }
    }
    return all;
  }

  std::string write(const TemporaryFolder& folder) const {
    folder.write("set.bin", tokens());
    return folder.write("set.idx", index());
  }
};

DataSet good() {
  return {.sequences = {{1, 2, 3}, {4}, {}, {5, 6, 7, 8}, {9, 10}}, .documents = {0, 2, 3, 4, 5}};
}

TEST(megatron_source, reads_tokens_and_documents) {
  for (const std::uint8_t dtype : {std::uint8_t{8}, std::uint8_t{4}}) {
    const TemporaryFolder folder;
    DataSet set = good();
    set.dtype = dtype;
    set.pointer_shift = 4;
    set.write(folder);
    // By index, tokens or prefix; the empty document vanishes.
    for (const char* name : {"set.idx", "set.bin", "set"}) {
      const auto source = open_source({.path = folder / name, .vocab_size = 11});
      ASSERT_EQ(source->tokens(), 10);
      EXPECT_EQ(std::vector(source->document_offsets().begin(), source->document_offsets().end()),
                (std::vector<std::int64_t>{0, 4, 8, 10}));
      for (std::int64_t first = 0; first < 10; ++first) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(10 - first));
        source->read(first, tokens);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          EXPECT_EQ(tokens[i], first + static_cast<std::int64_t>(i) + 1);
        }
      }
      EXPECT_EQ(source->files().size(), 2U);
    }
  }
}

TEST(megatron_source, bad_files) {
  const auto error = [](const DataSet& set, std::int64_t vocab_size = 11) {
    const TemporaryFolder folder;
    const std::string path = set.write(folder);
    return usage_error([&] { open_source({.path = path, .vocab_size = vocab_size}); });
  };
  DataSet set = good();
  set.magic = std::string("MMIDIDX\0\1", 9);
  expect_parts(error(set), {"set.idx", "wrong magic at byte offset 0"});
  set = good();
  set.version = 2;
  expect_parts(error(set), {"version 2", "byte offset 9"});
  set = good();
  set.dtype = 6;
  expect_parts(error(set), {"dtype code 6", "byte offset 17"});
  set = good();
  set.documents = {0, 4, 2, 5};
  expect_parts(error(set), {"do not ascend"});
  set.documents = {0, 9};
  expect_parts(error(set), {"document bound 9", "5 sequences"});
  set.documents = {1, 5};
  expect_parts(error(set), {"document bound 1"});
  EXPECT_NE(error({.sequences = {{1}, {}}, .documents = {}}).find("byte offset 26"),
            std::string::npos);
  expect_parts(error(good(), 10), {"set.bin", "token 10", "byte offset 18", "vocab_size = 10"});
}

TEST(megatron_source, negative_tokens) {
  const TemporaryFolder folder;
  DataSet set = good();
  set.dtype = 4;
  set.sequences[1] = {-7};
  const std::string path = set.write(folder);
  expect_parts(usage_error([&] { open_source({.path = path, .vocab_size = 11}); }),
               {"set.bin", "token -7", "byte offset 12"});
}

TEST(megatron_source, truncated_and_missing) {
  const TemporaryFolder folder;
  const std::string path = good().write(folder);
  const std::string index = good().index(), tokens = good().tokens();
  for (const std::size_t size :
       {index.size() - 1, std::size_t{60}, std::size_t{33}, std::size_t{12}}) {
    folder.write("set.idx", index.substr(0, size));
    expect_parts(usage_error([&] { open_source({.path = path, .vocab_size = 11}); }),
                 {"set.idx", "truncated"});
  }
  folder.write("set.idx", index);
  folder.write("set.bin", tokens.substr(0, tokens.size() - 1));
  expect_parts(usage_error([&] { open_source({.path = path, .vocab_size = 11}); }),
               {"set.bin", "truncated", "19 bytes", "20"});
  std::filesystem::remove(folder / "set.bin");
  expect_parts(usage_error([&] { open_source({.path = path, .vocab_size = 11}); }),
               {"set.bin", "No such file"});
  const std::string renamed = folder.write("index.dat", index);
  expect_parts(usage_error([&] { open_source({.path = renamed}); }), {"does not end in .idx"});
}

}  // namespace
}  // namespace stowage::inputs
