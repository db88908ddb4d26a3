#include "src/load/matrix_loader.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/load/load_pass.h"
#include "src/plan/compile.h"
#include "src/plan/lay_out.h"

namespace sluice {

MatrixLoader::MatrixLoader(const MatrixLoading& loading)
    : loading_(loading), options_(loading.options) {
  options_.spill = nullptr;
  options_.try_shapes = false;
}

void MatrixLoader::load(const ReadPlan& plan, uint32_t tensor, const Take& take, int64_t together) {
  const TensorPlan& t = plan.tensors[tensor];
  load(plan, tensor, 0, plan.params[t.param].param->pieces[t.piece].cut.rows, take, together);
}

void MatrixLoader::load(const ReadPlan& plan, uint32_t tensor, int64_t first, int64_t end,
                        const Take& take, int64_t together) {
  const TensorPlan& t = plan.tensors[tensor];
  const int64_t all = plan.params[t.param].param->pieces[t.piece].cut.rows;
  const int64_t step = row_step(plan, tensor);
  first = first / step * step;
  end = std::min(round_to(end, step), all);
  SpillWindow window = spill_window(plan, tensor, loading_.memory.size());
  if (window.rows < all) window.rows -= window.rows % std::lcm(step, together);
  if (window.rows == 0)
    fail(ErrorKind::no_fit, "{}: some rows of it take {} of memory, and there is {}",
         t.stored->name, format_size(window.least_memory), format_size(loading_.memory.size()));
  std::optional<float> amax;
  if (has_tensor_scale(t.group)) amax = measured(plan, tensor, window);
  bool goes_on = true;
  for (; first < end && goes_on; first += window.rows)
    goes_on =
        take(load_rows(plan, tensor, first, std::min(window.rows, end - first), window, amax));
}

// The largest value of all rows, which are measured without memory for them.
float MatrixLoader::measured(const ReadPlan& plan, uint32_t tensor, const SpillWindow& window) {
  const TensorPlan& t = plan.tensors[tensor];
  const int64_t rows = plan.params[t.param].param->pieces[t.piece].cut.rows;
  Param param;
  ReadPlan part = lay_out_part(plan, tensor, 0, rows, param);
  part = compile(std::move(part), window.staging, {Tier::disk});
  const Weight nowhere{part.params[0].format, param.rows, param.cols};
  Measured measured;
  measured.amax.resize(part.tensors.size());
  load_part(part, {&nowhere, 1}, measured, window,
            loading_.memory.subspan(window.ring_bytes).first(part.row_amax.bytes()));
  return measured.amax.front().value_or(0);
}

MatrixRows MatrixLoader::load_rows(const ReadPlan& plan, uint32_t tensor, int64_t first,
                                   int64_t rows, const SpillWindow& window,
                                   std::optional<float> amax) {
  Param param;
  ReadPlan part = lay_out_part(plan, tensor, first, rows, param);
  part.tensors.front().amax_known = amax.has_value();
  part = compile(std::move(part), window.staging);
  Measured measured;
  measured.amax.resize(part.tensors.size());
  measured.amax.front() = amax;
  const std::span<std::byte> memory = loading_.memory.subspan(window.ring_bytes);
  const std::span<std::byte> storage = memory.first(part.params[0].storage);
  std::memset(storage.data(), 0, storage.size());  // rows behind the last one
  const Weight weight = part.weight(part.params[0], storage.data());
  const EncodeStats stats = load_part(part, {&weight, 1}, measured, window,
                                      memory.subspan(storage.size()).first(part.row_amax.bytes()));
  refuse_damaged(loading_.index, *plan.tensors[tensor].stored, stats);
  return {weight, first, rows, stats, amax.value_or(0)};
}

// Loads a plan of one matrix, again where a source fails.
EncodeStats MatrixLoader::load_part(const ReadPlan& part, std::span<const Weight> weights,
                                    Measured& measured, const SpillWindow& window,
                                    std::span<std::byte> row_amax) {
  Fetcher fetcher({.plan = part,
                   .index = loading_.index,
                   .encoder = *encoder_,
                   .weights = weights,
                   .measured = measured,
                   .options = options_,
                   .fills_spill = false,
                   .row_amax = row_amax});
  EncodeStats sum;
  const uint64_t slot = part.slot_bytes;
  const std::span<std::byte> ring = loading_.memory.first(round_down(window.ring_bytes, slot));
  for (bool loaded = false; !loaded;) {
    ReadPace pace(options_.read, false, slot, ring.size() / slot);
    LoadProgress progress;
    fetcher.open({ring, slot, pace.least_request_bytes()});
    loaded = LoadPass(load_order(part, nullptr, false), fetcher, pace, progress, nullptr)
                 .run(loading_.stop);
  }
  for (const EncodeStats& stats : fetcher.queue().take_stats()) sum.add(stats);
  return sum;
}

}  // namespace sluice
