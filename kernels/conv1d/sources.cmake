stowage_kernels(SOURCES conv1d.cpp conv1d_ref.cpp)
