stowage_kernels(SOURCES gated_delta.cpp gated_delta_ref.cpp gated_head_norm.cpp
  CUDA_SOURCES gated_delta.cu gated_head_norm.cu segment_step.cu)
