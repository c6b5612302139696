stowage_kernels(SOURCES step_sums.cpp CUDA_SOURCES step_sums.cu)
