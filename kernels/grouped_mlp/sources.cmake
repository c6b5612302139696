stowage_kernels(SOURCES grouped_linear.cpp grouped_linear_ref.cpp)
