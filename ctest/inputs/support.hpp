#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "execution/error.hpp"

namespace stowage::inputs::testing {

/// A folder of this test's own, gone at its end.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("stowage_inputs_" + std::to_string(::getpid()) + "_" + std::to_string(next_++))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

  /// Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::string path = *this / name;
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    return path;
  }

 private:
  static inline int next_ = 0;
  std::filesystem::path path_;
};

/// The message of the usage error that `f` throws; a failure if it throws none or another.
template <class F>
std::string usage_error(F&& f) {
  try {
    f();
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::usage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no usage error";
  return {};
}

/// Expects `text` to contain each of `parts`.
inline void expect_parts(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
}

/// Appends a value's bytes, little-endian.
template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace stowage::inputs::testing
