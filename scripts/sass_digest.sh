#!/usr/bin/env bash
# sass_digest.sh: prints a digest of the machine code of every CUDA function of a build.
#
#   scripts/sass_digest.sh [BUILD]      BUILD: a build tree with objects of .cu files (build/cuda)
#
# A line is the architecture and name of a function, a tab, and the SHA-256 of its instructions as
# they are encoded. Lines are sorted, each once: two builds whose outputs `diff` finds equal have
# the same device code, wherever the sources lie. Addresses, line numbers and the compiler's names
# of anonymous namespaces have no part in it. Build both with one compiler.
#
# Needs cuobjdump and nvdisasm (CUDA's toolkit, or nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm
# of PyPI) in PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/common.sh

case ${1:-} in
  -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
build=${1:-build/cuda}
for tool in cuobjdump nvdisasm c++filt; do
  have "$tool" || die "no $tool in PATH; see --help"
done
[ -d "$build" ] || die "$build: no build tree; cmake --preset cuda makes one"
mapfile -t objects < <(find "$build" -name '*.cu.o' | LC_ALL=C sort)
[ ${#objects[@]} -gt 0 ] ||
  die "$build: no object of a .cu file; build the target stowage_cuda_objects"

# One line for each function: its name, a tab, the encodings of its instructions.
functions() {
  cuobjdump -sass "$1" | awk '
    function end() { if (name != "") print name "\t" code; name = code = "" }
    /^arch = / { end(); arch = $3 }
    /^[ \t]*Function : / { end(); name = arch " " $3 }
    name != "" && match($0, /\/\* 0x[0-9a-f]+ \*\/ *$/) { code = code substr($0, RSTART + 3, 18) }
    END { end() }'
}

for object in "${objects[@]}"; do functions "$object"; done | python3 -c '
import hashlib, sys
for line in sys.stdin:
    name, code = line.rstrip("\n").split("\t")
    print(name + "\t" + hashlib.sha256(code.encode()).hexdigest())' | c++filt | LC_ALL=C sort -u
