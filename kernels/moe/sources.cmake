stowage_kernels(SOURCES
  balance.cpp balance_ref.cpp
  capacity.cpp
  permute.cpp permute_ref.cpp
  router.cpp router_loss_ref.cpp router_select_ref.cpp router_weights_ref.cpp
  slots.cpp slots_ref.cpp
  CUDA_SOURCES
  balance.cu capacity.cu permute_index.cu router_backward.cu router_losses.cu router_select.cu rows.cu
  rows_bulk.cu slots.cu)
