stowage_kernels(SOURCES linear_cross_entropy.cpp linear_cross_entropy_ref.cpp loss_sum.cpp
    loss_sum_ref.cpp sharded_cross_entropy.cpp sharded_cross_entropy_ref.cpp
  CUDA_SOURCES linear_cross_entropy_cuda.cpp loss_sum.cu sharded_cross_entropy_cuda.cpp softmax.cu
    softmax_parts.cu)
