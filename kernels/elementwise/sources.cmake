stowage_kernels(SOURCES elementwise.cpp CUDA_SOURCES elementwise.cu)
