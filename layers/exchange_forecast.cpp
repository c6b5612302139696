#include "layers/exchange_forecast.hpp"

#include <string>

#include "layers/attention_exchange.hpp"
#include "layers/state.hpp"

namespace stowage::layers {
namespace {

using Exchange = ExchangeForecast::Exchange;

/// The last rank of those that share sequences, of one stage: with its own tokens alone it is the
/// busiest, and none exchanges more stretches.
parallel::Ranks busiest(const parallel::Ranks& ranks) {
  parallel::GridShape shape = ranks.shape;
  for (const auto axis : {parallel::Axis::pipeline, parallel::Axis::data}) shape.extent[axis] = 1;
  parallel::PerAxis place;
  place[parallel::Axis::context] = shape[parallel::Axis::context] - 1;
  return parallel::planned_ranks(shape, parallel::rank_at(shape, place));
}

ExchangeForecast::Form predict(ProspectOptions options, Exchange exchange) {
  options.model.pattern = std::string(1, '*');
  options.model.attention.exchange = exchange;
  options.rates.measured_s.clear();  // those of another program
  const Model model(options.model, options.precision, 1, busiest(options.ranks));
  const execution::PersistentLayout layout =
      lay_out_state(model.parameters(), model.states(), options.precision, {});
  const Program program = one_microbatch(model, options.step, layout);
  ExchangeForecast::Form form{exchange};
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

}  // namespace

std::optional<ExchangeForecast> forecast_exchange(const ProspectOptions& options) {
  const parallel::GridShape& grid = options.ranks.shape;
  const int sharers = grid[parallel::Axis::context];
  if (sharers == 1 || options.model.pattern.find('*') == std::string::npos) return std::nullopt;
  ModelConfig::Attention attention = options.model.attention;
  const Partition partition(options.ranks.group(parallel::Group::tensor));
  kernels::AttentionShape shape;
  shape.heads = partition.share(attention.heads, "model.num_attention_heads");
  shape.kv_heads = partition.share_or_copy(attention.kv_heads, "model.num_query_groups");
  const bool by_heads = exchanges_heads(attention, shape, sharers);
  ExchangeForecast forecast;
  if (by_heads) forecast.forms.push_back(predict(options, Exchange::heads));
  if (!by_heads || attention.exchange == Exchange::automatic)
    forecast.forms.push_back(predict(options, Exchange::keys));
  forecast.chosen = forecast.forms.front().exchange;
  if (forecast.forms.size() > 1 && forecast.forms[1].time_s() < forecast.forms[0].time_s())
    forecast.chosen = forecast.forms[1].exchange;
  return forecast;
}

}  // namespace stowage::layers
