stowage_kernels(SOURCES embedding.cpp embedding_ref.cpp
  CUDA_SOURCES embedding_backward.cu embedding_forward.cu token_lists.cu)
