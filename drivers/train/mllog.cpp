#include "drivers/train/mllog.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "execution/error.hpp"

namespace stowage::drivers {

using Json = nlohmann::ordered_json;

namespace {

/// Keys of the log whose values are those of a deck.
constexpr std::array<std::pair<const char*, const char*>, 12> kDeckKeys = {
    {{"seed", "run.seed"},
     {"global_batch_size", "train.global_batch_size"},
     {"max_sequence_length", "train.seq_length"},
     {"opt_base_learning_rate", "optim.lr"},
     {"opt_end_learning_rate", "optim.min_lr"},
     {"opt_learning_rate_warmup_steps", "optim.warmup_steps"},
     {"opt_learning_rate_decay_steps", "optim.decay_steps"},
     {"opt_learning_rate_decay_schedule", "optim.schedule"},
     {"opt_adamw_beta_1", "optim.adam_beta1"},
     {"opt_adamw_beta_2", "optim.adam_beta2"},
     {"opt_adamw_epsilon", "optim.adam_eps"},
     {"opt_adamw_weight_decay", "optim.weight_decay"}}};

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

MlLog::MlLog(const inputs::Deck& deck, bool goes_on) : deck_(deck) {
  const std::string& path = deck.get<std::string>("run.mllog");
  if (path.empty()) return;
  if (!goes_on && std::filesystem::exists(path))
    execution::throw_usage("{}: is there already", deck.cite("run.mllog"));
  file_.reset(std::fopen(path.c_str(), goes_on ? "ae" : "we"));
  if (!file_)
    execution::throw_usage("{}: cannot be written: {}", deck.cite("run.mllog"),
                           std::strerror(errno));
  write(Event::point, "submission_benchmark", deck.get<std::string>("run.name"), {});
  write(Event::point, "submission_division", "open", {});
  write(Event::begin, "init_start", nullptr, {});
}

void MlLog::write_deck(const char* key, const char* deck_key) {
  const Json value = std::visit([](const auto& held) { return Json(held); }, deck_.value(deck_key));
  write(Event::point, key, value, {});
}

void MlLog::run_begins(std::int64_t parameters, int ranks) {
  if (!file_) return;
  for (const auto& [key, deck_key] : kDeckKeys) write_deck(key, deck_key);
  write(Event::point, "opt_name", "adamw", {});
  write(Event::point, "opt_gradient_clip_norm", deck_.get<double>("optim.clip_grad"), {});
  write(Event::point, "gradient_accumulation_steps",
        deck_.get<std::int64_t>("train.global_batch_size") /
            deck_.get<std::int64_t>("train.micro_batch_size") / ranks,
        {});
  write(Event::point, "num_parameters", parameters, {});
  write(Event::end, "init_stop", nullptr, {});
  write(Event::begin, "run_start", nullptr, {});
}

void MlLog::step(const StepReport& report) {
  if (!file_ || report.step % deck_.get<std::int64_t>("run.log_interval") != 0) return;
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
  if (!file_) return;
  const Json line = {{"namespace", ""},
                     {"time_ms", now_ms()},
                     {"event_type", event == Event::point   ? "POINT_IN_TIME"
                                    : event == Event::begin ? "INTERVAL_START"
                                                            : "INTERVAL_END"},
                     {"key", key},
                     {"value", value},
                     {"metadata", metadata.is_null() ? Json::object() : metadata}};
  fmt::print(file_.get(), ":::MLLOG {}\n",
             line.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(file_.get());
}

}  // namespace stowage::drivers
