#%Module1.0
## Stowage, in the prefix that this file lies in: for `module use PREFIX/share/stowage/modulefiles`.
set prefix $ModulesCurrentModulefile
foreach level {version stowage modulefiles stowage share} { set prefix [file dirname $prefix] }
module-whatis "MPI benchmark and reference-training suite for hybrid language models"
conflict stowage
prepend-path PATH $prefix/bin
prepend-path CMAKE_PREFIX_PATH $prefix
setenv STOWAGE_BIN $prefix/bin
