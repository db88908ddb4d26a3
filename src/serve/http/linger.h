// The end of a connection whose client still sends. Private to the server.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>

namespace sluice::http {

// Makes an awaited operation report its error in `fault` instead of throwing it.
inline auto with(boost::beast::error_code& fault) {
  return boost::asio::redirect_error(boost::asio::use_awaitable, fault);
}

inline constexpr std::chrono::milliseconds kLinger{2'000};  // for what the client still sends

// Reads what comes and forgets it: closing while data is unread would make the client lose the
// answer.
boost::asio::awaitable<void> linger(boost::beast::tcp_stream& stream);

}  // namespace sluice::http
