stowage_kernels(SOURCES embedding.cpp embedding_ref.cpp CUDA_SOURCES embedding.cu token_lists.cu)
