#pragma once

#include <cstddef>
#include <vector>

#include "execution/persistent.hpp"
#include "offload/assembly.hpp"
#include "offload/rates.hpp"

namespace stowage::offload {

/// The windows of a program: for each op one of each tensor that it uses and that has its home on
/// the host, in the order of runs, loaded right before the op.
///
/// @param sections with their timelines; set: the windows of each
void find_state_windows(const execution::Program& program,
                        const execution::PersistentLayout& layout,
                        std::vector<SectionSchedule>& sections);

/// Loads windows earlier, as far as no more than `limit` bytes are live and not before it helps:
/// so that all arrive in time, with a margin. Only within a section that repeats or sections that
/// run once one after the other, behind the copies back of saved tensors that are issued before the
/// op, and behind the op that wrote the same bytes before.
///
/// @param live by section and run: bytes that are live, windows as they are loaded now; changed
/// @param across whether a load may lie in an earlier section than its op
void load_early(const execution::Program& program, std::vector<SectionSchedule>& sections,
                std::vector<std::vector<std::size_t>>& live, std::size_t limit,
                std::size_t alignment, const Rates& rates, bool across);

/// Lets write-backs trail into the next execution, of as many of the last windows as keep their
/// bytes meanwhile without more than `limit` live: up to the end, and from the start until their
/// copies are predicted to be done. Those that are not carried end with the step.
///
/// Only windows behind the last section that repeats, whose copies end before the first that does.
///
/// @param live by section and run, as load_early() leaves it
void carry_write_backs(const execution::Program& program, std::vector<SectionSchedule>& sections,
                       const std::vector<std::vector<std::size_t>>& live, std::size_t limit,
                       std::size_t alignment, const Rates& rates);

/// Bytes of the windows of the ops that need the most, of so many: with less, copies in one
/// direction wait for those in the other.
std::size_t least_window_bytes(const std::vector<SectionSchedule>& sections, std::size_t alignment);

}  // namespace stowage::offload
