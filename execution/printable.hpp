#pragma once

#include <string>
#include <string_view>

namespace stowage::execution {

/// Text of somebody else's file for a message: one line, which moves no terminal's cursor. Control
/// characters, and bytes that are no UTF-8, become "\x1b".
std::string printable(std::string_view text);

/// The same of a whole message: its line ends and tabs stay.
std::string printable_lines(std::string_view text);

/// Writes a line to standard error, as printable() has it. A remark that cannot be written, since
/// the stream is closed or full, ends no run.
void print_remark(std::string_view line);

}  // namespace stowage::execution
