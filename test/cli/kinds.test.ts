import t from 'tap';
import * as kinds from '../../src/cli/flags/kinds.ts';
import type { FlagKind } from '../../src/cli/flags/table.ts';

/** What a kind makes of texts: the value, or the error's message. */
function check<T>(name: string, kind: FlagKind<T>, cases: readonly [string, T | RegExp][]): void {
  t.test(name, async (t) => {
    for (const [given, expected] of cases) {
      const label = JSON.stringify(given);
      if (expected instanceof RegExp)
        t.throws(() => kind.parse(given), { message: expected }, label);
      else t.same(kind.parse(given), expected, label);
    }
  });
}

function notBad(item: string): void {
  if (item === 'bad') throw new Error('not bad');
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

check('a toggle is on or off, and has a text for the flag alone', kinds.toggle(), [
  ['true', true],
  ['false', false],
  ['yes', /expected true, false/],
  ['', /expected true, false/],
]);

check('durations need a unit and fit a timer', kinds.duration(1), [
  ['30s', 30_000],
  ['30', /with a unit/],
  ['0', /at least 1ms/],
  ['577h', 577 * 3_600_000],
  ['600h', /at most 24 days/],
]);

check('lists of durations', kinds.durations(), [
  ['250ms,500ms, 1s', [250, 500, 1000]],
  ['1s', [1000]],
  ['1s,', /with a unit/],
  ['0,1s', /at least 1ms/],
  [Array.from({ length: 17 }, () => '1s').join(','), /at most 16/],
]);

check('listen addresses can be switched off', kinds.listenAddress(), [
  ['127.0.0.1:0', { host: '127.0.0.1', port: 0 }],
  ['', undefined],
  ['0', undefined],
  ['10249', /expected ip:port/],
  ['localhost:80', /expected ip:port/],
]);

check('port ranges can be left to the kernel', kinds.portRange(), [
  ['36000-37000', { first: 36_000, last: 37_000 }],
  ['', undefined],
  ['0-0', undefined],
  ['5-1', /range of ports/],
]);

check('choices', kinds.choice<string>(['auto', 'none']), [
  ['none', 'none'],
  ['nonsense', /^expected auto, none$/],
]);

check('lists drop empty items and check the others', kinds.list('words', notBad), [
  ['a, b,,c', ['a', 'b', 'c']],
  ['', []],
  ['a,bad', /not bad/],
]);

check('sizes have bounds', kinds.size(1024, 1024 ** 2), [
  ['4Ki', 4096],
  ['1', /expected 1Ki to 1Mi/],
  ['2Mi', /expected 1Ki to 1Mi/],
  ['lots', /number of bytes/],
]);

check('sizes without an upper bound', kinds.size(1024), [['1', /at least 1Ki$/]]);

check('addresses', kinds.ipAddress(), [
  ['::1', '::1'],
  ['eth0', /IP address/],
]);

t.test('a toggle has a text for the flag alone', async (t) => {
  const toggle = kinds.toggle();
  t.equal(toggle.parse(toggle.bare ?? ''), true);
  t.equal(toggle.format(false), 'false');
});

t.test('each kind writes what it reads', (t) => {
  t.equal(kinds.duration().format(90_000), '1m30s');
  t.equal(kinds.durations().format([250, 1000]), '250ms,1s');
  t.equal(kinds.listenAddress().format({ host: '::1', port: 1 }), '[::1]:1');
  t.equal(kinds.listenAddress().format(undefined), '');
  t.equal(kinds.portRange().format({ first: 1, last: 2 }), '1-2');
  t.equal(kinds.portRange().format(undefined), '');
  t.equal(kinds.list('x').format(['a', 'b']), 'a,b');
  t.equal(kinds.size(0).format(4096), '4Ki');
  t.equal(kinds.integer(0).format(3), '3');
  t.end();
});
