// Norm and AdamW on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include <algorithm>
#include <cmath>
#include <limits>

#include "ctest/kernels/adamw_piece.hpp"
#include "ctest/kernels/operator_check.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ema.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/guard.hpp"
#include "kernels/optimizer/keep_weights.hpp"
#include "kernels/optimizer/round_sum.hpp"

namespace stowage::kernels::test {
namespace {

constexpr auto kHere = [](const Array& array) { return array.view(); };

// Gradients whose norm is taken, from element `first` on.
struct Norm {
  Norm(Dtype dtype, const std::vector<Values>& gradients, std::int32_t ok)
      : op{.pieces = {}, .slots = 0, .storage = dtype},
        norm(dtype, {1}),
        step_ok(int32_array({ok})) {
    for (const Values& values : gradients) {
      const auto count = static_cast<std::int64_t>(values.size());
      arrays.emplace_back(dtype, std::vector{count}, values);
      op.pieces.push_back({.elements = count, .slot = op.slots});
      op.slots += norm_blocks(count);
    }
    partials = Array(Dtype::fp64, {op.slots});
  }
  template <class At>
  void enqueue(Queue& q, At& at, std::int64_t first = 0, execution::Range left_out = {0, 0}) const {
    NormPartials some = op;
    std::deque<Part> parts;
    NormPartials::Operands<View> views{.partials = at(partials), .gradients = {}};
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      some.pieces[i].elements -= first;
      some.pieces[i].left_out = left_out;
      views.gradients.push_back(
          {parts.emplace_back(at(arrays[i]), first, some.pieces[i].elements).view()});
    }
    some.run(q, views);
    test::enqueue(q, NormFinish{op.slots, op.storage},
                  {.partials = partials, .norm = norm, .step_ok = step_ok}, at);
  }

  NormPartials op;
  std::vector<Array> arrays;
  Array norm, step_ok, partials;
};

TEST(optimizer_gpu, norm_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  std::vector<std::int64_t> many(3000, 5);  // more than one table of arguments
  many[7] = 0;
  for (const std::vector<std::int64_t>& counts :
       {std::vector<std::int64_t>{1}, {40000, 16384, 7, 16385, 0, 1 << 20}, many}) {
    std::vector<Values> gradients;
    for (const std::int64_t count : counts)
      gradients.push_back(rounded(random.normal(count), Dtype::fp32));
    const Norm gpu(Dtype::fp32, gradients, 1), host(Dtype::fp64, gradients, 1);
    const auto results = on_gpu([&](Queue& q, auto& at) { gpu.enqueue(q, at); },
                                {gpu.norm, gpu.step_ok}, counts.size() == 6 ? 100 : 2);
    on_queue([&](Queue& q) { host.enqueue(q, kHere); });
    // Summed in fp64, rounded to fp32 once.
    EXPECT_LE(relative_error(results[0].values(), host.norm.values()),
              2 * execution::epsilon(Dtype::fp32));
    EXPECT_EQ(results[1].values(), Values{1});
  }
}

TEST(optimizer_gpu, norm_guards_the_step) {
  STOWAGE_NEED_GPU();
  const auto step_ok = [](const std::vector<Values>& gradients, std::int32_t ok) {
    const Norm n(Dtype::fp32, gradients, ok);
    return on_gpu([&](Queue& q, auto& at) { n.enqueue(q, at); }, {n.step_ok})[0].values()[0];
  };
  const double huge = 3e38;
  EXPECT_EQ(step_ok({{1, 2}, {huge}}, 1), 1) << "squares are summed in fp64";
  EXPECT_EQ(step_ok({{1, 2}, {huge, huge}}, 1), 0);
  EXPECT_EQ(step_ok({{1}, {std::nan(""), 2}}, 1), 0);
  EXPECT_EQ(step_ok({{1}, {-std::numeric_limits<double>::infinity()}}, 1), 0);
  EXPECT_EQ(step_ok({{1}}, 0), 0) << "a good norm does not mend a bad step";
}

// Sums of one product and quotients: the same bits on both backends.
TEST(optimizer_gpu, the_guard_is_that_of_the_host) {
  STOWAGE_NEED_GPU();
  constexpr std::int64_t kGood = 6;
  const SpikeRule rule{.factor = 3, .window = 4, .most_in_a_row = 2};
  for (const double norm : {0.7, 2.2, 30.0})
    for (const double in_a_row : {0.0, 2.0})
      for (const Attempt attempt : {Attempt{}, Attempt{kGood, 0}, Attempt{kGood + 1, 0}}) {
        const Array words(Dtype::int64, {2}), good(Dtype::int64, {1});
        words.as<std::int64_t>()[0] = attempt.good_steps;
        words.as<std::int64_t>()[1] = attempt.last;
        good.as<std::int64_t>()[0] = kGood;
        const Array value(Dtype::fp32, {1}, Values{norm}), ok = int32_array({3});
        const Array running(Dtype::fp64, {2}, Values{1.1, in_a_row});
        const auto guard = [&](Queue& q, auto& at) {
          enqueue(q, GuardStep{rule, Dtype::fp32, true},
                  {.attempt = words,
                   .norm = value,
                   .good_steps = good,
                   .step_ok = ok,
                   .running = running},
                  at);
        };
        const std::vector<Array> results = on_gpu(guard, {running, ok});
        on_queue([&](Queue& q) { guard(q, kHere); });
        EXPECT_EQ(results[0].values(), running.values()) << norm << ", " << in_a_row;
        EXPECT_EQ(results[1].values(), ok.values()) << norm << ", " << in_a_row;
      }
}

// Both backends add in one order; without the first element nothing lies on 16 bytes.
TEST(optimizer_gpu, norm_has_the_bits_of_the_reference) {
  STOWAGE_NEED_GPU();
  Random random;
  std::vector<Values> gradients;
  for (const std::int64_t count : {5, 2048, 100003, 2049, 30 * 2048})
    gradients.push_back(rounded(random.normal(count), Dtype::fp32));
  for (const auto& [shifted, left_out] : {std::pair{false, execution::Range{0, 0}},
                                          {true, {0, 0}},
                                          {false, {3, 2051}},
                                          {true, {2000, 9999}}}) {
    const Norm n(Dtype::fp32, gradients, 1);
    const auto work = [&](Queue& q, auto& at) {
      fill(q, at(n.partials), 0);
      n.enqueue(q, at, shifted, left_out);
    };
    const auto results = on_gpu(work, {n.partials, n.norm});
    on_queue([&](Queue& q) { work(q, kHere); });
    EXPECT_EQ(results[0].values(), n.partials.values());
    EXPECT_EQ(results[1].values(), n.norm.values());
  }
}

// Cut anywhere at blocks, in tables of their own or not: a tensor's partial sums stay the same.
TEST(optimizer_gpu, norm_does_not_depend_on_cuts) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::int64_t count = 3000 * kNormBlock + 9;
  const Norm whole(Dtype::fp32, {rounded(random.normal(count), Dtype::fp32)}, 1);
  const auto sums = [&](std::int64_t blocks) {
    return on_gpu(
               [&](Queue& q, auto& at) {
                 NormPartials cut = whole.op;
                 cut.pieces.clear();
                 std::deque<Part> parts;
                 NormPartials::Operands<View> views{.partials = at(whole.partials),
                                                    .gradients = {}};
                 for (std::int64_t first = 0; first < count; first += blocks * kNormBlock) {
                   const std::int64_t elements = std::min(blocks * kNormBlock, count - first);
                   cut.pieces.push_back({.first = first, .elements = elements});
                   views.gradients.push_back(
                       {parts.emplace_back(at(whole.arrays[0]), first, elements).view()});
                 }
                 cut.run(q, views);
               },
               {whole.partials})[0]
        .values();
  };
  const Values expected = sums(4000);
  EXPECT_EQ(sums(1), expected);
  EXPECT_EQ(sums(7), expected);
}

// More slots than terms of the sum over slots: the order, and so every bit, is the reference's.
TEST(optimizer_gpu, norm_of_many_slots_has_the_bits_of_the_reference) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t slots : {1, 33, 8192, 8193, 1'000'003}) {
    const Array partials(Dtype::fp64, {slots}, random.uniform(slots, 0, 1));
    const Array norm(Dtype::fp32, {1}), step_ok = int32_array({1});
    const auto work = [&](Queue& q, auto& at) {
      enqueue(q, NormFinish{slots, Dtype::fp32},
              {.partials = partials, .norm = norm, .step_ok = step_ok}, at);
    };
    const Values gpu = on_gpu(work, {norm})[0].values();
    on_queue([&](Queue& q) { work(q, kHere); });
    EXPECT_EQ(gpu, norm.values()) << slots << " slots";
  }
}

// Types of both moments and of gradients.
struct Moments {
  Dtype m = Dtype::fp32, v = m, gradient = Dtype::fp32;
};
constexpr Moments kOfBf16{Dtype::bf16}, kOfFp64{Dtype::fp64, Dtype::fp64, Dtype::fp64};
constexpr Moments kOf3Bytes{Dtype::e4m3, Dtype::bf16, Dtype::bf16};

// Parameters with their states; every third one without decay, every fourth with half the rate.
struct Optimizer {
  Optimizer(Dtype storage, bool with_master, std::int32_t ok, double clip_norm,
            Moments moments = {})
      : schedule(execution::accumulation(storage), {2}, Values{0.01, 0.1}),
        step(Dtype::int64, {1}, Values{6}),
        norm(execution::accumulation(storage), {1}, Values{3.5}),
        step_ok(int32_array({ok})),
        clip(clip_norm),
        storage_(storage),
        with_master_(with_master),
        moments_(moments) {}

  void add(const Values& parameter, const Values& gradient, const Values& m, const Values& v) {
    const Dtype sums = execution::accumulation(storage_);
    const auto n = static_cast<std::int64_t>(m.size());
    tensors.push_back({Array(storage_, {n}, parameter),
                       with_master_ ? Array(sums, {n}, parameter) : Array(),
                       Array(moments_.gradient, {n}, gradient), Array(moments_.m, {n}, m),
                       Array(moments_.v, {n}, v)});
  }

  template <class At>
  void enqueue(Queue& q, At& at) const {
    AdamwParts all;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      all.add(views(i, at), 0, static_cast<std::int64_t>(tensors[i].m.size()), i % 3 == 2 ? 0 : 1,
              i % 4 == 3 ? 0.5 : 1);
    enqueue(q, at, all);
    test::enqueue(q, Advance{}, {.step = step, .step_ok = step_ok}, at);
  }
  template <class At>
  Adamw::Tensors<View> views(std::size_t i, At& at) const {
    const auto& [parameter, master, gradient, m, v] = tensors[i];
    return {at(parameter), at(master), at(gradient), at(m), at(v)};
  }
  template <class At>
  void enqueue(Queue& q, At& at, const AdamwParts& parts) const {
    Adamw{parts.pieces, storage_, with_master_,     clip, {0.9, 0.95, 1e-8}, moments_.m,
          moments_.v,   11,       moments_.gradient}
        .run(q, {at(schedule), at(step), at(norm), at(step_ok), parts.tensors});
  }

  std::vector<Array> outputs() const {
    std::vector<Array> all{step};
    for (const auto& t : tensors) {
      all.insert(all.end(), {t.parameter, t.m, t.v});
      if (with_master_) all.push_back(t.master);
    }
    return all;
  }

  Array schedule, step, norm, step_ok;
  double clip;
  std::vector<Adamw::Tensors<Array>> tensors;

 private:
  Dtype storage_;
  bool with_master_;
  Moments moments_;
};

// The same numbers in fp64 and in the storage dtype.
void add_random(Random& random, Dtype storage, const std::vector<std::int64_t>& counts,
                Optimizer& gpu, Optimizer& host) {
  const Dtype sums = execution::accumulation(storage);
  for (const std::int64_t count : counts) {
    const Values parameter = rounded(random.normal(count), storage);
    const Values gradient = rounded(random.normal(count), sums);
    const Values m = rounded(random.normal(count, 0.1), Dtype::bf16);  // as moments may be stored
    const Values v = rounded(random.uniform(count, 0, 0.1), Dtype::bf16);
    gpu.add(parameter, gradient, m, v);
    host.add(parameter, gradient, m, v);
  }
}

// ||actual - expected|| against values of size 1 or larger: a moment's terms may cancel.
double difference(const Values& actual, const Values& expected) {
  double squares = 0;
  for (std::size_t i = 0; i < actual.size(); ++i)
    squares += (actual[i] - expected[i]) * (actual[i] - expected[i]);
  const double size = std::max(dot(expected, expected), static_cast<double>(actual.size()));
  return std::sqrt(squares / size);
}

TEST(optimizer_gpu, adamw_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::vector<std::int64_t> few{1, 9000, 33, 4096, 4095, 300000, 0, 2048};
  const std::vector<std::int64_t> many(1200, 37);  // more than one table of arguments
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
    for (const bool with_master : {true, false})
      for (const auto& [counts, clip] : {std::pair{few, 1.0}, {few, 0.0}, {many, 10.0}}) {
        Optimizer gpu(storage, with_master, 1, clip, clip == 0 ? kOfBf16 : Moments());
        Optimizer host(Dtype::fp64, with_master, 1, clip, kOfFp64);
        add_random(random, storage, counts, gpu, host);
        const auto results = on_gpu([&](Queue& q, auto& at) { gpu.enqueue(q, at); }, gpu.outputs(),
                                    counts.size() == 8 && clip > 0 ? 100 : 2);
        on_queue([&](Queue& q) { host.enqueue(q, kHere); });
        const std::vector<Array> expected = host.outputs();
        // beta is rounded too, and 1 - beta is 20 times smaller: 20 epsilon on the moments.
        const double sums = 64 * execution::epsilon(Dtype::fp32);
        for (std::size_t i = 0; i < results.size(); ++i) {
          if (results[i].size() == 0) continue;
          const double allowed = sums + execution::epsilon(results[i].dtype());
          EXPECT_LE(difference(results[i].values(), expected[i].values()), allowed)
              << "output " << i;
        }
        EXPECT_EQ(results[0].values(), Values{7});
      }
}

// A piece ends where a thread block's pass does not: the same elements go another way, with the
// same bits.
TEST(optimizer_gpu, adamw_does_not_depend_on_cuts) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::int64_t count = 70 * kNormBlock + 5;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
    for (const auto& [with_master, moments] :
         {std::pair{true, Moments()}, {false, kOfBf16}, {false, kOf3Bytes}}) {
      Optimizer gpu(storage, with_master, 1, 1, moments);
      Optimizer host(Dtype::fp64, with_master, 1, 1, kOfFp64);
      add_random(random, storage, {count}, gpu, host);
      const auto results = [&](std::int64_t blocks) {
        return on_gpu(
            [&](Queue& q, auto& at) {
              const std::int64_t most = blocks * kNormBlock;
              AdamwParts pieces;
              for (std::int64_t first = 0; first < count; first += most)
                pieces.add(gpu.views(0, at), first, std::min(most, count - first), true);
              gpu.enqueue(q, at, pieces);
            },
            gpu.outputs());
      };
      const std::vector<Array> whole = results(100);
      for (const std::int64_t blocks : {1, 3, 13}) {
        const std::vector<Array> cut = results(blocks);
        for (std::size_t i = 0; i < whole.size(); ++i)
          EXPECT_TRUE(std::ranges::equal(bytes_of(cut[i]), bytes_of(whole[i])))
              << "output " << i << " in pieces of " << blocks << " blocks";
      }
    }
}

// Both backends round by the same random bits: results differ where fp32 differs from itself by its
// last digits, which turns the rounding of a few elements.
TEST(optimizer_gpu, adamw_without_masters_has_the_results_of_the_reference) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
    for (const auto& counts : {std::vector<std::int64_t>{1, 9000, 33, 4096, 300000, 0},
                               std::vector<std::int64_t>(120, 37)}) {
      Optimizer gpu(storage, false, 1, 1, kOf3Bytes), host(storage, false, 1, 1, kOf3Bytes);
      add_random(random, storage, counts, gpu, host);
      const auto results = on_gpu([&](Queue& q, auto& at) { gpu.enqueue(q, at); }, gpu.outputs());
      on_queue([&](Queue& q) { host.enqueue(q, kHere); });
      std::size_t differing = 0, elements = 0;
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (results[i].size() == 0) continue;
        const Dtype dtype = results[i].dtype();
        const Values actual = results[i].values(), expected = host.outputs()[i].values();
        if (dtype == Dtype::fp32) {
          EXPECT_LE(difference(actual, expected), 64 * execution::epsilon(Dtype::fp32));
          continue;
        }
        const double step = 4 * execution::epsilon(dtype);  // two neighbours, over a binade
        elements += actual.size();
        for (std::size_t j = 0; j < actual.size(); ++j) {
          differing += actual[j] != expected[j] ? 1U : 0U;
          EXPECT_NEAR(actual[j], expected[j], step * std::abs(expected[j]) + 0x1p-9);
        }
      }
      // A rounding turns with the chance that a random number of 16 bits lies between both: with
      // some hundred units of fp32 between them, 2^-8 of the elements at most.
      EXPECT_LE(static_cast<double>(differing), 0x1p-8 * static_cast<double>(elements) + 3);
    }
}

// Sums of gradients in bf16, and their norm, have the bits of the host.
TEST(optimizer_gpu, sums_of_bf16_have_the_bits_of_the_host) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t count : {1, 7, 8, 100'003}) {
    const Array x(Dtype::fp32, {count}, random.normal(count)), step(Dtype::int64, {1}, Values{4});
    const Array sum(Dtype::bf16, {count}, random.normal(count)), next = int32_array({6});
    const Array partials(Dtype::fp64, {norm_blocks(count)});
    const auto work = [&](Queue& q, auto& at) {
      for (const bool counted : {false, true})
        enqueue(q,
                RoundSum{.elements = count,
                         .storage = Dtype::bf16,
                         .accumulate = true,
                         .counted = counted,
                         .number = 2,
                         .seed = 8,
                         .stream = 9},
                {.step = step, .microbatch = counted ? next : Array(), .x = x, .sum = sum}, at);
      NormPartials norm{.pieces = {{.elements = count}},
                        .slots = norm_blocks(count),
                        .storage = Dtype::bf16,
                        .gradient_type = Dtype::bf16};
      NormPartials::Operands<View> views{.partials = at(partials), .gradients = {}};
      views.gradients.push_back({at(sum)});
      norm.run(q, views);
    };
    const auto results = on_gpu(work, {sum, partials});
    on_queue([&](Queue& q) { work(q, kHere); });
    EXPECT_EQ(results[0].values(), sum.values()) << count;
    EXPECT_EQ(results[1].values(), partials.values()) << count;
  }
}

TEST(optimizer_gpu, parameter_is_the_rounded_master) {
  STOWAGE_NEED_GPU();
  Random random;
  Optimizer gpu(Dtype::bf16, true, 1, 1), host(Dtype::fp64, true, 1, 1, kOfFp64);
  add_random(random, Dtype::bf16, {5000}, gpu, host);
  const auto& t = gpu.tensors[0];
  const auto results =
      on_gpu([&](Queue& q, auto& at) { gpu.enqueue(q, at); }, {t.parameter, t.master});
  EXPECT_EQ(results[0].values(), rounded(results[1].values(), Dtype::bf16));
}

TEST(optimizer_gpu, a_bad_step_changes_nothing) {
  STOWAGE_NEED_GPU();
  Random random;
  Optimizer gpu(Dtype::bf16, true, 0, 1), host(Dtype::fp64, true, 0, 1, kOfFp64);
  add_random(random, Dtype::bf16, {5000, 3}, gpu, host);
  const std::vector<Array> before = gpu.outputs();
  const auto after = on_gpu([&](Queue& q, auto& at) { gpu.enqueue(q, at); }, gpu.outputs());
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(bytes_of(after[i]), bytes_of(before[i]))) << "output " << i;
}

TEST(optimizer_gpu, tensors_may_lie_anywhere) {
  STOWAGE_NEED_GPU();
  Random random;
  Optimizer gpu(Dtype::bf16, true, 1, 1), host(Dtype::fp64, true, 1, 1, kOfFp64);
  add_random(random, Dtype::bf16, {50001}, gpu, host);
  const auto work = [&](const Optimizer& o) {
    return [&o](Queue& q, auto& at) {
      AdamwParts shifted;  // nothing lies on 16 bytes
      shifted.add(o.views(0, at), 1, 50000, true);
      o.enqueue(q, at, shifted);
    };
  };
  const auto results = on_gpu(work(gpu), gpu.outputs());
  on_queue([&](Queue& q) { work(host)(q, kHere); });
  for (std::size_t i = 0; i < results.size(); ++i)
    EXPECT_LE(difference(results[i].values(), host.outputs()[i].values()),
              64 * execution::epsilon(Dtype::fp32) + execution::epsilon(results[i].dtype()))
        << "output " << i;
}

// Whole blocks and rests, left out or not, more pieces than one table of arguments has.
TEST(optimizer_gpu, what_a_step_changes_has_the_bits_of_the_reference) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const bool has_master : {false, true})
      for (const std::int32_t asked : {1, 0}) {
        KeepWeights keep{
            .elements = {1, 8191, 40001}, .storage = storage, .has_master = has_master};
        keep.elements.resize(700, 5);
        Arrays<KeepWeights> kept = make_arrays(keep, random);
        kept.asked = int32_array({asked});
        expect_host_bits(keep, kept);
        ChangePartials op{.pieces = {}, .slots = 0, .storage = storage, .has_master = has_master};
        for (const std::int64_t elements : keep.elements) {
          op.pieces.push_back({.elements = elements, .slot = op.slots});
          op.slots += norm_blocks(elements);
        }
        op.pieces[2].left_out = {3000, 5000};
        Arrays<ChangePartials> o = make_arrays(op, random);
        o.asked = kept.asked;
        expect_host_bits(op, o);
      }
}

TEST(optimizer_gpu, sums_of_parts_have_the_bits_of_the_reference) {
  STOWAGE_NEED_GPU();
  Random random;
  PartSums op{.parts = {{0, 1}, {1, 1}, {1, 50001}}, .slots = 60000, .storage = Dtype::fp32};
  for (std::int64_t i = 0; i < 3000; ++i) op.parts.push_back({50001 + 3 * i, 50004 + 3 * i});
  expect_host_bits(op, make_arrays(op, random));
}

// Pieces of one element and of several chunks, more of them than one table of arguments has.
TEST(optimizer_gpu, average_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const bool has_master : {false, true})
      for (const std::int32_t ok : {1, 0}) {
        Ema op{.elements = {1, 8191, 40001},
               .storage = storage,
               .has_master = has_master,
               .decay = 0.999};
        op.elements.resize(ok != 0 ? 700 : 3, 5);
        Arrays<Ema> o = make_arrays(op, random);
        o.step_ok = int32_array({ok});
        check_on_gpu(op, o, [&](std::string_view) {
          return ok * 8 * execution::epsilon(execution::accumulation(storage));
        });
      }
}

TEST(optimizer_gpu, average_and_weights_change_places_to_the_bit) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes) {
    ExchangeEma op{.elements = {1, 8191, 40001},
                   .storage = storage,
                   .has_master = execution::accumulation(storage) != storage};
    op.elements.resize(700, 5);
    expect_host_bits(op, make_arrays(op, random));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
