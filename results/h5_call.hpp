#pragma once

#include <hdf5.h>

#include <source_location>
#include <string_view>

#include "results/h5.hpp"

/// Inside of `results/h5*.cpp` only: the checked call and the conversions to HDF5's own types.
namespace stowage::results::h5::detail {

/// Throws Error(Exit::runtime) with the failed call, its place and HDF5's error stack.
[[noreturn]] void throw_hdf5(std::string_view call, long long code, std::source_location at);

/// HDF5's error stack as one line, innermost message last; clears the stack.
std::string error_stack();

template <class Result>
Result check(Result result, std::string_view call, std::source_location at) {
  if (result < 0) [[unlikely]]
    throw_hdf5(call, static_cast<long long>(result), at);
  return result;
}

/// Comes before every other call of HDF5: this thread's errors are not printed, since ours carry
/// them, and no file is locked by HDF5. Outputs are locked by us for as long as they grow
/// (part_file.hpp), and HDF5's lock of the same file would find ours.
void start_library();

/// The type in the file (little-endian, fixed) and the type in memory of a dtype.
hid_t file_type(execution::Dtype dtype);
hid_t memory_type(execution::Dtype dtype);

/// A fixed-length string type of at least one byte. Ours are UTF-8; what another program stored is
/// read as the set that it names, for HDF5 converts neither ASCII to UTF-8 nor back.
Handle text_type(std::size_t bytes, H5T_cset_t characters = H5T_CSET_UTF8);

/// A simple dataspace (scalar for an empty shape).
Handle space_of(const Shape& shape, bool extensible = false);

inline Handle dataspace(hid_t id) {
  return {id, [](std::int64_t i) { return H5Sclose(i); }};
}
inline Handle datatype(hid_t id) {
  return {id, [](std::int64_t i) { return H5Tclose(i); }};
}
inline Handle properties(hid_t id) {
  return {id, [](std::int64_t i) { return H5Pclose(i); }};
}
inline Handle attribute(hid_t id) {
  return {id, [](std::int64_t i) { return H5Aclose(i); }};
}
inline Handle dataset(hid_t id) {
  return {id, [](std::int64_t i) { return H5Dclose(i); }};
}
inline Handle group(hid_t id) {
  return {id, [](std::int64_t i) { return H5Gclose(i); }};
}
inline Handle file(hid_t id) {
  return {id, [](std::int64_t i) { return H5Fclose(i); }};
}

/// Bytes that are read at once of a text, a column or a series: more than any of ours has.
inline constexpr std::size_t kLargestRead = std::size_t{256} << 20;

/// The bytes of a text of fixed length, at most kLargestRead.
std::size_t text_bytes(hid_t object, hid_t type);

/// The name of the file that an object is in.
std::string file_name(hid_t object);

/// Refuses a soft or an external link on the way from a group to what a path names.
void require_hard_links(hid_t group, const std::string& path);

/// Opens a dataset whose values lie in the file itself.
Handle open_dataset(hid_t group, const std::string& path);

/// A link-creation list that makes missing groups.
Handle making_groups();

}  // namespace stowage::results::h5::detail

/// Checks a call of the HDF5 library: gives its value back, or throws with HDF5's error stack.
#define STOWAGE_HDF5(expr) \
  ::stowage::results::h5::detail::check((expr), #expr, std::source_location::current())
