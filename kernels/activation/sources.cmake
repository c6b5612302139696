stowage_kernels(SOURCES activation.cpp activation_ref.cpp CUDA_SOURCES activation.cu)
