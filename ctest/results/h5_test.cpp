#include "results/h5.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "results/file_lock.hpp"
#include "scratch_folder.hpp"

namespace stowage::results::h5 {
namespace {

using execution::Dtype;
using test::expect_error;
using test::ScratchFolder;

/// What sites set. HDF5 reads it as it starts, so that it is set before any case runs.
const bool kSiteWantsLocks = ::setenv("HDF5_USE_FILE_LOCKING", "TRUE", 1) == 0;

File create_ours(const std::filesystem::path& path) {
  File file = File::create(path);
  file.set_attribute("schema", std::string("test"));
  return file;
}

TEST(h5, attributes_come_back_with_their_type) {
  const ScratchFolder folder;
  const Fields fields = {{"a_bool", true},
                         {"b_integer", std::int64_t{-5}},
                         {"c_real", 0.1},
                         {"d_text", std::string("zwölf")},
                         {"e_empty", std::string()},
                         {"f_long", std::string(200000, 'x')}};
  {
    File file = create_ours(folder / "a.h5");
    file.make_group("x/y").set_attributes(fields);
    file.close();
  }
  const File file = File::open(folder / "a.h5", "test");
  const Fields read = file.group("x/y").attributes();
  ASSERT_EQ(read.size(), fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ(read[i].name, fields[i].name);
    EXPECT_EQ(read[i].value, fields[i].value) << fields[i].name;
  }
  EXPECT_FALSE(file.attribute("none"));
  EXPECT_TRUE(file.exists("x/y"));
  EXPECT_FALSE(file.exists("x/z/deeper"));
}

TEST(h5, arrays_of_every_dtype_and_storage_are_bitwise) {
  const ScratchFolder folder;
  File file = create_ours(folder / "a.h5");
  for (const Dtype dtype :
       {Dtype::fp64, Dtype::fp32, Dtype::bf16, Dtype::int32, Dtype::int64, Dtype::uint8})
    for (const Storage storage : {Storage::plain, Storage::checked, Storage::packed}) {
      const Shape shape = {37, 3};
      std::vector<std::uint8_t> bytes(37 * 3 * execution::size_bytes(dtype));
      for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::uint8_t>(i * 131 + 7);  // NaNs and denormals among them
      const auto path = fmt::format("g/{}_{}", name(dtype), static_cast<int>(storage));
      file.make_dataset(path, dtype, shape, storage).write(bytes.data());
      std::vector<std::uint8_t> read(bytes.size(), 0xAA);
      const Dataset dataset = file.dataset(path);
      dataset.read(read.data());
      EXPECT_EQ(read, bytes) << path;
      EXPECT_EQ(dataset.shape(), shape);
      EXPECT_EQ(dataset.dtype(), dtype);
    }
  EXPECT_EQ(file.datasets().size(), 18U);
}

TEST(h5, rows_are_read_in_any_pieces) {
  const ScratchFolder folder;
  File file = create_ours(folder / "a.h5");
  std::vector<double> values(1000 * 7);
  std::iota(values.begin(), values.end(), 0.0);
  Dataset dataset = file.make_dataset("a", Dtype::fp64, {1000, 7}, Storage::checked);
  dataset.write(values.data());
  std::vector<double> read(100 * 7, -1);
  dataset.read_rows(850, 100, read.data());
  EXPECT_TRUE(std::equal(read.begin(), read.end(), values.begin() + 850 * 7));
  expect_error(execution::Exit::runtime, {"rows"}, [&] { dataset.read_rows(950, 51, nullptr); });
}

TEST(h5, scalars_and_empty_arrays_can_be_stored) {
  const ScratchFolder folder;
  File file = create_ours(folder / "a.h5");
  const double one = 1.5;
  file.make_dataset("scalar", Dtype::fp64, {}, Storage::checked).write(&one);
  double read = 0;
  file.dataset("scalar").read(&read);
  EXPECT_EQ(read, one);
  for (const Storage storage : {Storage::plain, Storage::checked, Storage::packed}) {
    const auto path = fmt::format("empty{}", static_cast<int>(storage));
    file.make_dataset(path, Dtype::fp32, {0, 4}, storage);
    EXPECT_EQ(file.dataset(path).shape(), (Shape{0, 4}));
  }
}

TEST(h5, text_lines_and_tables) {
  const ScratchFolder folder;
  File file = create_ours(folder / "a.h5");
  const std::string deck = "[train]\nlr = 1e-3  # größer\n";
  file.write_text("deck", deck);
  file.write_text("none", "");
  EXPECT_EQ(file.read_text("deck"), deck);
  EXPECT_EQ(file.read_text("none"), "");
  file.write_lines("lines", {"a", "", "ccc"});
  file.write_lines("no_lines", {});
  file.write_table("table", {{"name", std::vector<std::string>{"x", "yy"}},
                             {"count", std::vector<std::int64_t>{1, 2}},
                             {"time", std::vector<double>{0.5, 1.5}}});
  EXPECT_EQ(file.dataset("table").shape(), Shape{2});
  EXPECT_EQ(file.read_column("table", "name"), (std::vector<std::string>{"x", "yy"}));
  for (const auto& [path, column] : {std::pair{"table", "count"}, {"table", "no"}, {"lines", "a"}})
    expect_error(execution::Exit::usage, {path, column},
                 [&, p = path, c = column] { file.read_column(p, c); });
  expect_error(execution::Exit::runtime, {"column b", "1 rows"}, [&] {
    file.write_table("bad", {{"a", std::vector<double>{1, 2}}, {"b", std::vector<double>{1}}});
  });
}

TEST(h5, a_file_that_its_run_has_locked_is_written_whatever_the_site_wants) {
  ASSERT_TRUE(kSiteWantsLocks);
  const ScratchFolder folder;
  const auto lock = LockedFile::try_open(folder / "a.h5");
  ASSERT_TRUE(lock);
  create_ours(folder / "a.h5").close();
  EXPECT_TRUE(File::open(folder / "a.h5", "test").attribute("schema"));
}

TEST(h5, failed_calls_carry_the_error_stack) {
  const ScratchFolder folder;
  File file = create_ours(folder / "a.h5");
  expect_error(execution::Exit::runtime,
               {"HDF5 call H5Dopen2", " failed with code -1: ", "doesn't exist"},
               [&] { file.dataset("missing"); });
}

TEST(h5, files_that_are_not_ours_are_refused_one_by_one) {
  const ScratchFolder folder;
  const auto open = [&](const std::string& name) {
    return [path = folder / name] { File::open(path, "test"); };
  };
  test::write_all(folder / "text", "not a result");
  test::write_all(folder / "zero", "");
  std::filesystem::create_directory(folder / "folder");
  File::create(folder / "other.h5").close();
  {
    File file = create_ours(folder / "cut.h5");
    file.write_values("a", std::vector<double>(1000, 1.0));
    file.close();
  }
  test::truncate_to_half(folder / "cut.h5");
  expect_error(execution::Exit::usage, {"missing.h5", "no such file"}, open("missing.h5"));
  expect_error(execution::Exit::usage, {"folder", "not a regular file"}, open("folder"));
  expect_error(execution::Exit::usage, {"text", "not an HDF5 file"}, open("text"));
  expect_error(execution::Exit::usage, {"zero", "not an HDF5 file"}, open("zero"));
  expect_error(execution::Exit::usage, {"other.h5", "not a test file"}, open("other.h5"));
  expect_error(execution::Exit::usage, {"cut.h5", "truncated"}, open("cut.h5"));
}

}  // namespace
}  // namespace stowage::results::h5
