if(STOWAGE_CUDA)
  stowage_test(NAME kernels.grouped_mlp_gpu SOURCES grouped_mlp_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
endif()
