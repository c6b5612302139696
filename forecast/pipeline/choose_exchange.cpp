#include "forecast/pipeline/choose_exchange.hpp"

#include <algorithm>
#include <string>

#include "layers/context/context_attention.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/state/state.hpp"

namespace stowage::forecast {
namespace {

/// The last rank of those that share sequences, of one stage: with its own tokens alone it is the
/// busiest, and none exchanges more chunks.
parallel::Ranks busiest(const parallel::Ranks& ranks) {
  parallel::GridShape shape = ranks.shape;
  for (const auto axis : {parallel::Axis::pipeline, parallel::Axis::data}) shape.extent[axis] = 1;
  parallel::PerAxis place;
  place[parallel::Axis::context] = shape[parallel::Axis::context] - 1;
  return parallel::planned_ranks(shape, parallel::rank_at(shape, place));
}

/// @param kind of the layer, of which `options.model` knows the exchange
template <class Forecast>
typename Forecast::Form predict(PipelineInputs options, const layers::Kind& kind,
                                typename Forecast::Exchange exchange) {
  options.model.pattern = std::string(1, kind.letter);
  options.model.mtp = {};
  options.rates.measured_s.clear();  // those of another program
  const layers::Model model(options.model, options.precision, 1, busiest(options.ranks));
  const execution::PersistentLayout layout =
      lay_out_state(model.parameters(), model.states(), options.precision, {});
  const execution::Program program = one_microbatch(model, options.step, layout);
  typename Forecast::Form form{exchange};
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const execution::Op& op = program.ops()[i];
    if (op.only_rerun || op.name.find("/layers.0.") == std::string::npos) continue;
    const double time_s = options.rates.time_s(program, static_cast<int>(i));
    if (op.lane != execution::Lane::comm) {
      form.compute_s += time_s;
    } else {
      form.exchange_s += time_s;
      form.bytes += op.cost.bytes;
    }
  }
  return form;
}

/// The quickest, the first of equals.
template <class Forecast>
void choose(Forecast& forecast) {
  const auto slower = [](const auto& a, const auto& b) { return a.time_s() < b.time_s(); };
  forecast.chosen = std::ranges::min_element(forecast.forms, slower)->exchange;
}

}  // namespace

std::optional<ExchangeForecast> choose_exchange(const PipelineInputs& options) {
  using Exchange = ExchangeForecast::Exchange;
  const parallel::GridShape& grid = options.ranks.shape;
  const int sharers = grid[parallel::Axis::context];
  if (sharers == 1 || !layers::kinds::attention.in(options.model.letters())) return std::nullopt;
  const layers::ModelConfig::Attention& attention = options.model.attention;
  const layers::Partition partition(options.ranks.group(parallel::Group::tensor));
  kernels::AttentionShape shape;
  shape.heads = partition.share(attention.heads, "model.num_attention_heads");
  shape.kv_heads = partition.share_or_copy(attention.kv_heads, "model.num_query_groups");
  const bool by_heads = exchanges_heads(attention, shape, sharers);
  ExchangeForecast forecast;
  const auto add = [&](Exchange exchange) {
    PipelineInputs with = options;
    with.model.attention.exchange = exchange;
    forecast.forms.push_back(
        predict<ExchangeForecast>(std::move(with), layers::kinds::attention, exchange));
  };
  if (by_heads) add(Exchange::heads);
  if (!by_heads || attention.exchange == Exchange::automatic) add(Exchange::keys);
  choose(forecast);
  return forecast;
}

std::optional<ExpertForecast> choose_expert_exchange(const PipelineInputs& options) {
  using Exchange = ExpertForecast::Exchange;
  const parallel::GridShape& grid = options.ranks.shape;
  if (grid[parallel::Axis::tensor] * grid[parallel::Axis::expert] == 1 ||
      !layers::kinds::moe.in(options.model.letters()))
    return std::nullopt;
  const Exchange asked = options.model.moe.exchange;
  ExpertForecast forecast;
  for (const Exchange exchange : {Exchange::gather, Exchange::slots}) {
    if (asked != Exchange::automatic && asked != exchange) continue;
    PipelineInputs with = options;
    with.model.moe.exchange = exchange;
    forecast.forms.push_back(
        predict<ExpertForecast>(std::move(with), layers::kinds::moe, exchange));
  }
  choose(forecast);
  return forecast;
}

}  // namespace stowage::forecast
