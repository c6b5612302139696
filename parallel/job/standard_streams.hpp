#pragma once

namespace stowage::parallel {

/// Occupies standard input, output and error where the process was started without them. Otherwise
/// the next file that is opened would get such a number, and what is printed would go into it.
/// Reading what was closed and printing to it still fail, so that lost output is noticed.
void occupy_closed_streams();

}  // namespace stowage::parallel
