#include "parallel/watch/watchdog.hpp"

#include <gtest/gtest.h>

#include <future>

namespace stowage::parallel {
namespace {

using namespace std::chrono_literals;

/// A watchdog over words that the test writes in place of a GPU.
class watchdog : public testing::Test {
 protected:
  static constexpr Watchdog::Seconds kPatience{0.1};

  void begin(std::uint64_t index) {
    words.index = index;
    words.begun = words.begun + 1;
  }
  void end() { words.ended = words.ended + 1; }

  Watchdog::Alarm alarm() {
    return [this](const std::string& what) { told.set_value(what); };
  }
  bool silent_for(std::chrono::milliseconds time) {
    return heard.wait_for(time) == std::future_status::timeout;
  }

  ProgressWords storage;
  volatile ProgressWords& words = storage;
  std::promise<std::string> told;
  std::future<std::string> heard = told.get_future();
};

TEST_F(watchdog, names_the_collective_that_is_stuck) {
  Watchdog dog(storage, "data", kPatience, alarm());
  EXPECT_EQ(dog.announce("all_reduce/a"), 0);
  EXPECT_EQ(dog.announce("all_reduce/b"), 1);
  begin(0);
  end();
  begin(1);
  ASSERT_FALSE(silent_for(10s));
  const std::string what = heard.get();
  EXPECT_NE(what.find("all_reduce/b of group data"), std::string::npos) << what;
  EXPECT_NE(what.find("number 2 of this rank, 1 ended"), std::string::npos) << what;
}

TEST_F(watchdog, says_nothing_while_collectives_pass) {
  Watchdog dog(storage, "data", kPatience, alarm());
  dog.announce("all_reduce");
  for (int i = 0; i < 30; ++i) {
    begin(0);
    EXPECT_TRUE(silent_for(10ms));
    end();
  }
  EXPECT_TRUE(silent_for(300ms)) << "idle is not stuck";
}

TEST_F(watchdog, passes_on_an_error_of_the_library) {
  Watchdog dog(storage, "data", 1000s, alarm(), [] { return std::string("link down"); });
  ASSERT_FALSE(silent_for(10s));
  EXPECT_EQ(heard.get(), "group data: link down");
}

}  // namespace
}  // namespace stowage::parallel
