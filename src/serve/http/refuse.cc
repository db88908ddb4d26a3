// Connections that end with a refusal.
#include <array>
#include <string>
#include <utility>

#include "src/serve/http/hub.h"
#include "src/serve/http/linger.h"
#include "src/serve/http/response_head.h"

namespace sluice::http {
namespace {

namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;

}  // namespace

asio::awaitable<void> linger(beast::tcp_stream& stream) {
  constexpr int kMostReads = 64;
  error_code fault;
  stream.socket().shutdown(tcp::socket::shutdown_send, fault);
  stream.expires_after(kLinger);
  std::array<char, 4096> scratch;
  for (int i = 0; i < kMostReads && !fault; ++i)
    co_await stream.async_read_some(asio::buffer(scratch), with(fault));
}

asio::awaitable<void> refuse_connection(Hub& hub, tcp::socket socket) {
  constexpr int64_t kMost = 64;
  if (hub.refused >= kMost) co_return;
  ++hub.refused;
  hub.service.metrics().add_refusal(503);
  const std::string id = hub.new_request_id();
  if (hub.log) hub.log->add({.request_id = id, .status = 503});
  const std::string lines = request_id_lines(Dialect::openai, id);
  Reply said =
      reply_of(Refusal(503, "too many connections; try again later", {}, 1), Dialect::openai, id);
  ResponseHead head;
  head.status = said.status;
  head.type = said.type;
  head.content_size = said.body.size();
  head.keep_alive = false;
  head.retry_after = said.retry_after;
  head.lines = lines;
  const std::string text = response_head(head) + said.body;
  beast::tcp_stream stream(std::move(socket));
  error_code fault;
  stream.expires_after(kLinger);
  co_await stream.async_write_some(asio::buffer(text), with(fault));
  co_await linger(stream);
  --hub.refused;
}

}  // namespace sluice::http
