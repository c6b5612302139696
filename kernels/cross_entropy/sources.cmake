stowage_kernels(SOURCES linear_cross_entropy.cpp linear_cross_entropy_ref.cpp loss_sum.cpp
    source_losses.cpp sharded_cross_entropy.cpp sharded_cross_entropy_ref.cpp
  CUDA_SOURCES loss_sum.cu softmax.cu softmax_parts.cu)
