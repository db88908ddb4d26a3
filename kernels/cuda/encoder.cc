#include "kernels/cuda/encoder.h"

#include "kernels/cuda/grouped.h"
#include "kernels/cuda/ops.h"
#include "src/base/units.h"

namespace sluice::cuda {
namespace {

constexpr size_t kLanes = 3;  // one copies, one encodes, one has its results read
constexpr uint64_t kAlignment = 256;

}  // namespace

// Takes a lane, or waits for one, and may fill its source; gives it back at the end.
class CudaEncoder::Use {
 public:
  // Takes the lane, which comes back even if it cannot be filled.
  explicit Use(const CudaEncoder& encoder) : encoder_(encoder) {
    std::unique_lock lock(encoder.mutex_);
    encoder.freed_.wait(lock, [&] { return !encoder.free_.empty(); });
    lane_ = encoder.free_.back();
    encoder.free_.pop_back();
  }
  Use(const CudaEncoder& encoder, const std::byte* source, uint64_t bytes) : Use(encoder) {
    check(bytes <= lane_->source.size(), "an encoder's source fits a slot");
    lane_->stream->copy(lane_->source.data(), source, bytes);
  }
  ~Use() {
    std::lock_guard lock(encoder_.mutex_);
    encoder_.free_.push_back(lane_);
    encoder_.freed_.notify_one();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Lane* operator->() const { return lane_; }
  // Puts the result in its place before the kernels, and brings it back behind them.
  void send(const Result& result) {
    *lane_->host = result;
    copy(lane_->device, lane_->host);
  }
  Result receive() {
    copy(lane_->host, lane_->device);
    lane_->stream->synchronize();
    return *lane_->host;
  }

 private:
  void copy(Result* to, const Result* from) {
    lane_->stream->copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                        sizeof(Result));
  }

  const CudaEncoder& encoder_;
  Lane* lane_ = nullptr;
};

WorkspaceBytes CudaEncoder::bytes(uint64_t slot_bytes) {
  static_assert(sizeof(Result) <= kAlignment);
  return {kLanes * (round_up(slot_bytes, kAlignment) + kAlignment), kLanes * kAlignment};
}

CudaEncoder::CudaEncoder(Device& device, uint64_t slot_bytes, const Workspace& memory)
    : lanes_(kLanes) {
  std::byte* at = memory.device.data();
  for (size_t i = 0; i < kLanes; ++i) {
    Lane& lane = lanes_[i];
    lane.stream = device.stream();
    lane.device = reinterpret_cast<Result*>(at);
    lane.host = reinterpret_cast<Result*>(memory.host.data() + i * kAlignment);
    lane.source = {at + kAlignment, slot_bytes};
    at += kAlignment + round_up(slot_bytes, kAlignment);
    free_.push_back(&lane);
  }
}

CudaEncoder::~CudaEncoder() = default;

// Copies weights that are quantized already.
EncodeStats CudaEncoder::encode_quantized(const EncodeArgs& args) const {
  Use lane(*this, args.source, static_cast<uint64_t>(quantized_source_bytes(args)));
  if (args.order != nullptr && args.plane == Plane::codes) {
    lane->stream->copy(reinterpret_cast<std::byte*>(args.to.order),
                       reinterpret_cast<const std::byte*>(args.order),
                       static_cast<uint64_t>(args.to.cols) * sizeof(int32_t));
  }
  if (args.tables != nullptr && args.plane == Plane::codes) {
    const WeightFormat& format = args.to.format;
    lane->stream->copy(reinterpret_cast<std::byte*>(args.to.tables),
                       reinterpret_cast<const std::byte*>(args.tables),
                       plane_bytes(format, Plane::tables, args.to.rows, args.to.cols));
  }
  EncodeArgs on_device = args;
  on_device.source = lane->source.data();
  cuda::encode_quantized(on_device, lane->stream->handle());
  lane->stream->synchronize();
  return quantized_stats(args);
}

// Rows are copied to the lane's source, as many at once as fit, and come back in order.
void CudaEncoder::order_columns(const Weight& to, int64_t first_row, int64_t rows,
                                const int32_t* order) const {
  Use lane(*this);
  DeviceStream& stream = *lane->stream;
  stream.copy(reinterpret_cast<std::byte*>(to.order), reinterpret_cast<const std::byte*>(order),
              static_cast<uint64_t>(to.cols) * sizeof(int32_t));
  const int64_t row_bytes = grouped_row_bytes(to.format, to.cols);
  const int64_t most = std::ssize(lane->source) / row_bytes;
  check(most > 0, "a row fits a slot");
  for (int64_t done = 0; done < rows; done += most) {
    const int64_t count = std::min(most, rows - done);
    std::byte* at = to.data + (first_row + done) * row_bytes;
    stream.copy(lane->source.data(), at, static_cast<uint64_t>(count * row_bytes));
    cuda::order_columns(to, lane->source.data(), first_row + done, count, stream.handle());
  }
  stream.synchronize();
}

EncodeStats CudaEncoder::encode(const EncodeArgs& args) const {
  if (is_quantized(args)) return encode_quantized(args);
  Use lane(*this, args.source, static_cast<uint64_t>(args.source_bytes()));
  lane.send({{}, args.tensor_amax});
  // Whichever columns come first: the kernel takes the scales from where they belong.
  if (args.row_scales != nullptr) {
    lane->stream->copy(args.to.plane(Plane::scales) + args.first_row * int64_t{sizeof(float)},
                       reinterpret_cast<const std::byte*>(args.row_scales),
                       static_cast<uint64_t>(args.rows) * sizeof(float));
  }
  EncodeArgs on_device = args;
  on_device.source = lane->source.data();
  cuda::encode(on_device, &lane->device->amax, &lane->device->stats, lane->stream->handle());
  return lane.receive().stats;
}

float CudaEncoder::absolute_max(const std::byte* source, DType stored, int64_t source_stride,
                                int64_t rows, int64_t cols) const {
  const int64_t bytes = rows == 0 ? 0 : (rows - 1) * source_stride + cols * dtype_bytes(stored);
  Use lane(*this, source, static_cast<uint64_t>(bytes));
  lane.send({});
  cuda::absolute_max(lane->source.data(), stored, source_stride, rows, cols, &lane->device->amax,
                     lane->stream->handle());
  return lane.receive().amax;
}

}  // namespace sluice::cuda
