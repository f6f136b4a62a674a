/**
 * A check of protobuf bytes before they are decoded.
 *
 * The generated decoders are lenient: they stop at a zero tag and let a nested message read past its
 * end. Damaged bytes could then become an empty endpoint that replaces a good one. So everything
 * from a server goes through this check first.
 */
import { isUtf8 } from 'node:buffer';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { messageOf } from '../errors.ts';

/**
 * The length-delimited fields of a message, by field number: `'text'`, or the shape of a nested message. Fields
 * that are not listed are only checked for their length.
 */
export interface Shape {
  readonly [field: number]: 'text' | Shape;
}

/** Two bytes on the wire can become an object of a hundred bytes in memory: maximum number of fields of a message. */
export const MAX_FIELDS = 200_000;

/** The bytes, which can be decoded. Throws an Error that names the first error in them. `count`: of the whole message. */
export function checked(bytes: Uint8Array, shape: Shape, count = { fields: 0 }): Uint8Array {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    count.fields += 1;
    if (count.fields > MAX_FIELDS) throw new Error(`more than ${MAX_FIELDS} fields`);
    const inside = type === WireType.LengthDelimited ? shape[field] : undefined;
    try {
      if (inside === undefined) reader.skip(type, field);
      else if (inside !== 'text') checked(reader.bytes(), inside, count);
      else if (!isUtf8(reader.bytes())) throw new Error('not UTF-8');
    } catch (cause) {
      throw new Error(`in field ${field}: ${messageOf(cause)}`, { cause });
    }
  }
  return bytes;
}
