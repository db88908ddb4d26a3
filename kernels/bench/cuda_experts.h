// Products of a layer's experts on a GPU.
#pragma once

#include <functional>
#include <string>

#include "src/device/device.h"

namespace sluice::bench {

// A product's rate: bytes of chosen weights a second, or operations of many rows.
struct ExpertRate {
  std::string name;
  double rate = 0;
  bool bytes = false;
};

// Calls found() with each as soon as it is known, for experts as Qwen3-30B-A3B has them.
void expert_rates(Device& device, const std::function<void(const ExpertRate&)>& found);

}  // namespace sluice::bench
