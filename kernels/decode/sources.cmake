stowage_kernels(SOURCES attention_step.cpp attention_step_ref.cpp likeliest_token.cpp
    recurrent_steps.cpp recurrent_steps_ref.cpp
  CUDA_SOURCES attention_step.cu attention_step_mma.cu likeliest_token.cu recurrent_steps.cu)
