stowage_kernels(SOURCES rmsnorm.cpp rmsnorm_ref.cpp gated_rmsnorm.cpp gated_rmsnorm_ref.cpp
                        group_shares.cpp group_shares_ref.cpp
                        head_rmsnorm.cpp head_rmsnorm_ref.cpp mean_squares.cpp
  CUDA_SOURCES gated_rmsnorm.cu group_shares.cu head_rmsnorm.cu mean_squares.cu partial_sums.cu
               rmsnorm.cu)
