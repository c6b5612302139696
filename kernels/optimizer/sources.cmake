stowage_kernels(SOURCES adamw.cpp adamw_ref.cpp ema.cpp ema_ref.cpp global_norm.cpp
    global_norm_ref.cpp guard.cpp keep_weights.cpp move_pieces.cpp muon.cpp muon_ref.cpp
    newton_schulz.cpp newton_schulz_ref.cpp round_sum.cpp
  CUDA_SOURCES adamw.cu advance.cu ema.cu global_norm.cu guard.cu keep_weights.cu
    move_pieces.cu muon.cu newton_schulz.cu newton_schulz_chain.cu round_sum.cu
  WGMMA_SOURCES newton_schulz_sm90.cu)
