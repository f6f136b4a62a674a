import * as fc from 'fast-check';
import t from 'tap';
import { LineSplitter } from '../../src/kube/lines.ts';
import { holds } from '../support/property.ts';

t.test('however a stream is cut into pieces, the lines are the same', (t) => {
  holds(
    t,
    fc.property(
      fc.array(fc.string({ unit: 'grapheme' }).map((text) => text.replaceAll('\n', ''))),
      fc.array(fc.nat(10)),
      (lines, cuts) => {
        const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
        const splitter = new LineSplitter(1000);
        const got: string[] = [];
        let at = 0;
        for (const cut of cuts) {
          got.push(...splitter.push(bytes.subarray(at, at + cut)));
          at += cut;
        }
        got.push(...splitter.push(bytes.subarray(at)));
        const wanted = lines.filter((line) => line.trim() !== '');
        return JSON.stringify(got) === JSON.stringify(wanted) && splitter.pending === 0;
      },
    ),
  );
  t.end();
});

t.test('a line above the limit is refused, whether or not it has ended', (t) => {
  const long = Buffer.from('x'.repeat(11));
  t.throws(() => new LineSplitter(10).push(long), RangeError);
  t.throws(() => new LineSplitter(10).push(Buffer.concat([long, Buffer.from('\n')])), RangeError);
  const splitter = new LineSplitter(10);
  splitter.push(long.subarray(0, 6));
  t.equal(splitter.pending, 6);
  t.throws(() => splitter.push(long.subarray(0, 6)), RangeError, 'in two pieces');
  t.strictSame(new LineSplitter(10).push(Buffer.from('0123456789\n01234')), ['0123456789']);
  t.end();
});
