#include "inputs/huggingface/safetensors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "execution/error.hpp"
#include "inputs/huggingface/json_limits.hpp"

namespace stowage::inputs::huggingface {

using execution::throw_usage;
using nlohmann::json;

namespace {

constexpr std::string_view kMetadata = "__metadata__";
/// Values that describe one tensor, keys counted: more would only fill memory.
constexpr std::int64_t kMaxValues = 1'000'000;

struct Type {
  std::string_view name;
  int bits;
};
constexpr std::array<Type, 24> kTypes = {
    {{"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E4M3", 8}, {"F8_E5M2", 8},
     {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
     {"F4", 4},          {"I16", 16},        {"U16", 16},    {"F16", 16},    {"BF16", 16},
     {"I32", 32},        {"U32", 32},        {"F32", 32},    {"I64", 64},    {"U64", 64},
     {"F64", 64},        {"C64", 64},        {"C128", 128},  {"F4_E2M1", 4}}};

constexpr std::array<std::pair<execution::Dtype, std::string_view>, 6> kOurs = {
    {{execution::Dtype::fp64, "F64"},
     {execution::Dtype::fp32, "F32"},
     {execution::Dtype::bf16, "BF16"},
     {execution::Dtype::int64, "I64"},
     {execution::Dtype::int32, "I32"},
     {execution::Dtype::uint8, "U8"}}};

/// A value for a message.
std::string shown(const json& value) {
  return detail::shown_text(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

/// A whole number of JSON that fits an int64 and is not negative.
std::int64_t count_of(const json& value, std::string_view what, std::string_view tensor,
                      std::string_view origin) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    throw_usage("{}: tensor '{}': {} {} is not a whole number from 0 to 2^63 - 1", origin, tensor,
                what, shown(value));
  return value.get<std::int64_t>();
}

/// Bytes of a shape, or -1 where they do not fit or do not end on a byte.
std::int64_t bytes_of(const std::vector<std::int64_t>& shape, int bits) {
  std::int64_t total = bits;
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(total, extent, &total)) return -1;
  return total % 8 == 0 ? total / 8 : -1;
}

Entry read_entry(const std::string& name, const json& held, std::string_view origin) {
  Entry entry;
  entry.name = name;
  if (!held.is_object()) throw_usage("{}: tensor '{}' is not described by an object", origin, name);
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!held.contains(key)) throw_usage("{}: tensor '{}' has no {}", origin, name, key);
  if (held.size() != 3)
    throw_usage("{}: tensor '{}' has keys beside dtype, shape and data_offsets", origin, name);
  if (!held["dtype"].is_string() || bits_of(held["dtype"].get<std::string>()) == 0)
    throw_usage("{}: tensor '{}': dtype {} is not one of the format", origin, name,
                shown(held["dtype"]));
  entry.dtype = held["dtype"].get<std::string>();
  const json& offsets = held["data_offsets"];
  if (!held["shape"].is_array() || !offsets.is_array() || offsets.size() != 2)
    throw_usage("{}: tensor '{}': shape must be a list, data_offsets a list of two", origin, name);
  for (const json& extent : held["shape"])
    entry.shape.push_back(count_of(extent, "extent", name, origin));
  entry.begin = count_of(offsets[0], "offset", name, origin);
  entry.end = count_of(offsets[1], "offset", name, origin);
  const std::int64_t wanted = bytes_of(entry.shape, bits_of(entry.dtype));
  if (entry.end < entry.begin || wanted != entry.end - entry.begin)
    throw_usage("{}: tensor '{}' {} needs {} bytes, its data_offsets are [{}, {})", origin, name,
                entry.description(), wanted, entry.begin, entry.end);
  return entry;
}

/// Takes the entries out of a header while it is parsed: of tens of thousands of tensors no tree is
/// built, and a name that stands twice is seen.
class Collector {
 public:
  Collector(Header& header, std::string_view origin) : header_(header), origin_(origin) {}

  bool operator()(int depth, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    if (event == Event::key) {
      const std::string key = value.get<std::string>();
      if (depth == 1) {
        detail::require_name(key, origin_);
        name_ = key;
        values_ = 0;
      }
      std::set<std::string>& seen = depth == 1 ? names_ : keys_;
      if (depth <= 2 && !seen.insert(key).second)
        throw_usage("{}: '{}' stands twice in the header", origin_, detail::shown_text(key));
    }
    if (++values_ > kMaxValues)
      throw_usage("{}: '{}' is described by more than {} values", origin_, name_, kMaxValues);
    if (event == Event::object_start && depth == 1) keys_.clear();
    if (event == Event::object_start && depth > 1)  // the parser would search what lies around it
      throw_usage("{}: '{}' is described by an object in an object", origin_, name_);
    if (depth == 0 && (event == Event::array_start || event == Event::value))
      throw_usage("{}: the header is not a JSON object", origin_);
    const bool closes = event == Event::object_end || event == Event::array_end;
    if (depth == 1 && (closes || event == Event::value)) {
      take(value);
      return false;
    }
    return true;
  }

 private:
  void take(const json& value) {
    if (name_ != kMetadata) {
      header_.entries.push_back(read_entry(name_, value, origin_));
      return;
    }
    if (!value.is_object()) throw_usage("{}: {} is not an object", origin_, kMetadata);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        throw_usage("{}: {} has a value at '{}' that is no string", origin_, kMetadata,
                    detail::shown_text(key));
      header_.metadata[key] = text.get<std::string>();
    }
  }

  Header& header_;
  std::string_view origin_;
  std::string name_;
  std::int64_t values_ = 0;  ///< that described the tensor so far
  std::set<std::string> names_;
  std::set<std::string> keys_;
};

void require_tiled(const Header& header, std::int64_t file_bytes, std::string_view origin) {
  std::vector<const Entry*> order;
  for (const Entry& entry : header.entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::int64_t at = 0;
  for (const Entry* entry : order) {
    if (entry->begin != at)
      throw_usage("{}: tensor '{}' begins at byte {} of the data, the one before ends at {}: {}",
                  origin, entry->name, entry->begin, at,
                  entry->begin < at ? "they overlap" : "there is a hole");
    at = entry->end;
  }
  const std::int64_t held = file_bytes - header.data_offset;
  if (at > held)
    throw_usage("{}: truncated: tensor '{}' ends at byte {} of the data, the file has {} of them",
                origin, order.back()->name, at, held);
  if (at < held) throw_usage("{}: {} bytes follow the last tensor", origin, held - at);
}

}  // namespace

std::string Entry::description() const {
  return fmt::format("{} ({})", dtype, fmt::join(shape, ", "));
}

const Entry* Header::find(std::string_view name) const {
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const Entry& entry, std::string_view other) { return entry.name < other; });
  return found != entries.end() && found->name == name ? &*found : nullptr;
}

std::uint64_t header_bytes(std::span<const std::byte> first8, std::int64_t file_bytes,
                           std::string_view origin) {
  if (file_bytes < 8 || first8.size() < 8)
    throw_usage("{}: truncated: {} bytes are no safetensors file", origin, file_bytes);
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(first8[i]);
  if (length > kMaxHeaderBytes)
    throw_usage("{}: a header of {} bytes; the format allows {}: no safetensors file?", origin,
                length, kMaxHeaderBytes);
  if (length > static_cast<std::uint64_t>(file_bytes) - 8)
    throw_usage("{}: truncated: a header of {} bytes in a file of {}", origin, length, file_bytes);
  return length;
}

Header parse_header(std::span<const std::byte> start, std::int64_t file_bytes,
                    std::string_view origin) {
  const std::uint64_t length = header_bytes(start, file_bytes, origin);
  STOWAGE_ASSERT(start.size() >= 8 + length, "a header of {} bytes, {} are given", length,
                 start.size());
  const char* text = reinterpret_cast<const char*>(start.data()) + 8;
  detail::require_shallow({text, length}, origin);
  if (length == 0 || *text != '{') throw_usage("{}: the header does not begin with {{", origin);
  Header header;
  header.data_offset = static_cast<std::int64_t>(8 + length);
  try {
    Collector collect(header, origin);
    // A tree of nothing: the collector takes every entry out of it.
    const json left = json::parse(text, text + length, std::ref(collect));
    STOWAGE_ASSERT(left.empty(), "{}: {} entries were not collected", origin, left.size());
  } catch (const json::exception& error) {
    throw_usage("{}: the header is no JSON: {}", origin, detail::shown_text(error.what()));
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  require_tiled(header, file_bytes, origin);
  return header;
}

std::string make_header(std::span<Entry> entries,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = fmt::format("{{\"{}\":{}", kMetadata, json(metadata).dump());
  std::int64_t at = 0;
  for (Entry& entry : entries) {
    const std::int64_t bytes = bytes_of(entry.shape, bits_of(entry.dtype));
    STOWAGE_ASSERT(bytes >= 0, "tensor {} {} cannot be written", entry.name, entry.description());
    entry.begin = at;
    entry.end = at += bytes;
    text += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json(entry.name).dump(), entry.dtype, fmt::join(entry.shape, ","),
                        entry.begin, entry.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string start(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    start[i] = static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i));
  return start + text;
}

int bits_of(std::string_view dtype) {
  for (const Type& type : kTypes)
    if (type.name == dtype) return type.bits;
  return 0;
}

execution::Dtype dtype_of(const Entry& entry, std::string_view origin) {
  for (const auto& [ours, theirs] : kOurs)
    if (theirs == entry.dtype) return ours;
  throw_usage("{}: tensor '{}' is {}; allowed: BF16, F32, F64", origin, entry.name, entry.dtype);
}

std::string_view name_of(execution::Dtype dtype) {
  for (const auto& [ours, theirs] : kOurs)
    if (ours == dtype) return theirs;
  return "?";
}

}  // namespace stowage::inputs::huggingface
