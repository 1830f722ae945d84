-- For wrk: one fixed POST from files that the environment names; prints one line of JSON when done.
wrk.method = "POST"
local file = assert(io.open(os.getenv("LOAD_BODY"), "rb"))
wrk.body = file:read("*a")
file:close()
for name, value in os.getenv("LOAD_HEADERS"):gmatch("([^:\n]+): ([^\n]*)") do
  wrk.headers[name] = value
end

function done(summary, latency, requests)
  local e = summary.errors
  print(string.format(
    '{"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, "bad": %d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
