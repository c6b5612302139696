// The CUDA scan's errors beside those of the Triton kernels of mamba_ssm on the same operands, both
// against the fp64 recurrence. Needs $STOWAGE_PEER_DIR, see results/tools/peers/ssd_triton.py.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "ctest/kernels/ssd_gpu_problem.cuh"

namespace stowage::test {
namespace {

namespace fs = std::filesystem;

constexpr int kPeerChunks[] = {128, 256};

/// Results that are off by their last rounding only differ in the fourth digit of their errors;
/// fp32 sums of exact products by their order.
constexpr double kEqual = 1 + 1e-3;
constexpr double kSums = 0x1p-22;

template <class T>
void write(const fs::path& path, const std::vector<T>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

std::vector<float> read(const fs::path& path, std::size_t count) {
  std::vector<float> values(count);
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(
      file.read(reinterpret_cast<char*>(values.data()), std::streamsize(count * sizeof(float))))
      << path;
  return values;
}

/// What the script takes: a folder of raw operands, row-major, beside their sizes.
void write_operands(const ScanRun& run, const fs::path& folder) {
  fs::create_directories(folder);
  const Problem& p = run.p;
  std::ofstream(folder / "shape.json")
      << "{\"tokens\": " << p.tokens << ", \"heads\": " << p.heads
      << ", \"head_dim\": " << p.head_dim << ", \"groups\": " << p.groups
      << ", \"state\": " << p.state << "}\n";
  write(folder / "xbc.bf16", run.xbc.host());
  write(folder / "dt.bf16", run.dt_raw.host());
  write(folder / "dy.bf16", run.dy.host());
  write(folder / "a_log.f32", run.a_log.host());
  write(folder / "d.f32", run.d.host());
  write(folder / "dt_bias.f32", run.dt_bias.host());
  write(folder / "initial_state.f32", run.initial.host());
  write(folder / "dfinal_state.f32", run.dfinal.host());
  write(folder / "seq_idx.i32", run.seq_idx.host());
}

/// Columns [first, first + columns) of a row-major matrix.
std::vector<float> part(const std::vector<Bf16>& all, std::size_t width, std::size_t first,
                        std::size_t columns) {
  std::vector<float> values(all.size() / width * columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = __bfloat162float(all[i / columns * width + first + i % columns]);
  }
  return values;
}

/// One result: its file, ours and the exact one.
struct Compared {
  const char* name;
  std::vector<float> ours;
  std::vector<double> exact;

  double error(const std::vector<float>& values) const {
    return relative_error(values, exact.size(), 0, exact, exact.size());
  }
};

std::vector<Compared> results(const ScanRun& run) {
  const Buffer<std::byte> room(std::max(kernels::ssd_cuda_forward_workspace_bytes(run.shape),
                                        kernels::ssd_cuda_backward_workspace_bytes(run.shape)));
  run.forward(nullptr, room.get());
  run.backward(nullptr, room.get());
  const ScanReference exact(run);
  const std::size_t width = run.width, columns = run.columns;
  const std::size_t group_width = std::size_t(run.p.groups) * run.p.state;
  const auto dxbc = run.dxbc.host();
  return {{"y", part(run.y.host(), width, 0, width), exact.y.host()},
          {"final_state", run.final_state.host(), exact.final_state.host()},
          {"dx", part(dxbc, columns, 0, width), exact.dx.host()},
          {"ddt", part(run.ddt_raw.host(), run.p.heads, 0, run.p.heads), exact.ddt.host()},
          {"da_log", run.da_log.host(), exact.da.host()},
          {"db", part(dxbc, columns, width, group_width), exact.db.host()},
          {"dc", part(dxbc, columns, width + group_width, group_width), exact.dc.host()},
          {"dd", run.dd.host(), exact.dd.host()},
          {"ddt_bias", run.ddt_bias.host(), exact.dbias.host()},
          {"dinitial_state", run.dinitial.host(), exact.dinitial.host()}};
}

struct Named {
  const char* name;
  Problem problem;
};

std::vector<Named> problems() {
  std::vector<int> single(2048);
  for (int t = 0; t < 2048; ++t) single[t] = t;
  return {{"usual", {4096, 32, 64, 4, 128, one_document(4096), 3e-3, 0.03, 1, 16}},
          {"boundaries at every place",
           {4096, 32, 64, 4, 128, growing_documents(4096), 3e-3, 0.03, 1, 16}},
          {"documents of one token", {2048, 32, 64, 4, 128, single, 3e-3, 0.03, 1, 16}},
          {"fast decay", {2048, 32, 64, 4, 128, one_document(2048), 0.5, 2, 16, 16.01}},
          {"long memory", {65536, 8, 64, 1, 128, one_document(65536), 1e-4, 1e-3, 0.01, 0.1}}};
}

TEST(ssd_peer_gpu, errors_no_larger_than_the_peers) {
  STOWAGE_NEED_WGMMA();
  if (std::getenv("STOWAGE_PEER_DIR") == nullptr) GTEST_SKIP() << "STOWAGE_PEER_DIR is not set";
  const char* set = std::getenv("STOWAGE_SSD_TRITON");
  const std::string script =
      set != nullptr ? set : STOWAGE_SOURCE_DIR "/results/tools/peers/ssd_triton.py";
  const fs::path root = fs::temp_directory_path() / ("stowage_ssd_" + std::to_string(getpid()));
  const std::vector<Named> all = problems();
  std::vector<std::vector<Compared>> ours;
  std::string command = "python3 '" + script + "'";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ScanRun run(all[i].problem, 1);
    const fs::path folder = root / std::to_string(i);
    write_operands(run, folder);
    ours.push_back(results(run));
    command += " --operands '" + folder.string() + "'";
  }
  for (const int chunk : kPeerChunks) command += " --chunk " + std::to_string(chunk);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;

  std::printf("%-28s %-14s %9s %9s %9s\n", "operands", "result", "ours", "peer 128", "peer 256");
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Compared& result : ours[i]) {
      double peer[std::size(kPeerChunks)];
      for (std::size_t k = 0; k < std::size(kPeerChunks); ++k) {
        const fs::path folder =
            root / std::to_string(i) / ("chunk" + std::to_string(kPeerChunks[k]));
        peer[k] =
            result.error(read(folder / (std::string(result.name) + ".f32"), result.ours.size()));
      }
      const double error = result.error(result.ours);
      std::printf("%-28s %-14s %9.2e %9.2e %9.2e\n", all[i].name, result.name, error, peer[0],
                  peer[1]);
      EXPECT_LE(error, kEqual * std::max(peer[0], peer[1]) + kSums)
          << all[i].name << ", " << result.name;
    }
  }
  fs::remove_all(root);
}

}  // namespace
}  // namespace stowage::test
