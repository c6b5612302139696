stowage_kernels(SOURCES activation.cpp activation_ref.cpp sigmoid.cpp sigmoid_ref.cpp
  CUDA_SOURCES activation.cu sigmoid.cu)
