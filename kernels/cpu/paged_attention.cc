#include <algorithm>

#include "kernels/cpu/attention_jobs.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

using cpu::AttentionJob;
using cpu::AttentionSums;
using cpu::kPartition;
using cpu::kQueries;

// Floats of the sums of one job: largest, total, values.
int64_t sums_floats(int64_t value_dim) { return 2 * kQueries + kQueries * padded_dim(value_dim); }
// With fewer than kSpreadJobs jobs for each thread, the partitions of jobs are spread over threads,
// kSpreadSlots of them for each thread at a time.
constexpr int64_t kSpreadJobs = 2;
constexpr int64_t kSpreadSlots = 8;

// Partitions [first_partition, end_partition) hold what the rows attend to.
int64_t first_partition(const AttentionJob& job) {
  return first_attended(job.window, job.chunk, job.first_position) / kPartition;
}
int64_t end_partition(const AttentionJob& job) {
  return ceil_div(job.first_position + job.rows, kPartition);
}

// The parts of a job's sum, in order: the partitions that its rows attend to, then those of the
// other cache.
struct Parts {
  AttentionJob job = {}, more = {};
  bool has_more = false;

  int64_t own() const { return end_partition(job) - first_partition(job); }
  int64_t count() const { return own() + (has_more ? end_partition(more) : 0); }
  void attend(const cpu::Ops& ops, int64_t part, float* scratch, AttentionSums out) const {
    if (part < own()) return ops.attend(job, first_partition(job) + part, scratch, out);
    ops.attend(more, part - own(), scratch, out);
  }
};

// The batch as jobs: kQueries queries at most, of one KV head of one sequence.
class Jobs {
 public:
  Jobs(const Tensor& q, const KvCache& cache, std::span<const SequenceChunk> chunks,
       const AttentionParams& params, cpu::Units units)
      : q_(q), cache_(cache), chunks_(chunks), params_(params), units_(units) {
    group_ = q.cols / cache.key_dim / cache.kv_heads;
    heads_ = std::min(group_, kQueries);
    // Choices differ by rows, and so does the number of windows that have ended.
    rows_ = params.chosen.most > 0 || params.more != nullptr ? 1 : kQueries / heads_;
    per_tile_ = cache.kv_heads * ceil_div(group_, heads_);
    for (const SequenceChunk& c : chunks) count_ += ceil_div(c.rows, rows_) * per_tile_;
  }

  int64_t count() const { return count_; }

  // The parts of job `index`, and where its output begins.
  Parts parts(int64_t index, const Tensor& out, float*& to) const {
    size_t c = 0;
    for (int64_t jobs; index >= (jobs = ceil_div(chunks_[c].rows, rows_) * per_tile_); ++c) {
      index -= jobs;
    }
    const SequenceChunk& chunk = chunks_[c];
    const int64_t row = index / per_tile_ * rows_;
    const int64_t parts = ceil_div(group_, heads_);
    const int64_t kv_head = index % per_tile_ / parts;
    const int64_t first_head = index % parts * heads_;  // within the group
    const int64_t head = kv_head * group_ + first_head;
    AttentionJob job;
    job.q = q_.row<float>(chunk.first_row + row) + head * cache_.key_dim;
    job.q_stride = q_.stride;
    job.rows = std::min(rows_, chunk.rows - row);
    job.heads = std::min(heads_, group_ - first_head);
    job.first_position = chunk.first_position + row;
    job.block_table = chunk.block_table.data();
    if (const ChosenPositions& chosen = params_.chosen; chosen.most > 0) {
      job.chosen = chosen.positions + (chunk.first_row + row) * chosen.most;
      job.first_position = std::min(job.first_position, chosen.most - 1);
    }
    set_cache(cache_, kv_head, job);
    job.units = units_;
    set_params(head, job);
    to = out.row<float>(chunk.first_row + row) + head * cache_.value_dim;
    if (params_.more == nullptr) return {.job = job};
    return {job, more_of(job, c, row), true};
  }

 private:
  // The same queries' job over the other cache, in which entries are positions.
  AttentionJob more_of(const AttentionJob& own, size_t chunk, int64_t row) const {
    const MoreKeys& more = *params_.more;
    const SequenceChunk& c = more.rows->chunks[chunk];
    AttentionJob job = own;
    job.window = job.chunk = 0;
    job.block_table = c.block_table.data();
    job.first_position = kv_entries(more.cache.tokens, c.first_position + row) - 1;
    if (const ChosenPositions& chosen = more.chosen; chosen.most > 0) {
      job.chosen = chosen.positions + (c.first_row + row) * chosen.most;
      job.first_position = std::min(job.first_position, chosen.most - 1);
    }
    set_cache(more.cache, 0, job);
    return job;
  }
  void set_params(int64_t head, AttentionJob& job) const {
    job.scale = params_.scale;
    job.window = params_.window;
    job.chunk = params_.chunk;
    job.soft_cap = params_.soft_cap;
    if (!params_.alibi_slopes.empty()) job.alibi_slopes = params_.alibi_slopes.data() + head;
    if (!params_.sinks.empty()) job.sinks = params_.sinks.data() + head;
  }

  const Tensor& q_;
  const KvCache& cache_;
  std::span<const SequenceChunk> chunks_;
  const AttentionParams& params_;
  cpu::Units units_;
  int64_t group_;     // query heads of one KV head
  int64_t heads_;     // of them in one job
  int64_t rows_;      // query rows in one job
  int64_t per_tile_;  // jobs for the same rows
  int64_t count_ = 0;
};

// The workspace: for each worker what attend works in and two sums, then the sums of spread jobs.
class AttentionScratch {
 public:
  AttentionScratch(std::byte* at, const KvCache& cache, int threads)
      : floats_(reinterpret_cast<float*>(at)),
        attend_(attend_floats(cache.key_dim, cache.value_dim)),
        sums_(sums_floats(cache.value_dim)),
        threads_(threads) {}

  float* attend(int worker) const { return floats_ + worker * attend_; }
  AttentionSums worker_total(int64_t worker) const { return sums(2 * worker); }
  AttentionSums worker_part(int64_t worker) const { return sums(2 * worker + 1); }
  AttentionSums spread_total(int64_t job) const { return sums(2 * threads_ + job); }
  AttentionSums spread_part(int64_t slot) const {
    return sums((2 + kSpreadJobs) * threads_ + slot);
  }

 private:
  AttentionSums sums(int64_t index) const {
    float* at = floats_ + threads_ * attend_ + index * sums_;
    return {at, at + kQueries, at + 2 * kQueries};
  }

  float* floats_;
  int64_t attend_, sums_;
  int64_t threads_;
};

void clear(AttentionSums sums) { std::fill_n(sums.total, kQueries, 0.0f); }

// A job is one thread's from its first partition to its last.
void attend_jobs(const cpu::Ops& ops, const Jobs& jobs, const Tensor& out,
                 const AttentionScratch& scratch, ThreadPool& pool) {
  pool.parallel_for(jobs.count(), 1, [&](int64_t begin, int64_t end, int worker) {
    const AttentionSums total = scratch.worker_total(worker), part = scratch.worker_part(worker);
    for (int64_t index = begin; index < end; ++index) {
      float* to = nullptr;
      const Parts parts = jobs.parts(index, out, to);
      clear(total);
      for (int64_t p = 0; p < parts.count(); ++p) {
        parts.attend(ops, p, scratch.attend(worker), part);
        ops.merge(parts.job, total, part);
      }
      ops.finish(parts.job, total, to, out.stride);
    }
  });
}

// The partitions of all jobs, `most` at most of each, are spread over threads, a number of them at
// a time, and merged in order.
void attend_spread(const cpu::Ops& ops, const Jobs& jobs, int64_t most, const Tensor& out,
                   const AttentionScratch& scratch, ThreadPool& pool) {
  const int64_t wave = kSpreadSlots * pool.size() / jobs.count();  // partitions of each job
  float* to = nullptr;
  for (int64_t index = 0; index < jobs.count(); ++index) clear(scratch.spread_total(index));
  for (int64_t first = 0; first < most; first += wave) {
    pool.parallel_for(jobs.count() * wave, 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t slot = begin; slot < end; ++slot) {
        float* unused = nullptr;
        const Parts parts = jobs.parts(slot / wave, out, unused);
        const int64_t part = first + slot % wave;
        if (part < parts.count())
          parts.attend(ops, part, scratch.attend(worker), scratch.spread_part(slot));
      }
    });
    for (int64_t slot = 0; slot < jobs.count() * wave; ++slot) {
      const Parts parts = jobs.parts(slot / wave, out, to);
      if (first + slot % wave < parts.count())
        ops.merge(parts.job, scratch.spread_total(slot / wave), scratch.spread_part(slot));
    }
  }
  for (int64_t index = 0; index < jobs.count(); ++index) {
    const Parts parts = jobs.parts(index, out, to);
    ops.finish(parts.job, scratch.spread_total(index), to, out.stride);
  }
}

}  // namespace

namespace {

// Partitions of the other cache that the last row of a chunk attends to.
int64_t more_parts(const MoreKeys& more, const SequenceChunk& c) {
  int64_t entries = kv_entries(more.cache.tokens, c.first_position + c.rows - 1);
  if (more.chosen.most > 0) entries = std::min(entries, more.chosen.most);
  return ceil_div(entries, kPartition);
}

}  // namespace

int64_t attention_workspace(int64_t key_dim, int64_t value_dim, int threads) {
  const int64_t sums = (2 + kSpreadJobs + kSpreadSlots) * sums_floats(value_dim);
  return threads * (attend_floats(key_dim, value_dim) + sums) * static_cast<int64_t>(sizeof(float));
}

void CpuKernels::paged_attention(Tensor q, const KvCache& cache, const KvRows& rows,
                                 const AttentionParams& params, Tensor out) const {
  const std::span<const SequenceChunk> chunks = rows.chunks;
  check_paged_attention(q, cache, chunks, params, out);
  const AttentionScratch work(
      scratch(attention_workspace(cache.key_dim, cache.value_dim, pool_.size())), cache,
      pool_.size());
  const cpu::Units rounded = cache.value_dim <= kPartition ? ops_.attention_units : ops_.pair_units;
  const Jobs jobs(q, cache, chunks, params, attention_units(ops_, compute_, cache, rounded));
  int64_t most = 0;
  for (const SequenceChunk& c : chunks) {
    int64_t positions = c.first_position + c.rows;
    if (params.chosen.most > 0) positions = std::min(positions, params.chosen.most);
    int64_t parts =
        ceil_div(positions, kPartition) - first_attended(params, c.first_position) / kPartition;
    if (params.more != nullptr) parts += more_parts(*params.more, c);
    most = std::max(most, parts);
  }
  const int threads = pool_.size();
  if (threads > 1 && most > 1 && jobs.count() > 0 && jobs.count() <= kSpreadJobs * threads) {
    attend_spread(ops_, jobs, most, out, work, pool_);
  } else {
    attend_jobs(ops_, jobs, out, work, pool_);
  }
}

}  // namespace sluice
