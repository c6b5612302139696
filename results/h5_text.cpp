#include <algorithm>
#include <cstring>

#include "execution/error.hpp"
#include "results/h5_call.hpp"

// Text, tables and dimension scales: what the plain arrays of h5_dataset.cpp do not cover.
namespace stowage::results::h5 {

using namespace detail;

namespace {

Handle make(hid_t parent, const std::string& path, hid_t type, const Shape& shape) {
  const Handle links = making_groups();
  const Handle space = space_of(shape);
  return dataset(STOWAGE_HDF5(
      H5Dcreate2(parent, path.c_str(), type, space.get(), links.get(), H5P_DEFAULT, H5P_DEFAULT)));
}

std::size_t longest(const std::vector<std::string>& lines) {
  std::size_t bytes = 1;
  for (const auto& line : lines) bytes = std::max(bytes, line.size());
  return bytes;
}

struct Layout {
  Handle type;
  std::size_t bytes;
  std::size_t rows;
};

Layout layout_of(const Column& column) {
  if (const auto* text = std::get_if<std::vector<std::string>>(&column.rows))
    return {text_type(longest(*text)), longest(*text), text->size()};
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&column.rows))
    return {datatype(STOWAGE_HDF5(H5Tcopy(H5T_STD_I64LE))), 8, integers->size()};
  return {datatype(STOWAGE_HDF5(H5Tcopy(H5T_IEEE_F64LE))), 8,
          std::get<std::vector<double>>(column.rows).size()};
}

void copy_cell(const Column& column, std::size_t row, std::byte* to) {
  if (const auto* text = std::get_if<std::vector<std::string>>(&column.rows))
    std::memcpy(to, (*text)[row].data(), (*text)[row].size());
  else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&column.rows))
    std::memcpy(to, &(*integers)[row], 8);
  else
    std::memcpy(to, &std::get<std::vector<double>>(column.rows)[row], 8);
}

// A row of the attribute REFERENCE_LIST, as the high-level library lays it out.
struct ScaleUser {
  hobj_ref_t dataset;
  int dimension;
};

hobj_ref_t reference_to(hid_t object) {
  hobj_ref_t reference = 0;
  STOWAGE_HDF5(H5Rcreate(&reference, object, ".", H5R_OBJECT, -1));
  return reference;
}

// DIMENSION_LIST of the user: for each dimension a variable-length list of references to scales.
void list_scale(hid_t user, const hobj_ref_t& scale, std::size_t dimensions) {
  const Handle type = datatype(STOWAGE_HDF5(H5Tvlen_create(H5T_STD_REF_OBJ)));
  const Handle space = space_of({static_cast<std::int64_t>(dimensions)});
  std::vector<hvl_t> rows(dimensions, hvl_t{0, nullptr});
  rows[0] = {1, const_cast<hobj_ref_t*>(&scale)};
  const Handle made = attribute(STOWAGE_HDF5(
      H5Acreate2(user, "DIMENSION_LIST", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  STOWAGE_HDF5(H5Awrite(made.get(), type.get(), rows.data()));
}

void list_users(hid_t scale, const std::vector<ScaleUser>& users) {
  const Handle type = datatype(STOWAGE_HDF5(H5Tcreate(H5T_COMPOUND, sizeof(ScaleUser))));
  STOWAGE_HDF5(H5Tinsert(type.get(), "dataset", HOFFSET(ScaleUser, dataset), H5T_STD_REF_OBJ));
  STOWAGE_HDF5(H5Tinsert(type.get(), "dimension", HOFFSET(ScaleUser, dimension), H5T_NATIVE_INT));
  const Handle space = space_of({static_cast<std::int64_t>(users.size())});
  const Handle made = attribute(STOWAGE_HDF5(
      H5Acreate2(scale, "REFERENCE_LIST", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  STOWAGE_HDF5(H5Awrite(made.get(), type.get(), users.data()));
}

// The standard wants CLASS and NAME terminated by a null byte within their size.
void set_terminated(hid_t node, const char* name, const std::string& value) {
  const Handle type = datatype(STOWAGE_HDF5(H5Tcopy(H5T_C_S1)));
  STOWAGE_HDF5(H5Tset_size(type.get(), value.size() + 1));
  const Handle space = dataspace(STOWAGE_HDF5(H5Screate(H5S_SCALAR)));
  const Handle made = attribute(
      STOWAGE_HDF5(H5Acreate2(node, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  STOWAGE_HDF5(H5Awrite(made.get(), type.get(), value.c_str()));
}

}  // namespace

void Group::write_text(const std::string& path, std::string_view text) {
  const Handle type = text_type(text.size());
  const Handle made = make(id(), path, type.get(), {});
  const std::string copy(text);  // terminated: an empty text still has one byte to write
  STOWAGE_HDF5(H5Dwrite(made.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, copy.c_str()));
}

std::string Group::read_text(const std::string& path) const {
  const Handle opened = open_dataset(id(), path);
  const Handle type = datatype(STOWAGE_HDF5(H5Dget_type(opened.get())));
  const Handle space = dataspace(STOWAGE_HDF5(H5Dget_space(opened.get())));
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) > 0 ||
      H5Sget_simple_extent_npoints(space.get()) != 1)
    execution::throw_usage("{}: dataset {} is not a text of ours", file_name(id()), path);
  std::string text(text_bytes(id(), type.get()), '\0');
  const Handle memory = text_type(text.size(), STOWAGE_HDF5(H5Tget_cset(type.get())));
  STOWAGE_HDF5(H5Dread(opened.get(), memory.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()));
  text.resize(std::strlen(text.c_str()));
  return text;
}

void Group::write_lines(const std::string& path, const std::vector<std::string>& lines) {
  const std::size_t bytes = longest(lines);
  const Handle type = text_type(bytes);
  const Handle made = make(id(), path, type.get(), {static_cast<std::int64_t>(lines.size())});
  if (lines.empty()) return;
  std::string packed(bytes * lines.size(), '\0');
  for (std::size_t i = 0; i < lines.size(); ++i)
    std::memcpy(packed.data() + i * bytes, lines[i].data(), lines[i].size());
  STOWAGE_HDF5(H5Dwrite(made.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, packed.data()));
}

void Group::write_table(const std::string& path, const std::vector<Column>& columns) {
  STOWAGE_ASSERT(!columns.empty(), "table {} has no columns", path);
  std::vector<Layout> layouts;
  std::size_t row_bytes = 0;
  for (const auto& column : columns) {
    layouts.push_back(layout_of(column));
    row_bytes += layouts.back().bytes;
    STOWAGE_ASSERT(layouts.back().rows == layouts.front().rows,
                   "column {} of table {} has {} rows, the first has {}", column.name, path,
                   layouts.back().rows, layouts.front().rows);
  }
  const std::size_t rows = layouts.front().rows;
  const Handle type = datatype(STOWAGE_HDF5(H5Tcreate(H5T_COMPOUND, row_bytes)));
  std::vector<std::byte> packed(row_bytes * rows);
  std::size_t offset = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    STOWAGE_HDF5(H5Tinsert(type.get(), columns[c].name.c_str(), offset, layouts[c].type.get()));
    for (std::size_t row = 0; row < rows; ++row)
      copy_cell(columns[c], row, packed.data() + row * row_bytes + offset);
    offset += layouts[c].bytes;
  }
  const Handle made = make(id(), path, type.get(), {static_cast<std::int64_t>(rows)});
  if (rows > 0)
    STOWAGE_HDF5(H5Dwrite(made.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, packed.data()));
}

std::vector<std::string> Group::read_column(const std::string& path,
                                            const std::string& column) const {
  const Handle opened = open_dataset(id(), path);
  const Handle table = datatype(STOWAGE_HDF5(H5Dget_type(opened.get())));
  const bool compound = H5Tget_class(table.get()) == H5T_COMPOUND;
  const int member = compound ? H5Tget_member_index(table.get(), column.c_str()) : -1;
  if (member < 0 || H5Tget_member_class(table.get(), static_cast<unsigned>(member)) != H5T_STRING)
    execution::throw_usage("{}: table {} has no column {} of text", file_name(id()), path, column);
  const Handle cell =
      datatype(STOWAGE_HDF5(H5Tget_member_type(table.get(), static_cast<unsigned>(member))));
  const std::size_t bytes = text_bytes(id(), cell.get());
  const Handle space = dataspace(STOWAGE_HDF5(H5Dget_space(opened.get())));
  const hssize_t points = STOWAGE_HDF5(H5Sget_simple_extent_npoints(space.get()));
  const auto count = static_cast<std::size_t>(points);
  if (H5Tis_variable_str(cell.get()) > 0 || count > kLargestRead / bytes)
    execution::throw_usage("{}: column {} of table {} is not a column of ours", file_name(id()),
                           column, path);
  const Handle memory = datatype(STOWAGE_HDF5(H5Tcreate(H5T_COMPOUND, bytes)));
  STOWAGE_HDF5(H5Tinsert(memory.get(), column.c_str(), 0, cell.get()));
  std::string packed(bytes * count + 1, '\0');
  STOWAGE_HDF5(H5Dread(opened.get(), memory.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, packed.data()));
  std::vector<std::string> rows;
  for (std::size_t row = 0; row < count; ++row) {
    const std::string cut = packed.substr(row * bytes, bytes);
    rows.push_back(cut.substr(0, cut.find('\0')));
  }
  return rows;
}

void attach_scale(Dataset& scale, const std::string& name, std::span<Dataset> users) {
  set_terminated(scale.id(), "CLASS", "DIMENSION_SCALE");
  set_terminated(scale.id(), "NAME", name);
  const hobj_ref_t reference = reference_to(scale.id());
  std::vector<ScaleUser> rows;
  for (const auto& user : users) {
    list_scale(user.id(), reference, user.shape().size());
    rows.push_back({reference_to(user.id()), 0});
  }
  if (!rows.empty()) list_users(scale.id(), rows);
}

}  // namespace stowage::results::h5
