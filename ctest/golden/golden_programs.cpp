#include "ctest/golden/golden_programs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <istream>
#include <ostream>
#include <sstream>
#include <stdexcept>

namespace stowage::ctest {
namespace {

using execution::OpText;
using forecast::RankText;

constexpr std::string_view kLetters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-";
constexpr std::size_t kPartLetters = 4;

/// The last bits of a number, six a letter.
std::string letters(std::uint64_t bits, std::size_t count) {
  std::string text(count, '0');
  for (char& letter : text) {
    letter = kLetters[bits % kLetters.size()];
    bits /= kLetters.size();
  }
  return text;
}

std::string program_name(std::uint64_t digest) { return letters(digest, 8); }

/// The number behind the first `word` of a name, -1 if there is none.
int number_behind(std::string_view name, std::string_view word) {
  const std::size_t at = name.find(word);
  int number = -1;
  if (at != std::string_view::npos)
    std::from_chars(name.data() + at + word.size(), name.data() + name.size(), number);
  return number;
}

/// A text with each number behind `word` less `own`.
std::string relative(std::string_view text, std::string_view word, int own) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(word, at), text.size());
    const std::size_t begin = std::min(found + word.size(), text.size());
    out += text.substr(at, begin - at);
    at = begin;
    int number = 0;
    const char* const from = text.data() + begin;
    const auto [end, error] = std::from_chars(from, text.data() + text.size(), number);
    if (error != std::errc()) continue;
    out += std::to_string(number - own);
    at += static_cast<std::size_t>(end - from);
  }
  return out;
}

/// Microbatch and layer of an op.
std::pair<int, int> place_of(const OpText& op) {
  return {number_behind(op.name, "mb"), number_behind(op.name, "layers.")};
}

/// With layers and microbatches counted from the op's own.
std::string general(const OpText& op, std::string_view text) {
  const auto [microbatch, layer] = place_of(op);
  return relative(relative(text, "layers.", layer), "mb", microbatch);
}

std::string without_digits(std::string text) {
  std::erase_if(text, [](char letter) { return letter >= '0' && letter <= '9'; });
  return text;
}

std::string all_letters(const execution::ProgramText& program) {
  std::string text;
  for (const OpText& op : program.ops) text += OpLetters::of(op);
  return text;
}

GoldenRank golden(const RankText& rank) {
  GoldenRank out{letters(execution::digest(rank.layout), 8), {}};
  for (const RankText::Planned& planned : rank.programs) {
    GoldenPlan& plan = out.plans.emplace_back();
    plan.name = planned.name;
    plan.program = program_name(execution::digest(planned.program));
    for (const auto& [name, part] : planned.plan.parts())
      plan.parts.push_back(letters(execution::digest(part), kPartLetters));
  }
  return out;
}

std::string program_difference(const execution::ProgramText& program, const std::string& then) {
  const std::string now = all_letters(program);
  for (std::size_t at = 0; at < now.size(); at += OpLetters::kParts) {
    const auto part = [&](const std::string& of) {
      return at < of.size() ? std::string_view(of).substr(at, OpLetters::kParts) : "";
    };
    if (part(now) == part(then)) continue;
    const std::size_t index = at / OpLetters::kParts;
    const OpText& op = program.ops[index];
    return fmt::format(
        "op {} {}: {}; now\n    on {}\n    uses {}\n    costs {}\n    sends {}\n", index, op.name,
        at < then.size() ? OpLetters::difference(part(now), part(then)) + " differ" : "is new",
        op.place, op.uses, op.cost, op.communication.empty() ? "nothing" : op.communication);
  }
  if (then.size() > now.size())
    return fmt::format("the last {} ops are gone\n",
                       (then.size() - now.size()) / OpLetters::kParts);
  return "sections, parts of tensors, or numbers of layers differ\n";
}

}  // namespace

std::vector<GoldenCase> read_cases(std::istream& file) {
  std::vector<GoldenCase> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::vector<std::string> decks;
    std::string word;
    while (words >> word && word.back() != ':') decks.push_back(word);
    if (word.empty() || word.back() != ':') throw std::runtime_error("no ':' in \"" + line + '"');
    decks.push_back(word.substr(0, word.size() - 1));
    GoldenCase one;
    if (!(words >> one.name)) throw std::runtime_error("no name in \"" + line + '"');
    while (words >> word) one.overrides.push_back(word);
    for (const std::string& deck : decks) {
      one.deck = deck;
      cases.push_back(one);
    }
  }
  return cases;
}

std::string OpLetters::of(const OpText& op) {
  const std::string parts[kParts] = {without_digits(op.name + '\n' + op.place),
                                     general(op, op.uses), op.cost, general(op, op.communication)};
  std::string text;
  for (const std::string& part : parts) text += letters(execution::digest(part), 1);
  return text;
}

std::string OpLetters::difference(std::string_view now, std::string_view then) {
  constexpr std::string_view kNames[kParts] = {"name or place", "uses", "cost", "communication"};
  std::string text;
  for (std::size_t i = 0; i < kParts; ++i)
    if (now[i] != then[i]) text += fmt::format("{}{}", text.empty() ? "" : ", ", kNames[i]);
  return text;
}

void GoldenPrograms::add(const GoldenCase& one, const std::vector<RankText>& ranks) {
  std::vector<GoldenRank>& out = cases[one.key()];
  for (const RankText& rank : ranks) {
    out.push_back(golden(rank));
    for (std::size_t i = 0; i < rank.programs.size(); ++i) {
      const execution::ProgramText& program = rank.programs[i].program;
      std::string& text = ops[out.back().plans[i].program];
      if (!text.empty()) continue;
      std::pair<int, int> place;
      for (const OpText& op : program.ops) {
        if (!text.empty() && place_of(op) != place) text += ' ';
        place = place_of(op);
        text += OpLetters::of(op);
      }
    }
  }
}

std::string difference(const GoldenPrograms& golden, const GoldenCase& one,
                       const std::vector<RankText>& ranks) {
  const auto found = golden.cases.find(one.key());
  if (found == golden.cases.end()) return "is new\n";
  if (found->second.size() != ranks.size())
    return fmt::format("{} ranks planned, {} in the file\n", ranks.size(), found->second.size());
  std::string text;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const GoldenRank now = ctest::golden(ranks[r]);
    const GoldenRank& then = found->second[r];
    if (now.layout != then.layout) text += fmt::format("stage {}: the layout differs\n", r);
    if (now.plans.size() != then.plans.size())
      text += fmt::format("stage {}: {} programs, {} in the file\n", r, now.plans.size(),
                          then.plans.size());
    for (std::size_t i = 0; i < std::min(now.plans.size(), then.plans.size()); ++i) {
      const std::string who = fmt::format("stage {}, {}: ", r, now.plans[i].name);
      if (now.plans[i].name != then.plans[i].name) text += who + "was " + then.plans[i].name + '\n';
      if (now.plans[i].program != then.plans[i].program)
        text += who + program_difference(ranks[r].programs[i].program,
                                         golden.ops.at(then.plans[i].program));
      const auto parts = ranks[r].programs[i].plan.parts();
      for (std::size_t p = 0; p < parts.size(); ++p)
        if (now.plans[i].parts[p] != then.plans[i].parts[p])
          text += fmt::format("{}{} of the plan differ\n", who, parts[p].first);
    }
  }
  return text;
}

// The file: lines that begin with what they are. Programs are written as numbers of the `layer`
// lines, which hold letters of ops.
void GoldenPrograms::write(std::ostream& file) const {
  std::map<std::string, std::size_t> numbers;
  std::string layers, programs;
  for (const auto& [name, text] : ops) {
    programs += fmt::format("program {}", name);
    std::istringstream words(text);
    for (std::string layer; words >> layer;) {
      const auto [at, is_new] = numbers.emplace(layer, numbers.size());
      if (is_new) layers += fmt::format("layer {}\n", layer);
      programs += fmt::format(" {}", at->second);
    }
    programs += '\n';
  }
  file << "# Written by scripts/golden.sh from cases.txt; golden_programs.hpp says what it holds.\n"
       << layers << programs;
  for (const auto& [key, ranks] : cases) {
    file << "case " << key << '\n';
    for (const GoldenRank& rank : ranks) {
      file << "rank " << rank.layout << '\n';
      for (const GoldenPlan& plan : rank.plans) {
        file << "plan " << plan.program << ' ';
        for (const std::string& part : plan.parts) file << part;
        file << ' ' << plan.name << '\n';
      }
    }
  }
}

GoldenPrograms GoldenPrograms::read(std::istream& file) {
  GoldenPrograms golden;
  std::vector<std::string> layers;
  std::vector<GoldenRank>* ranks = nullptr;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what, word;
    words >> what >> word;
    if (what == "layer") layers.push_back(word);
    if (what == "program") {
      std::string& text = golden.ops[word];
      for (std::size_t number; words >> number;) text += layers.at(number);
    }
    if (what == "case") ranks = &golden.cases[line.substr(5)];
    if (what == "rank") ranks->push_back({word, {}});
    if (what == "plan") {
      GoldenPlan& plan = ranks->back().plans.emplace_back();
      plan.program = word;
      words >> word >> std::ws;
      std::getline(words, plan.name);
      for (std::size_t at = 0; at < word.size(); at += kPartLetters)
        plan.parts.push_back(word.substr(at, kPartLetters));
    }
  }
  return golden;
}

}  // namespace stowage::ctest
