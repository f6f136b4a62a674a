-- Prints what wrk has measured as one line of JSON.
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"us":%d,"p50":%d,"p90":%d,"p99":%d,"p999":%d,"failed":%d}\n',
    summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency:percentile(99.9),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
