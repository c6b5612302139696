stowage_kernels(SOURCES adamw.cpp adamw_ref.cpp global_norm.cpp global_norm_ref.cpp guard.cpp
  CUDA_SOURCES adamw.cu advance.cu global_norm.cu guard.cu)
