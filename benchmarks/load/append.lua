-- Appends for wrk: every thread walks over all streams, starting at a place of its own.
--
--   wrk … -s append.lua http://127.0.0.1:PORT -- PREFIX STREAMS MESSAGE_BYTES MESSAGES
--
-- The last line of the output is the result as JSON.

local requests = {}
local turn = 0
local threads = 0

function setup(thread)
  thread:set("first", threads)
  threads = threads + 1
end

function init(args)
  local prefix, streams = args[1], tonumber(args[2])
  local message_bytes, messages = tonumber(args[3]), tonumber(args[4])
  local frame = '{"text":""}'
  local body = '{"text":"' .. string.rep("x", message_bytes - #frame) .. '"}'
  if messages > 1 then
    body = "[" .. string.rep(body .. ",", messages - 1) .. body .. "]"
  end
  local headers = { ["Content-Type"] = "application/json" }
  for index = 0, streams - 1 do
    requests[index + 1] = wrk.format("POST", "/v1/stream/" .. prefix .. index, headers, body)
  end
  turn = first * 61
end

function request()
  turn = turn + 1
  return requests[turn % #requests + 1]
end

function done(summary, latency, all_requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "microseconds": %d, "status_errors": %d, "socket_errors": %d, '
      .. '"p50_us": %d, "p99_us": %d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
