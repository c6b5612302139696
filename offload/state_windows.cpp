#include "offload/state_windows.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_set>

#include "execution/byte_map.hpp"
#include "execution/contents.hpp"

namespace stowage::offload {

using execution::Access;

namespace {

/// Part of a load's time by which it should arrive early.
constexpr double kMargin = 0.1;
/// Part of a stretch's time by which a load may be early.
constexpr double kLead = 0.05;
/// Ops whose windows are there at once: one is loaded, one used, one written back.
constexpr std::size_t kAtOnce = 3;

/// Whether a window has bytes of its own, and no earlier one's.
bool is_loaded(const StateWindow& window) { return window.stays_from < 0; }

std::size_t bytes_of(const std::vector<StateWindow>& windows, std::size_t begin, std::size_t end,
                     std::size_t alignment) {
  std::size_t bytes = 0;
  for (std::size_t i = begin; i < end; ++i)
    if (is_loaded(windows[i])) bytes += execution::align_up(windows[i].bytes, alignment);
  return bytes;
}

/// Calls `visit(begin, end)` for the windows of each op.
template <class Visit>
void for_each_op(const std::vector<StateWindow>& windows, Visit&& visit) {
  for (std::size_t begin = 0, end = 0; begin < windows.size(); begin = end) {
    while (end < windows.size() && windows[end].run == windows[begin].run) ++end;
    visit(begin, end);
  }
}

/// Bytes of homes, whatever tensors they are of: a bucket and its parts share them.
bool overlap(const StateWindow& a, const StateWindow& b) {
  return a.home < b.home + b.bytes && b.home < a.home + a.bytes;
}

/// The runs of sections that follow each other, as one list: of a section that repeats, or of as
/// many as run once.
class Stretch {
 public:
  Stretch(const execution::Program& program, const std::vector<SectionSchedule>& sections,
          std::size_t first)
      : first_(first), end_(first) {
    const auto repeats = [&](std::size_t s) { return program.sections()[s].repeat > 1; };
    do add(sections[end_], static_cast<int>(end_));
    while (++end_ < sections.size() && !repeats(first) && !repeats(end_));
  }

  std::size_t first() const { return first_; }  ///< section
  std::size_t end() const { return end_; }
  std::size_t at(std::size_t section, int run) const {
    return base_[section - first_] + static_cast<std::size_t>(run);
  }
  RunAt place(std::size_t at) const { return places_[at]; }
  double start_s(std::size_t at) const { return start_s_[at]; }
  double end_s() const { return end_s_; }
  /// The last run that starts no later.
  std::size_t last_by(double time_s) const {
    const auto behind = std::ranges::upper_bound(start_s_, time_s);
    return behind == start_s_.begin() ? 0 : static_cast<std::size_t>(behind - start_s_.begin()) - 1;
  }

 private:
  void add(const SectionSchedule& section, int index) {
    base_.push_back(start_s_.size());
    const double from_s = end_s_;
    const std::vector<double>& start_s = section.timeline.start_s;
    for (std::size_t r = 0; r + 1 < start_s.size(); ++r) {
      start_s_.push_back(from_s + start_s[r]);
      places_.push_back({index, static_cast<int>(r)});
    }
    end_s_ = from_s + start_s.back();
  }

  std::size_t first_, end_;
  std::vector<std::size_t> base_;  ///< by section, from the first on
  std::vector<double> start_s_;
  std::vector<RunAt> places_;
  double end_s_ = 0;
};

/// The windows of one op that are loaded at once.
struct Loaded {
  std::size_t section, begin, end;
  std::size_t lowest = 0;  ///< run of the stretch before which they cannot be loaded
  double begin_s = 0;      ///< when their loads begin, for all to arrive in time
};

/// The windows of a stretch, in the order of their ops, each behind what wrote the same bytes and
/// behind the copies back of saved tensors that are issued before its op.
std::vector<Loaded> find_loads(const Stretch& runs, const std::vector<SectionSchedule>& sections,
                               bool across) {
  std::vector<Loaded> all;
  execution::ByteMap written;  // by the run before
  std::vector<std::size_t> backs;
  for (std::size_t s = runs.first(); s < runs.end(); ++s)
    for (const OffloadCopy& copy : sections[s].copies) backs.push_back(runs.at(s, copy.back));
  std::ranges::sort(backs);
  for (std::size_t s = runs.first(); s < runs.end(); ++s) {
    const std::vector<StateWindow>& windows = sections[s].windows;
    for_each_op(windows, [&](std::size_t begin, std::size_t end) {
      const std::size_t own = runs.at(s, windows[begin].run);
      Loaded loaded{s, begin, end, across ? 0 : runs.at(s, 0)};
      if (const auto behind = std::ranges::upper_bound(backs, own); behind != backs.begin())
        loaded.lowest = std::max(loaded.lowest, *std::prev(behind));
      for (std::size_t i = begin; i < end; ++i)
        written.inspect(windows[i].home, windows[i].home + windows[i].bytes,
                        [&](auto, auto, const auto& range) {
                          const auto behind = static_cast<std::size_t>(range.writer.step) + 1;
                          loaded.lowest = std::max(loaded.lowest, behind);
                        });
      for (std::size_t i = begin; i < end; ++i)
        if (windows[i].writes)
          written.write(windows[i].home, windows[i].home + windows[i].bytes, 0,
                        {{}, static_cast<int>(own)});
      all.push_back(loaded);
    });
  }
  return all;
}

/// Lets windows stay on the device between ops of a stretch, as far as memory is free: one that
/// reads bytes of an earlier window, or changes just these.
class Stays {
 public:
  Stays(const Stretch& runs, std::vector<SectionSchedule>& sections,
        std::vector<std::vector<std::size_t>>& live, std::size_t limit, std::size_t alignment)
      : runs_(runs), sections_(sections), live_(live), limit_(limit), alignment_(alignment) {
    for (std::size_t s = 0; s < runs.first(); ++s)
      before_ += static_cast<int>(sections[s].windows.size());
  }

  void run() {
    for (std::size_t s = runs_.first(); s < runs_.end(); ++s)
      for (StateWindow& window : sections_[s].windows) {
        const int own = static_cast<int>(all_.size());
        all_.push_back({&window, runs_.at(s, window.run), own, own});
        const bool stays = join(all_.back());
        if (!stays || window.writes) on_device_.write(window.home, end_of(window), 0, {{}, own});
      }
  }

 private:
  /// @param first the window whose bytes it uses  @param writer the last one of these that writes
  struct One {
    StateWindow* window;
    std::size_t last_run;
    int first, writer;
  };

  static std::size_t end_of(const StateWindow& window) { return window.home + window.bytes; }

  /// The latest window that has all bytes of one, if no other has any.
  int holder(const StateWindow& window) const {
    int found = -1;
    std::size_t covered = 0;
    on_device_.inspect(window.home, end_of(window), [&](auto begin, auto end, const auto& range) {
      found = range.writer.step;
      covered = end - begin;
    });
    return covered == window.bytes ? found : -1;
  }

  bool join(One& one) {
    StateWindow& window = *one.window;
    const int held = holder(window);
    if (held < 0) return false;
    One& first = all_[static_cast<std::size_t>(all_[static_cast<std::size_t>(held)].first)];
    const StateWindow& whole = *first.window;
    const bool same = whole.first == window.first && whole.bytes == window.bytes;
    if (whole.tensor != window.tensor || first.last_run >= one.last_run || (window.writes && !same))
      return false;
    const std::size_t bytes = execution::align_up(whole.bytes, alignment_);
    for (std::size_t at = first.last_run + 1; at < one.last_run; ++at)
      if (live_at(at) + bytes > limit_) return false;
    for (std::size_t at = first.last_run + 1; at < one.last_run; ++at) live_at(at) += bytes;
    live_at(one.last_run) += bytes - execution::align_up(window.bytes, alignment_);
    first.last_run = one.last_run;
    one.first = all_[static_cast<std::size_t>(held)].first;
    window.stays_from = before_ + one.first;
    if (window.writes) {
      StateWindow& before = *all_[static_cast<std::size_t>(first.writer)].window;
      before.writes_back = false;
      first.writer = static_cast<int>(all_.size()) - 1;
    }
    return true;
  }

  std::size_t& live_at(std::size_t at) {
    const RunAt place = runs_.place(at);
    return live_[static_cast<std::size_t>(place.section)][static_cast<std::size_t>(place.run)];
  }

  const Stretch& runs_;
  std::vector<SectionSchedule>& sections_;
  std::vector<std::vector<std::size_t>>& live_;
  std::size_t limit_, alignment_;
  int before_ = 0;                ///< windows of the sections before
  std::vector<One> all_;          ///< windows of the stretch
  execution::ByteMap on_device_;  ///< of homes, by the latest window
};

/// The windows of one op.
struct OpWindows {
  std::size_t section, begin, end;
};

/// Finds out which write-backs may be carried.
class Carrier {
 public:
  Carrier(const execution::Program& program, std::vector<SectionSchedule>& sections,
          const std::vector<std::vector<std::size_t>>& live, std::size_t limit,
          std::size_t alignment, const Rates& rates)
      : sections_(sections), live_(live), limit_(limit), alignment_(alignment), rates_(rates) {
    const std::vector<execution::Section>& all = program.sections();
    while (before_repeats_ < all.size() && all[before_repeats_].repeat == 1) ++before_repeats_;
    std::size_t first = all.size();
    while (first > 0 && all[first - 1].repeat == 1) --first;
    for (std::size_t s = first; s < all.size(); ++s)
      for_each_op(sections[s].windows, [&](std::size_t begin, std::size_t end) {
        ops_.push_back({s, begin, end});
      });
    execution::ByteMap used;
    for (const SectionSchedule& section : sections)
      for (const StateWindow& window : section.windows) {
        bool is_first = true;
        const std::size_t end = window.home + window.bytes;
        used.inspect(window.home, end, [&](auto, auto, const auto&) { is_first = false; });
        if (is_first && window.writes) may_trail_.insert(&window);
        used.write(window.home, end, 0, {});
      }
  }

  void run() {
    std::vector<RunAt> releases;
    std::size_t first = ops_.size();
    while (first > 0 && may_be_last(first - 1)) {
      std::vector<RunAt> found = releases_from(first - 1);
      if (found.empty()) break;
      releases = std::move(found);
      --first;
    }
    for (std::size_t i = first; i < ops_.size(); ++i)
      for (StateWindow& window : windows(ops_[i]))
        if (may_trail_.contains(&window)) window.carried = releases[i - first];
  }

 private:
  std::span<StateWindow> windows(const OpWindows& op) const {
    return std::span(sections_[op.section].windows).subspan(op.begin, op.end - op.begin);
  }

  /// Whether no later op has windows of the same bytes.
  bool may_be_last(std::size_t op) const {
    for (const StateWindow& window : windows(ops_[op]))
      for (std::size_t later = op + 1; later < ops_.size(); ++later)
        for (const StateWindow& other : windows(ops_[later]))
          if (overlap(window, other)) return false;
    return true;
  }

  /// Where the windows of each op from one on are free again in the next execution; nothing if all
  /// of these cannot be carried.
  std::vector<RunAt> releases_from(std::size_t first) const {
    std::vector<std::vector<std::size_t>> live = live_;
    std::vector<RunAt> releases;
    double done_s = 0;
    for (std::size_t i = first; i < ops_.size(); ++i) {
      std::size_t bytes = 0;
      for (const StateWindow& window : windows(ops_[i])) {
        if (!may_trail_.contains(&window)) continue;
        bytes += execution::align_up(window.bytes, alignment_);
        done_s += rates_.d2h_s(window.bytes) * (1 + kMargin);
      }
      const std::optional<RunAt> release = first_run_from(done_s);
      if (!release || !keeps(live, i, *release, bytes)) return {};
      releases.push_back(*release);
    }
    return releases;
  }

  /// The first run that starts so late, before the first section that repeats.
  std::optional<RunAt> first_run_from(double time_s) const {
    double from_s = 0;
    for (std::size_t s = 0; s < before_repeats_; ++s) {
      const std::vector<double>& start_s = sections_[s].timeline.start_s;
      const auto found = std::ranges::lower_bound(start_s, time_s - from_s);
      if (found < start_s.end() - 1)
        return RunAt{static_cast<int>(s), static_cast<int>(found - start_s.begin())};
      from_s += start_s.back();
    }
    return std::nullopt;
  }

  /// Whether an op's windows may keep their bytes up to a run of the next execution, behind which
  /// they are loaded again. Adds them to `live`.
  bool keeps(std::vector<std::vector<std::size_t>>& live, std::size_t op, RunAt release,
             std::size_t bytes) const {
    const std::span<const StateWindow> of_op = windows(ops_[op]);
    for (const StateWindow& window : of_op)
      if (window.load.section < release.section ||
          (window.load.section == release.section && window.load.run <= release.run))
        return false;
    const auto own = static_cast<std::size_t>(of_op.front().run);
    for (std::size_t s = 0; s < live.size(); ++s)
      for (std::size_t r = 0; r < live[s].size(); ++r) {
        const bool behind = s > ops_[op].section || (s == ops_[op].section && r > own);
        const bool before =
            static_cast<int>(s) < release.section ||
            (static_cast<int>(s) == release.section && static_cast<int>(r) < release.run);
        if (!behind && !before) continue;
        live[s][r] += bytes;
        if (live[s][r] > limit_) return false;
      }
    return true;
  }

  std::vector<SectionSchedule>& sections_;
  const std::vector<std::vector<std::size_t>>& live_;
  std::size_t limit_, alignment_;
  const Rates& rates_;
  std::size_t before_repeats_ = 0;  ///< sections before the first that repeats
  std::vector<OpWindows> ops_;      ///< behind the last that does
  /// Windows that write what no earlier op of a step uses: the next step would wait for others.
  std::unordered_set<const StateWindow*> may_trail_;
};

/// What an op uses of a tensor, from the first byte to the last: an op finds a tensor at one
/// address. Of a bucket all: ranks exchange its padding too. What the op leaves between is loaded.
StateWindow window_of(const execution::Program& program, const execution::PersistentLayout& layout,
                      const execution::Op& op, execution::Tensor tensor) {
  const execution::TensorInfo& info = program.info(tensor);
  execution::Bytes all{info.bytes(), 0};
  if (!layout.is_part(info.name)) all = {0, info.bytes()};
  StateWindow window{.tensor = tensor, .reads = false, .writes = false};
  std::size_t written = 0;
  for (const execution::Use& use : op.uses) {
    if (use.tensor != tensor) continue;
    const execution::Bytes bytes = execution::bytes_of(program, use, 0);
    all = {std::min(all.begin, bytes.begin), std::max(all.end, bytes.end)};
    window.reads |= use.access != Access::write;
    window.writes |= use.access != Access::read;
    if (use.access == Access::write) written += bytes.end - bytes.begin;
  }
  window.first = all.begin / execution::kAlignment * execution::kAlignment;
  window.bytes = all.end - window.first;
  window.home = layout.place(info.name).offset + window.first;
  window.reads |= written < window.bytes;
  return window;
}

}  // namespace

void find_state_windows(const execution::Program& program,
                        const execution::PersistentLayout& layout,
                        std::vector<SectionSchedule>& sections) {
  if (layout.host_bytes() == 0) return;
  for (std::size_t s = 0; s < sections.size(); ++s) {
    sections[s].windows.clear();
    const std::vector<Run>& runs = sections[s].timeline.runs;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const execution::Op& op = program.ops()[runs[r].op];
      std::unordered_set<int> found;  // tensors
      for (const execution::Use& use : op.uses) {
        const execution::TensorInfo& info = program.info(use.tensor);
        if (!is_persistent(info.lifetime) || !layout.on_host(info.name)) continue;
        if (!found.insert(use.tensor.id).second) continue;
        StateWindow& window =
            sections[s].windows.emplace_back(window_of(program, layout, op, use.tensor));
        window.run = static_cast<int>(r);
        window.load = {static_cast<int>(s), window.run};
      }
    }
  }
}

std::size_t least_window_bytes(const std::vector<SectionSchedule>& sections,
                               std::size_t alignment) {
  std::size_t most = 0;
  for (const SectionSchedule& section : sections)
    for_each_op(section.windows, [&](std::size_t begin, std::size_t end) {
      most = std::max(most, bytes_of(section.windows, begin, end, alignment));
    });
  return kAtOnce * most;
}

void load_early(const execution::Program& program, std::vector<SectionSchedule>& sections,
                std::vector<std::vector<std::size_t>>& live, std::size_t limit,
                std::size_t alignment, const Rates& rates, bool across) {
  const std::size_t at_once = least_window_bytes(sections, alignment);
  for (std::size_t first = 0; first < sections.size();) {
    const Stretch runs(program, sections, first);
    first = runs.end();
    if (across && limit > at_once) Stays(runs, sections, live, limit - at_once, alignment).run();
    std::vector<Loaded> all = find_loads(runs, sections, across);
    double latest_s = runs.end_s();
    for (std::size_t i = all.size(); i-- > 0;) {
      const std::vector<StateWindow>& windows = sections[all[i].section].windows;
      latest_s =
          std::min(latest_s, runs.start_s(runs.at(all[i].section, windows[all[i].begin].run)));
      for (std::size_t w = all[i].begin; w < all[i].end; ++w)
        if (is_loaded(windows[w]) && windows[w].reads)
          latest_s -= rates.h2d_s(windows[w].bytes) * rates.duplex_slowdown() * (1 + kMargin);
      all[i].begin_s = latest_s;
    }
    std::size_t previous = 0;
    for (const Loaded& loaded : all) {
      std::vector<StateWindow>& windows = sections[loaded.section].windows;
      const std::size_t bytes = bytes_of(windows, loaded.begin, loaded.end, alignment);
      if (bytes == 0) continue;
      const std::size_t lowest =
          std::max({previous, loaded.lowest, runs.last_by(loaded.begin_s - kLead * runs.end_s())});
      std::size_t at = runs.at(loaded.section, windows[loaded.begin].run);
      const auto live_before = [&]() -> std::size_t& {
        const RunAt place = runs.place(at - 1);
        return live[static_cast<std::size_t>(place.section)][static_cast<std::size_t>(place.run)];
      };
      while (at > lowest && live_before() + bytes <= limit) {
        live_before() += bytes;
        --at;
      }
      for (std::size_t w = loaded.begin; w < loaded.end; ++w) windows[w].load = runs.place(at);
      previous = std::max(previous, at);
    }
  }
}

void carry_write_backs(const execution::Program& program, std::vector<SectionSchedule>& sections,
                       const std::vector<std::vector<std::size_t>>& live, std::size_t limit,
                       std::size_t alignment, const Rates& rates) {
  Carrier(program, sections, live, limit, alignment, rates).run();
}

}  // namespace stowage::offload
