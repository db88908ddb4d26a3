// The speed of this machine for one model: what the file of rates (src/plan/rates.h) knows of its
// disk, memory and link, and what loads and runs add to it.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/engine/model_weights.h"
#include "src/plan/quantize.h"
#include "src/plan/rates.h"

namespace sluice {

// The disk that a model lies on, and the processor that computes it.
struct RateSetting {
  std::filesystem::path model;
  std::vector<std::filesystem::path> mirrors;
  std::string stored;  // the stored type of its weights
  std::string processor;
  std::string device;       // DeviceInfo::name
  bool own_memory = false;  // Device::has_own_memory()
  double memory_rate = 0;   // DeviceInfo::memory_rate
  // True where its loads and runs show what the machine gives: no reader was asked for, and no
  // other rank shares the machine.
  bool typical = true;
};

class MachineRates {
 public:
  MachineRates() = default;
  MachineRates(RateSetting setting, const QuantizeRequest& quantize);

  // Rates for the model's own scheme, for another one, and for another path's disk: observed,
  // measured, assumed, or reported by the device.
  Rates known() const { return known(quantize_); }
  Rates known(const QuantizeRequest& quantize) const;
  Rates known_of(const std::filesystem::path& path) const;
  // The read shape for the disk, and its source.
  const RememberedShape& read_shape() const { return read_shape_; }
  // The uses of the model's experts by its latest run, or nothing.
  ExpertReuse expert_reuse() const;
  bool tries_shapes() const { return setting_.typical && !read_shape_.is_settled(); }

  // Remembers what a load has shown of the disk.
  void learn_load(const ModelWeights& loaded);
  // Remembers what a run has shown, from the median seconds of its passes of a few rows; 0: there
  // were none. Measures memory itself once, with the runner.
  void learn_pass(ModelWeights& loaded, double seconds);

 private:
  RateKeys keys(const std::filesystem::path& path, const QuantizeRequest& quantize) const;
  RateKeys keys() const { return keys(setting_.model, quantize_); }
  void remember(const Observation& seen) const;
  bool shows_disk(const ModelWeights& loaded) const;
  void learn_shape(const LoadReport& report);
  void learn_memory(const ReadPlan& plan, Runner& runner) const;

  RateSetting setting_;
  QuantizeRequest quantize_;
  std::filesystem::path file_ = rates_file();
  RememberedShape read_shape_;
};

}  // namespace sluice
