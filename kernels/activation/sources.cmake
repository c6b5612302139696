stowage_kernels(SOURCES activation.cpp activation_ref.cpp)
