#include <cmath>

#include "drivers/bench_comm/neighbour.hpp"
#include "execution/philox.hpp"
#include "run/measure/gemm.hpp"
#include "run/measure/random.hpp"

namespace stowage::drivers {
namespace {

using execution::Bf16;
using execution::MemoryKind;

constexpr run::GemmShape kShape{8192, 4096, 4096};
constexpr double kRate = 1e15;  ///< more than a GPU has: enough of them for the time asked for

class Products final : public Neighbour {
 public:
  explicit Products(execution::Backend& backend)
      : queue_(backend.make_queue(execution::Lane::compute, "products")),
        end_(backend.make_timed_event()),
        x_(matrix(backend, kShape.m, kShape.k)),
        w_(matrix(backend, kShape.n, kShape.k)),
        y_(matrix(backend, kShape.m, kShape.n)),
        workspace_(backend.allocate(MemoryKind::device, run::Gemm::kWorkspaceLimit)),
        product_(kShape) {
    start(0);
    queue_->synchronize();
  }

  void start(double seconds) override {
    const int count = 1 + static_cast<int>(std::ceil(seconds * kRate / kShape.flops()));
    for (int i = 0; i < count; ++i)
      product_.enqueue(*queue_, x_->data(), w_->data(), y_->data(), workspace_->data());
    queue_->record(*end_);
  }
  double end_s() override {
    queue_->synchronize();
    return end_->time_s();
  }

 private:
  std::unique_ptr<execution::Arena> matrix(execution::Backend& backend, std::int64_t rows,
                                           std::int64_t columns) {
    const std::int64_t count = rows * columns;
    auto made =
        backend.allocate(MemoryKind::device, static_cast<std::size_t>(count) * sizeof(Bf16));
    execution::parallel_for(*queue_, count,
                            run::RandomNormal<Bf16>{1, static_cast<std::uint64_t>(rows + columns),
                                                    0, execution::normal_scale(1.0),
                                                    reinterpret_cast<Bf16*>(made->data())});
    return made;
  }

  std::unique_ptr<execution::Queue> queue_;
  std::unique_ptr<execution::TimedEvent> end_;
  std::unique_ptr<execution::Arena> x_, w_, y_, workspace_;
  run::Gemm product_;
};

}  // namespace

std::unique_ptr<Neighbour> overlapping_products(execution::Backend& backend) {
  return std::make_unique<Products>(backend);
}

}  // namespace stowage::drivers
