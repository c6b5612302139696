if(STOWAGE_CUDA)
  stowage_test(NAME kernels.attention_gpu SOURCES attention_gpu_test.cpp
    LIBS stowage::kernels LABELS unit gpu TIMEOUT 300)
endif()
