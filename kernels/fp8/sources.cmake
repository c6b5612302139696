stowage_kernels(SOURCES buffer_of.cpp quantise.cpp quantise_ref.cpp fp8_product.cpp
  fp8_product_ref.cpp
  CUDA_SOURCES quantise.cu)
