stowage_kernels(SOURCES document_index.cpp CUDA_SOURCES document_index.cu)
