#include "kernels/linear/dense_product.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "execution/cuda_check.hpp"
#include "execution/error.hpp"
#include "kernels/linear/product_plan.hpp"
#include "kernels/linear/product_table.hpp"

namespace stowage::kernels {
namespace {

using execution::Dtype;

constexpr std::size_t kRoomBytes = kProductWorkspaceBytes + kProductScratchBytes;

// A product with its one algorithm.
struct Prepared {
  std::unique_ptr<ProductPlan> plan;
  bool from_table = false;
};

// What products need and keep: an entry per shape and alignment of operands, and memory per stream.
// It is never destroyed: graphs that hold its addresses may outlive every other object, and the
// driver frees all at exit.
struct Registry {
  std::mutex mutex;
  std::map<std::tuple<int, ProductShape, std::uint32_t>, Prepared> products;
  std::map<std::pair<int, cudaStream_t>, std::byte*> rooms;
  std::map<int, std::string> device_names;

  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }
};

int current_device() {
  int device = 0;
  STOWAGE_CUDA(cudaGetDevice(&device));
  return device;
}

// Memory for a stream at its first use. Allocation is not a stream operation, so it is let through
// where the first use happens under capture.
std::byte* room(Registry& registry, int device, cudaStream_t stream) {
  std::byte*& memory = registry.rooms[{device, stream}];
  if (memory != nullptr) return memory;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  STOWAGE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  void* allocated = nullptr;
  const cudaError_t code = cudaMalloc(&allocated, kRoomBytes);
  STOWAGE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  STOWAGE_CUDA(code);
  memory = static_cast<std::byte*>(allocated);
  return memory;
}

const std::string& device_name(Registry& registry, int device) {
  std::string& name = registry.device_names[device];
  if (name.empty()) {
    cudaDeviceProp properties{};
    STOWAGE_CUDA(cudaGetDeviceProperties(&properties, device));
    name = properties.name;
  }
  return name;
}

const Prepared& prepared(Registry& registry, int device, const ProductShape& shape,
                         std::uint32_t alignment) {
  Prepared& one = registry.products[{device, shape, alignment}];
  if (one.plan) return one;
  if (shape.batch > 1) {
    const Prepared& alone = prepared(registry, device, shape.one(), alignment);
    one.from_table = alone.from_table;
    one.plan = std::make_unique<ProductPlan>(shape, alone.plan->algorithm(0));
    return one;
  }
  std::optional<ProductAlgorithm> algorithm;
  if (alignment == kProductAlignment)
    algorithm = tabled_algorithm(device_name(registry, device), product_library_number(), shape);
  one.from_table = algorithm.has_value();
  one.plan = algorithm ? std::make_unique<ProductPlan>(shape, *algorithm)
                       : std::make_unique<ProductPlan>(shape, 1, alignment);
  return one;
}

// What all addresses are aligned to, in bytes, as far as it counts. Parts of tensors lie where the
// rows before them end; whole ones are aligned, so that this is the same in every plan.
std::uint32_t alignment_of(const ProductShape& shape,
                           std::initializer_list<const void*> addresses) {
  std::uintptr_t bits = kProductAlignment;
  for (const void* address : addresses) bits |= reinterpret_cast<std::uintptr_t>(address);
  if (shape.is_of_batch())
    for (const auto& [stride, dtype] :
         {std::pair(shape.a_stride, shape.a), std::pair(shape.b_stride, shape.b),
          std::pair(shape.c_stride, shape.c)})
      bits |= static_cast<std::uintptr_t>(stride) * execution::size_bytes(dtype);
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

}  // namespace

ProductShape dense_shape(std::int64_t m, std::int64_t n, std::int64_t k, Transpose transpose_a,
                         Transpose transpose_b, Dtype factors, Dtype result, bool accumulate) {
  return {.m = m,
          .n = n,
          .k = k,
          .a_stride = transpose_a == Transpose::yes ? m : k,
          .b_stride = transpose_b == Transpose::yes ? k : n,
          .c_stride = n,
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .a = factors,
          .b = factors,
          .c = result,
          .accumulate = accumulate};
}

std::string text(const ProductShape& shape) {
  const std::string factors = shape.a == shape.b
                                  ? std::string(name(shape.a))
                                  : fmt::format("{}*{}", name(shape.a), name(shape.b));
  const std::string times = shape.batch > 1 ? fmt::format("{} x ", shape.batch) : "";
  return fmt::format("{}{}x{}x{} {}{} {}>{}{}{}", times, shape.m, shape.n, shape.k,
                     shape.transpose_a == Transpose::yes ? 'T' : 'N',
                     shape.transpose_b == Transpose::yes ? 'T' : 'N', factors, name(shape.c),
                     shape.accumulate ? "+" : "", shape.fast ? " fast" : "");
}

void dense_product(const ProductShape& shape, const void* a, const void* b, void* c,
                   cudaStream_t stream, const ProductScales& scales) {
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {
    const std::size_t size = execution::size_bytes(shape.c);
    if (!shape.accumulate)
      STOWAGE_CUDA(cudaMemset2DAsync(c, static_cast<std::size_t>(shape.c_stride) * size, 0,
                                     static_cast<std::size_t>(shape.n) * size,
                                     static_cast<std::size_t>(shape.m), stream));
    return;
  }
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const int device = current_device();
  std::byte* workspace = room(registry, device, stream);
  const std::uint32_t alignment = alignment_of(shape, {a, b, c});
  const Prepared& all =
      prepared(registry, device, shape.batch > 1 ? shape : shape.one(), alignment);
  if (all.plan->candidates() > 0) {
    all.plan->run(0, a, b, c, workspace, stream, scales);
    return;
  }
  const Prepared& one = prepared(registry, device, shape.one(), alignment);
  const auto at = [](auto* data, std::int64_t elements, Dtype dtype) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(data)>>,
                                    const std::byte, std::byte>;
    return static_cast<Byte*>(data) +
           elements * static_cast<std::int64_t>(execution::size_bytes(dtype));
  };
  for (std::int64_t i = 0; i < shape.batch; ++i)
    one.plan->run(0, at(a, i * shape.a_batch_stride, shape.a),
                  at(b, i * shape.b_batch_stride, shape.b),
                  at(c, i * shape.c_batch_stride, shape.c), workspace, stream, scales);
}

void prepare_products(cudaStream_t stream) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  room(registry, current_device(), stream);
}

std::size_t product_workspaces_bytes() {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  return registry.rooms.size() * kRoomBytes;
}

void* product_scratch(cudaStream_t stream) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  return room(registry, current_device(), stream) + kProductWorkspaceBytes;
}

std::vector<ProductRecord> products_used() {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  std::vector<ProductRecord> records;
  for (const auto& [key, one] : registry.products)
    if (one.plan->candidates() > 0)
      records.push_back({std::get<ProductShape>(key), one.plan->algorithm_text(0), one.from_table});
  return records;
}

}  // namespace stowage::kernels
