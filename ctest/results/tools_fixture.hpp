#pragma once

#include <fmt/core.h>
#include <sys/stat.h>

#include <cstdio>
#include <string>
#include <vector>

#include "sample_result.hpp"
#include "scratch_folder.hpp"

/// The Python tools on files that the C++ writer made: STOWAGE_TOOLS is their folder.
namespace stowage::results::test {

namespace fs = std::filesystem;

struct Ran {
  int code;
  std::string output;
};

/// tool_server.py, started once.
class ToolServer {
 public:
  static ToolServer& one() {
    static ToolServer server;
    return server;
  }
  ToolServer() {
    const std::string answers = folder_ / "answers";
    ::mkfifo(answers.c_str(), 0600);
    const std::string script = STOWAGE_TOOLS "/../../ctest/results/tool_server.py";
    to_ = ::popen(fmt::format("{} {} > {}", STOWAGE_PYTHON, script, answers).c_str(), "w");
    from_ = std::fopen(answers.c_str(), "r");
    there_ = answer() == 0;
  }
  ~ToolServer() {
    ::pclose(to_);
    std::fclose(from_);
  }

  /// Whether this Python has what tools need.
  bool there() const { return there_; }
  Ran run(const std::vector<fs::path>& words, const std::string& options = {}) {
    const fs::path out = folder_ / "out";
    std::string command = out.string();
    for (const fs::path& word : words) command += " " + word.string();
    fmt::print(to_, "{} {}\n", command, options);
    std::fflush(to_);
    const int code = answer();
    return {code, read_all(out)};
  }

 private:
  int answer() const {
    int code = -1;
    return std::fscanf(from_, "%d", &code) == 1 ? code : -1;
  }

  ScratchFolder folder_;
  FILE *to_ = nullptr, *from_ = nullptr;
  bool there_ = false;
};

inline Ran python(const std::vector<fs::path>& words, const std::string& options = {}) {
  return ToolServer::one().run(words, options);
}

inline Ran tool(const std::string& name, std::vector<fs::path> files,
                const std::string& options = {}) {
  files.insert(files.begin(), fmt::format("{}/{}.py", STOWAGE_TOOLS, name));
  return python(files, options);
}

class ToolsFixture : public testing::Test {
 protected:
  void SetUp() override {
    if (!ToolServer::one().there()) GTEST_SKIP() << "no h5py or no matplotlib for " STOWAGE_PYTHON;
  }

  fs::path sample(const std::string& name, const SampleRun& run = {}) {
    write_sample(folder / name, run);
    return folder / name;
  }
  fs::path sample(const std::string& name, const SampleRun& run, const Verdict& verdict) {
    write_sample(folder / name, run, verdict);
    return folder / name;
  }

  // Changes a finished file by a Python statement on f.
  static void edit(const fs::path& path, const std::string& statement) {
    const ScratchFolder scratch;
    write_all(scratch / "edit.py",
              fmt::format("import h5py\nwith h5py.File('{}', 'r+') as f:\n    {}\n", path.string(),
                          statement));
    const Ran ran = python({scratch / "edit.py"});
    EXPECT_EQ(ran.code, 0) << ran.output;
  }

  // Finished files, each with one thing changed afterwards by a Python statement on f.
  std::vector<fs::path> edited(const std::vector<std::string>& edits) {
    std::vector<fs::path> paths;
    std::string script = "import h5py\n";
    for (const auto& edit : edits) {
      paths.push_back(sample(fmt::format("edited{}.h5", paths.size())));
      script +=
          fmt::format("with h5py.File('{}', 'r+') as f:\n    {}\n", paths.back().string(), edit);
    }
    write_all(folder / "edit.py", script);
    const Ran ran = python({folder / "edit.py"});
    EXPECT_EQ(ran.code, 0) << ran.output;
    return paths;
  }

  ScratchFolder folder;
};

}  // namespace stowage::results::test
