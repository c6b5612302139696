#include "drivers/bench_scaling/resume.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "execution/error.hpp"
#include "results/h5.hpp"
#include "version/version.hpp"

namespace stowage::drivers {
namespace {

using results::RankInfo;
using results::h5::File;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  execution::throw_usage(
      "--resume: {}: {}; name another run.output, or leave --resume out to begin anew",
      path.string(), why);
}

/// The first line of the resolved decks that is not the same.
std::string first_difference(const std::string& earlier, const std::string& now) {
  std::istringstream a(earlier), b(now);
  for (std::string one, other;;) {
    const bool more = static_cast<bool>(std::getline(a, one));
    const bool others = static_cast<bool>(std::getline(b, other));
    if (!more) one.clear();
    if (!others) other.clear();
    if (one != other || (!more && !others)) return fmt::format("'{}', now '{}'", one, other);
  }
}

/// What makes a machine another one; names of hosts do not, since a job may start again elsewhere.
void require_same_machine(const File& file, const std::filesystem::path& path,
                          const std::vector<RankInfo>& ranks) {
  const auto compare = [&]<class Member>(const char* name, Member member, bool must_agree) {
    if constexpr (std::is_same_v<Member, std::string RankInfo::*>) {
      if (!must_agree) return;
      const auto earlier = file.read_column("provenance/system/ranks", name);
      if (earlier.size() != ranks.size())
        refuse(path, fmt::format("was measured by a job of {} ranks, this one has {}",
                                 earlier.size(), ranks.size()));
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        if (earlier[rank] != ranks[rank].*member)
          refuse(path, fmt::format("was measured on another machine: {} of rank {} was '{}', now "
                                   "'{}'",
                                   name, rank, earlier[rank], ranks[rank].*member));
    }
  };
  results::for_each_rank_field(compare);
}

std::vector<results::Samples> read_samples(const File& file) {
  std::vector<results::Samples> all;
  if (!file.exists("samples/scaling")) return all;
  const results::h5::Group group = file.group("samples/scaling");
  for (const std::string& name : group.datasets()) {
    const results::h5::Dataset data = group.dataset(name);
    const results::h5::Shape shape = data.shape();
    results::Samples samples{.path = "scaling/" + name, .time_s = data.values()};
    samples.ranks = shape.size() > 1 ? shape[1] : 1;
    for (results::Field& field : data.attributes())
      if (field.name != "units") samples.attributes.push_back(std::move(field));
    all.push_back(std::move(samples));
  }
  return all;
}

std::vector<results::Samples> points_of(const File& file, const std::filesystem::path& path) {
  std::vector<results::Samples> points = read_samples(file);
  if (file.text_attribute("driver") != "bench_scaling" || points.empty())
    execution::throw_usage("{}: no points in it: not a result of stowage_bench_scaling",
                           path.string());
  const auto order_of = [](const results::Samples& one) {
    const auto order = std::ranges::find(one.attributes, "order", &results::Field::name);
    const auto* number =
        order == one.attributes.end() ? nullptr : std::get_if<std::int64_t>(&order->value);
    return number == nullptr ? 0 : *number;
  };
  std::ranges::stable_sort(points, {}, order_of);
  return points;
}

std::vector<results::Samples> points_before(const File& file, const std::filesystem::path& path,
                                            const inputs::Deck& deck,
                                            const std::vector<RankInfo>& ranks,
                                            const ScalingOptions& options) {
  if (file.text_attribute("driver") != "bench_scaling")
    refuse(path,
           fmt::format("is a result of {}, not of this program", file.text_attribute("driver")));
  const std::string commit = file.text_attribute("git_describe");
  if (commit != version::build_info().git_describe)
    refuse(path, fmt::format("was measured by commit {}, this program is {}", commit,
                             version::build_info().git_describe));
  const std::string earlier = file.read_text("config/deck_resolved");
  if (earlier != deck.text())
    refuse(path, fmt::format("was measured with another deck: {}",
                             first_difference(earlier, deck.text())));
  require_same_machine(file, path, ranks);
  std::vector<results::Samples> all = read_samples(file);
  std::erase_if(all, [&](const results::Samples& one) {
    return static_cast<std::int64_t>(one.time_s.size()) < options.samples * one.ranks;
  });
  return all;
}

}  // namespace

std::vector<results::Samples> stored_points(const std::filesystem::path& path) {
  return results::h5::read_file(path, results::kResultSchema,
                                [&](const File& file) { return points_of(file, path); });
}

std::vector<results::Samples> measured_before(const std::filesystem::path& path,
                                              const inputs::Deck& deck,
                                              const std::vector<RankInfo>& ranks,
                                              const ScalingOptions& options) {
  if (!std::filesystem::exists(path)) return {};
  return results::h5::read_file(path, results::kResultSchema, [&](const File& file) {
    return points_before(file, path, deck, ranks, options);
  });
}

}  // namespace stowage::drivers
