#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "execution/error.hpp"
#include "results/h5_call.hpp"

namespace stowage::results::h5 {
namespace detail {
namespace {

herr_t append_error(unsigned, const H5E_error2_t* error, void* data) noexcept {
  try {
    auto& text = *static_cast<std::string*>(data);
    if (!text.empty()) text += " < ";
    text += error->func_name ? error->func_name : "?";
    if (error->desc && *error->desc) text += fmt::format(" ({})", error->desc);
  } catch (...) {
    return -1;
  }
  return 0;
}

/// What stands in quotes behind `key` in a text; empty if it does not stand there.
std::string_view quoted(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find('\''));
}

}  // namespace

std::string error_stack() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, append_error, &text);
  H5Eclear2(H5E_DEFAULT);
  // Of what the system refused, such as room on a disk, that alone: the rest is of the library.
  const std::string_view file = quoted(text, "filename = '");
  const std::string_view why = quoted(text, "error message = '");
  return file.empty() || why.empty() ? text : fmt::format("{}: {}", file, why);
}

void throw_hdf5(std::string_view call, long long code, std::source_location at) {
  execution::throw_call_failed("HDF5", call, code, error_stack(), at);
}

void start_library() {
  // HDF5 reads the variable once, as it starts, and prefers it to a file's own property. Sites set
  // it to TRUE.
  static const bool once = (::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1), true);
  static_cast<void>(once);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string file_name(hid_t object) {
  std::string name(static_cast<std::size_t>(STOWAGE_HDF5(H5Fget_name(object, nullptr, 0))), '\0');
  STOWAGE_HDF5(H5Fget_name(object, name.data(), name.size() + 1));
  return name;
}

void require_hard_links(hid_t group, const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (STOWAGE_HDF5(H5Lexists(group, part.c_str(), H5P_DEFAULT)) == 0) return;
    H5L_info_t link;
    STOWAGE_HDF5(H5Lget_info(group, part.c_str(), &link, H5P_DEFAULT));
    if (link.type != H5L_TYPE_HARD)
      execution::throw_usage("{}: {} is a soft or an external link; files of ours hold their data",
                             file_name(group), part);
    if (end == std::string::npos) return;
  }
}

Handle text_type(std::size_t bytes, H5T_cset_t characters) {
  Handle type = datatype(STOWAGE_HDF5(H5Tcopy(H5T_C_S1)));
  STOWAGE_HDF5(H5Tset_size(type.get(), std::max<std::size_t>(bytes, 1)));
  STOWAGE_HDF5(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
  STOWAGE_HDF5(H5Tset_cset(type.get(), characters));
  return type;
}

std::size_t text_bytes(hid_t object, hid_t type) {
  const std::size_t bytes = H5Tget_size(type);
  if (bytes > kLargestRead)
    execution::throw_usage("{}: a text of {} bytes, more than {}", file_name(object), bytes,
                           kLargestRead);
  return bytes;
}

Handle making_groups() {
  Handle list = properties(STOWAGE_HDF5(H5Pcreate(H5P_LINK_CREATE)));
  STOWAGE_HDF5(H5Pset_create_intermediate_group(list.get(), 1));
  return list;
}

}  // namespace detail

using namespace detail;

void Handle::reset() noexcept {
  if (id_ >= 0 && close_) close_(id_);
  id_ = -1;
}

namespace {

// h5py reads an enumeration {FALSE, TRUE} over int8 as a bool, and writes bools as one.
Handle bool_type() {
  Handle type = datatype(STOWAGE_HDF5(H5Tenum_create(H5T_NATIVE_INT8)));
  for (const std::int8_t value : {std::int8_t{0}, std::int8_t{1}})
    STOWAGE_HDF5(H5Tenum_insert(type.get(), value ? "TRUE" : "FALSE", &value));
  return type;
}

void put_attribute(hid_t node, const std::string& name, hid_t file_type, hid_t memory_type,
                   const void* data) {
  if (STOWAGE_HDF5(H5Aexists(node, name.c_str())) > 0) STOWAGE_HDF5(H5Adelete(node, name.c_str()));
  const Handle space = dataspace(STOWAGE_HDF5(H5Screate(H5S_SCALAR)));
  const Handle made = attribute(STOWAGE_HDF5(
      H5Acreate2(node, name.c_str(), file_type, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  STOWAGE_HDF5(H5Awrite(made.get(), memory_type, data));
}

// Other tools (h5py for one) write attributes of variable length: these are read too.
std::string read_string(hid_t id, hid_t type) {
  const H5T_cset_t characters = STOWAGE_HDF5(H5Tget_cset(type));
  if (STOWAGE_HDF5(H5Tis_variable_str(type)) > 0) {
    char* text = nullptr;
    const Handle memory = text_type(1, characters);
    STOWAGE_HDF5(H5Tset_size(memory.get(), H5T_VARIABLE));
    STOWAGE_HDF5(H5Aread(id, memory.get(), static_cast<void*>(&text)));
    std::string copy = text ? text : "";
    H5free_memory(text);
    return copy;
  }
  std::string text(text_bytes(id, type), '\0');
  const Handle memory = text_type(text.size(), characters);
  STOWAGE_HDF5(H5Aread(id, memory.get(), text.data()));
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::optional<Value> read_value(hid_t id) {
  const Handle type = datatype(STOWAGE_HDF5(H5Aget_type(id)));
  const Handle space = dataspace(STOWAGE_HDF5(H5Aget_space(id)));
  if (H5Sget_simple_extent_npoints(space.get()) != 1) return std::nullopt;
  switch (static_cast<int>(H5Tget_class(type.get()))) {  // HDF5 has classes that are not read
    case H5T_STRING:
      return read_string(id, type.get());
    case H5T_FLOAT: {
      double value = 0;
      STOWAGE_HDF5(H5Aread(id, H5T_NATIVE_DOUBLE, &value));
      return value;
    }
    case H5T_INTEGER: {
      std::int64_t value = 0;
      STOWAGE_HDF5(H5Aread(id, H5T_NATIVE_INT64, &value));
      return value;
    }
    case H5T_ENUM: {
      std::int8_t value = 0;
      const Handle memory = bool_type();
      STOWAGE_HDF5(H5Aread(id, memory.get(), &value));
      return value != 0;
    }
    default:
      return std::nullopt;
  }
}

herr_t append_name(hid_t, const char* name, const H5L_info_t*, void* data) noexcept {
  try {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
  } catch (...) {
    return -1;
  }
  return 0;
}

herr_t append_attribute(hid_t, const char* name, const H5A_info_t*, void* data) noexcept {
  return append_name(0, name, nullptr, data);
}

}  // namespace

void Node::set_attribute(const std::string& name, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) {
    const Handle type = bool_type();
    const std::int8_t byte = *flag ? 1 : 0;
    put_attribute(id(), name, type.get(), type.get(), &byte);
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    put_attribute(id(), name, H5T_STD_I64LE, H5T_NATIVE_INT64, integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    put_attribute(id(), name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, real);
  } else {
    const auto& text = std::get<std::string>(value);
    const Handle type = text_type(text.size());
    put_attribute(id(), name, type.get(), type.get(), text.c_str());
  }
}

void Node::set_attributes(const Fields& fields) {
  for (const auto& [name, value] : fields) set_attribute(name, value);
}

std::optional<Value> Node::attribute(const std::string& name) const {
  if (STOWAGE_HDF5(H5Aexists(id(), name.c_str())) == 0) return std::nullopt;
  const Handle opened = detail::attribute(STOWAGE_HDF5(H5Aopen(id(), name.c_str(), H5P_DEFAULT)));
  return read_value(opened.get());
}

std::string Node::text_attribute(const std::string& name) const {
  const auto value = attribute(name);
  if (!value || !std::holds_alternative<std::string>(*value)) return {};
  return std::get<std::string>(*value);
}

Fields Node::attributes() const {
  std::vector<std::string> names;
  STOWAGE_HDF5(H5Aiterate2(id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, append_attribute, &names));
  std::sort(names.begin(), names.end());
  Fields fields;
  for (const auto& name : names)
    if (auto value = attribute(name)) fields.push_back({name, std::move(*value)});
  return fields;
}

Group Group::make_group(const std::string& path) {
  if (exists(path)) return group(path);
  const Handle links = making_groups();
  return Group(detail::group(
      STOWAGE_HDF5(H5Gcreate2(id(), path.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT))));
}

Group Group::group(const std::string& path) const {
  require_hard_links(id(), path);
  return Group(detail::group(STOWAGE_HDF5(H5Gopen2(id(), path.c_str(), H5P_DEFAULT))));
}

bool Group::exists(const std::string& path) const {
  require_hard_links(id(), path);
  // H5Lexists asks for every part of the way: a missing group in the middle is an error to HDF5.
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (STOWAGE_HDF5(H5Lexists(id(), part.c_str(), H5P_DEFAULT)) == 0) return false;
    if (end == std::string::npos) return true;
  }
}

std::vector<std::string> Group::children() const {
  std::vector<std::string> names;
  STOWAGE_HDF5(H5Literate(id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, append_name, &names));
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

constexpr int kMostLevels = 32;  // a group that lies in itself has more than any of ours

std::vector<std::string> datasets_below(const Group& group, int levels) {
  if (levels == 0)
    execution::throw_usage("{}: groups lie in each other more than {} deep", file_name(group.id()),
                           kMostLevels);
  std::vector<std::string> paths;
  for (const auto& name : group.children()) {
    require_hard_links(group.id(), name);
    const Handle child{STOWAGE_HDF5(H5Oopen(group.id(), name.c_str(), H5P_DEFAULT)),
                       [](std::int64_t object) -> int { return H5Oclose(object); }};
    if (H5Iget_type(child.get()) == H5I_DATASET) {
      paths.push_back(name);
    } else if (H5Iget_type(child.get()) == H5I_GROUP) {
      for (const auto& below : datasets_below(group.group(name), levels - 1))
        paths.push_back(name + "/" + below);
    }
  }
  return paths;
}

}  // namespace

std::vector<std::string> Group::datasets() const { return datasets_below(*this, kMostLevels); }

std::string library_version() {
  std::array<unsigned, 3> v{};
  STOWAGE_HDF5(H5get_libversion(&v[0], &v[1], &v[2]));
#ifdef H5_HAVE_PARALLEL
  constexpr std::string_view kKind = "parallel";
#else
  constexpr std::string_view kKind = "serial";
#endif
  return fmt::format("{}.{}.{} {}", v[0], v[1], v[2], kKind);
}

}  // namespace stowage::results::h5
