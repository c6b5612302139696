# FindcuDNN: target cuDNN::cudnn, variable cuDNN_VERSION. Hints: cuDNN_ROOT, the CUDA toolkit's folders.
include(FindPackageHandleStandardArgs)

find_path(cuDNN_INCLUDE_DIR cudnn_version.h
  HINTS ${cuDNN_ROOT} $ENV{cuDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9
  HINTS ${cuDNN_ROOT} $ENV{cuDNN_ROOT} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)

if(cuDNN_INCLUDE_DIR)
  set(cuDNN_VERSION "")
  foreach(part IN ITEMS MAJOR MINOR PATCHLEVEL)
    file(STRINGS "${cuDNN_INCLUDE_DIR}/cudnn_version.h" line REGEX "#define CUDNN_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND cuDNN_VERSION ${number})
  endforeach()
  list(JOIN cuDNN_VERSION "." cuDNN_VERSION)
endif()

find_package_handle_standard_args(cuDNN
  REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR VERSION_VAR cuDNN_VERSION)

if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cudnn PROPERTIES
    IMPORTED_LOCATION "${cuDNN_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${cuDNN_INCLUDE_DIR}")
endif()
