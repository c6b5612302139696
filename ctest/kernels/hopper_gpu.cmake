if(STOWAGE_CUDA)
  stowage_test(NAME kernels.hopper_gpu SOURCES hopper_gpu_test.cpp
    WGMMA_SOURCES hopper_mbarrier.cu hopper_order.cu hopper_product.cu
    LIBS stowage::kernels LABELS unit gpu)
endif()
