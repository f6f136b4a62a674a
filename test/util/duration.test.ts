import * as fc from 'fast-check';
import t from 'tap';
import { formatDuration, parseDuration } from '../../src/util/duration.ts';

t.test('reads what Go programs write', (t) => {
  const cases: [string, number][] = [
    ['250ms', 250],
    ['30s', 30_000],
    ['1m30s', 90_000],
    ['1.5h', 5_400_000],
    ['1h0m0.5s', 3_600_500],
    ['.5s', 500],
    ['1.s', 1000],
    ['15us', 0.015],
    ['15µs', 0.015],
    ['15μs', 0.015],
    ['2ns', 0.000_002],
    ['+3s', 3000],
    ['0', 0],
    ['+0', 0],
    ['0s', 0],
  ];
  for (const [text, ms] of cases) t.equal(parseDuration(text), ms, text);
  t.end();
});

t.test('refuses what is not a duration', (t) => {
  const cases = ['', '+', '15', '1.5', '-3s', 's', '1d', '1s ', ' 1s', '1s2', '1e3s', '.s', '1,5s'];
  for (const text of cases) t.equal(parseDuration(text), undefined, JSON.stringify(text));
  t.end();
});

t.test('writes the short form', (t) => {
  const cases: [number, string][] = [
    [0, '0s'],
    [250, '250ms'],
    [999.5, '999.5ms'],
    [1000, '1s'],
    [1500, '1.5s'],
    [60_000, '1m'],
    [90_000, '1m30s'],
    [3_600_000, '1h'],
    [5_400_000, '1h30m'],
    [0.015, '15us'],
    [0.000_002, '2ns'],
    [1e-9, '0s'],
  ];
  for (const [ms, text] of cases) t.equal(formatDuration(ms), text, text);
  t.end();
});

t.test('what is written can be read, for any whole number of microseconds', (t) => {
  const outcome = fc.check(
    fc.property(fc.integer({ min: 0, max: 10 ** 13 }), (microseconds) => {
      const ms = microseconds / 1000;
      const read = parseDuration(formatDuration(ms));
      return read !== undefined && Math.abs(read - ms) < 1e-6 * Math.max(1, ms);
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
  t.notOk(outcome.failed, JSON.stringify(outcome.counterexample));
  t.end();
});

t.test('any text is either a duration of at least 0 or refused', (t) => {
  const pieces = fc.constantFrom('1', '.', '5', 'ms', 's', 'm', 'h', 'us', '-', '+', ' ', '0', 'x');
  const outcome = fc.check(
    fc.property(fc.array(pieces, { maxLength: 8 }), (parts) => {
      const ms = parseDuration(parts.join(''));
      return ms === undefined || ms >= 0;
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
  t.notOk(outcome.failed, JSON.stringify(outcome.counterexample));
  t.end();
});
