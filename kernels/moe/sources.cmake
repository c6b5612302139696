stowage_kernels(SOURCES
  balance.cpp balance_ref.cpp
  permute.cpp permute_ref.cpp
  router.cpp router_loss_ref.cpp router_select_ref.cpp router_weights_ref.cpp)
