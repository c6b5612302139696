#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "execution/backend.hpp"
#include "execution/error.hpp"

namespace stowage::execution {

/// Work that blocks until the test opens it: how a test holds a queue at a known point.
class Gate {
 public:
  void open() { promise_.set_value(); }
  void pass() { future_.wait(); }
  bool is_open() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_{promise_.get_future()};
};

/// What ran, in order.
class Log {
 public:
  void add(std::string entry) {
    const std::lock_guard lock(mutex_);
    entries_.push_back(std::move(entry));
  }
  std::vector<std::string> entries() const {
    const std::lock_guard lock(mutex_);
    return entries_;
  }
  bool has(const std::string& entry) const {
    const auto all = entries();
    return std::find(all.begin(), all.end(), entry) != all.end();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> entries_;
};

/// Time in which something that must not happen would happen.
inline void let_mistakes_happen() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

/// A backend with one queue per lane; the parameter is the seed of the random delays (0: none).
class HostBackendTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  HostBackendTest() {
    RecordProperty("delay_seed", static_cast<int>(GetParam()));
    backend = make_host_backend({GetParam(), 200e-6});
    compute = backend->make_queue(Lane::compute, "compute");
    second = backend->make_queue(Lane::compute, "second");
    d2h = backend->make_queue(Lane::d2h, "d2h");
    h2d = backend->make_queue(Lane::h2d, "h2d");
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Queue> compute, second, d2h, h2d;
};

/// Runs `f` and returns the message of the Error that it throws, or "" if it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

#define EXPECT_ERROR(statement, part)                                               \
  do {                                                                              \
    const std::string message = ::stowage::execution::error_of([&] { statement; }); \
    EXPECT_NE(message.find(part), std::string::npos) << "got: '" << message << "'"; \
  } while (false)

}  // namespace stowage::execution
