#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "execution/persistent.hpp"
#include "execution/plan.hpp"

/// Programs and plans as text and as digests: equal for two builds that record and plan the same.
/// A digest is the same on every machine and in every build. Launches have no part in it: a program
/// is what its ops declare. Costs count with twelve digits and predicted times with nine, since the
/// last bits of a sum depend on the compiler.
namespace stowage::execution {

/// 64 bits of a text (FNV-1a, G. Fowler, L. C. Noll, K.-P. Vo), spread by mix64: they tell changes,
/// and resist nobody.
std::uint64_t digest(std::string_view text);

/// An op as text, by what it declares.
struct OpText {
  std::string name;           ///< "mb0/layers.3.mamba/scan"
  std::string place;          ///< lane, scopes from the outermost, whether it is only rerun
  std::string uses;           ///< access, tensor with its facts, and range of each
  std::string cost;           ///< every member of Cost
  std::string communication;  ///< all of it with its transfers; empty if the op has none
};

std::uint64_t digest(const OpText& op);

/// A program as text.
struct ProgramText {
  std::vector<OpText> ops;
  std::string tensors;   ///< where parts lie in their wholes
  std::string sections;  ///< name, ops and repetitions of each
};

ProgramText text_of(const Program& program);

/// Digest of a program: of all of its text.
std::uint64_t digest(const ProgramText& text);

/// A plan as text, in parts that a difference is named by.
struct PlanText {
  std::string decisions;  ///< by tensor
  std::string places;     ///< tensor, buffer, region, offset and bytes of each
  std::string steps;      ///< what, op, places and queue of each, in issue order
  std::string events;     ///< waits and record of each step
  std::string sections;
  std::string segments;
  std::string queues;  ///< with the caps of copies
  std::string bytes;   ///< of each region, and the most that live
  std::string times;   ///< predicted

  /// The parts with their names.
  std::array<std::pair<std::string_view, std::string_view>, 9> parts() const;
};

PlanText text_of(const Plan& plan);

/// Digest of a plan: of all of its text.
std::uint64_t digest(const PlanText& text);

/// The layout of what outlives a step as text: a line for each bucket.
std::string text_of(const PersistentLayout& layout);

}  // namespace stowage::execution
