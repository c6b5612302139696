stowage_kernels(SOURCES digest.cpp digest_ref.cpp CUDA_SOURCES digest.cu)
