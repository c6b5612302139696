if(STOWAGE_CUDA)
  stowage_test(NAME kernels.context_gpu SOURCES context_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
endif()
