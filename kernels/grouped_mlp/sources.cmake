stowage_kernels(SOURCES grouped_linear.cpp grouped_linear_ref.cpp grouped_mlp.cpp
    grouped_mlp_ref.cpp
  CUDA_SOURCES grouped_cuda.cpp grouped_linear_cuda.cpp grouped_mlp_cuda.cpp grouped_simple.cu
  WGMMA_SOURCES grouped_fc1_sm90.cu grouped_fc2_sm90.cu grouped_rows_sm90.cu
    grouped_weight_sm90.cu)
