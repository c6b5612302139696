stowage_kernels(SOURCES document_index.cpp segment_documents.cpp
  CUDA_SOURCES document_index.cu segment_documents.cu)
