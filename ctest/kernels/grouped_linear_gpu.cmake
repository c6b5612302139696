if(STOWAGE_CUDA)
  stowage_test(NAME kernels.grouped_linear_gpu SOURCES grouped_linear_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
endif()
