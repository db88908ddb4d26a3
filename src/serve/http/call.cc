#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "src/serve/http/hub.h"

namespace sluice::http {
namespace {

// Describes why the engine gave a request up: the model is away for a while, or has failed.
Refusal engine_refusal(const Service& service, const std::string& why) {
  constexpr int kSoon = 5;
  const Phase phase = service.phase();
  const bool away = phase == Phase::sleeping || phase == Phase::exchanging;
  return away ? Refusal(503, why, {}, kSoon) : Refusal(500, why);
}

}  // namespace

asio::awaitable<void> Waker::wait(std::chrono::milliseconds most) {
  boost::system::error_code woken;
  timer_.expires_after(most);
  co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, woken));
}

std::string Hub::new_request_id() { return fmt::format("req_{:016x}", random()); }

void Hub::deliver(EngineLoop::Parts parts) {
  for (auto& [id, part] : parts) {
    auto call = calls.find(id.request);
    if (call != calls.end()) call->second->deliver(id, std::move(part));
  }
}

Call::Call(Hub& hub, Answer& answer, RequestMemory::Share share, Waker& waker, AccessEntry& entry)
    : hub_(hub), answer_(answer), share_(std::move(share)), waker_(waker), entry_(entry) {
  entry_.tokens.emplace();
  for (const std::vector<int32_t>& prompt : answer.asked().prompts)
    entry_.tokens->prompt += std::ssize(prompt);
  try {
    add_requests();
  } catch (const Error& error) {
    leave();
    if (error.kind() != ErrorKind::runtime) throw;
    throw Refusal(engine_refusal(hub_.service, error.what()));
  } catch (...) {
    leave();
    throw;
  }
}

Call::~Call() { leave(); }

void Call::add_requests() {
  EngineLoop& loop = hub_.service.loop();
  for (size_t i = 0; i < answer_.asked().prompts.size(); ++i) {
    numbers_.push_back(loop.add(answer_.asked().request_of(i)));
    hub_.calls.emplace(numbers_.back(), this);
  }
}

// To cancel what has ended does nothing.
void Call::leave() {
  for (int64_t number : numbers_) {
    hub_.calls.erase(number);
    if (!answer_.done()) hub_.service.loop().cancel(number);
  }
  if (!answer_.done()) hub_.service.metrics().add_abort();
}

// Merges, and pays for, output that a client does not take yet.
void Call::deliver(OutputId id, StreamPart part) {
  constexpr uint64_t kId = 16, kText = 4;
  if (part.result) {
    const auto prompt =
        static_cast<size_t>(std::ranges::find(numbers_, id.request) - numbers_.begin());
    const Completion& asked = answer_.asked();
    hub_.service.metrics().add_result(*part.result, std::ssize(asked.prompts[prompt]),
                                      asked.request);
  }
  entry_.tokens->completion += std::ssize(part.ids);
  if (!entry_.first_token && !part.ids.empty()) entry_.first_token = AccessEntry::Clock::now();
  const uint64_t bytes =
      part.ids.size() * kId + part.text.size() * kText +
      2 * logprob_bytes(answer_.asked().request.sampling.logprobs, part.logprobs.size());
  out_of_memory_ = out_of_memory_ || !share_.grow(bytes);
  if (!answer_.streams()) {  // its result has all of it
    if (!part.result && !out_of_memory_) return;
    part.text.clear();
    part.ids.clear();
    part.logprobs.clear();
  }
  parts_[id].add(std::move(part));
  waker_.wake();
}

void Call::take(std::string& out) {
  if (out_of_memory_) {
    throw Refusal(503, "out of memory for further tokens of this request; try again", {}, 1);
  }
  for (auto& [id, part] : std::exchange(parts_, {})) {
    const auto prompt = std::ranges::find(numbers_, id.request) - numbers_.begin();
    answer_.take(static_cast<size_t>(prompt), id.index, std::move(part), out);
  }
  if (answer_.done()) entry_.tokens->cached = answer_.usage().cached_tokens.value_or(0);
  if (answer_.error().empty()) return;
  throw Refusal(engine_refusal(hub_.service, answer_.error()));
}

}  // namespace sluice::http
