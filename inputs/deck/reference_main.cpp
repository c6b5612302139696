// Prints docs/reference/deck.md.
#include <fmt/core.h>

#include "inputs/deck/help.hpp"

int main() { fmt::print("{}", stowage::inputs::reference_page()); }
