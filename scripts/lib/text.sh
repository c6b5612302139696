# shellcheck shell=bash
# The text to train on, made out of a package or of this tree's pages and never committed. Source
# common.sh first.

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

# ensure_any_text: the same or, where there is no such package, the pages of this tree in
# data/tree.txt, each a chapter. The array TEXT_KEYS then has what the quick start's deck needs for
# it: its bands of losses are those of the book.
ensure_any_text() {
  local text=$STOWAGE_SOURCE/data/tree.txt page number=0
  TEXT_KEYS=()
  if [ -s "$STOWAGE_SOURCE/data/kjv.txt" ] || have bible; then
    ensure_text
    return 0
  fi
  # shellcheck disable=SC2034  # quickstart.sh reads it
  TEXT_KEYS=("data.path=$text" validate.val_loss_below=4 "expects.loss_at_50=[0, 8]"
    "expects.loss_at_100=[0, 8]" "expects.loss_at_200=[0, 8]")
  [ ! -s "$text" ] || return 0
  say "No package bible-kjv: this tree's pages become data/tree.txt"
  mkdir -p "$(dirname "$text")"
  while IFS= read -r page; do
    number=$((number + 1))
    printf '\nPage %d\n\n' "$number"
    cat "$page"
  done < <(cd "$STOWAGE_SOURCE" &&
    find "$PWD" -path "$PWD/build" -prune -o -name '*.md' -print | LC_ALL=C sort) >"$text.new"
  mv "$text.new" "$text"
}
