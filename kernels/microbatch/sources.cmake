stowage_kernels(SOURCES take_row.cpp CUDA_SOURCES take_row.cu)
