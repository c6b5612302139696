#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "execution/dtype.hpp"
#include "execution/error.hpp"
#include "results/value.hpp"

/// A thin layer over the HDF5 C library: owned ids, checked calls, the few shapes that we store.
///
/// Every failed call throws Error(Exit::runtime) with HDF5's own error stack in the message. It is
/// not thread-safe as distributions build it: one thread of a process calls these, on one rank
/// (the serial driver is used, also by a parallel library). No other file includes `hdf5.h`.
namespace stowage::results::h5 {

/// An owned HDF5 identifier: move-only, closed by the destructor, which never throws.
class Handle {
 public:
  using Close = int (*)(std::int64_t);

  Handle() = default;
  Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() { reset(); }

  std::int64_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  void reset() noexcept;

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

/// How the bytes of a dataset lie in the file.
enum class Storage {
  plain,    ///< contiguous
  placed,   ///< contiguous, with its bytes in the file at once, for others to write
  checked,  ///< chunks of about 4 MiB with a Fletcher-32 checksum each, never compressed
  packed    ///< extensible in the first dimension; shuffled, deflated and checksummed when large
};

using Shape = std::vector<std::int64_t>;

/// A column of a table: all rows of one field.
struct Column {
  std::string name;
  std::variant<std::vector<std::string>, std::vector<std::int64_t>, std::vector<double>> rows;
};

/// Anything that carries attributes: a file's root, a group or a dataset.
class Node {
 public:
  void set_attribute(const std::string& name, const Value& value);
  void set_attributes(const Fields& fields);
  std::optional<Value> attribute(const std::string& name) const;  ///< nullopt if there is none
  std::string text_attribute(const std::string& name) const;      ///< "" if there is none
  Fields attributes() const;                                      ///< sorted by name
  std::int64_t id() const { return handle_.get(); }

 protected:
  explicit Node(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

/// An array of a fixed shape and dtype. bf16 is stored as uint16 with the attribute dtype="bf16",
/// 8-bit floating elements as uint8 with theirs.
class Dataset : public Node {
 public:
  explicit Dataset(Handle handle) : Node(std::move(handle)) {}

  Shape shape() const;
  execution::Dtype dtype() const;

  /// Where in the file the bytes of a `placed` dataset are.
  std::int64_t file_offset() const;

  /// Reads `count` whole rows of the first dimension, contiguous in memory.
  void read_rows(std::int64_t first, std::int64_t count, void* data) const;

  /// Writes or reads all of it.
  void write(const void* data);
  void read(void* data) const;

  /// All of it as fp64, the one value of a scalar. Throw Error(Exit::usage) if it holds no numbers,
  /// more of them than any of our result sets does, or not one.
  std::vector<double> values() const;
  double value() const;
};

/// A group, or the root of a file. Paths may have several parts; missing groups are made. What is
/// read lies in the file itself: a soft or external link on the way, and a dataset whose values lie
/// in other files or datasets, throw Error(Exit::usage).
class Group : public Node {
 public:
  explicit Group(Handle handle) : Node(std::move(handle)) {}

  Group make_group(const std::string& path);
  Group group(const std::string& path) const;
  Dataset make_dataset(const std::string& path, execution::Dtype dtype, const Shape& shape,
                       Storage storage);
  Dataset dataset(const std::string& path) const;

  bool exists(const std::string& path) const;
  std::vector<std::string> children() const;  ///< names of groups and datasets, sorted
  std::vector<std::string> datasets() const;  ///< paths of all datasets below, sorted

  /// Text of any length as one scalar string, rows of text, and rows of a compound type.
  void write_text(const std::string& path, std::string_view text);
  std::string read_text(const std::string& path) const;
  void write_lines(const std::string& path, const std::vector<std::string>& lines);
  void write_table(const std::string& path, const std::vector<Column>& columns);
  /// One column of text of such a table. Throws Error(Exit::usage) if there is none.
  std::vector<std::string> read_column(const std::string& path, const std::string& column) const;

  /// A 1-D fp64 dataset, packed.
  Dataset write_values(const std::string& path, std::span<const double> values);
};

/// An open file; itself the root group.
class File : public Group {
 public:
  /// Makes or replaces a file. The file must be named by the caller as one that may be overwritten.
  /// @param user_block bytes in front that HDF5 leaves to us: 0, or a power of two from 512 on
  static File create(const std::filesystem::path& path, std::int64_t user_block = 0);

  /// Opens for reading. Throws Error(Exit::usage) if the file is missing, is no HDF5 file, is
  /// truncated, or its root attribute `schema` is not `schema`.
  static File open(const std::filesystem::path& path, std::string_view schema);

  void flush();
  void close();  ///< closes now, so that an error can still be thrown

 private:
  explicit File(Handle handle) : Group(std::move(handle)) {}
};

/// Throws Error(Exit::usage): a call that failed while the file was read means that it is damaged.
[[noreturn]] void throw_damaged(const std::filesystem::path& path, std::string_view why);

/// What `read` makes of a file that is opened as by File::open. HDF5 calls that fail meanwhile
/// throw Error(Exit::usage): the file is damaged, or holds something in another form than ours.
template <class Read>
auto read_file(const std::filesystem::path& path, std::string_view schema, Read&& read) {
  try {
    return read(File::open(path, schema));
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::runtime) throw;
    throw_damaged(path, error.what());
  }
}

/// Makes `scale` the HDF5 dimension scale named `name`, and attaches it to the first dimension of
/// each dataset in `users` (specification "HDF5 Dimension Scales", so that h5py, netCDF and xarray
/// find the coordinate). Written out here since many sites build HDF5 without its high-level part.
void attach_scale(Dataset& scale, const std::string& name, std::span<Dataset> users);

/// The version of the HDF5 library that is loaded, and whether it was built parallel.
std::string library_version();

}  // namespace stowage::results::h5
