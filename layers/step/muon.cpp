#include "kernels/optimizer/muon.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "kernels/optimizer/newton_schulz.hpp"
#include "layers/step/update.hpp"
#include "layers/step/whole_matrices.hpp"

namespace stowage::layers {
namespace {

using execution::Range;
using kernels::MovePieces;
using Side = MovePieces::Side;

constexpr std::string_view kStates[] = {"muon_m"};

/// Waves of a stage; their exchanges are hidden but for the first one's and the last one's.
constexpr std::int64_t kWaves = 4;
/// Elements of a wave for each rank at most: what a step needs beside its states.
constexpr std::int64_t kWaveElements = std::int64_t{64} << 20;
/// Elements of the matrices that one op treats at most, unless one is larger: for its workspace,
/// which is some four times as large. A wave of which a rank owns more than others is still one op.
constexpr std::int64_t kBatchElements = 3 * kWaveElements / 2;
/// Each parameter, and each run of matrices of one shape, begins at a multiple of these elements:
/// 256 bytes of bf16, what products want.
constexpr std::int64_t kGrain = 128;

std::int64_t aligned(std::int64_t elements) { return (elements + kGrain - 1) / kGrain * kGrain; }

std::int64_t wave_elements(const ParameterUpdate& update, int ranks) {
  std::int64_t all = 0;
  for (const Parameter& p : update.model.parameters())
    if (!p.projections.empty()) all += p.global_elements();
  return std::clamp<std::int64_t>((all + kWaves - 1) / kWaves, 1, kWaveElements * ranks);
}

/// The ops of one wave of matrices.
class Wave {
 public:
  Wave(const ParameterUpdate& update, const WholeMatrices& matrices, int index)
      : update_(update),
        recorder_(update.recorder),
        matrices_(matrices),
        stage_(update.sharing.ranks.group(parallel::Group::replicated_gradients)),
        index_(index),
        name_(fmt::format("{}/{}", update.name, index)) {
    std::set<std::string_view> names;
    for (const WholeMatrix& m : matrices.all())
      if (m.wave == index) names.insert(m.parameter);
    for (const ParameterUpdate::One& one : update.parameters)
      if (names.contains(one.name)) own_.push_back(one);
    place_matrices();
    place_pieces();
  }

  /// Momentum, and its directions on their way to the owners.
  void start() {
    if (owned_ > 0) whole_ = recorder_.scratch(name_ + "/matrices", {owned_});
    if (travel_ > 0) directions_ = recorder_.scratch(name_ + "/directions", {travel_});
    for (const ParameterUpdate& window : with("/momentum").windows()) record_momentum(window);
    coming_.emplace(*this, "/gather", moves(matrices_.sources(), true));
    coming_->send(parts(directions_), gathered());
  }
  /// The iterations, and the updates on their way to those who have the elements.
  void orthogonalise() {
    coming_->receive(gathered());
    record_iterations();
    if (travel_ > 0) updates_ = recorder_.scratch(name_ + "/updates", {travel_});
    going_.emplace(*this, "/return", moves(matrices_.pieces(), false));
    going_->send(gathered(), parts(updates_));
  }
  void update() {
    going_->receive(parts(updates_));
    const MuonConfig& muon = update_.config.muon;
    with("/update").write_weights([&](const ParameterUpdate& window) {
      kernels::MuonUpdate op{
          .pieces = {}, .storage = recorder_.storage(), .has_master = update_.has_master};
      kernels::MuonUpdate::Operands<Tensor> operands{
          .schedule = update_.schedule, .step_ok = update_.step_ok, .tensors = {}};
      for_each_place(window, updates_, [&](const ParameterUpdate::One& one, const SomeRows& at) {
        op.pieces.push_back({one.elements, one.decay, one.lr * muon.lr_factor});
        operands.tensors.push_back(
            {.parameter = one.parameter, .master = one.master, .update = at});
      });
      recorder_.compute(window.name, op, operands);
    });
  }

 private:
  /// Matrices of one shape, one behind the other.
  struct Batch {
    std::int64_t begin, count, rows, columns;
    bool alone;

    std::int64_t elements() const { return count * rows * columns; }
  };
  /// Where elements [first, first + elements) of this rank's part of a parameter lie: in their
  /// matrices, if these are this rank's alone, or else among what travels.
  struct Place {
    std::int64_t first, elements, begin;
    bool alone;
  };
  /// Elements of a tensor, one end of moves.
  struct Region {
    Tensor tensor;
    Range rows;

    std::int64_t elements() const { return rows.end - rows.begin; }
  };
  /// A piece on its way, as this rank sees both ends that it has.
  struct Move {
    int from, to;
    MovePieces::Piece piece;  ///< from what is sent to what is written
  };

  /// What ranks exchange: pieces from one tensor of each rank to another one of each rank, by one
  /// message between two ranks, and those that stay.
  class Exchange {
   public:
    Exchange(Wave& wave, const char* name, std::vector<Move> moves)
        : wave_(wave), name_(wave.name_ + name), moves_(std::move(moves)) {
      any_ = std::ranges::any_of(moves_, [](const Move& m) { return m.from != m.to; });
    }
    void send(const Region& from, const Region& to) {
      const int me = wave_.stage_.rank();
      std::vector<MovePieces::Piece> stays, leaves;
      std::vector<parallel::Message> messages;
      Recorder& recorder = wave_.recorder_;
      for (const Move& move : moves_)
        if (move.from == me && move.to == me) stays.push_back(move.piece);
      record_move("/own", stays, from, to, false);
      written_ = !stays.empty();
      if (!any_) return;
      std::vector<Range> sent = pack(leaves, true), received = pack(arrives_, false);
      const std::int64_t out = sent.back().end, in = received.back().end;
      if (out > 0) {
        const Tensor packed = recorder.scratch(local_name("/sent"), {out});
        record_move("/pack", leaves, from, {packed, {0, out}}, false);
        add_messages(messages, sent, packed, true);
      }
      if (in > 0) {
        arrived_ = {recorder.scratch(local_name("/received"), {in}), {0, in}};
        add_messages(messages, received, arrived_.tensor, false);
      }
      recorder.program().append(wave_.stage_.exchange(
          recorder.program(), recorder.full_name(local_name("/exchange")), messages));
    }
    void receive(const Region& to) { record_move("/unpack", arrives_, arrived_, to, written_); }

   private:
    std::string local_name(const char* what) const { return name_ + what; }
    /// The pieces to or from each other rank, one behind the other. @return ranges by rank; the
    /// last one ends where all end
    std::vector<Range> pack(std::vector<MovePieces::Piece>& pieces, bool sends) const {
      const int me = wave_.stage_.rank();
      std::vector<Range> ranges;
      std::int64_t at = 0;
      for (int peer = 0; peer < wave_.stage_.size(); ++peer) {
        const std::int64_t begin = at;
        for (const Move& move : moves_) {
          if (peer == me || (sends ? move.from : move.to) != me ||
              (sends ? move.to : move.from) != peer)
            continue;
          MovePieces::Piece piece = move.piece;
          (sends ? piece.to : piece.from) = Side{at - piece.first, 0, 0};
          at += piece.elements;
          pieces.push_back(piece);
        }
        ranges.push_back({begin, at});
      }
      return ranges;
    }
    void add_messages(std::vector<parallel::Message>& messages, const std::vector<Range>& ranges,
                      Tensor tensor, bool sends) const {
      for (int peer = 0; peer < wave_.stage_.size(); ++peer) {
        const Range& range = ranges[static_cast<std::size_t>(peer)];
        if (range.begin < range.end) messages.push_back({peer, sends, {tensor, range}, name_});
      }
    }
    void record_move(const char* what, const std::vector<MovePieces::Piece>& pieces,
                     const Region& from, const Region& to, bool beside) const {
      if (pieces.empty()) return;
      wave_.recorder_.compute(local_name(what),
                              MovePieces{.pieces = pieces,
                                         .from_elements = from.elements(),
                                         .to_elements = to.elements(),
                                         .beside = beside,
                                         .storage = wave_.recorder_.storage()},
                              {.from = {from.tensor, from.rows}, .to = {to.tensor, to.rows}});
    }

    Wave& wave_;
    std::string name_;
    std::vector<Move> moves_;
    bool any_ = false;      ///< between any two ranks
    bool written_ = false;  ///< some of what is written is there
    std::vector<MovePieces::Piece> arrives_ = {};
    Region arrived_ = {};
  };

  /// Matrices of which others have something.
  Region gathered() const { return {whole_, {alone_, owned_}}; }
  Region parts(Tensor tensor) const { return {tensor, {0, travel_}}; }
  /// What this rank has of the wave, for ops of a name.
  ParameterUpdate with(const char* name) const {
    ParameterUpdate of = update_;
    of.name = name_ + name;
    of.parameters = own_;
    return of;
  }
  /// Calls body(one, rows) for what lies together of a window's parameters, and where: in its
  /// matrices, or in `travelling`.
  template <class Body>
  void for_each_place(const ParameterUpdate& window, Tensor travelling, Body&& body) const {
    for (const ParameterUpdate::One& one : window.parameters) {
      const std::int64_t begin = one.parameter.rows.begin, end = begin + one.elements;
      for (const Place& place : places_.at(one.name)) {
        const std::int64_t from = std::max(begin, place.first);
        const std::int64_t to = std::min(end, place.first + place.elements);
        if (from >= to) continue;
        const std::int64_t at = place.begin + from - place.first;
        body(one.some(from - begin, to - begin),
             SomeRows{place.alone ? whole_ : travelling, {at, at + to - from}});
      }
    }
  }

  /// Where the matrices lie that this rank treats, those first of which it alone has all.
  void place_matrices() {
    std::map<std::size_t, int> pieces;
    for (const MatrixPiece& piece : matrices_.pieces()) ++pieces[piece.matrix];
    std::set<std::string_view> whole;  // parameters that ops take as they lie: from the host
    for (const ParameterUpdate::One& one : own_)
      if (update_.on_host(one)) whole.insert(one.name);
    const auto alone = [&](std::size_t i) {
      return pieces.at(i) == 1 && !whole.contains(matrices_.all()[i].parameter);
    };
    std::vector<std::size_t> own;
    for (std::size_t i = 0; i < matrices_.all().size(); ++i)
      if (matrices_.all()[i].wave == index_ && matrices_.all()[i].owner == stage_.rank())
        own.push_back(i);
    std::ranges::stable_sort(own, {}, [&](std::size_t i) {
      const WholeMatrix& m = matrices_.all()[i];
      return std::tuple(!alone(i), m.rows, m.columns);
    });
    for (const std::size_t i : own) {
      const WholeMatrix& m = matrices_.all()[i];
      Batch* last = batches_.empty() ? nullptr : &batches_.back();
      if (last == nullptr || last->rows != m.rows || last->columns != m.columns ||
          last->alone != alone(i) || last->elements() + m.elements() > kBatchElements) {
        owned_ = aligned(owned_);
        last = &batches_.emplace_back(Batch{owned_, 0, m.rows, m.columns, alone(i)});
      }
      ++last->count;
      begin_[i] = owned_;
      owned_ += m.elements();
      if (last->alone) alone_ = aligned(owned_);
    }
    owned_ = std::max(owned_, alone_);
  }
  void place_pieces() {
    for (const MatrixPiece& piece : matrices_.pieces()) {
      const WholeMatrix& m = matrices_.all()[piece.matrix];
      if (piece.rank != stage_.rank() || m.wave != index_) continue;
      const bool alone = is_alone(piece.matrix);
      const std::int64_t begin = alone ? begin_.at(piece.matrix) : travel_;
      if (!alone) travel_ += piece.elements;
      std::vector<Place>& places = places_[m.parameter];
      if (!places.empty() && places.back().alone == alone &&
          places.back().first + places.back().elements == piece.first &&
          places.back().begin + places.back().elements == begin)
        places.back().elements += piece.elements;
      else
        places.push_back({piece.first, piece.elements, begin, alone});
    }
  }
  /// Whether this rank has all of a matrix, and no other rank any, and it is where it is treated.
  bool is_alone(std::size_t matrix) const {
    const auto found = begin_.find(matrix);
    return found != begin_.end() && found->second < alone_;
  }

  /// What goes from those that have pieces to the owners of their matrices, or back.
  std::vector<Move> moves(const std::vector<MatrixPiece>& pieces, bool to_owner) const {
    const int me = stage_.rank();
    std::vector<Move> all;
    for (const MatrixPiece& piece : pieces) {
      const WholeMatrix& m = matrices_.all()[piece.matrix];
      if (m.wave != index_ || is_alone(piece.matrix)) continue;
      Side in_part, in_matrix = piece.in_matrix;
      if (piece.rank == me) {
        const std::vector<Place>& places = places_.at(m.parameter);
        const auto place = std::ranges::find_if(places, [&](const Place& p) {
          return p.first <= piece.first && piece.first < p.first + p.elements;
        });
        in_part.begin = place->begin - place->first;
      }
      if (m.owner == me) in_matrix.begin += begin_.at(piece.matrix) - alone_;
      Move move{piece.rank, m.owner, {piece.first, piece.elements, in_part, in_matrix}};
      if (!to_owner) {
        std::swap(move.from, move.to);
        std::swap(move.piece.from, move.piece.to);
      }
      all.push_back(move);
    }
    return all;
  }

  void record_momentum(const ParameterUpdate& window) {
    const MuonConfig& muon = update_.config.muon;
    const bool bf16 = recorder_.buffer(window.parameters.front().states.front().whole).dtype ==
                      execution::Dtype::bf16;
    kernels::MuonMomentum op{.elements = {},
                             .storage = recorder_.storage(),
                             .clip = update_.config.clip,
                             .momentum = muon.momentum,
                             .nesterov = muon.nesterov,
                             .bf16_momentum = bf16};
    kernels::MuonMomentum::Operands<Tensor> operands{
        .norm = update_.grad_norm, .step_ok = update_.step_ok, .tensors = {}};
    for_each_place(window, directions_, [&](const ParameterUpdate::One& one, const SomeRows& at) {
      op.elements.push_back(one.elements);
      operands.tensors.push_back(
          {.gradient = one.gradient, .m = one.states.front(), .direction = at});
    });
    recorder_.compute(window.name, op, operands);
  }

  void record_iterations() {
    std::size_t end = 0;
    for (int number = 0; end < batches_.size(); ++number) {
      const std::size_t begin = end;
      std::int64_t elements = 0;
      do elements += batches_[end++].elements();
      while (end < batches_.size() && elements + batches_[end].elements() <= kBatchElements);
      record_iterations(fmt::format("{}/newton_schulz/{}", name_, number),
                        std::span(batches_).subspan(begin, end - begin));
    }
  }
  void record_iterations(const std::string& name, std::span<const Batch> batches) {
    const MuonConfig& muon = update_.config.muon;
    kernels::NewtonSchulz op{
        .matrices = {}, .options = muon.iterations(), .storage = recorder_.storage()};
    kernels::NewtonSchulz::Operands<Tensor> operands;
    for (const Batch& batch : batches) {
      op.matrices.push_back(
          {batch.count, batch.rows, batch.columns, muon.scale_of(batch.rows, batch.columns)});
      operands.matrices.push_back({.x = {whole_, {batch.begin, batch.begin + batch.elements()}}});
    }
    operands.workspace = recorder_.workspace(name + "/workspace", op.workspace_bytes());
    recorder_.compute(name, op, operands);
  }

  const ParameterUpdate& update_;
  Recorder& recorder_;
  const WholeMatrices& matrices_;
  const parallel::RankGroup& stage_;
  int index_;
  std::string name_;
  std::vector<ParameterUpdate::One> own_;
  std::map<std::string, std::vector<Place>> places_;  ///< by parameter
  std::map<std::size_t, std::int64_t> begin_;         ///< of the matrices that this rank owns
  std::vector<Batch> batches_;
  /// Elements of matrices that this rank owns, padding included, of those before that it alone has,
  /// and of pieces of others.
  std::int64_t owned_ = 0, alone_ = 0, travel_ = 0;
  Tensor directions_, whole_, updates_;
  std::optional<Exchange> coming_, going_;
};

/// The first wave's directions travel beside the other rule's op, the next one's beside the
/// products of this one, and its updates beside those of the next.
void record(const ParameterUpdate& update) {
  const parallel::RankGroup& stage =
      update.sharing.ranks.group(parallel::Group::replicated_gradients);
  const WholeMatrices matrices(update.model, update.layout, update.sharing, kMuon, update.config,
                               wave_elements(update, stage.size()));
  std::vector<Wave> waves;
  for (int i = 0; i < matrices.waves(); ++i) waves.emplace_back(update, matrices, i);
  const std::size_t ahead = stage.size() > 1 ? 1 : 0;  // alone a wave has no exchange to hide
  const std::size_t count = waves.size();
  for (std::size_t i = 0; i < std::min(ahead, count); ++i) waves[i].start();
  update.other_rule();
  for (std::size_t i = 0; i < count + ahead; ++i) {
    if (i + ahead < count) waves[i + ahead].start();
    if (i < count) waves[i].orthogonalise();
    if (i >= ahead) waves[i - ahead].update();
  }
}

}  // namespace

double MuonConfig::scale_of(std::int64_t rows, std::int64_t columns) const {
  constexpr double kAdamwRms = 0.2;
  const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
  return scale == Scale::rms ? kAdamwRms * std::sqrt(std::max(m, n))
                             : std::sqrt(std::max(1.0, m / n));
}

namespace {

double flops(const Parameter& parameter, const OptimizerConfig& config) {
  const std::int64_t columns = parameter.shape.back();
  const std::int64_t rows = parameter.shape[parameter.shape.size() - 2];
  double of_one = 0;
  for (const std::int64_t some : matrix_rows(parameter, config.muon.split))
    of_one += kernels::newton_schulz_flops(some, columns, config.muon.iterations());
  const std::int64_t experts = parameter.global_elements() / (rows * columns);
  return static_cast<double>(experts) * of_one;
}

}  // namespace

constinit const Optimizer kMuon = {.name = "muon",
                                   .states = kStates,
                                   .record = record,
                                   .otherwise = &kAdamw,
                                   .whole_matrices = true,
                                   .flops = flops};

}  // namespace stowage::layers
