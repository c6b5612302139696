# Completes Stowage's programs in bash: options and keys are asked of the program itself, decks by
# name of the installation. cmake --install puts this where bash-completion looks for it.

_stowage() {
  local program=$1 word=$2 before=$3 folder
  COMPREPLY=()
  case $before in
    --help-key) _stowage_words "$("$program" --help-keys 2>/dev/null | _stowage_keys)" && return ;;
    --*)  # an option that takes a file
      "$program" --help 2>/dev/null | grep -q -- "^ *\(-[a-zA-Z],\)\?$before \+FILE" &&
        mapfile -t COMPREPLY < <(compgen -f -- "$word") && return
      ;;
  esac
  case $word in
    -*)
      _stowage_words "$("$program" --help 2>/dev/null |
        grep -o '^ *\(-[a-zA-Z],\)\?--[a-z][a-z_-]*' | grep -o -- '--.*')"
      ;;
    *.*)
      _stowage_words "$("$program" --help-keys 2>/dev/null | _stowage_keys)" '='
      [ "${#COMPREPLY[@]}" -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
      ;;
    *)
      folder=$(dirname "$(command -v "$program")")/../share/stowage/inputs
      _stowage_words "$(cd "$folder" 2>/dev/null && printf '%s\n' *.toml | sed 's/\.toml$//')"
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
      ;;
  esac
}

# _stowage_words LIST [BEHIND]: the words of LIST that begin with what was typed.
_stowage_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -S "${2-}" -- "$word")
  [ -z "${2-}" ] || compopt -o nospace 2>/dev/null
}

# The keys in a list of --help-keys: "[model] ..." and under it "  hidden_size  ...".
_stowage_keys() {
  awk '/^\[/ { section = substr($1, 2, length($1) - 2) } /^  [a-z]/ { print section "." $1 }'
}

complete -F _stowage stowage_{bench_comm,bench_kernels,bench_offload,bench_scaling,ceilings} \
  stowage_{convert,data,generate,plan,train}
