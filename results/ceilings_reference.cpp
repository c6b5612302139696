#include "results/ceilings_reference.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "execution/error.hpp"
#include "inputs/deck/sha256.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"
#include "results/verdict.hpp"

namespace stowage::results {
namespace {

using execution::throw_usage;

std::vector<double> values_of(const h5::Group& ceilings, const std::string& name) {
  return ceilings.dataset(name).values();
}

double largest(const h5::Group& ceilings, const std::string& name) {
  if (!ceilings.exists(name)) return kNone;
  double most = kNone;
  for (const double value : values_of(ceilings, name)) {
    if (!(value > 0) || std::isinf(value)) return kNone;
    most = std::isnan(most) ? value : std::max(most, value);
  }
  return most;
}

std::string digest_of(const h5::Group& ceilings) {
  inputs::Sha256 hash;
  for (const std::string& name : ceilings.datasets()) {
    hash.update(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
    const std::vector<double> values = values_of(ceilings, name);
    hash.update(std::as_bytes(std::span(values)));
  }
  return hash.hex();
}

CeilingsReference reference_of(const h5::File& file, const std::filesystem::path& path,
                               std::string_view gpu_uuid) {
  const std::string verdict = file.text_attribute("verdict");
  if (verdict != name(Outcome::valid))
    throw_usage("--ceilings {}: its verdict is {}, wanted VALID", path.string(), verdict);
  const h5::Group ceilings = file.group("ceilings");
  CeilingsReference made{.uuid = file.text_attribute("uuid"),
                         .created = file.text_attribute("created"),
                         .git_describe = file.text_attribute("git_describe"),
                         .digest = digest_of(ceilings),
                         .same_board = false,
                         .flops_per_s = largest(ceilings, "gemm_bf16"),
                         .bytes_per_s = largest(ceilings, "device_copy")};
  if (std::isnan(made.flops_per_s) || std::isnan(made.bytes_per_s))
    throw_usage("--ceilings {}: needs positive limits gemm_bf16 and device_copy", path.string());
  const auto boards = file.read_column("provenance/system/ranks", "gpu_uuid");
  made.same_board = !gpu_uuid.empty() && !boards.empty() && boards.front() == gpu_uuid;
  return made;
}

}  // namespace

CeilingsReference read_ceilings(const std::filesystem::path& path, std::string_view gpu_uuid) {
  return h5::read_file(path, kResultSchema,
                       [&](const h5::File& file) { return reference_of(file, path, gpu_uuid); });
}

std::string ceilings_digest(const std::filesystem::path& path) {
  return h5::read_file(path, kResultSchema,
                       [](const h5::File& file) { return digest_of(file.group("ceilings")); });
}

}  // namespace stowage::results
