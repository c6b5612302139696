stowage_kernels(SOURCES linear.cpp linear_ref.cpp product_fill.cpp
  CUDA_SOURCES cublaslt.cpp dense_product.cpp mixed_backward.cpp mixed_backward_ends.cu
    mixed_product.cpp mixed_product.cu product_plan.cpp product_table.cpp
  WGMMA_SOURCES mixed_backward_sm90.cu)
