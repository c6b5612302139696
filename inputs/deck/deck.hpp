#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "execution/error.hpp"
#include "inputs/deck/registry.hpp"
#include "inputs/deck/value.hpp"

namespace stowage::inputs {

namespace detail {
struct Assignment;
}

/// What a deck promises about its own run: a metric lies in a band.
///
/// Written in the section [expects], where keys are free: `loss_at_100 = [3.9, 4.1]`,
/// `val_loss_at_200 = [1.0, 2.2]`, `final_val_loss = [0.0, 2.2]`, `final_loss`, `final_grad_norm`.
struct Expectation {
  std::string key;       ///< "loss_at_100"
  std::string quantity;  ///< "loss", "val_loss" or "grad_norm"
  std::int64_t step;     ///< -1: the last value of the run
  double low, high;      ///< both included
};

/// A resolved deck: a value for every key of the registry, and where each came from.
///
/// Later assignments win: defaults, then included files, then the file, then overrides in order.
/// A key that is 0 "derived from others" in the registry is filled in, so layers see final values.
/// Every error is a usage error (exit code 2) that names the place, key, value and what is allowed;
/// wrong keys and values of all files and overrides are told in one message.
class Deck {
 public:
  /// The defaults alone; checked by nothing, since a deck without a pattern has no model.
  Deck();

  /// Reads a deck file, its includes and overrides ("section.key=value"), and checks all of it but
  /// the number of ranks (see check.hpp).
  static Deck load(const std::string& path, std::span<const std::string> overrides = {});

  /// Where keys stand that another file says: what messages name instead of a line of the text.
  using Places = std::map<std::string, std::string, std::less<>>;

  /// The same from text; `origin` names it in messages, and includes are relative to the working
  /// directory.
  static Deck parse(std::string_view text, std::string_view origin,
                    std::span<const std::string> overrides = {}, const Places& places = {});

  /// The same from a resolved deck that an earlier version may have stored in a result set or a
  /// checkpoint: keys that are retired since are left out of it.
  static Deck parse_stored(std::string_view text, std::string_view origin,
                           std::span<const std::string> overrides = {});

  /// Values by key, such as a machine's that were measured.
  using Settings = std::map<std::string, Value, std::less<>>;

  /// Sets keys as if they stood on the command line before all that it gives, which still counts.
  /// @throws Error (exit 2) for a value that its key does not take
  void put(const Settings& settings);

  /// A line for each key that was given by an earlier name, or left out of a stored deck.
  const std::vector<std::string>& remarks() const { return remarks_; }

  /// The value of a key. T is the key's type: bool, std::int64_t, double, std::string, or a vector
  /// of std::int64_t or std::string. Another T, or an unregistered key, is a mistake of ours.
  template <class T>
  const T& get(std::string_view key) const {
    const T* held = std::get_if<T>(&value(key));
    STOWAGE_ASSERT(held != nullptr, "deck key '{}' has another type than the caller's", key);
    return *held;
  }

  const Value& value(std::string_view key) const;

  /// Where a value came from: "inputs/quickstart.toml:12", "command line", "default", "derived".
  const std::string& where(std::string_view key) const;

  /// "optim.lr = 0.003 (inputs/quickstart.toml:12)": how messages name a value.
  std::string cite(std::string_view key) const;

  struct Row {
    std::string_view key;
    const Value& value;
    std::string_view unit;
    bool is_default;  ///< no file or override set it
    const Parameter& parameter;
  };

  /// Every key of the registry in its order: what becomes attributes in a result set.
  std::vector<Row> rows() const;

  /// Bands of files hold for what the files alone compute: an override of anything that changes a
  /// loss drops them. Those of overrides stay.
  std::vector<Expectation> expectations() const;

  /// The resolved deck as TOML: itself a valid deck, the same text for the same values.
  std::string text() const;

  /// What was given: the files' texts and the overrides, as comments and TOML.
  const std::string& given() const { return given_; }

  /// The files that were read, in that order: a deck before its includes.
  const std::vector<std::string>& files() const { return files_; }

  /// SHA-256 of text(), in hex: the identity of a run.
  std::string sha256() const;

  /// SHA-256 of the keys that change a loss: equal for a run and its restart.
  std::string numerics_sha256() const;

 private:
  struct Entry {
    Value value;
    std::string where;
    bool is_default = true;
  };

  static Deck resolve(std::vector<detail::Assignment> assignments, std::string given,
                      std::span<const std::string> overrides, std::vector<std::string> problems);
  std::string present_name(const std::string& key, const std::string& where);
  void assign(const std::string& given, Value value, const std::string& where);
  void assign_expectation(const std::string& key, Value value, const std::string& where);
  void read_override(const std::string& text);
  void derive();
  Deck derived() const;
  void drop_expectations_of_files();

  std::vector<Entry> entries_;  // parallel to registry()
  std::map<std::string, std::pair<std::vector<double>, std::string>> expects_;  // band, where
  std::string given_;
  std::vector<std::string> files_;
  std::vector<std::string> remarks_;
};

}  // namespace stowage::inputs
