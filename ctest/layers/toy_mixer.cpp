// A kind of layer that only tests have, in this one file: the exponential moving average of each
// channel, with a decay that is learned. A program that links it has one kind more, which its tests
// find by themselves.
#include "kernels/launch.hpp"
#include "kernels/reduce.hpp"
#include "kernels/silu.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::ctest {
namespace {

using execution::Accumulation;
using execution::Dtype;
using layers::Recorder;
using layers::Tensor;

template <class T>
using TokensIn = kernels::Of<T, const std::int32_t>;

/// h_t = a h_{t-1} + (1 - a) x_t of n tokens, a = sigmoid(decay) by channel, h = 0 before a
/// document. y are the rows [first, first + rows) of h.
struct AverageForward {
  static constexpr std::string_view kName = "average_forward";
  std::int64_t tokens, width, first, rows;
  Dtype storage;

  template <class T>
  struct Operands {
    kernels::In<T> x, decay;
    TokensIn<T> seq_idx;
    kernels::SumsOut<T> h;
    kernels::Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(kernels::in("x", storage, {tokens, width}), o.x...);
    f(kernels::in("decay", storage, {width}), o.decay...);
    f(kernels::in("seq_idx", Dtype::int32, {tokens}), o.seq_idx...);
    f(kernels::out("h", execution::accumulation(storage), {tokens, width}), o.h...);
    f(kernels::out("y", storage, {rows, width}), o.y...);
  }
  execution::Cost cost() const { return {4.0 * static_cast<double>(tokens * width), 0}; }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const {
    kernels::run(queue, *this, views);
  }
  template <class S>
  void reference(const Operands<kernels::Pointers<S>>& o) const {
    using A = Accumulation<S>;
    for (std::int64_t c = 0; c < width; ++c) {
      const A a = kernels::sigmoid(static_cast<A>(o.decay[c]));
      for (std::int64_t t = 0; t < tokens; ++t) {
        const bool goes_on = t > 0 && o.seq_idx[t] == o.seq_idx[t - 1];
        const A before = goes_on ? o.h[(t - 1) * width + c] : A{0};
        o.h[t * width + c] = a * before + (1 - a) * static_cast<A>(o.x[t * width + c]);
      }
      for (std::int64_t r = 0; r < rows; ++r)
        o.y[r * width + c] = static_cast<S>(o.h[(first + r) * width + c]);
    }
  }
  template <class S>
  int launch(const Operands<kernels::Pointers<S>>&, void*) const {
    kernels::throw_no_cuda(kName);
  }
};

/// dx of those rows, and the summand of ddecay that comes of them.
struct AverageBackward {
  static constexpr std::string_view kName = "average_backward";
  std::int64_t tokens, width, first, rows;
  Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    kernels::In<T> dy, x, decay;
    TokensIn<T> seq_idx;
    kernels::SumsIn<T> h;
    kernels::Out<T> dx;
    kernels::SumsOut<T> ddecay;
  };
  void each(auto&& f, auto&... o) const {
    f(kernels::in("dy", storage, {tokens, width}), o.dy...);
    f(kernels::in("x", storage, {tokens, width}), o.x...);
    f(kernels::in("decay", storage, {width}), o.decay...);
    f(kernels::in("seq_idx", Dtype::int32, {tokens}), o.seq_idx...);
    f(kernels::in("h", execution::accumulation(storage), {tokens, width}), o.h...);
    f(kernels::out("dx", storage, {rows, width}), o.dx...);
    f(kernels::sum("ddecay", accumulate, execution::accumulation(storage), {width}), o.ddecay...);
  }
  execution::Cost cost() const { return {8.0 * static_cast<double>(tokens * width), 0}; }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const {
    kernels::run(queue, *this, views);
  }
  template <class S>
  void reference(const Operands<kernels::Pointers<S>>& o) const {
    using A = Accumulation<S>;
    for (std::int64_t c = 0; c < width; ++c) {
      const A a = kernels::sigmoid(static_cast<A>(o.decay[c]));
      A dh = 0, ddecay = 0;
      for (std::int64_t t = tokens; t-- > 0;) {
        const bool handed_on = t + 1 < tokens && o.seq_idx[t] == o.seq_idx[t + 1];
        dh = (handed_on ? a * dh : A{0}) + static_cast<A>(o.dy[t * width + c]);
        if (t < first || t >= first + rows) continue;
        const bool goes_on = t > 0 && o.seq_idx[t] == o.seq_idx[t - 1];
        const A before = goes_on ? o.h[(t - 1) * width + c] : A{0};
        o.dx[(t - first) * width + c] = static_cast<S>((1 - a) * dh);
        ddecay += dh * (before - static_cast<A>(o.x[t * width + c]));
      }
      o.ddecay[c] = (accumulate ? o.ddecay[c] : A{0}) + a * (1 - a) * ddecay;
    }
  }
  template <class S>
  int launch(const Operands<kernels::Pointers<S>>&, void*) const {
    kernels::throw_no_cuda(kName);
  }
};

/// Ranks that share rows or sequences all compute the whole average, of which each keeps its rows.
class Average final : public layers::Mixer {
 public:
  explicit Average(const layers::MixerPlace& place)
      : width_(place.config.width),
        tensor_(place.ranks.shared_group(parallel::Group::tensor)),
        context_(place.ranks.shared_group(parallel::Group::context)),
        parameters_{{place.prefix + ".average.decay",
                     {width_},
                     layers::Init::ones,
                     false,
                     layers::Partition(place.ranks.group(parallel::Group::tensor)).replicated()}} {}

  const std::vector<layers::Parameter>& parameters() const override { return parameters_; }

  Tensor forward(Recorder& recorder, Tensor x) const override {
    const std::int64_t n = recorder.batch().sequence_tokens;
    Saved& kept = recorder.kept<Saved>(*this);
    kept.x = x;
    kept.h = recorder.saved("h", recorder.accumulation(), {n, width_}, "average");
    const Tensor y = recorder.scratch("y", {recorder.rows(), width_});
    recorder.compute("average",
                     AverageForward{.tokens = n,
                                    .width = width_,
                                    .first = first(recorder),
                                    .rows = recorder.rows(),
                                    .storage = recorder.storage()},
                     {.x = whole(recorder, "x", x),
                      .decay = recorder.parameter(parameters_[0]),
                      .seq_idx = recorder.batch().sequence_seq_idx,
                      .h = kept.h,
                      .y = y});
    return y;
  }

  Tensor backward(Recorder& recorder, Tensor dy) const override {
    const Saved& kept = recorder.kept<Saved>(*this);
    const Tensor dx = recorder.scratch("dx", {recorder.rows(), width_});
    recorder.compute("average_backward",
                     AverageBackward{.tokens = recorder.batch().sequence_tokens,
                                     .width = width_,
                                     .first = first(recorder),
                                     .rows = recorder.rows(),
                                     .storage = recorder.storage(),
                                     .accumulate = recorder.batch().accumulate},
                     {.dy = whole(recorder, "dy", dy),
                      .x = whole(recorder, "x_again", kept.x),
                      .decay = recorder.parameter(parameters_[0]),
                      .seq_idx = recorder.batch().sequence_seq_idx,
                      .h = kept.h,
                      .dx = dx,
                      .ddecay = recorder.gradient(parameters_[0])});
    return dx;
  }

 private:
  struct Saved {
    Tensor x, h;
  };

  static std::int64_t first(const Recorder& recorder) {
    return recorder.batch().first_token + recorder.batch().first_row;
  }

  /// The rows of all ranks, in the order of tokens.
  Tensor whole(Recorder& recorder, const std::string& name, Tensor mine) const {
    return context_.gather(recorder, name + "_of_sequence",
                           tensor_.gather(recorder, name + "_of_tokens", mine));
  }

  std::int64_t width_;
  layers::SharedRows tensor_, context_;
  std::vector<layers::Parameter> parameters_;
};

constexpr inputs::Module kModules[] = {{"average", "average h (n, D)", "normed input"}};

constinit const layers::Kind kAverage = {
    {.letter = 'A',
     .name = "moving average",
     .scope = "average",
     .recurrent = true,
     .norm_module = "average_norm",
     .input_module = "average_in",
     .modules = kModules},
    {.flops = [](const layers::ModelConfig&, const layers::StepWork&) {
      return layers::StepFlops{};
    }}};

const bool kAdded = layers::add_kind(
    kAverage, [](const layers::MixerPlace& place) -> std::unique_ptr<layers::Mixer> {
      return std::make_unique<Average>(place);
    });

}  // namespace
}  // namespace stowage::ctest
