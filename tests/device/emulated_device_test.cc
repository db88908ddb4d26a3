// The emulated device finds what it is made for: work that relies on an order that nobody asked
// for, and hands on what is not the device's.
#include "tests/support/simt/emulated_device.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/simt.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/device/link.h"

namespace sluice {
namespace {

using simt::Schedule;

__global__ void set_kernel(int* at, int value) { *at = value; }
__global__ void copy_kernel(const int* from, int* to) { *to = *from; }
__global__ void wild_kernel(int* at) {
  __syncthreads();
  if (threadIdx.x == 1) cuda::store_as(reinterpret_cast<std::byte*>(at) + 1, 0);
}

class EmulatedDeviceTest : public testing::TestWithParam<Schedule> {
 protected:
  EmulatedDeviceTest()
      : device_(simt::make_emulated_device({.schedule = GetParam(), .seed = 5, .bytes = MiB})) {
    device_->reserve(MiB);
    memory_ = device_->memory(ledger_, Use::weights, "test", 4096, Buffer::Touch::now);
    host_ = Buffer(ledger_, Use::staging, "host", 4096, Buffer::Touch::now);
    pinned_ = device_->pin(host_.bytes());
    at_ = reinterpret_cast<int*>(memory_.data());
  }
  // Returns what is copied when one stream writes 1 to at_[0] and another copies it to at_[1], in
  // either order of the calls, with or without an event between them.
  int hand_over(bool write_first, bool with_event) {
    auto writer = device_->stream(), reader = device_->stream();
    auto event = device_->event();
    cuda::launch(set_kernel, {}, writer->handle(), at_, 0);
    writer->synchronize();
    DeviceStream& first = write_first ? *writer : *reader;
    DeviceStream& second = write_first ? *reader : *writer;
    for (DeviceStream* stream : {&first, &second}) {
      if (stream == &second && with_event) stream->wait(*event);
      if (stream == writer.get()) cuda::launch(set_kernel, {}, stream->handle(), at_, 1);
      if (stream == reader.get()) cuda::launch(copy_kernel, {}, stream->handle(), at_, at_ + 1);
      if (stream == &first) stream->record(*event);
    }
    return read(*reader);
  }
  int read(DeviceStream& stream) {
    stream.copy(host_.data(), reinterpret_cast<std::byte*>(at_ + 1), sizeof(int));
    stream.synchronize();
    return *reinterpret_cast<int*>(host_.data());
  }

  Ledger ledger_;
  std::unique_ptr<simt::EmulatedDevice> device_;
  Buffer memory_, host_;
  std::unique_ptr<Pinned> pinned_;
  int* at_ = nullptr;
};

TEST_P(EmulatedDeviceTest, EventsOrderStreams) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(hand_over(true, true), 1);
    EXPECT_EQ(hand_over(false, true), 0);
  }
}

TEST_P(EmulatedDeviceTest, AMissingEventIsFound) {
  int wrong = 0;
  for (int i = 0; i < 20; ++i) {
    wrong += hand_over(true, false) == 1 ? 0 : 1;
    wrong += hand_over(false, false) == 0 ? 0 : 1;
  }
  EXPECT_GT(wrong, 0);
}

TEST_P(EmulatedDeviceTest, PinnedMemoryIsReadLate) {
  auto stream = device_->stream();
  host_.data()[0] = std::byte{1};
  stream->copy(reinterpret_cast<std::byte*>(at_ + 1), host_.data(), sizeof(int));
  host_.data()[0] = std::byte{2};  // too early
  EXPECT_EQ(read(*stream), 2);
  const int value = 3;  // memory that is not pinned has been read
  int changing = value;
  stream->copy(reinterpret_cast<std::byte*>(at_ + 1), reinterpret_cast<std::byte*>(&changing),
               sizeof(int));
  changing = 4;
  EXPECT_EQ(read(*stream), value);
}

// Behaves as a CUDA graph: memory is read when it is launched, arguments are those of the
// recording.
TEST_P(EmulatedDeviceTest, AGraphReadsMemoryAnewAndKeepsItsArguments) {
  auto stream = device_->stream();
  int argument = 7;
  std::unique_ptr<DeviceGraph> graph = stream->capture([&] {
    cuda::launch(copy_kernel, {}, stream->handle(), at_, at_ + 1);
    cuda::launch(set_kernel, {}, stream->handle(), at_ + 2, argument);
    stream->copy(reinterpret_cast<std::byte*>(at_ + 3), reinterpret_cast<std::byte*>(at_ + 2),
                 sizeof(int));
  });
  argument = 8;
  EXPECT_EQ(read(*stream), 0);  // recorded is not done
  for (int value : {3, 4}) {
    cuda::launch(set_kernel, {}, stream->handle(), at_, value);
    stream->launch(*graph);
    EXPECT_EQ(read(*stream), value);
    cuda::launch(copy_kernel, {}, stream->handle(), at_ + 3, at_ + 1);
    EXPECT_EQ(read(*stream), 7);
  }
}

TEST_P(EmulatedDeviceTest, WhatIsRecordedNeitherWaitsNorUsesMemoryThatMayGo) {
  auto stream = device_->stream();
  auto event = device_->event();
  std::byte passing[4] = {};
  EXPECT_THROW(stream->capture([&] { stream->synchronize(); }), simt::Fault);
  EXPECT_THROW(stream->capture([&] { stream->record(*event); }), simt::Fault);
  EXPECT_THROW(stream->capture([&] { stream->copy(memory_.data(), passing, 4); }), simt::Fault);
  cuda::launch(set_kernel, {}, stream->handle(), at_ + 1, 9);
  EXPECT_EQ(read(*stream), 9);
}

TEST_P(EmulatedDeviceTest, AFaultIsToldToAllWhoWait) {
  auto stream = device_->stream(), other = device_->stream();
  cuda::launch(wild_kernel, {{1}, {32}}, stream->handle(), at_);
  EXPECT_THROW(stream->synchronize(), simt::Fault);
  cuda::launch(set_kernel, {}, other->handle(), at_, 0);
  EXPECT_THROW(other->synchronize(), simt::Fault);
}

TEST_P(EmulatedDeviceTest, TheHostMayNotTouchItsMemory) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(static_cast<void>(*const_cast<volatile int*>(at_)), "");
}

TEST_P(EmulatedDeviceTest, GivesNoMoreThanWasReserved) {
  Buffer rest = device_->memory(ledger_, Use::weights, "rest", MiB - 8192, Buffer::Touch::now);
  EXPECT_EQ(device_->peak_bytes(), MiB - 4096);
  ledger_.set_budget(Place::device, MiB - 4096);
  EXPECT_THROW(device_->memory(ledger_, Use::weights, "more", 1, Buffer::Touch::now), Error);
  rest = {};
  memory_ = {};
  EXPECT_THROW(device_->reserve(2 * MiB), Error);
}

std::string schedule_name(const testing::TestParamInfo<Schedule>& info) {
  return info.param == Schedule::lazy    ? "lazy"
         : info.param == Schedule::eager ? "eager"
                                         : "shuffled";
}
INSTANTIATE_TEST_SUITE_P(, EmulatedDeviceTest,
                         testing::Values(Schedule::lazy, Schedule::eager, Schedule::shuffled),
                         schedule_name);

TEST(Link, IsMeasuredWithMemoryThatIsGivenBack) {
  Ledger ledger;
  const auto device = simt::make_emulated_device({.bytes = 128 * MiB});
  EXPECT_GT(measure_link(*device, ledger), 0);
  EXPECT_EQ(ledger.used(Place::host), 0u);
  EXPECT_EQ(ledger.used(Place::device), 0u);
  device->reserve(128 * MiB);
}

}  // namespace
}  // namespace sluice
