#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/attention_jobs.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

using cpu::kPartition;
using cpu::kQueries;
using cpu::kScoreStride;

// Partitions whose scores a thread has room for, where rows are fewer than threads.
constexpr int64_t kScoreSlots = 8;

struct Candidate {
  float score;
  int32_t position;
};
bool is_better(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.position < b.position);
}

// The best of a row's positions, given in order. There is room for twice as many as are wanted;
// when it is full, the better half stays.
class Best {
 public:
  Best(Candidate* room, int64_t most) : room_(room), most_(most) {}

  void add(const float* scores, int64_t begin, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const float score =
          std::isnan(scores[k]) ? -std::numeric_limits<float>::infinity() : scores[k];
      if (score <= least_ && full_) continue;  // an equal one comes later
      room_[count_++] = {score, static_cast<int32_t>(begin + k)};
      if (count_ == 2 * most_) keep();
    }
  }
  void write(int32_t* out) {
    if (count_ > most_) keep();
    std::transform(room_, room_ + count_, out, [](const Candidate& c) { return c.position; });
    std::sort(out, out + count_);
  }

 private:
  void keep() {
    std::nth_element(room_, room_ + most_ - 1, room_ + count_, is_better);
    count_ = most_;
    least_ = room_[most_ - 1].score;
    full_ = true;
  }

  Candidate* room_;
  int64_t most_;
  int64_t count_ = 0;
  float least_ = 0;
  bool full_ = false;
};

// The workspace: of each worker what index_scores works in, candidates, and scores.
struct ChoiceScratch {
  ChoiceScratch(std::byte* memory, int64_t key_dim, int64_t most)
      : at(reinterpret_cast<float*>(memory)),
        attend(attend_floats(key_dim, key_dim)),
        best(4 * most) {}
  int64_t each() const { return attend + best + kScoreSlots * kScoreStride; }
  float* attend_of(int64_t worker) const { return at + worker * each(); }
  Candidate* best_of(int64_t worker) const {
    return reinterpret_cast<Candidate*>(attend_of(worker) + attend);
  }
  float* scores_of(int64_t worker) const { return attend_of(worker) + attend + best; }

  float* at;
  int64_t attend, best;  // floats
};

// One row of a step.
struct IndexRow {
  const SequenceChunk* chunk;
  int64_t row;         // of the chunk
  int64_t tokens = 1;  // of an entry
  // The last position, or entry, that it chooses from; -1: there is none.
  int64_t position() const { return kv_entries(tokens, chunk->first_position + row) - 1; }
  int64_t of_step() const { return chunk->first_row + row; }
};

// Positions of a step's rows, chosen by their scores.
class Chooser {
 public:
  Chooser(const cpu::Ops& ops, ThreadPool& pool, const cpu::AttentionJob& common, Tensor q,
          Tensor weights, const ChosenPositions& out, const ChoiceScratch& work)
      : ops_(ops), pool_(pool), common_(common), q_(q), weights_(weights), out_(out), work_(work) {}

  // All of a row by one thread.
  void choose(const IndexRow& row, int worker) const {
    int32_t* to = positions(row);
    if (row.position() < out_.most) return std::iota(to, to + row.position() + 1, 0);
    Best best(work_.best_of(worker), out_.most);
    for (int64_t p = 0; p * kPartition <= row.position(); ++p) {
      score(row, p, work_.attend_of(worker), work_.scores_of(worker));
      best.add(work_.scores_of(worker), p * kPartition, count_in(row, p));
    }
    best.write(to);
  }
  // Partitions of a row by all threads, some at a time.
  void choose_by_all(const IndexRow& row) const {
    const int64_t partitions = row.position() / kPartition + 1, wave = pool_.size() * kScoreSlots;
    Best best(work_.best_of(0), out_.most);
    const auto scores = [&](int64_t slot) {
      return work_.scores_of(slot / kScoreSlots) + slot % kScoreSlots * kScoreStride;
    };
    for (int64_t first = 0; first < partitions; first += wave) {
      const int64_t count = std::min(wave, partitions - first);
      pool_.parallel_for(count, 1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t slot = begin; slot < end; ++slot)
          score(row, first + slot, work_.attend_of(worker), scores(slot));
      });
      for (int64_t slot = 0; slot < count; ++slot)
        best.add(scores(slot), (first + slot) * kPartition, count_in(row, first + slot));
    }
    best.write(positions(row));
  }

 private:
  int32_t* positions(const IndexRow& row) const {
    return out_.positions + row.of_step() * out_.most;
  }
  static int64_t count_in(const IndexRow& row, int64_t partition) {
    return std::min(row.position() + 1 - partition * kPartition, kPartition);
  }
  void score(const IndexRow& row, int64_t partition, float* memory, float* scores) const {
    cpu::AttentionJob job = common_;
    job.first_position = row.position();
    job.block_table = row.chunk->block_table.data();
    std::fill_n(scores, kScoreStride, 0.0f);
    for (int64_t head = 0; head < weights_.cols; head += kQueries) {
      job.heads = std::min(kQueries, weights_.cols - head);
      job.q = q_.row<float>(row.of_step()) + head * job.key_dim;
      ops_.index_scores(job, weights_.row<float>(row.of_step()) + head, partition, memory, scores);
    }
  }

  const cpu::Ops& ops_;
  ThreadPool& pool_;
  const cpu::AttentionJob& common_;
  Tensor q_, weights_;
  const ChosenPositions& out_;
  const ChoiceScratch& work_;
};

}  // namespace

int64_t choice_workspace(int64_t key_dim, int64_t most, int threads) {
  if (most == 0) return 0;
  return threads * ChoiceScratch(nullptr, key_dim, most).each() *
         static_cast<int64_t>(sizeof(float));
}

void CpuKernels::choose_positions(Tensor q, Tensor weights, const KvCache& keys, const KvRows& rows,
                                  const ChosenPositions& out) const {
  check_choose_positions(q, weights, keys, rows.chunks, out);
  const int threads = pool_.size();
  const ChoiceScratch work(scratch(choice_workspace(keys.key_dim, out.most, threads)), keys.key_dim,
                           out.most);
  cpu::AttentionJob common;
  set_cache(keys, 0, common);
  common.units = attention_units(ops_, compute_, keys, ops_.pair_units);
  common.scale = 1;
  common.rows = 1;
  const Chooser chooser(ops_, pool_, common, q, weights, out, work);
  for (const SequenceChunk& chunk : rows.chunks) {
    const bool spread = threads > 1 && chunk.rows < threads;
    const auto of_chunk = [&](int64_t row) { return IndexRow{&chunk, row, keys.tokens}; };
    if (spread && of_chunk(0).position() >= std::max(out.most, 2 * kPartition)) {
      for (int64_t row = 0; row < chunk.rows; ++row) chooser.choose_by_all(of_chunk(row));
      continue;
    }
    pool_.parallel_for(chunk.rows, 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t row = begin; row < end; ++row) chooser.choose(of_chunk(row), worker);
    });
  }
}

}  // namespace sluice
