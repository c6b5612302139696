#include <gtest/gtest.h>

#include <string>

#include "execution/error.hpp"
#include "execution/executor.hpp"
#include "offload/planner.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;

/// Two ops on three vectors; `leak` is what the second does besides its declared work. The address
/// of the first vector reaches it behind the program's back, as a captured pointer would.
std::string audit(const std::function<void(float* secret, float* in, float* out)>& leak) {
  constexpr std::int64_t kWidth = 1500;
  Program program("leaky");
  float* secret = nullptr;
  const Tensor a = program.scratch("a", Dtype::fp32, {kWidth});
  const Tensor b = program.scratch("b", Dtype::fp32, {kWidth});
  const Tensor c = program.output("c", Dtype::fp32, {kWidth});
  const auto append = [&](std::string name, std::vector<Use> uses, auto body) {
    Op op;
    op.name = std::move(name);
    op.uses = std::move(uses);
    op.launch = [body](Queue& queue, std::span<const View> v) {
      float* first = v[0].as<float>();
      float* second = v.size() > 1 ? v[1].as<float>() : nullptr;
      queue.enqueue([=] { body(first, second); });
    };
    program.append(std::move(op));
  };
  append("make_a", {{a, Access::write}}, [&](float* x, float*) {
    secret = x;
    std::fill_n(x, kWidth, 2.0F);
  });
  append("make_b", {{b, Access::write}}, [](float* x, float*) { std::fill_n(x, kWidth, 3.0F); });
  append("use", {{b, Access::read}, {c, Access::write}}, [&](float* x, float* y) {
    for (int i = 0; i < kWidth; ++i) y[i] = x[i];
    leak(secret, x, y);
  });
  append("keep_a", {{a, Access::read}}, [](float*, float*) {});
  program.finish();
  const auto backend = make_host_backend();
  const PersistentLayout layout;
  const Plan plan = offload::make_plan(program, layout, {.alignment = 4096});
  Device device(*backend, layout, plan.bytes[1], 0);
  try {
    Executor executor(program, plan, device, {.ring_slots = 2, .audit = true});
    executor.step();
    device.synchronize();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(audit, declared_work_passes) {
  EXPECT_EQ(audit([](float*, float*, float*) {}), "");
}

TEST(audit, undeclared_read_is_named) {
  const std::string error = audit([](float* secret, float*, float* out) { out[0] = secret[5]; });
  EXPECT_NE(error.find("use touched bytes that it does not declare: byte 20 of a"),
            std::string::npos)
      << error;
}

TEST(audit, undeclared_write_is_named) {
  const std::string error = audit([](float* secret, float*, float*) { secret[1] = 7; });
  EXPECT_NE(error.find("byte 4 of a"), std::string::npos) << error;
}

TEST(audit, write_to_an_operand_that_is_only_read_is_named) {
  const std::string error = audit([](float*, float* in, float*) { in[2] = 7; });
  EXPECT_NE(error.find("a write to b, byte 8, which it only reads"), std::string::npos) << error;
}

TEST(audit, write_beyond_the_end_is_named) {
  const std::string error = audit([](float*, float*, float* out) { out[1500] = 7; });
  EXPECT_NE(error.find("wrote beyond the end of c"), std::string::npos) << error;
}

}  // namespace
}  // namespace stowage::ctest
