if(STOWAGE_CUDA)
  stowage_test(NAME kernels.cublaslt SOURCES cublaslt_gpu_test.cpp
    LIBS stowage_test_kernels LABELS unit NEEDS_CUDA)
  foreach(unit IN ITEMS activation_gpu cross_entropy_gpu embedding_gpu fp8_gpu linear_gpu norm_gpu
          rope_gpu)
    stowage_test(NAME kernels.${unit} SOURCES ${unit}_test.cpp
      LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
  endforeach()
endif()
