#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "execution/backend.hpp"
#include "inputs/deck/deck.hpp"
#include "run/step/loop.hpp"

namespace stowage::run {

/// Tokens of another source that come out wrong while they are to.
class WrongTokens : public inputs::TokenSource {
 public:
  explicit WrongTokens(std::unique_ptr<inputs::TokenSource> right) : right_(std::move(right)) {}

  std::int64_t tokens() const override { return right_->tokens(); }
  std::span<const std::int64_t> document_offsets() const override {
    return right_->document_offsets();
  }
  /// The wrong ones are all the same: a gradient of one direction, whose norm is a spike.
  void read(std::int64_t first, std::span<std::int32_t> out) const override;
  std::string description() const override { return "wrong " + right_->description(); }
  std::vector<std::string> files() const override { return {}; }

  bool wrong = false;

 private:
  std::unique_ptr<inputs::TokenSource> right_;
};

/// The training loop of tiny.toml on the host backend.
class TinyLoop {
 public:
  /// @param ranks of which this is one
  explicit TinyLoop(const std::vector<std::string>& overrides = {},
                    Loop::Bad bad = Loop::Bad::done_again,
                    const parallel::Ranks& ranks = parallel::planned_ranks({}, 0));

  TinyLoop(const TinyLoop&) = delete;
  TinyLoop& operator=(const TinyLoop&) = delete;
  ~TinyLoop();

  /// Issues the next step; the tokens that the loop reads meanwhile are right or wrong.
  void issue(bool wrong);
  void drain(bool wrong = false);
  /// So many steps with right tokens.
  void issue_right(int count);

  /// All that this rank keeps from step to step.
  std::vector<std::vector<std::byte>> state();
  /// Makes an element of the gradient that backward finishes last wrong, in every step that is
  /// issued until it is told not to: behind the op that completes it, before ranks add it up.
  void spoil_gradient(bool spoiled);
  /// Puts a value into the first element of a tensor of fp32. @return what was there
  float put(const std::string& name, float value);
  /// How often the host has waited for the device.
  std::uint64_t waits() const { return backend_->waits(); }
  inputs::LoaderPosition position() const { return data_.train->position(); }

  std::vector<StepReport> reports;

 private:
  class Spoiler;
  void note(const std::optional<StepReport>& report);

  inputs::Deck deck_;
  std::unique_ptr<execution::Backend> backend_;
  inputs::Data data_;
  WrongTokens* tokens_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Spoiler> spoiler_;
  std::int64_t next_ = 0;
};

}  // namespace stowage::run
