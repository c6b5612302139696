"""Spack's recipe for Stowage, of the clone that it lies in: docs/start/install.md."""

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Stowage(CMakePackage, CudaPackage):
    """An MPI benchmark and reference-training suite for hybrid Mamba-2 / attention / MoE models:
    the training step recorded as a program, planned, proven and run, over any number of ranks."""

    license("Apache-2.0")

    version("main")  # spack dev-build: there is no address to fetch from

    variant("tests", default=False, description="Build the regression suite")
    variant("cudnn", default=True, when="+cuda", description="Time cuDNN as a peer of attention")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5+mpi")
    depends_on("openblas")
    depends_on("hwloc@2.1:")
    depends_on("kokkos@3.4:5 ~cuda+openmp+pic~shared")
    depends_on("fmt@8:")
    depends_on("cli11@2:")
    depends_on("nlohmann-json@3:")
    depends_on("tomlplusplus@3:")
    depends_on("googletest@1.11:", when="+tests")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-h5py", type="run")
    depends_on("py-matplotlib", type="run")

    with when("+cuda"):
        depends_on("cuda@13:")
        depends_on("nccl")
        depends_on("cudnn", when="+cudnn")
        conflicts("cuda_arch=none", msg="cuda_arch=90a: the kernels are for one architecture")

    conflicts("%gcc@:11", msg="C++20 as gcc 12 has it is needed")

    def cmake_args(self):
        spec = self.spec
        args = [
            self.define("STOWAGE_CUDA", "ON" if spec.satisfies("+cuda") else "OFF"),
            self.define("STOWAGE_HDF5", "PARALLEL"),
            self.define("STOWAGE_KOKKOS", "SYSTEM"),
            self.define_from_variant("STOWAGE_TESTS", "tests"),
        ]
        if spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", spec.variants["cuda_arch"].value))
            args.append(self.define("NCCL_ROOT", spec["nccl"].prefix))
        return args
