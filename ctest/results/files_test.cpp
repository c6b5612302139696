#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "inputs/deck/sha256.hpp"
#include "results/h5.hpp"
#include "results/json_log.hpp"
#include "results/line_file.hpp"
#include "results/output_path.hpp"
#include "results/part_file.hpp"
#include "scratch_folder.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;
using execution::Exit;
using test::expect_error;
using test::read_all;
using test::ScratchFolder;
using test::write_all;

const std::string kOlderTrace = std::string(kTraceHead) + "]}";

TEST(part_file, takes_its_name_only_when_committed) {
  const ScratchFolder folder;
  const fs::path path = folder / "new/deep/a.txt";
  {
    PartFile file(path, FileKind::trace);
    EXPECT_FALSE(fs::exists(path));
    write_all(file.part(), "whole");
    errno = EIO;  // of a call before
    file.commit();
  }
  EXPECT_EQ(read_all(path), "whole");
  EXPECT_FALSE(fs::exists(path.string() + ".part"));
}

TEST(part_file, leaves_the_old_file_when_given_up) {
  const ScratchFolder folder;
  write_all(folder / "a", kOlderTrace);
  {
    PartFile file(folder / "a", FileKind::trace);
    write_all(file.part(), "half");
  }
  EXPECT_EQ(read_all(folder / "a"), kOlderTrace);
  EXPECT_FALSE(fs::exists(folder / "a.part"));
}

TEST(part_file, a_killed_writer_leaves_no_final_file) {
  const ScratchFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    PartFile file(folder / "a", FileKind::trace);
    write_all(file.part(), "half");
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(folder / "a"));
  EXPECT_EQ(read_all(folder / "a.part"), "half");
}

TEST(part_file, unwritable_places_are_usage_errors) {
  const ScratchFolder folder;
  write_all(folder / "file", "");
  fs::create_directory(folder / "folder");
  const auto refused = [&](const std::string& name, const std::string& why) {
    expect_error(Exit::usage, {"the result set", name, why},
                 [&] { require_writable(folder / name, FileKind::result_set); });
  };
  refused("file/a.h5", "folder");
  refused("folder", "it is a folder");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  refused("fifo", "a FIFO");
  expect_error(Exit::usage, {"/dev/full", "a device"},
               [] { require_writable("/dev/full", FileKind::json_lines); });
  require_writable(folder / "good.h5", FileKind::result_set);
  EXPECT_FALSE(fs::exists(folder / "good.h5"));
  EXPECT_FALSE(fs::exists(folder / "good.h5.part"));
}

TEST(part_file, a_schema_is_a_kind) {
  const ScratchFolder folder;
  for (const auto& [schema, kind] :
       std::map<std::string, std::optional<FileKind>>{{"stowage-result", FileKind::result_set},
                                                      {"stowage-dump", FileKind::dump},
                                                      {"stowage-checkpoint", FileKind::checkpoint},
                                                      {"thesis", std::nullopt}}) {
    {
      h5::File file = h5::File::create(folder / schema);
      file.set_attributes({{"schema", schema}, {"schema_version", std::string("1.0")}});
      file.close();
    }
    EXPECT_EQ(kind_of(folder / schema), kind) << schema;
  }
}

TEST(part_file, a_file_of_somebody_else_is_refused_and_stays) {
  const ScratchFolder folder;
  for (const char* name : {"a.h5", "b.h5.part"}) {
    write_all(folder / name, "my thesis");
    for (const FileKind kind : {FileKind::result_set, FileKind::checkpoint, FileKind::dump,
                                FileKind::json_lines, FileKind::trace})
      expect_error(Exit::usage, {name, "no"},
                   [&, stem = std::string(name).substr(0, 4)] { PartFile(folder / stem, kind); });
    EXPECT_EQ(read_all(folder / name), "my thesis");
  }
  write_all(folder / "c.h5", kOlderTrace);  // ours, but of another kind
  expect_error(Exit::usage, {"c.h5", "no older file of this kind"},
               [&] { PartFile(folder / "c.h5", FileKind::result_set); });
  fs::create_symlink(folder / "a.h5", folder / "d.h5.part");
  expect_error(Exit::usage, {"d.h5"}, [&] { PartFile(folder / "d.h5", FileKind::trace); });
  EXPECT_EQ(read_all(folder / "a.h5"), "my thesis");
}

TEST(part_file, an_older_file_of_ours_is_kept_aside) {
  const ScratchFolder folder;
  for (int run = 0; run < 3; ++run) {
    PartFile file(folder / "a.json", FileKind::trace);
    write_all(file.part(), kOlderTrace + std::to_string(run));
    file.commit();
  }
  EXPECT_EQ(read_all(folder / "a.json"), kOlderTrace + "2");
  EXPECT_EQ(read_all(folder / "a.older_1.json"), kOlderTrace + "0");
  EXPECT_EQ(read_all(folder / "a.older_2.json"), kOlderTrace + "1");
}

TEST(part_file, a_second_writer_is_refused_while_the_first_lives) {
  const ScratchFolder folder;
  int ready[2] = {};
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    PartFile file(folder / "a", FileKind::trace);
    write_all(file.part(), kOlderTrace);
    (void)!write(ready[1], "x", 1);
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  expect_error(Exit::usage, {"another run is writing", "a.part"},
               [&] { PartFile(folder / "a", FileKind::trace); });
  EXPECT_EQ(read_all(folder / "a.part"), kOlderTrace);  // the first one's bytes are untouched
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  testing::internal::CaptureStderr();
  PartFile file(folder / "a", FileKind::trace);  // the lock has died with its owner
  EXPECT_NE(testing::internal::GetCapturedStderr().find("a.part was left by a run"),
            std::string::npos);
  EXPECT_EQ(read_all(folder / "a.part"), "");
}

TEST(output_path, one_file_in_other_words_is_one_file) {
  const ScratchFolder folder;
  write_all(folder / "deck", "[run]");
  fs::create_symlink(folder / "deck", folder / "symbolic");
  fs::create_hard_link(folder / "deck", folder / "hard");
  fs::create_directory(folder / "sub");
  const std::vector<NamedPath> inputs = {{"the deck", folder / "deck"}};
  for (const char* name : {"deck", "./deck", "sub/../deck", "symbolic", "hard"})
    expect_error(Exit::usage, {"--trace", "would replace the deck"}, [&] {
      require_apart({{{"--trace", folder / name}}}, inputs);
    });
  const std::vector<NamedPath> parts = {{"the data", folder / "new.h5.part"}};
  expect_error(Exit::usage, {"--out", "would replace the data"}, [&] {
    require_apart({{{"--out", folder / "new.h5"}}}, parts);
  });
  for (const char* name : {"new.h5", "./new.h5", "new.h5.part", "sub/../new.h5"})
    expect_error(Exit::usage, {"--out", "--json", "two outputs need two files"}, [&] {
      require_apart({{{"--out", folder / "new.h5"}, {"--json", folder / name}}}, inputs);
    });
  require_apart({{{"--out", folder / "new.h5"}, {"--json", folder / "new.jsonl"}}}, inputs);
}

TEST(part_file, link_is_replaced) {
  const ScratchFolder folder;
  write_all(folder / "one", "1");
  write_all(folder / "two", "2");
  replace_link(folder / "latest", "one");
  replace_link(folder / "latest", "two");
  EXPECT_EQ(read_all(folder / "latest"), "2");
}

TEST(sha256, vectors_of_the_standard) {
  const auto hash = [](const std::string& text) {
    inputs::Sha256 sha;
    sha.update(std::as_bytes(std::span(text)));
    return sha.hex();
  };
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(sha256, pieces_give_the_same_as_the_whole) {
  const ScratchFolder folder;
  const std::string text(777, 'x');
  write_all(folder / "a", text);
  inputs::Sha256 sha;
  for (std::size_t at = 0; at < text.size(); at += 37)
    sha.update(std::as_bytes(std::span(text).subspan(at, std::min<std::size_t>(37, 777 - at))));
  EXPECT_EQ(sha.hex(), inputs::sha256_of_file(folder / "a"));
}

std::vector<nlohmann::json> lines_of(const fs::path& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_all(path));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(json_log, every_line_is_an_object_as_it_happens) {
  const ScratchFolder folder;
  JsonLog log(folder / "run/a.jsonl");
  log.write("step", {{"step", std::int64_t{3}},
                     {"loss", std::nan("")},
                     {"limit", std::numeric_limits<double>::infinity()},
                     {"skipped", false},
                     {"text", std::string("a \"quoted\"\nline \xff")}});
  const auto lines = lines_of(folder / "run/a.jsonl");  // before the log is closed
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["event"], "step");
  EXPECT_EQ(lines[0]["step"], 3);
  EXPECT_TRUE(lines[0]["loss"].is_null());
  EXPECT_TRUE(lines[0]["limit"].is_null());
  EXPECT_EQ(lines[0]["skipped"], false);
  EXPECT_EQ(lines[0]["text"].get<std::string>().substr(0, 15), "a \"quoted\"\nline");
}

TEST(json_log, continues_after_a_restart) {
  const ScratchFolder folder;
  JsonLog(folder / "a.jsonl").write("start", {});
  JsonLog(folder / "a.jsonl", true).write("start", {});
  EXPECT_EQ(lines_of(folder / "a.jsonl").size(), 2U);
  JsonLog(folder / "a.jsonl").write(metric("train/val_loss", 2));
  EXPECT_EQ(lines_of(folder / "a.older_1.jsonl").size(), 2U);
  const auto lines = lines_of(folder / "a.jsonl");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["tag"], "train/val_loss");
}

TEST(json_log, verdict_lists_its_checks) {
  const ScratchFolder folder;
  Verdict verdict;
  verdict.add(at_most("loss", 3, 2, "last loss"));
  JsonLog(folder / "a.jsonl").write(verdict);
  const auto line = lines_of(folder / "a.jsonl").at(0);
  EXPECT_EQ(line["result"], "INVALID");
  EXPECT_EQ(line["checks"][0]["passed"], false);
}

TEST(json_log, unwritable_path_is_a_usage_error_and_no_path_is_silent) {
  const ScratchFolder folder;
  write_all(folder / "file", "");
  expect_error(Exit::usage, {"a.jsonl"}, [&] { JsonLog(folder / "file/a.jsonl"); });
  write_all(folder / "notes", "mine\n");
  for (const bool append : {false, true})
    expect_error(Exit::usage, {"notes"}, [&] { JsonLog(folder / "notes", append); });
  EXPECT_EQ(read_all(folder / "notes"), "mine\n");
  const JsonLog first(folder / "live.jsonl");
  expect_error(Exit::usage, {"another run"}, [&] { JsonLog(folder / "live.jsonl"); });
  JsonLog().write("step", {});
}

TEST(line_file, adds_only_to_its_own_kind) {
  const ScratchFolder folder;
  const std::string head = std::string(kProductTableHead) + " FILE`.";
  for (int row = 0; row < 2; ++row) {
    LineFile table(folder / "table", FileKind::product_table, true);
    EXPECT_EQ(table.empty(), row == 0);
    if (table.empty()) table.write(head);
    table.write("{},");
  }
  EXPECT_EQ(read_all(folder / "table"), head + "\n{},\n{},\n");
  write_all(folder / "mine", "int table[] = {};\n");
  for (const FileKind kind : {FileKind::product_table, FileKind::mlperf_log})
    for (const bool append : {false, true})
      expect_error(Exit::usage, {"mine"}, [&] { LineFile(folder / "mine", kind, append); });
  expect_error(Exit::usage, {"table", "the MLPerf log"},
               [&] { LineFile(folder / "table", FileKind::mlperf_log, true); });
  EXPECT_EQ(read_all(folder / "mine"), "int table[] = {};\n");
}

}  // namespace
}  // namespace stowage::results
