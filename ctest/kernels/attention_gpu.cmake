if(STOWAGE_CUDA)
  stowage_test(NAME kernels.attention_gpu SOURCES attention_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
  stowage_test(NAME kernels.attention_bits_gpu SOURCES attention_bits_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
endif()
