stowage_kernels(SOURCES shards.cpp CUDA_SOURCES shards.cu)
