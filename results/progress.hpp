#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::results {

/// Seconds since some fixed moment; replaced in tests.
using Clock = std::function<double()>;
double steady_seconds();

/// The progress of a run: one line that updates itself on a terminal, plain lines in a log.
///
///     step 1200/5000 24.0 % | loss 3.412 | lr 0.0003 | norm 0.87 | 21.9 k tok/s | left 00:41
class Progress {
 public:
  struct Options {
    std::int64_t first_step = 0;  ///< steps done before this run
    std::int64_t last_step = 0;   ///< the step after which the run ends
    double tokens_per_step = 0;   ///< over all ranks
    double interval_s = 10;       ///< least time between two lines of a log
    std::FILE* out = stdout;      ///< nullptr: silent, as on all ranks but the first
    bool terminal = false;        ///< one updating line instead of many
    Clock clock = steady_seconds;
  };

  /// A step that is done.
  struct Step {
    std::int64_t step = 0;
    double loss = 0;
    double lr = 0;
    double grad_norm = 0;
    double time_s = 0;
  };

  explicit Progress(Options options);
  ~Progress() { close(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shown now if it is time to. `extra` is appended: "ckpt in 00:09".
  void update(const Step& step, std::string_view extra = {});

  /// Prints a line of its own, such as the result of an evaluation, without tearing the other.
  void note(std::string_view line);

  /// Ends the updating line. The last step is shown even if its turn had not come.
  void close();

  /// Remaining time from the median of the last 50 step times: one slow step does not move it.
  double left_s() const;

 private:
  static constexpr std::size_t kWindow = 50;

  double median_step_time_s() const;
  void show();

  Options options_;
  std::vector<double> recent_s_;
  Step step_;
  std::string extra_;
  double shown_at_ = -1e30;
  bool pending_ = false;    // an update was not shown yet
  bool line_open_ = false;  // the cursor stands at the end of an updating line
};

/// True if `out` is a terminal.
bool is_terminal(std::FILE* out);

}  // namespace stowage::results
