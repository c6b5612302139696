stowage_kernels(SOURCES conv_scan.cpp
  CUDA_SOURCES conv_scan_cuda.cpp
  WGMMA_SOURCES convolve.cu)
