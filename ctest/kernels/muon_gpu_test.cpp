// Muon's operators on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/newton_schulz_tolerance.hpp"
#include "ctest/kernels/operator_check.hpp"
#include "kernels/optimizer/move_pieces.hpp"
#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/newton_schulz.hpp"

namespace stowage::kernels::test {
namespace {

// One matrix and several, tall and wide, of one block and of several, aligned and not.
TEST(muon_gpu, newton_schulz_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  struct Sizes {
    std::int64_t count, rows, columns;
  };
  for (const Sizes& s : {Sizes{1, 1, 1},
                         {3, 7, 5},
                         {1, 128, 512},
                         {4, 512, 128},
                         {9, 64, 1024},
                         {2, 333, 777},
                         {1, 1024, 1024},
                         {2, 1536, 640},
                         {3, 136, 1000},
                         {2, 1000, 264},
                         {1, 520, 520}})
    for (const Dtype storage : kDeviceTypes)
      for (const int steps : {2, 5}) {
        SCOPED_TRACE(testing::Message() << s.count << " of " << s.rows << " x " << s.columns << " "
                                        << execution::name(storage));
        const NewtonSchulz op{.count = s.count,
                              .rows = s.rows,
                              .columns = s.columns,
                              .options = {.steps = steps},
                              .scale = 0.5,
                              .storage = storage};
        const Arrays<NewtonSchulz> arrays = make_arrays(op, random);
        check_on_gpu(op, arrays,
                     [&](std::string_view) { return newton_schulz_tolerance(op, storage); });
      }
}

// However many there are, and wherever they lie.
TEST(muon_gpu, a_matrix_has_the_same_bits_among_others) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{64, 512}, {512, 96}, {600, 1100}, {360, 520}})
    for (const Dtype storage : kDeviceTypes) {
      NewtonSchulz op{.count = 6,
                      .rows = rows,
                      .columns = columns,
                      .options = {},
                      .scale = 1,
                      .storage = storage};
      const std::int64_t each = rows * columns;
      const Values x = random.normal(6 * each);
      const auto result = [&](const NewtonSchulz& some, const Values& values) {
        const Array array(storage, {some.count, rows, columns}, values);
        const Array room = workspace(some.workspace_bytes());
        return on_gpu([&](Queue& q,
                          auto& at) { some.run(q, {.x = at(array), .workspace = at(room)}); },
                      {array}, 2)[0]
            .values();
      };
      const Values all = result(op, x);
      op.count = 1;
      for (int i = 0; i < 6; ++i)
        EXPECT_EQ(result(op, Values(x.begin() + i * each, x.begin() + (i + 1) * each)),
                  Values(all.begin() + i * each, all.begin() + (i + 1) * each))
            << i;
    }
}

TEST(muon_gpu, momentum_and_update_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes)
    for (const std::int32_t ok : {1, 0})
      for (const std::int64_t count : {1, 2047, 40001}) {
        const Dtype sums = execution::accumulation(storage);
        const MuonMomentum momentum{.elements = {count, 5},
                                    .storage = storage,
                                    .clip = 1,
                                    .momentum = 0.95,
                                    .nesterov = true};
        Arrays<MuonMomentum> m = make_arrays(momentum, random);
        m.step_ok = int32_array({ok});
        m.norm = Array(sums, {1}, Values{3});
        const auto near = [&](std::string_view output) {
          const Dtype dtype = output == "direction" || output == "parameter" ? storage : sums;
          return 8 * execution::epsilon(sums) + execution::epsilon(dtype);
        };
        check_on_gpu(momentum, m, near);
        for (const bool has_master : {false, true}) {
          const MuonUpdate update{
              .pieces = {{count, 1, 1}, {3, 0, 0.5}}, .storage = storage, .has_master = has_master};
          Arrays<MuonUpdate> u = make_arrays(update, random);
          u.step_ok = int32_array({ok});
          check_on_gpu(update, u, near);
        }
      }
}

TEST(muon_gpu, pieces_have_the_bits_of_the_host) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes) {
    MovePieces op{.pieces = {},
                  .from_elements = 100000,
                  .to_elements = 200000,
                  .beside = true,
                  .storage = storage};
    op.pieces.push_back({100, 50000, {-100, 0, 0}, {3, 250, 777}});
    for (std::int64_t i = 0; i < 900; ++i)  // more than one table of arguments
      op.pieces.push_back({0, 7, {60000 + 9 * i, 0, 0}, {180000 + 7 * i, 0, 0}});
    expect_host_bits(op, make_arrays(op, random));
    op.pieces = {{96, 50000, {-96, 0, 0}, {8, 400, 800}},  // whole units of 16 bytes
                 {8, 30000, {50000, 48, 56}, {120000, 0, 0}},
                 {0, 8, {99992, 0, 0}, {199992, 0, 0}}};
    expect_host_bits(op, make_arrays(op, random));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
