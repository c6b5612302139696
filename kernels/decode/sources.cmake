stowage_kernels(SOURCES attention_step.cpp attention_step_ref.cpp recurrent_steps.cpp
    recurrent_steps_ref.cpp
  CUDA_SOURCES attention_step.cu recurrent_steps.cu)
