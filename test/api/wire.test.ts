import t from 'tap';
import { checked, type Shape } from '../../src/api/wire.ts';

const SHAPE: Shape = { 1: 'text', 2: { 1: 'text', 3: {} } };

const check = (hex: string) => checked(Buffer.from(hex, 'hex'), SHAPE);

t.test('finds what the decoder would misread', async (t) => {
  for (const [hex, message] of [
    ['00', /illegal tag: field no 0/],
    ['12020000', /in field 2: illegal tag/],
    ['12030a0568', /in field 2: in field 1: premature EOF/],
    ['0a05', /in field 1: premature EOF/],
    ['0aff', /in field 1: premature EOF/],
    ['18ff', /in field 3: premature EOF/],
    ['490102', /in field 9: premature EOF/],
    ['8a8080808001', /illegal tag/],
    ['0b', /in field 1: premature EOF/],
    ['0c', /in field 1: cant skip/],
    ['0a01ff', /in field 1: not UTF-8/],
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
