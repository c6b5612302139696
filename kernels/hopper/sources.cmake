# The encoder of tensor maps needs the CUDA headers; everything else here is headers.
stowage_kernels(CUDA_SOURCES tensor_map.cpp)
