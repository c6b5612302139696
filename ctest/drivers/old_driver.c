/* Stands in for the NVIDIA driver's library: one that serves CUDA 12.2 and nothing newer. Test
   programs find it by LD_LIBRARY_PATH as libcuda.so.1. */
int cuInit(unsigned flags) { return (int)flags; }

int cuDriverGetVersion(int* version) {
  *version = 12020;
  return 0;
}
