stowage_kernels(SOURCES linear.cpp linear_ref.cpp
  CUDA_SOURCES dense_product.cpp mixed_product.cpp mixed_product.cu product_plan.cpp
    product_table.cpp)
