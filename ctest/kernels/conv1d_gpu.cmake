if(STOWAGE_CUDA)
  stowage_test(NAME kernels.conv1d_gpu SOURCES conv1d_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu)
endif()
