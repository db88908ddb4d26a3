// One connection: requests one after the other, each read within limits and answered.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "src/base/log.h"
#include "src/serve/http/hub.h"
#include "src/serve/http/linger.h"
#include "src/serve/http/place.h"
#include "src/serve/http/read_fault.h"
#include "src/serve/http/response_head.h"
#include "src/serve/request_target.h"

namespace sluice::http {
namespace {

namespace beast = boost::beast;
namespace protocol = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kMostFields = 100;      // of a head
constexpr uint64_t kSlowestBody = 16;  // bytes a millisecond

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

struct Opened {
  std::variant<Reply, std::unique_ptr<Answer>> work;
  std::optional<Refusal> refusal;
};

// On another thread.
asio::awaitable<Opened> open_request(Service& service, const Route& route, std::string query,
                                     std::string body, RequestMemory::Share& share) {
  Opened opened;
  try {
    opened.work = service.open(route, query, std::move(body), share);
  } catch (const Refusal& refusal) {
    opened.refusal = refusal;
  } catch (const Error& error) {
    opened.refusal = refusal_of(error);
  } catch (const std::bad_alloc&) {
    opened.refusal = Refusal(503, "the system has no memory left", {}, 1);
  }
  co_return opened;
}

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Hub& hub, tcp::socket socket, RequestMemory::Share share)
      : hub_(hub),
        idle_bytes_(share.bytes()),
        share_(std::move(share)),
        stream_(std::move(socket)),
        buffer_(kHeadBytes),
        waker_(hub.io) {
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    hub_.connections.insert(this);
  }
  ~Connection() { hub_.connections.erase(this); }

  asio::awaitable<void> run();
  void close() { stream_.close(); }
  bool is_idle() const { return idle_; }

 private:
  class Logged;
  asio::awaitable<bool> read_head();
  asio::awaitable<void> refuse(Refusal why);
  void begin_entry();
  void end_entry();
  asio::awaitable<void> answer();
  void check_head();
  asio::awaitable<void> answer_route(const Route& route);
  asio::awaitable<void> answer_post(const Route& route);
  asio::awaitable<void> read_body(RequestMemory::Share& share);
  asio::awaitable<void> generate(Answer& answer, RequestMemory::Share share);
  asio::awaitable<void> follow(Call& call, Answer& answer);
  asio::awaitable<void> watch();
  asio::awaitable<void> stop_watching();
  asio::awaitable<void> reply(Reply reply);
  asio::awaitable<void> send_events(bool last);
  asio::awaitable<void> write(std::string_view text);
  std::string head_lines() const;

  Hub& hub_;
  uint64_t idle_bytes_;
  RequestMemory::Share share_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;  // what has been read and not used
  Waker waker_;
  std::optional<protocol::request_parser<protocol::string_body>> parser_;
  // The entry of the present request.
  AccessEntry entry_;
  std::string origin_;
  Dialect dialect_ = Dialect::openai;
  bool keep_alive_ = true;
  bool chunked_ = true;
  bool streaming_ = false;  // the head of a stream has been sent
  std::string events_;      // of the stream, to be sent
  bool idle_ = true;        // no request has come
  bool watches_ = false;    // that the client goes away, as long as it is true
  bool watching_ = false;   // has not let go of the connection yet
  bool gone_ = false;       // the client has ended the connection
};

// One is begun, and ends whatever comes of it.
class Connection::Logged {
 public:
  explicit Logged(Connection& connection) : connection_(connection) { connection_.begin_entry(); }
  ~Logged() { connection_.end_entry(); }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;

 private:
  Connection& connection_;
};

asio::awaitable<void> Connection::run() {
  while (keep_alive_) {
    const bool came = co_await read_head();
    if (!came) break;
    idle_ = false;
    co_await answer();
    idle_ = true;
    if (hub_.service.phase() == Phase::draining) break;  // drain() has seen it busy
  }
  if (parser_ && !parser_->is_done()) co_await linger(stream_);
}

// False: there is no further request.
asio::awaitable<bool> Connection::read_head() {
  error_code fault;
  parser_.emplace();
  parser_->header_limit(kHeadBytes);
  parser_->body_limit(hub_.options.max_request_bytes);
  stream_.expires_after(hub_.options.client_timeout);
  co_await protocol::async_read_header(stream_, buffer_, *parser_, with(fault));
  if (!fault) co_return true;
  keep_alive_ = false;
  if (const std::optional<Refusal> why = refusal_of_fault(fault, hub_.options)) {
    const Logged logged(*this);
    co_await refuse(*why);
  } else {
    parser_.reset();  // nobody is there to be told
  }
  co_return false;
}

asio::awaitable<void> Connection::refuse(Refusal why) {
  hub_.service.metrics().add_refusal(why.status);
  if (!parser_->is_done()) keep_alive_ = false;
  Reply said = reply_of(why, dialect_, entry_.request_id);
  co_await reply(std::move(said));
}

// A client may name its request, so that it finds it in both logs.
void Connection::begin_entry() {
  constexpr size_t kLongest = 128;
  constexpr int kGone = 499;  // until it has been answered
  entry_ = {.status = kGone};
  const auto& head = parser_->get();
  const std::string_view target = view(head.target()), given = view(head["x-request-id"]);
  const bool good = !given.empty() && given.size() <= kLongest &&
                    std::ranges::all_of(given, [](char c) { return c > ' ' && c < 0x7F; });
  entry_.request_id = good ? std::string(given) : hub_.new_request_id();
  entry_.method = std::string(view(head.method_string()));
  entry_.path = path_of(target);
}

void Connection::end_entry() {
  log::debug("{} {} {} {}", entry_.method, entry_.path, entry_.status, entry_.request_id);
  if (hub_.log) hub_.log->add(entry_);
  const Route* route = find_route(entry_.path);
  if (route == nullptr || !route->needs_key) return;  // probes are not counted
  const std::chrono::duration<double> took = AccessEntry::Clock::now() - entry_.began;
  const bool usual = entry_.method == route->method;
  hub_.service.metrics().add_response(route->path, usual ? route->method : "other", entry_.status,
                                      took.count());
}

asio::awaitable<void> Connection::answer() {
  const Logged logged(*this);
  std::optional<Refusal> refused;
  const auto& head = parser_->get();
  keep_alive_ =
      parser_->keep_alive() && head.version() >= 11 && hub_.service.phase() != Phase::draining;
  chunked_ = head.version() >= 11;
  streaming_ = false;
  events_.clear();
  origin_ = std::string(view(head[protocol::field::origin]));
  const Route* route = find_route(entry_.path);
  dialect_ = route == nullptr ? Dialect::openai : route->dialect;
  // Anthropic's clients say so, whatever they ask for.
  if (head.find("anthropic-version") != head.end()) dialect_ = Dialect::anthropic;
  try {
    check_head();
    hub_.access.check_host(view(head[protocol::field::host]));
    if (route == nullptr) {
      throw Refusal(404,
                    fmt::format("{:?} does not exist; /openapi.json lists all paths", entry_.path));
    }
    co_await answer_route(*route);
  } catch (const Refusal& refusal) {
    refused = refusal;
  } catch (const Error& error) {
    refused = refusal_of(error);
  }
  if (refused) co_await refuse(*refused);
}

// A proxy before this server, or a page's browser, may have understood such a head in another way:
// where its body ends, or whom it is for (RFC 9112, 6.3 and 3.2). And fields take memory.
void Connection::check_head() {
  const auto& head = parser_->get();
  const auto [first, last] = head.equal_range(protocol::field::transfer_encoding);
  const bool odd =
      first != last && (std::next(first) != last || !beast::iequals(first->value(), "chunked"));
  std::optional<Refusal> why;
  if (odd) why = Refusal(400, "not a valid HTTP request: Transfer-Encoding may be chunked, once");
  if (head.count(protocol::field::host) > 1)
    why = Refusal(400, "not a valid HTTP request: it has several Host fields");
  if (head[protocol::field::host].empty() && head.version() >= 11)
    why = Refusal(400, "not a valid HTTP request: it has no Host");
  if (std::distance(head.begin(), head.end()) > kMostFields)
    why = Refusal(431, fmt::format("the head of a request may have {} fields", kMostFields));
  const uint64_t bytes = idle_bytes_ + 2 * buffer_.capacity();  // which had all of the head
  if (!share_.resize(bytes)) why = no_room(bytes, hub_.memory.bytes());
  if (!why) return;
  keep_alive_ = false;
  throw Refusal(*why);
}

asio::awaitable<void> Connection::answer_route(const Route& route) {
  const auto& head = parser_->get();
  const std::string_view method = view(head.method_string());
  if (method != "POST" && !parser_->is_done()) keep_alive_ = false;  // a body that nobody reads
  const std::string_view allowed =
      route.method == "GET" ? "Allow: GET, HEAD, OPTIONS\r\n" : "Allow: POST, OPTIONS\r\n";
  if (method == "OPTIONS") {  // a page asks whether it may send a request
    Reply none;
    none.status = 204;
    none.type = {};
    none.headers = allowed;
    co_await reply(std::move(none));
    co_return;
  }
  hub_.access.check(route, {.host = view(head[protocol::field::host]),
                            .origin = origin_,
                            .authorization = view(head[protocol::field::authorization]),
                            .api_key = view(head["x-api-key"])});
  if (method != route.method && !(method == "HEAD" && route.method == "GET")) {
    Refusal refusal(405, fmt::format("{} needs the method {}", route.path, route.method));
    refusal.headers = allowed;
    throw refusal;
  }
  hub_.service.check_phase(route);
  if (method == "POST") {
    co_await answer_post(route);
    co_return;
  }
  Reply known = hub_.service.look(route, entry_.path, std::ssize(hub_.connections));
  if (!known.etag.empty() && view(head[protocol::field::if_none_match]) == known.etag) {
    known.status = 304;
    known.body.clear();
  }
  co_await reply(std::move(known));
}

asio::awaitable<void> Connection::answer_post(const Route& route) {
  const beast::string_view coding = parser_->get()[protocol::field::content_encoding];
  if (!coding.empty() && !beast::iequals(coding, "identity")) {
    Refusal refusal(
        415, fmt::format("the body has Content-Encoding {:?}; send it as it is", view(coding)));
    refusal.headers = "Accept-Encoding: identity\r\n";  // RFC 9110, 12.5.3
    throw refusal;
  }
  Place place(hub_);
  place.check(1);  // before the body is read, and taken after it: who sends nothing takes nothing
  const uint64_t size = parser_->content_length() ? *parser_->content_length() : 0;
  if (!hub_.memory.take(size)) throw Refusal(no_room(size, hub_.memory.bytes()));
  std::optional<RequestMemory::Share> share = hub_.memory.take(0);
  co_await read_body(*share);
  place.take(1);
  std::string body = std::move(parser_->get().body());
  asio::awaitable<Opened> opening = open_request(
      hub_.service, route, query_of(view(parser_->get().target())), std::move(body), *share);
  asio::thread_pool& thread = route.needs == Needs::admin ? hub_.operations : hub_.worker;
  Opened opened = co_await asio::co_spawn(thread, std::move(opening), asio::use_awaitable);
  if (opened.refusal) throw Refusal(*opened.refusal);
  if (auto* known = std::get_if<Reply>(&opened.work)) {
    co_await reply(std::move(*known));
    co_return;
  }
  Answer& answer = *std::get<std::unique_ptr<Answer>>(opened.work);
  const Completion& asked = answer.asked();
  place.take(std::ssize(asked.prompts) * std::max(asked.request.n, asked.request.beams.width));
  co_await generate(answer, *std::move(share));
}

// Time and memory are for what has come, not for what has been promised.
asio::awaitable<void> Connection::read_body(RequestMemory::Share& share) {
  // HTTP/1.0 knows no answer before the answer.
  if (chunked_ && beast::iequals(parser_->get()[protocol::field::expect], "100-continue"))
    co_await write("HTTP/1.1 100 Continue\r\n\r\n");
  const auto start = std::chrono::steady_clock::now() + hub_.options.client_timeout;
  const uint64_t copies = parser_->chunked() ? 2 : 1;  // it grows
  while (!parser_->is_done()) {
    stream_.expires_at(start + std::chrono::milliseconds(share.bytes() / kSlowestBody));
    error_code fault;
    co_await protocol::async_read_some(stream_, buffer_, *parser_, with(fault));
    if (std::optional<Refusal> why = refusal_of_fault(fault, hub_.options)) throw Refusal(*why);
    if (fault) throw boost::system::system_error(fault);
    const uint64_t size = copies * parser_->get().body().size();
    if (!share.resize(size)) throw Refusal(no_room(size, hub_.memory.bytes()));
  }
  share.resize(parser_->get().body().size());
}

asio::awaitable<void> Connection::generate(Answer& answer, RequestMemory::Share share) {
  Call call(hub_, answer, std::move(share), waker_, entry_);
  watches_ = watching_ = true;
  asio::co_spawn(hub_.io, watch(), asio::detached);
  std::optional<Refusal> failed;
  try {
    co_await follow(call, answer);
  } catch (const Refusal& refusal) {
    failed = refusal;
  }
  co_await stop_watching();
  if (!failed) co_return;
  if (!streaming_) throw Refusal(*failed);
  entry_.failed = true;
  hub_.service.metrics().add_refusal(failed->status);
  answer.fail(*failed, events_);
  co_await send_events(true);
}

// Sends what comes of a call as it comes.
asio::awaitable<void> Connection::follow(Call& call, Answer& answer) {
  if (answer.streams()) answer.begin(events_);
  for (;;) {
    if (!call.has_parts() && !gone_) co_await waker_.wait(hub_.options.keep_alive);
    if (gone_) throw boost::system::system_error(asio::error::connection_reset);
    const bool silent = !call.has_parts();
    call.take(events_);
    const bool done = answer.done();
    if (done) answer.finish(events_);
    if (answer.streams()) {
      if (silent) events_ += ": keep-alive\n\n";
      co_await send_events(done);
    } else if (done) {
      Reply whole{.body = std::move(events_)};
      co_await stop_watching();
      co_await reply(std::move(whole));
    }
    if (done) co_return;
  }
}

// Notices that the client goes away while it is answered. What else comes is the next request's.
asio::awaitable<void> Connection::watch() {
  const std::shared_ptr<Connection> self = shared_from_this();
  constexpr size_t kPiece = 1024;
  error_code fault;
  while (!fault && watches_ && buffer_.size() < buffer_.max_size()) {
    const size_t room = std::min(kPiece, buffer_.max_size() - buffer_.size());
    const size_t size =
        co_await stream_.socket().async_read_some(buffer_.prepare(room), with(fault));
    buffer_.commit(size);
  }
  gone_ = fault && fault != asio::error::operation_aborted;
  watching_ = false;
  waker_.wake();
}

// Bytes that have been read already cannot be cancelled, and end the watch, too.
asio::awaitable<void> Connection::stop_watching() {
  constexpr std::chrono::seconds kMost{60};
  error_code ignored;
  watches_ = false;
  if (watching_) stream_.socket().cancel(ignored);
  while (watching_) co_await waker_.wait(kMost);
}

std::string Connection::head_lines() const {
  std::string lines = request_id_lines(dialect_, entry_.request_id);
  const std::string cors = hub_.access.cors_lines(origin_);
  lines += cors;
  if (!cors.empty() && parser_->get().method() == protocol::verb::options) {
    lines +=
        "Access-Control-Allow-Methods: GET, POST\r\n"
        "Access-Control-Allow-Headers: *, Authorization\r\n"
        "Access-Control-Max-Age: 600\r\n";
  }
  return lines;
}

asio::awaitable<void> Connection::reply(Reply said) {
  constexpr size_t kTogether = 16 * 1024;
  std::string lines = head_lines().append(said.headers);
  if (!said.etag.empty()) lines += fmt::format("ETag: {}\r\n", said.etag);
  ResponseHead head;
  head.status = said.status;
  head.type = said.type;
  if (said.status != 204 && said.status != 304) head.content_size = said.body.size();
  head.keep_alive = keep_alive_;
  head.retry_after = said.retry_after;
  head.lines = lines;
  std::string text = response_head(head);
  if (parser_->get().method() == protocol::verb::head) said.body.clear();
  const bool together = said.body.size() <= kTogether;
  if (together) text += said.body;
  co_await write(text);
  if (!together) co_await write(said.body);
  entry_.status = said.status;
}

asio::awaitable<void> Connection::send_events(bool last) {
  if (events_.empty() && !last) co_return;
  std::string text;
  if (!std::exchange(streaming_, true)) {
    const std::string lines = head_lines();
    ResponseHead head;
    head.type = "text/event-stream";
    head.chunked = chunked_;
    head.keep_alive = keep_alive_;
    head.lines = lines;
    text = response_head(head);
  }
  if (chunked_ && !events_.empty()) text += fmt::format("{:x}\r\n", events_.size());
  text += events_;
  if (chunked_ && !events_.empty()) text += "\r\n";
  if (chunked_ && last) text += "0\r\n\r\n";
  events_.clear();
  co_await write(text);
  if (last) entry_.status = 200;
}

// The time-out begins anew whenever the client has taken something.
asio::awaitable<void> Connection::write(std::string_view text) {
  constexpr size_t kPiece = 64 * 1024;
  while (!text.empty()) {
    stream_.expires_after(hub_.options.client_timeout);
    const size_t size = co_await stream_.async_write_some(
        asio::buffer(text.data(), std::min(text.size(), kPiece)), asio::use_awaitable);
    text.remove_prefix(size);
    entry_.bytes += size;
  }
}

void end_if_idle(Connection& connection) {
  if (connection.is_idle()) connection.close();
}

namespace {

// Whoever still watches the connection lets go of it.
struct Served {
  std::shared_ptr<Connection> connection;
  ~Served() { connection->close(); }
};

}  // namespace

asio::awaitable<void> serve_connection(Hub& hub, tcp::socket socket, RequestMemory::Share share) {
  const Served served{std::make_shared<Connection>(hub, std::move(socket), std::move(share))};
  co_await served.connection->run();
}

}  // namespace sluice::http
