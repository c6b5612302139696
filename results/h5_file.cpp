#include <cerrno>
#include <cstring>

#include "execution/error.hpp"
#include "results/h5_call.hpp"

namespace stowage::results::h5 {

using namespace detail;
using execution::throw_usage;

namespace {

// Format of HDF5 1.8 and later: checksums over metadata, attributes of any size, creation without
// the "being written" mark of 1.10 that would need h5clear after a kill.
Handle access_list() {
  Handle list = properties(STOWAGE_HDF5(H5Pcreate(H5P_FILE_ACCESS)));
  STOWAGE_HDF5(H5Pset_libver_bounds(list.get(), H5F_LIBVER_V18, H5F_LIBVER_V18));
  return list;
}

}  // namespace

void throw_damaged(const std::filesystem::path& path, std::string_view why) {
  throw_usage("{}: the file is damaged ({})", path.string(), why);
}

File File::create(const std::filesystem::path& path, std::int64_t user_block) {
  start_library();
  const Handle list = access_list();
  const Handle layout = properties(STOWAGE_HDF5(H5Pcreate(H5P_FILE_CREATE)));
  STOWAGE_HDF5(H5Pset_userblock(layout.get(), static_cast<hsize_t>(user_block)));
  return File(
      detail::file(STOWAGE_HDF5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, layout.get(), list.get()))));
}

File File::open(const std::filesystem::path& path, std::string_view schema) {
  start_library();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw_usage("{}: no such file", path.string());
  if (!std::filesystem::is_regular_file(status))
    throw_usage("{}: not a regular file", path.string());
  const htri_t is_hdf5 = H5Fis_hdf5(path.c_str());
  if (is_hdf5 < 0)
    throw_usage("{}: cannot be read: {} ({})", path.string(), std::strerror(errno), error_stack());
  if (is_hdf5 == 0) throw_usage("{}: not an HDF5 file (wanted a {} file)", path.string(), schema);
  const Handle list = access_list();
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, list.get());
  if (id < 0) {
    const std::string why = error_stack();
    const bool cut = why.find("truncated") != std::string::npos;
    throw_usage("{}: {} ({})", path.string(), cut ? "the file is truncated" : "the file is damaged",
                why);
  }
  File opened{detail::file(id)};
  std::string found;
  try {
    found = opened.text_attribute("schema");
  } catch (const execution::Error& problem) {
    throw_damaged(path, problem.what());
  }
  if (found != schema)
    throw_usage("{}: not a {} file: its root attribute schema is {}", path.string(), schema,
                found.empty() ? "missing" : "'" + found + "'");
  return opened;
}

void File::flush() { STOWAGE_HDF5(H5Fflush(id(), H5F_SCOPE_GLOBAL)); }

void File::close() {
  if (!handle_) return;
  STOWAGE_HDF5(H5Fflush(id(), H5F_SCOPE_GLOBAL));
  const hid_t open_id = id();
  const auto others = STOWAGE_HDF5(
      H5Fget_obj_count(open_id, H5F_OBJ_DATASET | H5F_OBJ_GROUP | H5F_OBJ_ATTR | H5F_OBJ_LOCAL));
  STOWAGE_ASSERT(others == 0, "an HDF5 file is closed while {} of its objects are open", others);
  handle_ = Handle();
}

}  // namespace stowage::results::h5
