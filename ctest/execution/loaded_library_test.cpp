// Libraries that are loaded when they are first needed.
#include "execution/loaded_library.hpp"

#include <gtest/gtest.h>

#include <string>

#include "execution/error.hpp"

namespace stowage::execution {
namespace {

constexpr const char* kMissing = "libstowage_no_such_library.so.7";
constexpr const char* kPresent = "libc.so.6";

TEST(loaded_library, missing_required_library_is_an_environment_error_with_name_and_reason) {
  try {
    (void)LoadedLibrary::required(kMissing);
    FAIL() << "it was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::environment);
    EXPECT_EQ(std::string(error.what()),
              "the library libstowage_no_such_library.so.7 cannot be loaded: "
              "libstowage_no_such_library.so.7: cannot open shared object file: No such file or "
              "directory");
  }
}

TEST(loaded_library, missing_optional_library_has_no_function) {
  EXPECT_EQ(LoadedLibrary::if_found(kMissing).function<int(int)>("abs"), nullptr);
}

TEST(loaded_library, functions_of_a_present_library_can_be_called) {
  for (const LoadedLibrary& library :
       {LoadedLibrary::required(kPresent), LoadedLibrary::if_found(kPresent)}) {
    auto* function = library.function<int(int)>("abs");
    ASSERT_NE(function, nullptr);
    EXPECT_EQ(function(-7), 7);
    EXPECT_EQ(library.function<int(int)>("stowage_no_such_function"), nullptr);
  }
}

}  // namespace
}  // namespace stowage::execution
