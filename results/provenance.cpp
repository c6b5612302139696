#include "results/provenance.hpp"

#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "execution/error.hpp"
#include "inputs/deck/sha256.hpp"
#include "results/format.hpp"
#include "results/h5.hpp"
#include "version/version.hpp"

namespace stowage::results {
namespace {

std::string random_uuid() {
  std::random_device device;
  std::array<std::uint32_t, 4> words;
  for (auto& word : words) word = device();
  words[1] = (words[1] & 0xffff0fffU) | 0x4000U;      // version 4
  words[2] = (words[2] & 0x3fffffffU) | 0x80000000U;  // variant of RFC 4122
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:04x}{:08x}", words[0], words[1] >> 16,
                     words[1] & 0xffffU, words[2] >> 16, words[2] & 0xffffU, words[3]);
}

int append_library(dl_phdr_info* info, std::size_t, void* data) noexcept {
  try {
    if (info->dlpi_name && *info->dlpi_name)
      static_cast<std::vector<std::string>*>(data)->push_back(without_folders(info->dlpi_name));
  } catch (...) {
    return -1;
  }
  return 0;
}

}  // namespace

std::string without_folders(std::string_view text) {
  constexpr std::string_view kBefore = "=:;, \"'\n";
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '/' || (at > 0 && kBefore.find(text[at - 1]) == std::string_view::npos)) {
      plain += text[at++];
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(kBefore, at), text.size());
    std::string_view path = text.substr(at, end - at);
    while (path.ends_with('/')) path.remove_suffix(1);
    plain += path.substr(path.rfind('/') + 1);
    at = end;
  }
  return plain;
}

RunInfo begin_run(int argc, const char* const* argv, std::int64_t ranks, std::int64_t seed) {
  std::vector<std::string> words;
  for (int i = 0; i < argc; ++i) words.push_back(without_folders(argv[i]));
  return {.uuid = random_uuid(), .start = utc_now(), .argv = words, .ranks = ranks, .seed = seed};
}

Fields software(const Fields& extra) {
  const auto& build = version::build_info();
  const auto text = [](std::string_view view) { return Value(std::string(view)); };
  Fields fields = {{"release", text(build.release)},
                   {"git_describe", text(build.git_describe)},
                   {"compiler", text(build.compiler)},
                   {"cuda_compiler", text(build.cuda_compiler)},
                   {"cuda_architectures", text(build.cuda_architectures)},
                   {"build_type", text(build.build_type)},
                   {"flags", text(build.flags)},
                   {"hdf5_loaded", h5::library_version()}};
  for (const auto& library : build.libraries) {
    std::string key = fmt::format("built_with_{}", library.name);
    std::transform(key.begin(), key.end(), key.begin(), [](char c) {
      return c == '+' ? 'p' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
    fields.push_back({key, text(library.version)});
  }
  fields.insert(fields.end(), extra.begin(), extra.end());
  return fields;
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(append_library, &names);
  std::sort(names.begin(), names.end());
  return names;
}

FileRecord record_file(const std::filesystem::path& path, std::int64_t hash_limit_bytes) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) execution::throw_usage("{}: {}", path.string(), error.message());
  FileRecord record{.path = without_folders(path.string()),
                    .bytes = static_cast<std::int64_t>(bytes),
                    .sha256 = {}};
  if (record.bytes <= hash_limit_bytes) record.sha256 = inputs::sha256_of_file(path);
  return record;
}

}  // namespace stowage::results
