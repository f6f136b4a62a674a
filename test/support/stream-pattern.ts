/** Bytes that are a function of their stream and position, so that any that is out of place is found. */

/** Long enough for any position to be looked up with one `subarray`. */
const PATTERN_BYTES = 1 << 20;
const PERIOD = 65_521;
const PATTERN = Buffer.alloc(PATTERN_BYTES + PERIOD);
for (let index = 0; index < PATTERN.length; index += 1) {
  PATTERN[index] = Math.imul(index % PERIOD, 2_654_435_761) >>> 24;
}

/** `length` bytes of a stream from a position on. At most 1 MiB. */
export function streamBytes(stream: number, position: number, length: number): Buffer {
  const start = (stream * 7919 + position) % PERIOD;
  return PATTERN.subarray(start, start + length);
}
