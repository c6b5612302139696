stowage_kernels(SOURCES gated_delta.cpp gated_delta_ref.cpp gated_head_norm.cpp
  CUDA_SOURCES gated_delta.cu gated_head_norm.cu segment_step.cu
  WGMMA_SOURCES gated_delta_gradient.cu gated_delta_prepare.cu gated_delta_scan.cu)
