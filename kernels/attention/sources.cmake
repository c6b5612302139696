stowage_kernels(SOURCES attention.cpp attention_backward_ref.cpp attention_forward_ref.cpp
    attention_layout.cpp
  CUDA_SOURCES attention_backward_round.cu attention_cuda.cpp attention_delta.cu
    attention_schedule.cu attention_simple.cu
  WGMMA_SOURCES attention_backward_inside64_sm90.cu
    attention_backward_inside128_sm90.cu attention_backward_kv_sm90.cu attention_backward_kv256_sm90.cu attention_backward_q_sm90.cu
    attention_backward_stored_sm90.cu attention_forward_sm90.cu)
