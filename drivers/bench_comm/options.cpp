#include "drivers/bench_comm/options.hpp"

#include <algorithm>
#include <iterator>

#include "execution/error.hpp"
#include "inputs/deck/value.hpp"

namespace stowage::drivers {
namespace {

using execution::throw_usage;

constexpr std::int64_t kMost = std::int64_t{16} << 30;

std::int64_t size_of(const char* option, const std::string& text) {
  const auto bytes = inputs::parse_bytes(text);
  if (!bytes) throw_usage("{} {}: is no size; allowed: bytes, as 64, 4K or 1G", option, text);
  return *bytes;
}

}  // namespace

void require_usable(const FixedOptions& options) {
  if (options.gpus != 1) throw_usage("--ngpus {}: a rank has one GPU", options.gpus);
  if (options.datatype != "float")
    throw_usage("--datatype {}: must be float: training sums in fp32", options.datatype);
  if (options.op != "sum") throw_usage("--op {}: must be sum", options.op);
}

void require_usable(const CommOptions& options, int ranks) {
  if (options.samples < 1) throw_usage("--samples {}: must be at least 1", options.samples);
  if (options.calls < 1) throw_usage("--iters {}: must be at least 1", options.calls);
  if (options.warm_up < 0) throw_usage("--warmup_iters {}: must be at least 0", options.warm_up);
  if (options.checks < 1)
    throw_usage("--check {}: must be at least 1: no result is valid unchecked", options.checks);
  if (!options.overlapping.empty() && options.overlapping != "products")
    throw_usage("--beside {}: must be products", options.overlapping);
  (void)sizes(options.sizes, ranks);
  if (ranks < 2)
    execution::throw_environment("stowage_bench_comm needs two ranks or more, 1 was started");
}

std::vector<Kind> kinds(const std::string& list) {
  std::vector<Kind> some;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    const auto found = std::ranges::find(kKinds, word, [](Kind kind) { return name(kind); });
    if (found == std::end(kKinds))
      throw_usage(
          "--only {}: must be some of all_reduce,reduce_scatter,all_gather,all_to_all,"
          "broadcast,exchange",
          word);
    some.push_back(*found);
    at = end + 1;
  }
  if (some.empty()) some.assign(std::begin(kKinds), std::end(kKinds));
  return some;
}

std::vector<std::size_t> sizes(const SizeOptions& options, int ranks) {
  const std::int64_t least = size_of("--minbytes", options.least);
  const std::int64_t most = size_of("--maxbytes", options.most);
  const auto one_each = static_cast<std::int64_t>(sizeof(float)) * ranks;
  if (least < one_each)
    throw_usage("--minbytes {}: must be at least {}, an fp32 element for each of {} ranks",
                options.least, one_each, ranks);
  if (most < least || most > kMost)
    throw_usage("--maxbytes {}: must be between --minbytes ({}) and 16G", options.most,
                options.least);
  if (options.factor < 2) throw_usage("--stepfactor {}: must be at least 2", options.factor);
  std::vector<std::size_t> all;
  for (std::int64_t bytes = least; bytes <= most;) {
    all.push_back(static_cast<std::size_t>(bytes));
    if (bytes > most / options.factor) break;
    bytes *= options.factor;
  }
  return all;
}

}  // namespace stowage::drivers
