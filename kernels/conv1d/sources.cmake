stowage_kernels(SOURCES conv1d.cpp conv1d_ref.cpp halo.cpp
  CUDA_SOURCES conv1d_backward.cu conv1d_forward.cu conv1d_simple.cu halo.cu)
