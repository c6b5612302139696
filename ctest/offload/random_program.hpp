#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "execution/persistent.hpp"
#include "execution/plan.hpp"

namespace stowage::ctest {

using namespace execution;

/// What a random program is drawn from.
struct RandomShape {
  std::uint64_t seed = 1;
  int layers = 4;
  int microbatches = 1;
  std::int64_t width = 300;  ///< elements of a buffer, at most
  bool communicates = true;
  /// Backward reads what a layer saves in forward's order and stores the gradient after the first:
  /// reruns read later than the program does.
  bool stores_early = false;
  bool in_parts = false;  ///< some tensors are written by two ops
  /// Updates have states, whose homes are on the device (false) or the host; none: there are none.
  std::optional<bool> states_on_host = {};
  bool weights_on_host = false;  ///< and their gradients
  /// Ops take all weights, and all gradients, as a bucket, by one address.
  bool buckets = false;
};

/// A training step that means nothing but has all that one has: layers of four kinds with scopes,
/// saved tensors of one or two buffers with module names, collectives inside and outside of layers,
/// gradients that are stored and then added to, a section that repeats. Every op mixes all that it
/// reads into every element that it writes, so a value that is read too early, too late or from the
/// wrong bytes changes the result.
class RandomProgram {
 public:
  explicit RandomProgram(const RandomShape& shape);
  RandomProgram(const RandomProgram&) = delete;

  PersistentLayout layout;
  Program program;
  Tensor input, output;

  const RandomShape& shape() const { return shape_; }

  /// Kernels or copies that a step enqueues: as many nodes of a graph.
  std::size_t launches(const Step& step) const;

 private:
  using Rng = std::mt19937_64;

  struct Layer {
    std::string kind;
    Tensor weight, gradient;
    Tensor state = {};
    std::uint64_t seed;  ///< a layer is the same in every microbatch
  };
  struct Kept {
    std::vector<Tensor> saved;
    Tensor in;
  };

  std::int64_t draw(Rng& rng, std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(rng);
  }
  Tensor tensor(const std::string& name, Lifetime lifetime, const std::string& module, Rng& rng);
  /// How an op writes a tensor: whole, or in two parts.
  std::vector<Range> parts(Tensor tensor, Rng& rng);
  void append(const std::string& name, Lane lane, std::vector<Use> uses, std::uint64_t salt);
  /// An op that changes all of a bucket.
  void append_exchange(const std::string& bucket);
  void add_layers();
  void add_states();
  /// What an update does with the state of a layer: by one op, or by one for each of two ranges.
  std::vector<Range> windows(const Layer& layer);
  void record_section(const char* name, int repeat, int slot, bool last);
  Tensor forward(const Layer& layer, const std::string& at, int slot, Tensor x, Kept& kept);
  Tensor backward(const Layer& layer, const std::string& at, int slot, Tensor dy, const Kept& kept);

  RandomShape shape_;
  Rng rng_;
  std::vector<Layer> layers_;
};

}  // namespace stowage::ctest
