stowage_kernels(SOURCES ssd.cpp ssd_backward_ref.cpp ssd_forward_ref.cpp ssd_recurrence_ref.cpp
  ssd_states_ref.cpp)
