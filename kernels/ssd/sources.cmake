stowage_kernels(SOURCES segment.cpp segment_ref.cpp ssd.cpp ssd_backward_ref.cpp ssd_forward_ref.cpp
    ssd_layout.cpp ssd_recurrence_ref.cpp ssd_states_ref.cpp
  CUDA_SOURCES segment_chain.cu ssd_cuda.cpp ssd_enter.cu ssd_finish.cu ssd_prepare.cu
    ssd_segment.cu ssd_simple_backward.cu ssd_simple_forward.cu
  WGMMA_SOURCES ssd_gradient.cu ssd_scan.cu ssd_states.cu)
