#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "execution/error.hpp"
#include "inputs/data/file_form.hpp"
#include "inputs/data/formats.hpp"
#include "inputs/data/mapped_file.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {

namespace {

using execution::throw_usage;

constexpr std::size_t kSearchedForZero = 1 << 16;  // bytes; a binary file has a zero long before

/// Refuses what can be read as text, but hardly was meant to be: JSON lines and binary files.
void require_prose(const MappedFile& file) {
  const std::string_view text = detail::text_of(file);
  const std::string& path = file.path();
  if (path.ends_with(".jsonl") || is_json_lines(text)) {
    throw_usage(
        "data file '{}': JSON lines: make tokens of them with stowage_data prepare '{}' --out "
        "PREFIX and give data.path = PREFIX (data.source = \"text\" trains on their bytes)",
        path, path);
  }
  if (const std::size_t zero = text.substr(0, kSearchedForZero).find('\0');
      zero != std::string_view::npos) {
    throw_usage(
        "data file '{}': a zero at byte offset {}, so a binary file of no known format "
        "(data.source = \"text\" takes its bytes as tokens)",
        path, zero);
  }
}

}  // namespace

SourceKind detect_source(const std::string& path) {
  const std::string index = detail::megatron_index_path(path);
  std::error_code ignored;
  if (index == path || std::filesystem::is_regular_file(index, ignored)) {
    return SourceKind::megatron;
  }
  const MappedFile file(path);
  if (file.size() >= 4 && detail::is_llmc(file.read<std::int32_t>(0))) {
    return SourceKind::llmc;
  }
  const auto magic = static_cast<std::int64_t>(detail::kMegatronMagic.size());
  if (file.size() >= magic &&
      std::memcmp(file.data(), detail::kMegatronMagic.data(), detail::kMegatronMagic.size()) == 0) {
    throw_usage("data file '{}': a Megatron index whose name does not end in .idx", path);
  }
  if (path.ends_with(".bin")) {
    throw_usage(
        "data file '{}': wrong magic at byte offset 0: neither an llm.c shard ({}) nor beside a "
        "Megatron index '{}'",
        path, detail::kLlmcMagics, index);
  }
  detail::require_text(file);
  require_prose(file);
  return SourceKind::text;
}

namespace {

std::unique_ptr<TokenSource> open_tokens(const SourceOptions& options) {
  const SourceKind kind =
      options.kind == SourceKind::automatic ? detect_source(options.path) : options.kind;
  switch (kind) {
    case SourceKind::megatron:
      return detail::open_megatron(options);
    case SourceKind::llmc:
      return detail::open_llmc(options);
    case SourceKind::synthetic:
      return detail::open_synthetic(options);
    case SourceKind::text:
    case SourceKind::automatic:  // detected above
      break;
  }
  return detail::open_text(options);
}

}  // namespace

std::string mask_path(const std::string& path) {
  const bool pair = path.ends_with(".bin") || path.ends_with(".idx");
  return (pair ? path.substr(0, path.size() - 4) : path) + ".mask";
}

std::unique_ptr<TokenSource> open_source(const SourceOptions& options) {
  std::unique_ptr<TokenSource> source = open_tokens(options);
  if (options.mask == MaskUse::none) return source;
  std::error_code ignored;
  const std::string mask = mask_path(options.path);
  const bool there = !options.path.empty() && std::filesystem::exists(mask, ignored);
  if (there) return detail::with_mask(std::move(source), mask);
  if (options.mask == MaskUse::required) {
    throw_usage("{}: data.mask = \"required\", and there is no mask '{}'", source->description(),
                mask);
  }
  return source;
}

Split split(const TokenSource& source, double fraction) {
  const auto offsets = source.document_offsets();
  const std::int64_t documents = source.documents();
  const auto share = [fraction](std::int64_t all) {
    return static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(all)));
  };
  const std::int64_t cut = documents > 1 ? offsets[documents - share(documents)]
                                         : source.tokens() - share(source.tokens());
  return {.train = {0, cut}, .held_out = {cut, source.tokens()}};
}

}  // namespace stowage::inputs
