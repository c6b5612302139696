stowage_kernels(SOURCES linear.cpp linear_ref.cpp)
