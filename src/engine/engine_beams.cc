// The engine's part of beam search: each beam is a sequence of its own, which waits until the next
// tokens of all beams of its request are known.
#include <algorithm>
#include <functional>

#include "src/base/error.h"
#include "src/engine/engine_state.h"

namespace sluice {
void Engine::begin_beams(Active& active) {
  active.request.lookup = false;
  active.request.draft = nullptr;
  auto group = std::make_unique<BeamGroup>();
  group->id = active.id.request;
  group->request = active.request;
  group->added = active.added;
  group->beams = {&active};
  active.beams = group.get();
  beams_.emplace(active.id.request, std::move(group));
}

void Engine::find_beam_tokens(Active& a, Tensor logits) {
  a.result.logits_hash = hash_logits(logits);
  int64_t count = beam_candidates(a.request.beams, std::ssize(end_ids(a.request)));
  std::span<const float> row{logits.row<float>(0), static_cast<size_t>(logits.cols)};
  a.beam.next = token_logprobs(row, 0, count).top;
  check_finite_logits(a.beam.next.front().logprob);
}

void Engine::advance_all_beams(std::vector<Output>& outputs) {
  for (auto at = beams_.begin(); at != beams_.end();) {
    BeamGroup& group = *at->second;
    if (!group.error.empty()) {
      finish_failed(group, outputs);
      at = beams_.erase(at);
      continue;
    }
    bool known = std::ranges::none_of(group.beams, [](Active* a) { return a->beam.next.empty(); });
    if (known && advance(group)) {
      finish(group, outputs);
      at = beams_.erase(at);
    } else {
      ++at;
    }
  }
}

// True when the request is done.
bool Engine::advance(BeamGroup& group) {
  const BeamParams& params = group.request.beams;
  std::vector<BeamState> states;
  for (Active* a : group.beams) states.push_back(std::move(a->beam));
  BeamStep step = advance_beams(params, states, end_ids(group.request));
  for (const BeamChoice& c : step.ended) end_beam(group, *group.beams[c.beam], &c);
  stats_.generated_tokens += std::ssize(step.next);
  replace_beams(group, step.next);
  if (group.beams.empty()) return true;
  int64_t tokens = std::ssize(group.beams.front()->result.ids);
  if (tokens == group.request.max_tokens) {
    for (Active* a : group.beams) end_beam(group, *a, nullptr);
    return true;
  }
  return std::ssize(group.ended) == params.width &&
         group.ended.back().score >= beam_score(params, step.best, tokens);
}

// Ends a beam with its last token, or without one.
void Engine::end_beam(BeamGroup& group, const Active& a, const BeamChoice* last) {
  const BeamParams& params = group.request.beams;
  BeamGroup::Ended ended{0, a.result};
  RequestResult& r = ended.result;
  if (last != nullptr) r.ids.push_back(last->id);
  r.cumulative_logprob = last != nullptr ? last->logprob : a.beam.logprob;
  r.finish_reason = last != nullptr ? "stop" : "length";
  ended.score = beam_score(params, r.cumulative_logprob, std::ssize(r.ids));
  auto place =
      std::ranges::upper_bound(group.ended, ended.score, std::greater{}, &BeamGroup::Ended::score);
  group.ended.insert(place, std::move(ended));
  if (std::ssize(group.ended) > params.width) group.ended.pop_back();
}

// The first continuation of a beam goes on in its sequence, others in forks.
void Engine::replace_beams(BeamGroup& group, std::span<const BeamChoice> next) {
  std::vector<Active*> old = std::exchange(group.beams, {});
  group.begun = *old.front()->begun;
  if (old.front()->found >= 0) group.found = old.front()->found;
  int64_t tokens = old.front()->prompt_tokens + std::ssize(old.front()->result.ids);
  for (size_t b = 0; b < old.size(); ++b) {
    if (std::ranges::find(next, b, &BeamChoice::beam) == next.end()) forget(*old[b]);
  }
  std::vector<bool> taken(old.size());
  for (const BeamChoice& c : next) {
    Active* beam = old[c.beam];
    if (taken[c.beam]) {
      Request request = group.request;
      request.prompt.assign(beam->ids.begin(), beam->ids.begin() + tokens);
      Active& fork = add_fork(*beam, group.next_index++, std::move(request));
      fork.prompt_tokens = beam->prompt_tokens;
      fork.beams = &group;
      fork.result = beam->result;
      fork.result.ids.pop_back();
      fork.begun = beam->begun;
      fork.first_token = beam->first_token;
      beam = &fork;
    }
    taken[c.beam] = true;
    beam->ids.push_back(c.id);
    beam->result.ids.push_back(c.id);
    beam->beam = {c.logprob, {}};
    group.beams.push_back(beam);
  }
}

void Engine::finish(BeamGroup& group, std::vector<Output>& outputs) {
  check(std::ssize(group.ended) >= group.request.n, "beam search ended without continuations");
  auto now = Clock::now();
  for (int64_t i = 0; i < group.request.n; ++i) {
    RequestResult r = std::move(group.ended[static_cast<size_t>(i)].result);
    r.prefix_tokens = group.found;
    r.queue_seconds = seconds_between(group.added, group.begun);
    r.decode_seconds = seconds_between(group.begun, now);
    if (tokenizer_ != nullptr) {
      OutputText text(*tokenizer_, group.request.skip_special_tokens, {});
      size_t shown = r.ids.size() - (r.finish_reason == "stop" ? 1 : 0);
      for (size_t t = 0; t < shown; ++t) r.text += text.add(r.ids[t]);
      r.text += text.finish();
    }
    outputs.push_back({.id = {group.id, i},
                       .ids = r.ids,
                       .text = r.text,
                       .logprobs = {},
                       .finished = true,
                       .error = {}});
    finished_.emplace(OutputId{group.id, i}, std::move(r));
  }
  for (Active* a : group.beams) forget(*a);
}

void Engine::finish_failed(const BeamGroup& group, std::vector<Output>& outputs) {
  for (int64_t i = 0; i < group.request.n; ++i)
    finish_with_error({group.id, i}, group.error, outputs);
  for (Active* a : group.beams) forget(*a);
}

}  // namespace sluice
