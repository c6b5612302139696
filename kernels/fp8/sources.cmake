stowage_kernels(SOURCES quantise.cpp quantise_ref.cpp fp8_product.cpp fp8_product_ref.cpp
  CUDA_SOURCES quantise.cu)
