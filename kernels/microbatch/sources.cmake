stowage_kernels(SOURCES take_row.cpp)
