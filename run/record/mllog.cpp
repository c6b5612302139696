#include "run/record/mllog.hpp"

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "inputs/data/run_section.hpp"
#include "layers/step/step_section.hpp"
#include "results/part_file.hpp"

namespace stowage::run {

using Json = nlohmann::ordered_json;

namespace {

/// Keys of the log whose values are those of a deck.
const std::vector<std::pair<const char*, std::string_view>>& deck_keys() {
  using inputs::key;
  using layers::LearningRate;
  using layers::OptimizerConfig;
  static const std::vector<std::pair<const char*, std::string_view>> all = {
      {"seed", key(&inputs::RunConfig::seed)},
      {"global_batch_size", key(&inputs::TrainConfig::global_batch_size)},
      {"max_sequence_length", key(&inputs::TrainConfig::seq_length)},
      {"opt_base_learning_rate", key(&LearningRate::lr)},
      {"opt_end_learning_rate", key(&LearningRate::min_lr)},
      {"opt_learning_rate_warmup_steps", key(&LearningRate::warmup_steps)},
      {"opt_learning_rate_decay_steps", key(&LearningRate::decay_steps)},
      {"opt_learning_rate_decay_schedule", key(&LearningRate::shape)},
      {"opt_adamw_beta_1", key(&OptimizerConfig::beta1)},
      {"opt_adamw_beta_2", key(&OptimizerConfig::beta2)},
      {"opt_adamw_epsilon", key(&OptimizerConfig::epsilon)},
      {"opt_adamw_weight_decay", key(&OptimizerConfig::weight_decay)}};
  return all;
}

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

MlLog::MlLog(const inputs::Deck& deck, bool goes_on)
    : deck_(deck), goes_on_(goes_on), began_ms_(now_ms()) {
  const std::string path = inputs::read(deck, &inputs::RunConfig::mllog);
  if (!path.empty()) results::require_writable(path, results::FileKind::mlperf_log);
}

void MlLog::write_deck(const char* key, std::string_view deck_key) {
  const Json value = std::visit([](const auto& held) { return Json(held); }, deck_.value(deck_key));
  write(Event::point, key, value, {});
}

void MlLog::run_begins(std::int64_t parameters, int ranks) {
  const std::string path = inputs::read(deck_, &inputs::RunConfig::mllog);
  if (path.empty()) return;
  lines_ = results::LineFile(path, results::FileKind::mlperf_log, goes_on_);
  const std::string name = inputs::read(deck_, &inputs::RunConfig::name);
  write_at(began_ms_, Event::point, "submission_benchmark", name, {});
  write_at(began_ms_, Event::point, "submission_division", "open", {});
  write_at(began_ms_, Event::begin, "init_start", nullptr, {});
  for (const auto& [key, deck_key] : deck_keys()) write_deck(key, deck_key);
  write(Event::point, "opt_name",
        std::string(inputs::read<layers::OptimizerChoice>(deck_).row().name), {});
  write(Event::point, "opt_gradient_clip_norm", inputs::read(deck_, &layers::OptimizerConfig::clip),
        {});
  write(Event::point, "gradient_accumulation_steps",
        inputs::read(deck_, &inputs::TrainConfig::global_batch_size) /
            inputs::read(deck_, &inputs::TrainConfig::micro_batch_size) / ranks,
        {});
  write(Event::point, "num_parameters", parameters, {});
  write(Event::end, "init_stop", nullptr, {});
  write(Event::begin, "run_start", nullptr, {});
}

void MlLog::step(const StepReport& report) {
  if (!lines_.open() || report.step % inputs::read(deck_, &inputs::RunConfig::log_interval) != 0)
    return;
  write(Event::point, "train_loss", report.loss,
        {{"step_num", report.step}, {"lr", report.lr}, {"step_time", report.time_s}});
}

void MlLog::evaluation(std::int64_t samples, double loss) {
  // "accuracy" is the log's word for whatever a benchmark is judged by.
  write(Event::point, "eval_accuracy", loss, {{"samples_count", samples}});
}

void MlLog::run_ends(bool valid) {
  write(Event::end, "run_stop", nullptr, {{"status", valid ? "success" : "aborted"}});
}

void MlLog::write(Event event, const char* key, const Json& value, const Json& metadata) {
  write_at(now_ms(), event, key, value, metadata);
}

void MlLog::write_at(std::int64_t time_ms, Event event, const char* key, const Json& value,
                     const Json& metadata) {
  if (!lines_.open()) return;
  const Json line = {{"namespace", ""},
                     {"time_ms", time_ms},
                     {"event_type", event == Event::point   ? "POINT_IN_TIME"
                                    : event == Event::begin ? "INTERVAL_START"
                                                            : "INTERVAL_END"},
                     {"key", key},
                     {"value", value},
                     {"metadata", metadata.is_null() ? Json::object() : metadata}};
  lines_.write(std::string(results::kMlperfLineHead) +
               line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace stowage::run
