if(STOWAGE_CUDA)
  foreach(unit IN ITEMS digest_gpu elementwise_gpu muon_gpu optimizer_gpu)
    stowage_test(NAME kernels.${unit} SOURCES ${unit}_test.cpp
      LIBS stowage_test_kernels LABELS unit gpu TIMEOUT 120)
  endforeach()
endif()
