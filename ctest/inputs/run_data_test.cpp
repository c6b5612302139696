// The data of a deck: what of it is refused before anything is trained.
#include <gtest/gtest.h>

#include "ctest/inputs/loader_support.hpp"
#include "inputs/data/run_data.hpp"

namespace stowage::inputs {
namespace {

using testing::TemporaryFolder;
using testing::usage_error;

/// Validation data of two batches of one sequence, in an order that the seed says.
struct TwoBatches {
  TemporaryFolder folder;
  std::string path = folder.write("v.txt", std::string(8, 'a'));

  void open(const std::string& mask, int evaluated) const {
    folder.write("v.txt.mask", mask);
    const std::string keys[] = {"model.pattern=M-",
                                "data.source=auto",
                                "data.path=" + folder.write("t.txt", std::string(64, 'b')),
                                "data.validation_path=" + path,
                                "data.packing=none",
                                "train.seq_length=4",
                                "train.global_batch_size=1",
                                "eval.steps=" + std::to_string(evaluated)};
    (void)open_data(Deck::parse("", "test", keys), 0, 1);
  }
};

std::string bits(std::string_view digits) {
  std::string bytes;
  for (const char digit : digits) bytes += static_cast<char>(digit - '0');
  return bytes;
}

// A target in the batch behind those that are evaluated is no target of theirs.
TEST(run_data, evaluated_batches_must_have_a_target) {
  const TwoBatches data;
  int refused = 0;
  for (const char* mask : {"01110000", "00000111"}) {
    data.open(bits(mask), 0);
    data.open(bits(mask), 2);
    try {
      data.open(bits(mask), 1);
    } catch (const execution::Error&) {
      ++refused;
      EXPECT_NE(usage_error([&] { data.open(bits(mask), 1); }).find("no token of 1 batches"),
                std::string::npos);
    }
  }
  EXPECT_EQ(refused, 1);  // the one whose targets are not in the first batch
}

TEST(run_data, the_header_tells_what_is_masked_and_held_out) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.txt", std::string(64, 'b'));
  folder.write("t.txt.mask", std::string(16, '\0') + std::string(48, '\1'));
  const std::string keys[] = {"model.pattern=*-",   "data.path=" + path,
                              "data.source=text",   "data.held_out_fraction=0.25",
                              "train.seq_length=4", "train.global_batch_size=1"};
  const Data data = open_data(Deck::parse("", "test", keys), 0, 1);
  EXPECT_NE(data.text().find(", masked: 1 documents, 48 tokens, 25.00 % of the file masked"),
            std::string::npos)
      << data.text();
  EXPECT_NE(data.held_out_text(0).find("its end: 1 documents, 16 tokens (25.00 % of all)"),
            std::string::npos)
      << data.held_out_text(0);
}

TEST(run_data, capacities_are_those_of_the_deck_below_the_most_documents) {
  using Counts = std::vector<std::int64_t>;
  const auto of = [](std::vector<std::string> keys) {
    keys.insert(keys.end(), {"model.pattern=M-", "data.source=synthetic"});
    return capacities(Deck::parse("", "test", keys), 9);
  };
  EXPECT_EQ(of({}), Counts{9});
  EXPECT_EQ(of({"data.max_documents=1"}), (Counts{1, 9}));
  EXPECT_EQ(of({"data.max_documents=9"}), Counts{9});
  EXPECT_EQ(of({"data.max_documents=1", "graphs.max_packed_seqs=[4,2,4,12]"}), (Counts{2, 4, 9}));
}

TEST(run_data, a_synthetic_stream_is_that_of_the_deck) {
  const std::string keys[] = {"model.pattern=M-",           "data.source=synthetic",
                              "data.synthetic_tokens=5000", "data.synthetic_document_length=30",
                              "train.seq_length=4",         "train.global_batch_size=1"};
  const Data data = open_data(Deck::parse("", "test", keys), 0, 1);
  EXPECT_EQ(data.sources.front().tokens->tokens(), 5000);
  const auto ends = data.sources.front().tokens->document_offsets();
  EXPECT_NEAR(static_cast<double>(std::ssize(ends) - 1), 5000.0 / 30, 40);
}

}  // namespace
}  // namespace stowage::inputs
