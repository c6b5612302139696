#pragma once

#include <sys/wait.h>

#include <cstdlib>
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

inline Ran run_command(const std::string& command) {
  const ScratchFolder folder;
  const fs::path out = folder / "out";
  const int status = std::system(fmt::format("{} > {} 2>&1", command, out.string()).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_all(out)};
}

inline std::string python(const std::vector<fs::path>& words) {
  std::string command = STOWAGE_PYTHON;
  for (const auto& word : words) command += fmt::format(" {}", word.string());
  return command;
}

inline Ran tool(const std::string& name, std::vector<fs::path> files,
                const std::string& options = {}) {
  files.insert(files.begin(), fmt::format("{}/{}.py", STOWAGE_TOOLS, name));
  return run_command(fmt::format("{} {}", python(files), options));
}

class ToolsFixture : public testing::Test {
 protected:
  void SetUp() override {
    const std::string find =
        "import importlib.util as u; exit(not (u.find_spec(\"h5py\") and "
        "u.find_spec(\"matplotlib\")))";
    static const bool there =
        run_command(fmt::format("{} -c '{}'", STOWAGE_PYTHON, find)).code == 0;
    if (!there) GTEST_SKIP() << "no h5py or no matplotlib for " STOWAGE_PYTHON;
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
    const Ran ran = run_command(python({scratch / "edit.py"}));
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
    const Ran ran = run_command(python({folder / "edit.py"}));
    EXPECT_EQ(ran.code, 0) << ran.output;
    return paths;
  }

  ScratchFolder folder;
};

}  // namespace stowage::results::test
