#include "src/serve/http/server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/serve/http/hub.h"

namespace sluice {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Bytes that a connection is charged: what it has read of a request's head, and its coroutine.
constexpr uint64_t kConnectionBytes = 24 * 1024;

tcp::endpoint endpoint_of(const HttpOptions& o) {
  error_code fault;
  const asio::ip::address address =
      asio::ip::make_address(o.host == "localhost" ? "127.0.0.1" : o.host, fault);
  if (fault)
    fail(ErrorKind::usage,
         "--host {}: not an IP address; give one such as 127.0.0.1, ::1 or 0.0.0.0", o.host);
  return {address, o.port};
}

tcp::acceptor listen(asio::io_context& io, const tcp::endpoint& endpoint) {
  tcp::acceptor acceptor(io);
  error_code fault;
  acceptor.open(endpoint.protocol(), fault);
  if (!fault) acceptor.set_option(tcp::acceptor::reuse_address(true), fault);
  if (!fault) acceptor.bind(endpoint, fault);
  if (!fault) acceptor.listen(asio::socket_base::max_listen_connections, fault);
  if (fault) {
    fail(ErrorKind::runtime, "cannot listen at {} port {}: {}; choose another --port",
         endpoint.address().to_string(), endpoint.port(), errno_text(fault.value()));
  }
  return acceptor;
}

std::string url_of(const tcp::endpoint& at) {
  const std::string address = at.address().to_string();
  return at.address().is_v6() ? fmt::format("http://[{}]:{}", address, at.port())
                              : fmt::format("http://{}:{}", address, at.port());
}

// A connection is a descriptor, and the usual limit of these is 1024.
void allow_descriptors(int64_t connections) {
  constexpr rlim_t kOthers = 256;
  const rlim_t wanted = static_cast<rlim_t>(connections) + kOthers;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpOptions options, Service& service, RequestMemory& memory)
      : hub(std::move(options), service, memory),
        acceptor(listen(hub.io, endpoint_of(hub.options))),
        url(url_of(acceptor.local_endpoint())) {
    allow_descriptors(hub.options.max_connections);
    asio::co_spawn(hub.io, accept(), asio::detached);
    thread = start_thread({"serving connections"}, [this] { hub.io.run(); });
  }
  ~Impl() {
    hub.io.stop();
    thread.join();
    hub.worker.join();
    hub.operations.join();
  }

  asio::awaitable<void> accept();
  asio::awaitable<void> serve(tcp::socket socket, RequestMemory::Share share);
  asio::awaitable<void> take_parts(EngineLoop& loop);
  void count(int64_t change);

  http::Hub hub;
  tcp::acceptor acceptor;
  std::string url;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t connections = 0;  // refused ones, too
  std::thread thread;
};

void HttpServer::Impl::count(int64_t change) {
  {
    std::lock_guard lock(mutex);
    connections += change;
  }
  changed.notify_all();
}

asio::awaitable<void> HttpServer::Impl::accept() {
  constexpr std::chrono::milliseconds kPause{50};
  http::Waker pause(hub.io);
  for (;;) {
    error_code fault;
    tcp::socket socket =
        co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, fault));
    if (fault == asio::error::operation_aborted || !acceptor.is_open()) co_return;
    if (fault) {  // too many descriptors, say
      log::debug("a connection was not taken: {}", errno_text(fault.value()));
      co_await pause.wait(kPause);
      continue;
    }
    const bool room = std::ssize(hub.connections) < hub.options.max_connections;
    std::optional<RequestMemory::Share> share;
    if (room) share = hub.memory.take(kConnectionBytes);
    RequestMemory::Share held;
    if (share) held = *std::move(share);
    asio::co_spawn(hub.io, serve(std::move(socket), std::move(held)), asio::detached);
  }
}

asio::awaitable<void> HttpServer::Impl::serve(tcp::socket socket, RequestMemory::Share share) {
  count(+1);
  try {
    if (share.bytes() > 0) {
      co_await http::serve_connection(hub, std::move(socket), std::move(share));
    } else {
      co_await http::refuse_connection(hub, std::move(socket));
    }
  } catch (const std::exception& e) {
    log::debug("a connection has ended: {}", e.what());
  }
  count(-1);
}

// Whatever a step gives is taken at once.
asio::awaitable<void> HttpServer::Impl::take_parts(EngineLoop& loop) {
  asio::posix::stream_descriptor wake(hub.io, dup(loop.wake_descriptor()));
  for (;;) {
    error_code fault;
    co_await wake.async_wait(asio::posix::stream_descriptor::wait_read,
                             asio::redirect_error(asio::use_awaitable, fault));
    if (fault) co_return;
    hub.deliver(loop.take());
  }
}

HttpServer::HttpServer(HttpOptions options, Service& service, RequestMemory& memory) {
  try {
    impl_ = std::make_unique<Impl>(std::move(options), service, memory);
  } catch (const boost::system::system_error& fault) {  // threads of the library's pools
    const std::error_code why(fault.code().value(), std::generic_category());
    fail_thread({"serving requests"}, std::system_error(why));
  }
}

HttpServer::~HttpServer() = default;

std::string HttpServer::url() const { return impl_->url; }

void HttpServer::attach(EngineLoop& loop) {
  asio::co_spawn(impl_->hub.io, impl_->take_parts(loop), asio::detached);
}

void HttpServer::drain() {
  asio::post(impl_->hub.io, [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
    for (http::Connection* connection : impl->hub.connections) http::end_if_idle(*connection);
  });
}

bool HttpServer::wait_until_idle(std::chrono::milliseconds most) {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, most, [&] { return impl_->connections == 0; });
}

}  // namespace sluice
