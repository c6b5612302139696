# shellcheck shell=bash
# The text to train on, made out of a package and never committed. Source common.sh first.

# ensure_text: the King James text in data/kjv.txt: public domain, 4.3 MB, a chapter starts with a
# heading such as "Genesis 1".
ensure_text() {
  local text=$STOWAGE_SOURCE/data/kjv.txt
  [ ! -s "$text" ] || return 0
  have bible || die "no 'bible' command to extract the training text with (package bible-kjv)"
  say "Extracting the training text to data/kjv.txt"
  mkdir -p "$(dirname "$text")"
  bible 'gen1:1-rev22:21' </dev/null >"$text.new"
  mv "$text.new" "$text"
}
