import * as fc from 'fast-check';
import t from 'tap';
import { RESET_FRAME, SYNC_FRAME, deleteFrame, setFrame } from '../../src/api/frames.ts';
import { OpItem } from '../../src/api/generated/localv1/api.ts';
import { checked, type Shape } from '../../src/api/wire.ts';
import { deletePath, reset, setBytes, sync } from '../support/messages.ts';
import { holds } from '../support/property.ts';

const SHAPE: Shape = { 1: 'text', 2: { 1: 'text', 3: {} } };

const check = (hex: string) => checked(Buffer.from(hex, 'hex'), SHAPE);

t.test('well-formed messages pass', async (t) => {
  for (const [name, hex] of [
    ['empty', ''],
    ['text', '0a026869'],
    ['empty nested message', '1200'],
    ['nested', '12040a026869'],
    ['varint', '18ffffffffffffffffff01'],
    ['fixed', '4d01020304490102030405060708'],
    ['any bytes in a field that is not known', '5202ffff'],
  ] as const) {
    t.equal(check(hex).length, hex.length / 2, name);
  }
});

t.test('finds what the decoder would misread', async (t) => {
  for (const [hex, message] of [
    ['00', /no field number at byte 0/],
    ['12020000', /in field 2: no field number/],
    ['12030a0568', /in field 2: field 1 is longer/],
    ['0a05', /field 1 is longer than its message/],
    ['0aff', /cut off in field 1/],
    ['18ff', /cut off in field 3/],
    ['18ffffffffffffffffffff01', /cut off in field 3/],
    ['490102', /cut off in field 9/],
    ['8a8080808001', /no field number at byte 0/],
    ['0b', /field 1 has the wire type 3/],
    ['0a01ff', /field 1 is not UTF-8/],
  ] as const) {
    t.throws(() => check(hex), { message }, hex);
  }
});

t.test('a message of many empty parts is refused, as they would use much memory', async (t) => {
  const part = Buffer.from('1200', 'hex');
  const parts = (count: number) => checked(Buffer.concat(Array(count).fill(part)), SHAPE);
  t.equal(parts(200_000).length, 400_000);
  t.throws(() => parts(200_001), { message: /more than 200000 fields/ });
});

t.test('frames are what the encoder of the messages makes', async (t) => {
  holds(
    t,
    fc.property(
      fc.constantFrom(1 as const, 2, 10, 11, 12),
      fc.string({ unit: 'grapheme', minLength: 1, maxLength: 200 }),
      fc.uint8Array({ maxLength: 300 }),
      (set, path, bytes) =>
        [
          [SYNC_FRAME, sync] as const,
          [RESET_FRAME, reset] as const,
          [setFrame(set, path, bytes), setBytes(set, path, bytes)] as const,
          [deleteFrame(set, path), deletePath(set, path)] as const,
        ].every(([frame, item]) => {
          const message = OpItem.encode(item).finish();
          const prefix = Buffer.alloc(5);
          prefix.writeUInt32BE(message.length, 1);
          return frame.equals(Buffer.concat([prefix, message]));
        }),
    ),
  );
});
