import t from 'tap';
import * as kinds from '../../src/cli/flags/kinds.ts';
import type { FlagKind } from '../../src/cli/flags/table.ts';

const HOUR = 3_600_000;

/** What a kind makes of texts: the value, which it writes as that text unless another one is given, or an error. */
function check<T>(
  name: string,
  kind: FlagKind<T>,
  cases: readonly (readonly [given: string, expected: T | RegExp, written?: string])[],
): void {
  t.test(name, async (t) => {
    for (const [given, expected, written = given] of cases) {
      if (expected instanceof RegExp) {
        t.throws(() => kind.parse(given), { message: expected }, JSON.stringify(given));
        continue;
      }
      const value = kind.parse(given);
      t.same(value, expected, JSON.stringify(given));
      t.equal(kind.format(value), written);
    }
  });
}

check('integers have bounds', kinds.integer(0, 10), [
  ['0', 0],
  ['10', 10],
  ['11', /from 0 to 10/],
  ['-1', /whole number/],
  ['1.5', /whole number/],
  ['', /whole number/],
  ['0x3', /whole number/],
  ['1e1', /whole number/],
]);
check('integers without an upper bound say only the lower one', kinds.integer(1), [
  ['100000', 100_000],
  ['0', /at least 1$/],
  ['99999999999999999999', /at least 1$/],
]);
check('durations need a unit and fit a timer', kinds.duration(1), [
  ['90s', 90_000, '1m30s'],
  ['30', /with a unit/],
  ['0', /at least 1ms/],
  ['576h', 576 * HOUR],
  ['600h', /at most 24 days/],
]);
check('lists of durations', kinds.durations(), [
  ['250ms,500ms, 1s', [250, 500, 1000], '250ms,500ms,1s'],
  ['1s,', /with a unit/],
  ['0,1s', /at least 1ms/],
  [Array.from({ length: 17 }, () => '1s').join(','), /at most 16/],
]);
check('listen addresses can be switched off', kinds.listenAddress(), [
  ['127.0.0.1:0', { host: '127.0.0.1', port: 0 }],
  ['[::1]:1', { host: '::1', port: 1 }],
  ['', undefined],
  ['0', undefined, ''],
  ['localhost:80', /expected ip:port/],
]);
check('port ranges can be left to the kernel', kinds.portRange(), [
  ['36000-37000', { first: 36_000, last: 37_000 }],
  ['', undefined],
  ['0-0', undefined, ''],
]);
check('lists drop empty items', kinds.list('words'), [
  ['a, b,,c', ['a', 'b', 'c'], 'a,b,c'],
  ['', []],
]);
check('sizes have bounds', kinds.size(1024, 1024 ** 2), [
  ['4Ki', 4096],
  ['1', /expected 1Ki to 1Mi/],
  ['2Mi', /expected 1Ki to 1Mi/],
  ['lots', /number of bytes/],
]);
check('sizes without an upper bound', kinds.size(1024), [['1', /at least 1Ki$/]]);
check('bits of a mark', kinds.markBits(), [
  ['64', 64, '0x40'],
  ['0', /from 0x1/],
  ['0x1ffffffff', /from 0x1/],
]);
