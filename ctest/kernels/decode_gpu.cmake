if(STOWAGE_CUDA)
  stowage_test(NAME kernels.decode_gpu SOURCES decode_gpu_test.cpp LIBS stowage_test_kernels
    LABELS unit gpu TIMEOUT 120)
endif()
