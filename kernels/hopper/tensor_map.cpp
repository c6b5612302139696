#include "kernels/hopper/tensor_map.hpp"

#include <cuda_runtime.h>

#include "execution/error.hpp"

namespace stowage::kernels::hopper {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &result);
  STOWAGE_ASSERT(status == cudaSuccess && result == cudaDriverEntryPointSuccess,
                 "the CUDA driver has no cuTensorMapEncodeTiled (runtime status {})",
                 static_cast<int>(status));
  return reinterpret_cast<EncodeTiled>(function);
}

CUtensorMapDataType driver_type(TensorMapType type) {
  switch (type) {
    case TensorMapType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case TensorMapType::int32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case TensorMapType::fp32:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

CUtensorMapSwizzle driver_swizzle(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::b128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case Swizzle::b64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::b32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::none:
      break;
  }
  return CU_TENSOR_MAP_SWIZZLE_NONE;
}

}  // namespace

CUtensorMap make_tensor_map(TensorMapType type, const void* base,
                            std::span<const std::uint64_t> extents,
                            std::span<const std::uint64_t> strides_bytes,
                            std::span<const std::uint32_t> box, Swizzle swizzle, int fetch_bytes) {
  static const EncodeTiled encode = find_encoder();
  const std::size_t rank = extents.size();
  STOWAGE_ASSERT(rank >= 1 && rank <= 5 && strides_bytes.size() + 1 == rank && box.size() == rank,
                 "a tensor map has 1 to 5 dimensions, here {}, with {} strides and {} box extents",
                 rank, strides_bytes.size(), box.size());
  constexpr std::uint32_t kElementStrides[5] = {1, 1, 1, 1, 1};
  CUtensorMap map{};
  const CUresult status = encode(
      &map, driver_type(type), static_cast<cuuint32_t>(rank), const_cast<void*>(base),
      extents.data(), strides_bytes.data(), box.data(), kElementStrides,
      CU_TENSOR_MAP_INTERLEAVE_NONE, driver_swizzle(swizzle),
      fetch_bytes == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  STOWAGE_ASSERT(
      status == CUDA_SUCCESS,
      "cuTensorMapEncodeTiled refused the map: code {}, base {}, rank {}, extent {}, box {}",
      static_cast<int>(status), base, rank, extents[0], box[0]);
  return map;
}

}  // namespace stowage::kernels::hopper
