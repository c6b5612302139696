stowage_kernels(SOURCES gated_delta.cpp gated_delta_ref.cpp
  CUDA_SOURCES gated_delta.cu segment_step.cu)
