stowage_kernels(SOURCES rope.cpp rope_ref.cpp CUDA_SOURCES rope.cu)
