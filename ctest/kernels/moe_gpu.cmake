if(STOWAGE_CUDA)
  foreach(unit IN ITEMS permute_gpu router_gpu slots_gpu)
    stowage_test(NAME kernels.${unit} SOURCES ${unit}_test.cpp LIBS stowage_test_kernels
      LABELS unit gpu TIMEOUT 120)
  endforeach()
endif()
