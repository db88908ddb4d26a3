#include "tests/kernels/cuda/on_device.h"

#include <set>

namespace sluice::test {
namespace {

std::set<DeviceBytes*>& all() {
  static std::set<DeviceBytes*> memory;
  return memory;
}

}  // namespace

DeviceBytes::DeviceBytes(size_t bytes)
    : memory_(device_memory(bytes)), host_(bytes, std::byte{0xa5}) {
  all().insert(this);
}
DeviceBytes::~DeviceBytes() { all().erase(this); }

std::byte* DeviceBytes::host() const {
  if (on_device_) memory_->download(host_);
  on_device_ = false;
  return host_.data();
}

CUstream_st* stream() {
  for (DeviceBytes* bytes : all()) {
    if (!bytes->on_device_) bytes->memory_->upload(bytes->host_);
    bytes->on_device_ = true;
  }
  return nullptr;
}

}  // namespace sluice::test
