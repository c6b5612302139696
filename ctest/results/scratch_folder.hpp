#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "execution/error.hpp"

namespace stowage::results::test {

/// A fresh folder, removed with all it holds.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "stowage_XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_all(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline void truncate_to_half(const std::filesystem::path& path) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
}

/// Expects `call` to throw an Error with the exit code and all of the words in its message.
template <class Call>
void expect_error(execution::Exit exit, const std::vector<std::string>& words, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "no error was thrown";
  } catch (const execution::Error& error) {
    EXPECT_EQ(static_cast<int>(error.exit()), static_cast<int>(exit)) << error.what();
    for (const auto& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "no '" << word << "' in: " << error.what();
  }
}

}  // namespace stowage::results::test
