// The network side of a server: connections, limits, time-outs. On a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/serve/request_memory.h"
#include "src/serve/service.h"

namespace sluice {

struct HttpOptions {
  std::string host = "127.0.0.1";    // an address, or localhost
  uint16_t port = 8000;              // 0: one that is free
  std::string api_key;               // empty: nobody needs one
  std::vector<std::string> origins;  // pages of other origins that may ask (Access)
  std::vector<std::string> hosts;    // further names of this server
  std::string access_log;            // a file, "-": standard output; empty: there is none
  int64_t max_connections = 4096;
  int64_t max_sequences = 0;             // in the engine and on their way to it; more get 429
  uint64_t max_request_bytes = 1 << 20;  // of a body
  std::chrono::milliseconds client_timeout{
      30'000};                                  // to send a request, or to read a part of an answer
  std::chrono::milliseconds keep_alive{5'000};  // between comments in a silent stream
};

class HttpServer {
 public:
  // Listens from now on. `memory` is what connections and requests are charged to. All outlive
  // this. Error(usage) for a host that is no address; Error(runtime) where it cannot listen.
  HttpServer(HttpOptions options, Service& service, RequestMemory& memory);
  ~HttpServer();  // closes all connections
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:8000"
  // Takes results from the loop, which outlives this; before the service is ready.
  void attach(EngineLoop& loop);

  // No new connections, and no further requests on those there are.
  void drain();
  // Returns whether all connections have ended; waits for so long.
  bool wait_until_idle(std::chrono::milliseconds most);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
