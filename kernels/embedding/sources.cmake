stowage_kernels(SOURCES embedding.cpp embedding_ref.cpp)
