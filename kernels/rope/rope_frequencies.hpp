#pragma once

namespace stowage::kernels {

/// The angles of rotary positions: pair i of the R turned dimensions of a head turns by
/// position * theta^(-2i/R), scaled.
struct RopeFrequencies {
  double theta = 10000;
  /// Llama 3.1's scaling (arXiv 2407.21783 section 3.4.1's longer sequences, in the form of
  /// transformers' "llama3"): waves longer than positions / low turn `factor` times slower, those
  /// shorter than positions / high as before, and those between by a mean of both that is linear in
  /// positions / wavelength. 1: none.
  double factor = 1;
  double low = 1, high = 4;
  double positions = 8192;  ///< that the model first saw

  constexpr bool scales() const { return factor != 1; }
  /// @param frequency theta^(-2i/R), in radians
  constexpr double scaled(double frequency) const {
    constexpr double kTurn = 6.283185307179586477;
    const double waves = positions * frequency / kTurn;  // in the first positions
    if (waves < low) return frequency / factor;
    if (waves > high) return frequency;
    const double part = (waves - low) / (high - low);
    return (1 - part) * frequency / factor + part * frequency;
  }
};

}  // namespace stowage::kernels
