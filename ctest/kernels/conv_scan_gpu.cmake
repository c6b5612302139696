if(STOWAGE_CUDA)
  stowage_test(NAME kernels.conv_scan_gpu SOURCES conv_scan_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
endif()
