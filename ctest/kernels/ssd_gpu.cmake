if(STOWAGE_CUDA)
  stowage_test(NAME kernels.ssd_gpu CUDA_SOURCES ssd_gpu_test.cu
    LIBS stowage::kernels LABELS unit gpu TIMEOUT 300)
endif()
