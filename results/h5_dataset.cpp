#include <algorithm>
#include <cstring>

#include "execution/error.hpp"
#include "results/h5_call.hpp"

namespace stowage::results::h5 {

using namespace detail;
using execution::Dtype;

namespace detail {

hid_t file_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
      return H5T_IEEE_F64LE;
    case Dtype::fp32:
      return H5T_IEEE_F32LE;
    case Dtype::bf16:
      return H5T_STD_U16LE;
    case Dtype::int32:
      return H5T_STD_I32LE;
    case Dtype::int64:
      return H5T_STD_I64LE;
    case Dtype::uint8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      return H5T_STD_U8LE;
  }
  return -1;
}

hid_t memory_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
      return H5T_NATIVE_DOUBLE;
    case Dtype::fp32:
      return H5T_NATIVE_FLOAT;
    case Dtype::bf16:
      return H5T_NATIVE_UINT16;
    case Dtype::int32:
      return H5T_NATIVE_INT32;
    case Dtype::int64:
      return H5T_NATIVE_INT64;
    case Dtype::uint8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      return H5T_NATIVE_UINT8;
  }
  return -1;
}

Handle open_dataset(hid_t group, const std::string& path) {
  require_hard_links(group, path);
  Handle opened = dataset(STOWAGE_HDF5(H5Dopen2(group, path.c_str(), H5P_DEFAULT)));
  const Handle storage = properties(STOWAGE_HDF5(H5Dget_create_plist(opened.get())));
  if (STOWAGE_HDF5(H5Pget_external_count(storage.get())) > 0 ||
      H5Pget_layout(storage.get()) == H5D_VIRTUAL)
    execution::throw_usage("{}: the values of {} lie elsewhere; files of ours hold their data",
                           file_name(group), path);
  return opened;
}

Handle space_of(const Shape& shape, bool extensible) {
  if (shape.empty()) return dataspace(STOWAGE_HDF5(H5Screate(H5S_SCALAR)));
  std::vector<hsize_t> extent(shape.begin(), shape.end());
  std::vector<hsize_t> most = extent;
  if (extensible) most[0] = H5S_UNLIMITED;
  return dataspace(
      STOWAGE_HDF5(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), most.data())));
}

}  // namespace detail

namespace {

constexpr std::int64_t kCheckedChunkBytes = 4 << 20;  // large enough to stream, small in the cache
constexpr hsize_t kPackedChunkRows = 4096;
constexpr std::int64_t kPackFromBytes = 64 << 10;  // below this, filters cost more than they save

std::int64_t row_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (std::size_t d = 1; d < shape.size(); ++d) count *= shape[d];
  return count;
}

void set_storage(hid_t list, Dtype dtype, const Shape& shape, Storage storage) {
  const auto element = static_cast<std::int64_t>(execution::size_bytes(dtype));
  const std::int64_t row_bytes = row_elements(shape) * element;
  if (storage == Storage::placed) {
    STOWAGE_HDF5(H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY));
    STOWAGE_HDF5(H5Pset_fill_time(list, H5D_FILL_TIME_NEVER));
    return;
  }
  // A scalar or an empty array cannot be chunked, hence not be checksummed.
  if (storage == Storage::plain || shape.empty() || row_bytes == 0) return;
  if (storage == Storage::checked && shape[0] == 0) return;
  std::vector<hsize_t> chunk(shape.begin(), shape.end());
  if (storage == Storage::checked) {
    chunk[0] =
        static_cast<hsize_t>(std::clamp<std::int64_t>(kCheckedChunkBytes / row_bytes, 1, shape[0]));
  } else {
    chunk[0] = kPackedChunkRows;
    if (shape[0] * row_bytes > kPackFromBytes) {
      STOWAGE_HDF5(H5Pset_shuffle(list));
      STOWAGE_HDF5(H5Pset_deflate(list, 4));
    } else {
      chunk[0] = static_cast<hsize_t>(std::clamp<std::int64_t>(shape[0], 1, kPackedChunkRows));
    }
  }
  STOWAGE_HDF5(H5Pset_chunk(list, static_cast<int>(chunk.size()), chunk.data()));
  STOWAGE_HDF5(H5Pset_fill_time(list, H5D_FILL_TIME_NEVER));  // every element is written
  if (storage == Storage::checked || shape[0] * row_bytes > kPackFromBytes)
    STOWAGE_HDF5(H5Pset_fletcher32(list));
}

struct Rows {
  Handle file;
  Handle memory;
};

Rows select_rows(hid_t dataset, const Shape& shape, std::int64_t first, std::int64_t count) {
  STOWAGE_ASSERT(!shape.empty() && first >= 0 && first + count <= shape[0],
                 "rows [{}, {}) of an HDF5 dataset with {} rows", first, first + count,
                 shape.empty() ? 0 : shape[0]);
  Rows rows{dataspace(STOWAGE_HDF5(H5Dget_space(dataset))), {}};
  std::vector<hsize_t> start(shape.size(), 0);
  std::vector<hsize_t> extent(shape.begin(), shape.end());
  start[0] = static_cast<hsize_t>(first);
  extent[0] = static_cast<hsize_t>(count);
  STOWAGE_HDF5(H5Sselect_hyperslab(rows.file.get(), H5S_SELECT_SET, start.data(), nullptr,
                                   extent.data(), nullptr));
  Shape part = shape;
  part[0] = count;
  rows.memory = space_of(part);
  return rows;
}

}  // namespace

Dataset Group::make_dataset(const std::string& path, Dtype dtype, const Shape& shape,
                            Storage storage) {
  const Handle list = properties(STOWAGE_HDF5(H5Pcreate(H5P_DATASET_CREATE)));
  set_storage(list.get(), dtype, shape, storage);
  const bool extensible = storage == Storage::packed && H5Pget_layout(list.get()) == H5D_CHUNKED;
  const Handle space = space_of(shape, extensible);
  const Handle links = making_groups();
  Dataset made(detail::dataset(STOWAGE_HDF5(H5Dcreate2(
      id(), path.c_str(), file_type(dtype), space.get(), links.get(), list.get(), H5P_DEFAULT))));
  if (dtype == Dtype::bf16 || dtype == Dtype::e4m3 || dtype == Dtype::e5m2)
    made.set_attribute("dtype", std::string(execution::name(dtype)));
  return made;
}

Dataset Group::dataset(const std::string& path) const { return Dataset(open_dataset(id(), path)); }

Shape Dataset::shape() const {
  const Handle space = dataspace(STOWAGE_HDF5(H5Dget_space(id())));
  const int dimensions = STOWAGE_HDF5(H5Sget_simple_extent_ndims(space.get()));
  std::vector<hsize_t> extent(static_cast<std::size_t>(dimensions));
  if (dimensions > 0) STOWAGE_HDF5(H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr));
  return {extent.begin(), extent.end()};
}

Dtype Dataset::dtype() const {
  const std::string text = text_attribute("dtype");
  for (const Dtype named : {Dtype::e4m3, Dtype::e5m2})
    if (text == execution::name(named)) return named;
  const Handle type = datatype(STOWAGE_HDF5(H5Dget_type(id())));
  for (const Dtype candidate :
       {Dtype::fp64, Dtype::fp32, Dtype::bf16, Dtype::int32, Dtype::int64, Dtype::uint8})
    if (STOWAGE_HDF5(H5Tequal(type.get(), file_type(candidate))) > 0) return candidate;
  throw execution::Error(execution::Exit::usage, "a dataset holds a type that is not ours");
}

std::int64_t Dataset::file_offset() const {
  const haddr_t offset = H5Dget_offset(id());
  STOWAGE_ASSERT(offset != HADDR_UNDEF, "an HDF5 dataset has no bytes of its own in the file");
  return static_cast<std::int64_t>(offset);
}

void Dataset::read_rows(std::int64_t first, std::int64_t count, void* data) const {
  if (count == 0) return;
  const Rows rows = select_rows(id(), shape(), first, count);
  STOWAGE_HDF5(
      H5Dread(id(), memory_type(dtype()), rows.memory.get(), rows.file.get(), H5P_DEFAULT, data));
}

void Dataset::write(const void* data) {
  STOWAGE_HDF5(H5Dwrite(id(), memory_type(dtype()), H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
}

void Dataset::read(void* data) const {
  STOWAGE_HDF5(H5Dread(id(), memory_type(dtype()), H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
}

std::vector<double> Dataset::values() const {
  const Shape extents = shape();
  std::size_t count = 1;
  for (const std::int64_t extent : extents) {
    if (extent != 0 && count > kLargestRead / sizeof(double) / static_cast<std::size_t>(extent))
      execution::throw_usage("{}: a dataset of more than {} bytes", file_name(id()), kLargestRead);
    count *= static_cast<std::size_t>(extent);
  }
  std::vector<double> all(count);
  if (count > 0)
    STOWAGE_HDF5(H5Dread(id(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()));
  return all;
}

double Dataset::value() const {
  const std::vector<double> all = values();
  if (all.size() != 1)
    execution::throw_usage("{}: a dataset of {} values, wanted one", file_name(id()), all.size());
  return all.front();
}

Dataset Group::write_values(const std::string& path, std::span<const double> values) {
  Dataset made =
      make_dataset(path, Dtype::fp64, {static_cast<std::int64_t>(values.size())}, Storage::packed);
  if (!values.empty()) made.write(values.data());
  return made;
}

}  // namespace stowage::results::h5
