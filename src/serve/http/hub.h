// State that connections share. Private to the server; all on its network thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/serve/access.h"
#include "src/serve/access_log.h"
#include "src/serve/http/server.h"

namespace sluice::http {

namespace asio = boost::asio;
class Connection;

// Wakes a coroutine that waits, at the latest after a time. One waits at once.
class Waker {
 public:
  explicit Waker(asio::io_context& io) : timer_(io) {}
  asio::awaitable<void> wait(std::chrono::milliseconds most);
  void wake() { timer_.cancel(); }

 private:
  asio::steady_timer timer_;
};

class Call;

struct Hub {
  Hub(HttpOptions o, Service& s, RequestMemory& m)
      : options(std::move(o)), service(s), memory(m), access(rules_of(options)) {
    if (!options.access_log.empty()) log.emplace(options.access_log);
  }

  static AccessRules rules_of(const HttpOptions& o) {
    return {.key = o.api_key, .origins = o.origins, .hosts = o.hosts, .address = o.host};
  }

  // Returns an id that no other request has.
  std::string new_request_id();

  // Passes results to the calls that wait for them.
  void deliver(EngineLoop::Parts parts);

  HttpOptions options;
  Service& service;
  RequestMemory& memory;
  Access access;
  std::optional<AccessLog> log;
  std::mt19937_64 random{std::random_device{}()};  // of ids
  std::set<Connection*> connections;
  std::unordered_map<int64_t, Call*> calls;  // by the engine's number
  int64_t sequences = 0;                     // that are asked for
  int64_t refused = 0;                       // connections that are just being refused
  // The end of these ends all coroutines, which know the above.
  asio::io_context io{1};
  asio::thread_pool worker{1};      // reads requests: templates and texts may take long
  asio::thread_pool operations{1};  // change the model, and wait for answers and loads
};

// A request that generates, in the engine. Its end cancels what has not ended.
class Call {
 public:
  // Throws Error where the engine refuses it. `share`: what it holds. `entry` gets what comes of
  // it.
  Call(Hub& hub, Answer& answer, RequestMemory::Share share, Waker& waker, AccessEntry& entry);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void deliver(OutputId id, StreamPart part);
  bool has_parts() const { return !parts_.empty() || out_of_memory_; }
  // Gives the answer what has come; its events are appended to `out`. Throws Refusal where the
  // request has failed.
  void take(std::string& out);

 private:
  void add_requests();
  void leave();

  Hub& hub_;
  Answer& answer_;
  RequestMemory::Share share_;
  Waker& waker_;
  AccessEntry& entry_;
  std::vector<int64_t> numbers_;  // of each prompt
  EngineLoop::Parts parts_;
  bool out_of_memory_ = false;
};

// Serves a connection until it ends; `share` is what it holds.
asio::awaitable<void> serve_connection(Hub& hub, asio::ip::tcp::socket socket,
                                       RequestMemory::Share share);
// Says that there is no room for the connection.
asio::awaitable<void> refuse_connection(Hub& hub, asio::ip::tcp::socket socket);
// Ends a connection that waits for a request.
void end_if_idle(Connection& connection);

}  // namespace sluice::http
