// Collectives as planned ops of a program, on the host backend, against their definitions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "ctest/parallel/mpi_support.hpp"
#include "execution/device.hpp"
#include "execution/executor.hpp"
#include "execution/philox.hpp"
#include "offload/planner.hpp"
#include "parallel/groups/ranks.hpp"
#include "parallel/transport/host_transport.hpp"

namespace stowage::parallel {
namespace {

using execution::Access;
using execution::Bf16;
using execution::Dtype;
using execution::Op;
using execution::Program;
using execution::Tensor;
using execution::View;

using Values = std::vector<double>;

/// Element i of a rank's tensor; the same on every rank that asks.
double draw(int rank, std::int64_t i) {
  const auto bits =
      execution::random_bits(3, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i));
  return (static_cast<double>(bits % 20001) - 10000) / 64;
}

class collectives : public MpiTest {
 protected:
  using Make = std::function<Op(Program&, const RankGroup&, Tensor x)>;

  /// Runs one op on a tensor of every rank and returns what it holds then.
  Values run(Dtype dtype, const Values& mine, const Make& make) {
    Program program("test");
    const auto count = static_cast<std::int64_t>(mine.size());
    const Tensor x = program.input("x", dtype, {count}), y = program.output("y", dtype, {count});
    program.append(make(program, group, x));
    Op keep;
    keep.name = "keep";
    keep.uses = {{x, Access::read}, {y, Access::write}};
    keep.launch = [](execution::Queue& q, std::span<const View> v) {
      q.copy(v[1].as<void>(), v[0].as<void>(), v[0].buffer().bytes());
    };
    program.append(std::move(keep));
    program.finish();
    const execution::PersistentLayout layout;
    const execution::Plan plan = offload::make_plan(program, layout);
    execution::Device device(*backend, layout, plan.bytes[1], plan.bytes[2], 0);
    execution::Executor executor(program, plan, device);
    write(executor.stage(x), dtype, mine);
    executor.step();
    return read(executor.result(y), dtype);
  }

  static void write(std::span<std::byte> to, Dtype dtype, const Values& values) {
    with_any(dtype, [&]<class T>() {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const T value = static_cast<T>(values[i]);
        std::memcpy(to.data() + i * sizeof(T), &value, sizeof(T));
      }
    });
  }
  static Values read(std::span<const std::byte> from, Dtype dtype) {
    Values values;
    with_any(dtype, [&]<class T>() {
      for (std::size_t at = 0; at < from.size(); at += sizeof(T)) {
        T value;
        std::memcpy(&value, from.data() + at, sizeof(T));
        values.push_back(static_cast<double>(value));
      }
    });
    return values;
  }
  template <class F>
  static void with_any(Dtype dtype, F&& f) {
    if (dtype == Dtype::int32) return f.template operator()<std::int32_t>();
    if (dtype == Dtype::int64) return f.template operator()<std::int64_t>();
    execution::with_storage_type(dtype, f);
  }

  std::vector<int> all_ranks() const {
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  Values values_of(int rank, std::int64_t count) const {
    Values values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(draw(rank, i));
    return values;
  }
  Values mine(std::int64_t count) const { return values_of(world.rank(), count); }

  /// A value as a dtype holds it.
  static double run_through(Dtype dtype, double value) {
    double result = 0;
    with_any(dtype, [&]<class T>() { result = static_cast<double>(static_cast<T>(value)); });
    return result;
  }

  /// The definition: in rank order, in the type that sums are made in.
  template <class T, class A>
  double reduced(std::int64_t i, Reduction how) const {
    A all = static_cast<A>(static_cast<T>(draw(0, i)));
    for (int r = 1; r < world.size(); ++r) {
      const A one = static_cast<A>(static_cast<T>(draw(r, i)));
      all = how == Reduction::sum   ? all + one
            : how == Reduction::min ? std::min(all, one)
                                    : std::max(all, one);
    }
    return static_cast<double>(all);
  }
  double reduced(Dtype dtype, std::int64_t i, Reduction how) const {
    switch (dtype) {
      case Dtype::fp64:
        return reduced<double, double>(i, how);
      case Dtype::fp32:
        return reduced<float, float>(i, how);
      case Dtype::bf16:
        return static_cast<double>(
            static_cast<Bf16>(static_cast<float>(reduced<Bf16, float>(i, how))));
      case Dtype::int32:
        return reduced<std::int32_t, std::int32_t>(i, how);
      case Dtype::int64:
        return reduced<std::int64_t, std::int64_t>(i, how);
      case Dtype::uint8:
      case Dtype::e4m3:
      case Dtype::e5m2:
        break;
    }
    throw std::invalid_argument("ranks combine no bytes");
  }

  std::unique_ptr<execution::Backend> backend = execution::make_host_backend({7, 200e-6});
  const RankGroup group{"data", all_ranks(), world.rank(),
                        std::make_shared<const Collectives>(make_host_transport(world, "data"))};
};

constexpr Dtype kDtypes[] = {Dtype::fp64, Dtype::fp32, Dtype::bf16, Dtype::int32, Dtype::int64};
// One element, fewer than ranks, odd, and both sides of where shares pay.
constexpr std::int64_t kCounts[] = {1, 3, 1001, 8192, 40007};

TEST_F(collectives, all_reduce_is_the_fold_in_rank_order) {
  for (const Dtype dtype : kDtypes)
    for (const Reduction how : {Reduction::sum, Reduction::min, Reduction::max})
      for (const std::int64_t count : kCounts) {
        SCOPED_TRACE(testing::Message() << name(dtype) << " " << name(how) << " " << count);
        const Values out = run(dtype, mine(count), [&](Program& p, const RankGroup& g, Tensor x) {
          return g.all_reduce(p, "reduce", {x, {}}, how);
        });
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(out[i], reduced(dtype, i, how)) << i;
      }
}

TEST_F(collectives, reduce_scatter_has_the_sums_of_all_reduce) {
  for (const Dtype dtype : kDtypes) {
    const std::int64_t share = 5003, count = share * world.size();
    const Values before = mine(count);
    const Values out = run(dtype, before, [&](Program& p, const RankGroup& g, Tensor x) {
      return g.reduce_scatter(p, "scatter", {x, {}}, dtype);
    });
    for (std::int64_t i = 0; i < count; ++i) {
      const bool own = i / share == world.rank();
      const double kept = run_through(dtype, before[i]);
      ASSERT_EQ(out[i], own ? reduced(dtype, i, Reduction::sum) : kept);
    }
  }
}

TEST_F(collectives, bf16_on_the_wire_rounds_each_part_once) {
  for (const std::int64_t share : {7, 5003}) {
    const std::int64_t count = share * world.size();
    const auto part = [](int r, std::int64_t i) {
      return static_cast<float>(static_cast<Bf16>(static_cast<float>(draw(r, i) * 1.001)));
    };
    Values before;
    for (std::int64_t i = 0; i < count; ++i) before.push_back(draw(world.rank(), i) * 1.001);
    const auto check = [&](const Values& out, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        float sum = part(0, i);
        for (int r = 1; r < world.size(); ++r) sum += part(r, i);
        ASSERT_EQ(out[i], static_cast<double>(sum)) << i;
      }
    };
    const Values scattered =
        run(Dtype::fp32, before, [&](Program& p, const RankGroup& g, Tensor x) {
          return g.reduce_scatter(p, "scatter", {x, {}}, Dtype::bf16);
        });
    check(scattered, share * world.rank(), share * (world.rank() + 1));
    const Values reduced = run(Dtype::fp32, before, [&](Program& p, const RankGroup& g, Tensor x) {
      return g.all_reduce(p, "reduce", {x, {}}, Reduction::sum, Dtype::bf16);
    });
    check(reduced, 0, count);
  }
}

TEST_F(collectives, all_gather_fills_the_other_shares) {
  const std::int64_t share = 777, count = share * world.size();
  const Values out = run(Dtype::bf16, mine(count), [&](Program& p, const RankGroup& g, Tensor x) {
    return g.all_gather(p, "gather", {x, {}});
  });
  for (std::int64_t i = 0; i < count; ++i)
    ASSERT_EQ(out[i], run_through(Dtype::bf16, draw(static_cast<int>(i / share), i)));
}

TEST_F(collectives, all_to_all_transposes_parts) {
  const std::int64_t part = 333, count = 2 * part * world.size();
  const Values out = run(Dtype::fp32, mine(count), [&](Program& p, const RankGroup& g, Tensor x) {
    return g.all_to_all(p, "exchange", {x, {0, count / 2}}, {x, {count / 2, count}});
  });
  for (std::int64_t i = 0; i < count / 2; ++i)
    ASSERT_EQ(out[count / 2 + i], draw(static_cast<int>(i / part), world.rank() * part + i % part));
}

/// Every distance in an exchange of its own, and all in one.
std::vector<std::vector<int>> steps_of(int ranks, bool one_by_one) {
  std::vector<std::vector<int>> steps(one_by_one ? static_cast<std::size_t>(ranks) - 1 : 1);
  for (int distance = 1; distance < ranks; ++distance)
    steps[one_by_one ? static_cast<std::size_t>(distance) - 1 : 0].push_back(distance);
  return steps;
}

/// Copies the first elements of a tensor into another one.
Op copy_of(Tensor from, Tensor to, std::int64_t count) {
  Op op;
  op.name = "copy";
  op.uses = {{from, Access::read, {0, count}}, {to, Access::write, {0, count}}};
  op.launch = [](execution::Queue& q, std::span<const View> v) {
    q.copy(v[1].as<void>(), v[0].as<void>(), v[0].buffer().bytes());
  };
  return op;
}

TEST_F(collectives, handed_out_summands_have_the_sums_of_all_reduce) {
  if (world.size() == 1) GTEST_SKIP() << "nobody to hand out to";
  const std::int64_t share = 5003, count = share * world.size();
  for (const Dtype dtype : kDtypes)
    for (const bool one_by_one : {false, true}) {
      const Values out = run(dtype, mine(count), [&](Program& p, const RankGroup& g, Tensor x) {
        const Tensor others = p.scratch("others", dtype, {count - share});
        for (const auto& distances : steps_of(world.size(), one_by_one))
          for (const execution::Range some : {execution::Range{0, 1000}, {1000, share}})
            p.append(g.send_partials(p, fmt::format("hand out {} {}", distances[0], some.begin),
                                     {x, {}}, {others, {}}, distances, some));
        const Tensor sums = p.scratch("sums", dtype, {share});
        p.append(g.reduce_partials(p, "sum up", {x, {}}, {others, {}}, {sums, {}}));
        return copy_of(sums, x, share);
      });
      for (std::int64_t i = 0; i < share; ++i)
        ASSERT_EQ(out[i], reduced(dtype, world.rank() * share + i, Reduction::sum)) << i;
    }
}

TEST_F(collectives, gather_ring_fills_the_others_shares) {
  if (world.size() == 1) GTEST_SKIP() << "nobody to gather from";
  const std::int64_t share = 777, count = share * world.size(), own = world.rank() * share;
  for (const bool one_by_one : {false, true}) {
    const Values out = run(Dtype::bf16, mine(count), [&](Program& p, const RankGroup& g, Tensor x) {
      const Tensor part = p.scratch("part", Dtype::bf16, {share});
      Op take = copy_of(x, part, share);
      take.uses[0].range = {own, own + share};
      p.append(std::move(take));
      for (const auto& distances : steps_of(world.size(), one_by_one))
        p.append(g.gather_ring(p, fmt::format("gather {}", distances[0]), {part, {}}, {x, {}},
                               distances));
      return copy_of(x, x, 0);
    });
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(out[i], run_through(Dtype::bf16, draw(static_cast<int>(i / share), i)));
  }
}

TEST_F(collectives, broadcast_is_the_roots) {
  for (int root = 0; root < world.size(); ++root) {
    const Values out = run(Dtype::fp64, mine(500), [&](Program& p, const RankGroup& g, Tensor x) {
      return g.broadcast(p, "broadcast", {x, {}}, root);
    });
    ASSERT_EQ(out, values_of(root, 500));
  }
}

TEST_F(collectives, an_exchange_passes_on_in_a_ring_without_blocking) {
  if (world.size() == 1) GTEST_SKIP() << "nobody to exchange with";
  const std::int64_t part = 100'000;  // more than an MPI library sends before it is received
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const Values out =
      run(Dtype::fp32, mine(2 * part), [&](Program& p, const RankGroup& g, Tensor x) {
        return g.exchange(p, "ring",
                          {{next, true, {x, {0, part}}}, {before, false, {x, {part, 2 * part}}}});
      });
  for (std::int64_t i = 0; i < part; ++i) ASSERT_EQ(out[part + i], draw(before, i));
}

TEST_F(collectives, a_nan_of_one_rank_is_everybodys) {
  for (const Reduction how : {Reduction::sum, Reduction::min, Reduction::max})
    for (int bad = 0; bad < world.size(); ++bad) {
      Values values(20'000, 1.0);
      if (world.rank() == bad) values[12'345] = std::nan("");
      const Values out = run(Dtype::fp32, values, [&](Program& p, const RankGroup& g, Tensor x) {
        return g.all_reduce(p, "reduce", {x, {}}, how);
      });
      EXPECT_TRUE(std::isnan(out[12'345]));
      EXPECT_FALSE(std::isnan(out[12'344]));
    }
}

TEST_F(collectives, ops_say_what_they_exchange) {
  Program program("test");
  const Tensor x = program.scratch("x", Dtype::fp32, {1 << 20});
  const Op op = group.all_reduce(program, "reduce", {x, {0, 1 << 19}}, Reduction::sum, Dtype::bf16);
  EXPECT_EQ(op.lane, execution::Lane::comm);
  const execution::Communication expected{
      "all_reduce", "data", all_ranks(), 1 << 19, Dtype::fp32, "sum, bf16 on the wire", {}};
  EXPECT_EQ(op.communication, expected);
  EXPECT_DOUBLE_EQ(op.cost.bytes, 2.0 * (world.size() - 1) / world.size() * (1 << 20));
  if (world.size() == 1) return;
  EXPECT_THROW(
      (void)group.reduce_scatter(program, "odd", {x, {0, 7 * world.size() + 1}}, Dtype::fp32),
      execution::Error);
}

TEST_F(collectives, room_for_many_elements_is_enough_for_fewer) {
  for (const Dtype dtype : kDtypes) {
    std::size_t last = 0;
    for (std::int64_t count = 1; count < 100'000; count += 7) {
      const std::size_t room = reduce_workspace_bytes(count, dtype, dtype, world.size());
      ASSERT_GE(room, last) << count;
      last = room;
    }
  }
}

TEST_F(collectives, are_captured_into_graphs) {
  const Collectives own(make_host_transport(world, "data"));
  const auto comm = backend->make_queue(execution::Lane::comm, "comm");
  Values values(100, 1.0);
  std::vector<std::byte> room(reduce_workspace_bytes(100, Dtype::fp64, Dtype::fp64, world.size()));
  backend->begin_capture(*comm);
  own.all_reduce(*comm, 0, values.data(), 100, Dtype::fp64, Reduction::sum, Dtype::fp64,
                 room.data());
  const auto graph = backend->end_capture(*comm);
  graph->launch(*comm);
  graph->launch(*comm);
  comm->synchronize();
  for (const double value : values) EXPECT_EQ(value, world.size() * world.size());
}

}  // namespace
}  // namespace stowage::parallel
