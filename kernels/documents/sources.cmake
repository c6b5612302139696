stowage_kernels(SOURCES document_index.cpp later_tokens.cpp
  CUDA_SOURCES document_index.cu later_tokens.cu)
