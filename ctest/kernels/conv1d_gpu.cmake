if(STOWAGE_CUDA)
  stowage_test(NAME kernels.conv1d_gpu CUDA_SOURCES conv1d_gpu_test.cu
    LIBS stowage::kernels LABELS unit gpu)
  stowage_test(NAME kernels.conv1d_queue_gpu SOURCES conv1d_queue_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu)
endif()
