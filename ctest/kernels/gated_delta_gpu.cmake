if(STOWAGE_CUDA)
  stowage_test(NAME kernels.gated_delta_gpu SOURCES gated_delta_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
endif()
