/**
 * A check of protobuf bytes before they are decoded.
 *
 * The generated decoders are lenient: they stop at a zero tag and let a nested message read past its
 * end. Damaged bytes could then become an empty endpoint that replaces a good one. So everything
 * from a server goes through this check first.
 */
import { isUtf8 } from 'node:buffer';

/**
 * The length-delimited fields of a message, by field number: `'text'`, or the shape of a nested message. Fields
 * that are not listed are only checked for their length.
 */
export interface Shape {
  readonly [field: number]: 'text' | Shape;
}

/** Two bytes on the wire can become an object of a hundred bytes in memory: maximum number of fields of a message. */
export const MAX_FIELDS = 200_000;

/** The bytes, which can be decoded. Throws an Error that names the first error in them. */
export function checked(bytes: Uint8Array, shape: Shape): Uint8Array {
  const whole = { start: 0, end: bytes.length, shape, count: { fields: 0 } };
  const problem = problemWithin(bytes, whole);
  if (problem !== undefined) throw new Error(problem);
  return bytes;
}

interface Part {
  readonly start: number;
  readonly end: number;
  readonly shape: Shape;
  /** Of the whole message. */
  readonly count: { fields: number };
}

const VARINT = 0;
const FIXED64 = 1;
const DELIMITED = 2;
const FIXED32 = 5;
const MAX_TAG = 2 ** 32 - 1;

function problemWithin(bytes: Uint8Array, part: Part): string | undefined {
  const { start, end, shape, count } = part;
  let at = start;
  while (at < end) {
    const afterTag = skipVarint(bytes, at, end);
    const tag = afterTag === -1 ? 0 : varint32(bytes, at, afterTag);
    const field = tag >>> 3;
    if (field === 0 || tag > MAX_TAG) return `no field number at byte ${at}`;
    count.fields += 1;
    if (count.fields > MAX_FIELDS) return `more than ${MAX_FIELDS} fields`;
    switch (tag & 7) {
      case VARINT:
        at = skipVarint(bytes, afterTag, end);
        break;
      case FIXED64:
        at = afterTag + 8;
        break;
      case FIXED32:
        at = afterTag + 4;
        break;
      case DELIMITED: {
        const content = skipVarint(bytes, afterTag, end);
        if (content === -1) return `cut off in field ${field}`;
        at = content + varint32(bytes, afterTag, content);
        if (at > end) return `field ${field} is longer than its message`;
        const inside = shape[field];
        if (inside === 'text' && !isUtf8(bytes.subarray(content, at))) {
          return `field ${field} is not UTF-8`;
        }
        if (typeof inside === 'object') {
          const problem = problemWithin(bytes, { start: content, end: at, shape: inside, count });
          if (problem !== undefined) return `in field ${field}: ${problem}`;
        }
        break;
      }
      default:
        return `field ${field} has the wire type ${tag & 7}`;
    }
    if (at === -1 || at > end) return `cut off in field ${field}`;
  }
  return undefined;
}

/** Position after the varint, or -1 if it does not end in time. */
function skipVarint(bytes: Uint8Array, start: number, end: number): number {
  const limit = Math.min(end, start + 10);
  for (let at = start; at < limit; at++) {
    if ((bytes[at] ?? 0) < 0x80) return at + 1;
  }
  return -1;
}

/** Value of a varint as an unsigned number. Beyond 32 bits only its magnitude matters, so precision may be lost. */
function varint32(bytes: Uint8Array, start: number, end: number): number {
  let value = 0;
  for (let at = end - 1; at >= start; at--) value = value * 128 + ((bytes[at] ?? 0) & 0x7f);
  return value;
}

// The layout of the messages of both APIs.

const IP_SET: Shape = { 1: 'text', 2: 'text' };
const MAP_ENTRY: Shape = { 1: 'text', 2: 'text' };
const REF: Shape = { 2: 'text' };
const TOPOLOGY: Shape = { 1: 'text', 2: 'text' };

export const SERVICE: Shape = {
  1: 'text',
  2: 'text',
  3: 'text',
  4: { 1: IP_SET, 2: IP_SET, 4: IP_SET },
  6: { 1: 'text', 6: 'text' },
  8: MAP_ENTRY,
  9: MAP_ENTRY,
  10: { 1: IP_SET, 2: 'text' },
  11: {},
};

export const ENDPOINT: Shape = { 1: 'text', 2: IP_SET, 4: { 1: 'text' }, 5: {} };

export const SERVICE_INFO: Shape = { 2: SERVICE };

export const ENDPOINT_INFO: Shape = {
  2: 'text',
  3: 'text',
  4: 'text',
  6: ENDPOINT,
  7: {},
  8: 'text',
  9: TOPOLOGY,
  10: { 1: 'text', 2: 'text' },
};

export const NODE_INFO: Shape = { 2: { 1: 'text', 2: MAP_ENTRY, 3: MAP_ENTRY, 4: TOPOLOGY } };

export const OP_ITEM: Shape = { 1: {}, 2: { 1: REF }, 3: REF, 4: {} };
