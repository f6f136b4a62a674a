/** The system's monotonic clock, which is the same in all processes. Milliseconds. */
export function now(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
