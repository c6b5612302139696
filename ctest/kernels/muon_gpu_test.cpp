// Muon's operators on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/newton_schulz_tolerance.hpp"
#include "ctest/kernels/operator_check.hpp"
#include "kernels/optimizer/move_pieces.hpp"
#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/newton_schulz.hpp"

namespace stowage::kernels::test {
namespace {

void expect_fp64(const NewtonSchulz& op, Random& random) {
  const Arrays<NewtonSchulz> arrays = make_arrays(op, random);
  check_on_gpu(op, arrays,
               [&](std::string_view) { return newton_schulz_tolerance(op, op.storage); });
}

// One matrix and several, tall and wide, of one block and of several, aligned and not.
TEST(muon_gpu, newton_schulz_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const EqualMatrices& m : {EqualMatrices{1, 1, 1},
                                 {3, 7, 5},
                                 {1, 128, 512},
                                 {4, 512, 128},
                                 {9, 64, 1024},
                                 {5, 24, 200},
                                 {2, 333, 777},
                                 {1, 1024, 1024},
                                 {2, 1536, 640},
                                 {3, 136, 1000},
                                 {2, 1000, 264},
                                 {1, 520, 520}})
    for (const Dtype storage : kDeviceTypes)
      for (const int steps : {2, 5}) {
        SCOPED_TRACE(testing::Message() << m.count << " of " << m.rows << " x " << m.columns << " "
                                        << execution::name(storage));
        expect_fp64({.matrices = {{m.count, m.rows, m.columns, 0.5}},
                     .options = {.steps = steps},
                     .storage = storage},
                    random);
      }
}

// More shapes, and more products, than one launch takes.
TEST(muon_gpu, many_matrices_and_iterations_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  NewtonSchulz op{.matrices = {}, .options = {}, .storage = Dtype::bf16};
  for (int i = 0; i < 10; ++i) {
    const std::int64_t rows = 136 + 40 * i, columns = 520 - 32 * i;
    op.matrices.push_back({1 + i % 3, rows, columns, 0.5 + i});
  }
  op.matrices.push_back({2, 33, 55, 2});
  expect_fp64(op, random);
  op.matrices.resize(8);
  op.options = {{1.875, -1.25, 0.375}, 20};
  expect_fp64(op, random);
}

// Whatever others there are, and wherever they lie.
TEST(muon_gpu, a_matrix_has_the_same_bits_among_others) {
  STOWAGE_NEED_GPU();
  Random random;
  const auto result = [&](const NewtonSchulz& op, const std::vector<Array>& arrays) {
    const Array room = workspace(op.workspace_bytes());
    return on_gpu(
        [&](Queue& q, auto& at) {
          OperandsOf<NewtonSchulz, execution::View> o;
          for (const Array& array : arrays) o.matrices.push_back({.x = at(array)});
          o.workspace = at(room);
          op.run(q, o);
        },
        arrays, 2);
  };
  for (const Dtype storage : kDeviceTypes) {
    const NewtonSchulz all{.matrices = {{6, 64, 512}, {6, 512, 96}, {6, 600, 1100}, {6, 360, 520}},
                           .options = {},
                           .storage = storage};
    std::vector<Array> arrays;
    for (const EqualMatrices& m : all.matrices)
      arrays.push_back(Array(storage, {m.elements()}, random.normal(m.elements())));
    const std::vector<Array> together = result(all, arrays);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      EqualMatrices one = all.matrices[i];
      const std::int64_t each = one.rows * one.columns;
      one.count = 1;
      const Values x = arrays[i].values(), expected = together[i].values();
      for (int k = 0; k < 6; ++k) {
        const Array array(storage, {each},
                          Values(x.begin() + k * each, x.begin() + (k + 1) * each));
        EXPECT_EQ(
            result({.matrices = {one}, .options = {}, .storage = storage}, {array})[0].values(),
            Values(expected.begin() + k * each, expected.begin() + (k + 1) * each))
            << one.rows << " x " << one.columns << ", " << k;
      }
    }
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
