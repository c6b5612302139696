if(STOWAGE_CUDA)
  foreach(unit IN ITEMS activation_gpu cross_entropy_gpu embedding_gpu fp8_gpu linear_gpu norm_gpu
          rope_gpu)
    stowage_test(NAME kernels.${unit} SOURCES ${unit}_test.cpp
      LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 300)
  endforeach()
endif()
