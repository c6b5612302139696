if(STOWAGE_CUDA)
  stowage_test(NAME kernels.ssd_gpu CUDA_SOURCES ssd_gpu_test.cu
    LIBS stowage::kernels LABELS unit gpu TIMEOUT 300)
  stowage_test(NAME kernels.ssd_queue_gpu SOURCES ssd_queue_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
  stowage_test(NAME kernels.ssd_peer_gpu CUDA_SOURCES ssd_peer_gpu_test.cu
    LIBS stowage::kernels LABELS regression gpu TIMEOUT 300)
  target_compile_definitions(test_kernels_ssd_peer_gpu_cuda PRIVATE
    STOWAGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
