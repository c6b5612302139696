#pragma once

#include <cstddef>
#include <utility>

namespace stowage::execution {

template <class Signature>
class Function;

/// A copyable callable, or none: std::function for headers that most sources include. <functional>
/// and <memory> would double what those sources read.
template <class Result, class... Arguments>
class Function<Result(Arguments...)> {
 public:
  Function() = default;
  Function(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as std::function

  /// Holds a copy of `callable`, which is called as a constant.
  template <class Callable>
  requires(!__is_same(Callable, Function) &&
           requires(const Callable& callable, Arguments... arguments) {
             callable(static_cast<Arguments&&>(arguments)...);
           }) Function(Callable callable)
      : held_(new Held<Callable>(std::move(callable))) {}

  Function(const Function& other) : held_(other.held_ ? other.held_->copy() : nullptr) {}
  Function(Function&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  Function& operator=(Function other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~Function() { delete held_; }

  explicit operator bool() const { return held_ != nullptr; }
  Result operator()(Arguments... arguments) const {
    return held_->call(static_cast<Arguments&&>(arguments)...);
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual Base* copy() const = 0;
    virtual Result call(Arguments... arguments) const = 0;
  };
  template <class Callable>
  struct Held final : Base {
    explicit Held(Callable given) : callable(std::move(given)) {}
    Base* copy() const override { return new Held(callable); }
    Result call(Arguments... arguments) const override {
      return callable(static_cast<Arguments&&>(arguments)...);
    }
    Callable callable;
  };
  Base* held_ = nullptr;
};

}  // namespace stowage::execution
