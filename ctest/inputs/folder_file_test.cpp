// Files of a model's folder that are none: links that lead out, FIFOs, folders, too many bytes.
#include "inputs/huggingface/folder_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/json_limits.hpp"
#include "inputs/huggingface/model_folder.hpp"
#include "support.hpp"

namespace stowage::inputs::huggingface {
namespace {

namespace fs = std::filesystem;
using testing::expect_parts;
using testing::TemporaryFolder;
using testing::usage_error;

TEST(folder_file, links_stay_in_the_folder) {
  const TemporaryFolder folder;
  folder.write("secret", "s");
  fs::create_directories(folder / "model/sub");
  fs::create_directories(folder / "models");
  folder.write("model/a", "text");
  folder.write("model/sub/b", "below");
  folder.write("models/c", "beside, with a name that begins alike");
  fs::create_directory_symlink("model", folder / "by_another_name");
  const auto link = [&](const std::string& target, const std::string& name) {
    fs::create_symlink(target, folder / ("model/" + name));
  };
  link("a", "same");
  link("sub/b", "deeper");
  link("same", "twice");
  link("../secret", "out");
  link("../models/c", "alike");
  link(folder / "secret", "absolute");
  link("sub/../../secret", "winding");
  link("nothing", "dangling");
  link("itself", "itself");
  link(".", "folder");
  for (const std::string model : {"model", "by_another_name"}) {
    const std::string path = folder / model;
    EXPECT_EQ(read_text(path_in(path, "a"), 4), "text");
    EXPECT_EQ(read_text(path_in(path, "same"), 4), "text");
    EXPECT_EQ(read_text(path_in(path, "deeper"), 5), "below");
    EXPECT_EQ(read_text(path_in(path, "twice"), 4), "text");
    EXPECT_EQ(path_in(path, "not_there"), path + "/not_there");
    for (const char* name : {"out", "alike", "absolute", "winding", "folder"})
      expect_parts(usage_error([&] { (void)path_in(path, name); }),
                   {path + "/" + name, "is a link to", "outside of its folder", "allowed"});
    for (const char* name : {"dangling", "itself"})
      expect_parts(usage_error([&] { (void)path_in(path, name); }), {name, "leads to no file"});
  }
}

TEST(folder_file, links_lead_into_the_cache_that_the_folder_is_in) {
  const TemporaryFolder folder;
  const std::string model = folder / "models--org--name";
  fs::create_directories(model + "/snapshots/0123abcd");
  fs::create_directories(model + "/blobs");
  fs::create_directories(folder / "models--org--other/blobs");
  folder.write("models--org--name/blobs/00ff", "blob");
  folder.write("models--org--name/refs", "main");
  folder.write("models--org--other/blobs/00ff", "of another model");
  const std::string snapshot = model + "/snapshots/0123abcd";
  fs::create_symlink("../../blobs/00ff", snapshot + "/config.json");
  fs::create_symlink("../../refs", snapshot + "/refs");
  fs::create_symlink("../../../models--org--other/blobs/00ff", snapshot + "/other");
  EXPECT_EQ(read_text(path_in(snapshot, "config.json"), 4), "blob");
  for (const char* name : {"refs", "other"})
    expect_parts(usage_error([&] { (void)path_in(snapshot, name); }), {name, "outside"});
  // The same links in a folder that is no snapshot.
  fs::rename(model + "/snapshots", model + "/copies");
  expect_parts(usage_error([&] { (void)path_in(model + "/copies/0123abcd", "config.json"); }),
               {"config.json", "outside"});
}

TEST(folder_file, only_plain_files_are_read) {
  const TemporaryFolder folder;
  folder.write("four", "text");
  EXPECT_EQ(read_text(folder / "four", 4), "text");
  expect_parts(usage_error([&] { (void)read_text(folder / "four", 3); }),
               {"four", "4 bytes", "allowed: 3"});
  expect_parts(usage_error([&] { (void)read_text(folder / "none", 3); }), {"none", "No such file"});
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const std::string& path : {folder / "fifo", folder / "", std::string("/dev/zero")})
    expect_parts(usage_error([&] { (void)read_text(path, 3); }), {path, "not a plain file"});
}

// Every file that is opened by its name, as each kind of what is no plain file.
TEST(folder_file, readers_take_only_plain_files_of_the_folder) {
  for (const char* name : {kConfigFile, kIndexFile, kSingleFile}) {
    const auto why = [&](const TemporaryFolder& folder) {
      return usage_error([&] {
        if (name == kConfigFile) (void)read_config(folder / "");
        ModelFolder(folder / "");
      });
    };
    const TemporaryFolder fifo, device, directory, sparse;
    ASSERT_EQ(::mkfifo((fifo / name).c_str(), 0600), 0);
    expect_parts(why(fifo), {name, "not a plain file"});
    fs::create_symlink("/dev/zero", device / name);
    expect_parts(why(device), {name, "outside of its folder"});
    fs::create_directory(directory / name);
    expect_parts(why(directory), {name, "not a plain file"});
    sparse.write(name, "");
    fs::resize_file(sparse / name, std::uintmax_t{20} << 30);  // no bytes of a disk
    (void)why(sparse);
  }
}

TEST(folder_file, sizes_at_their_limits) {
  const auto why = [](const char* name, std::uintmax_t bytes) {
    const TemporaryFolder folder;
    folder.write(name, "");
    fs::resize_file(folder / name, bytes);
    return usage_error([&] {
      if (name == kConfigFile) (void)read_config(folder / "");
      ModelFolder(folder / "");
    });
  };
  expect_parts(why(kConfigFile, std::uintmax_t{16} << 20), {kConfigFile, "no JSON"});
  expect_parts(why(kConfigFile, (std::uintmax_t{16} << 20) + 1), {"16777217", "allowed: 16777216"});
  expect_parts(why(kIndexFile, std::uintmax_t{32} << 20), {kIndexFile, "no JSON"});
  expect_parts(why(kIndexFile, (std::uintmax_t{32} << 20) + 1), {"33554433", "allowed: 33554432"});
}

}  // namespace
}  // namespace stowage::inputs::huggingface
