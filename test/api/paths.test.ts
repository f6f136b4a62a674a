import t from 'tap';
import * as fc from 'fast-check';
import {
  comparePaths,
  parseEndpointPath,
  parseGlobalEndpointPath,
  parseGlobalNodePath,
  parseGlobalServicePath,
  parseServicePath,
} from '../../src/api/paths.ts';

t.test('paths of other sets are refused', async (t) => {
  t.equal(parseEndpointPath('a/b/c/d')?.key, 'c/d', 'slashes in the key belong to it');
  for (const path of ['', '/', 'a', 'a/', '/a', 'a//b', 'a/b/c', 'a/b/', '//']) {
    t.equal(parseServicePath(path), undefined, `service ${JSON.stringify(path)}`);
  }
  for (const path of ['', '/', 'a', 'a/b', 'a/b/', '/b/c', 'a//c', '//', '///', 'a/b//c']) {
    t.equal(parseEndpointPath(path), undefined, `endpoint ${JSON.stringify(path)}`);
  }
  for (const path of ['', 'a', 'a|b', 'a|b|', '|b||', 'a|||', 'a|b|c|', 'a|b||d', 'a|b|||']) {
    t.equal(parseGlobalServicePath(path), undefined, `global service ${JSON.stringify(path)}`);
  }
  for (const path of ['', 'a|b|c', '|b|c|d', 'a|b|c|', 'a|b|c|d|e']) {
    t.equal(parseGlobalEndpointPath(path), undefined, `global endpoint ${JSON.stringify(path)}`);
  }
  for (const path of ['', 'a', '||||', '|||', 'x|a||', '|a|b|', '|a||b']) {
    t.equal(parseGlobalNodePath(path), undefined, `node ${JSON.stringify(path)}`);
  }
});

const LIMIT = { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false };

t.test('V14 (kept): path order puts a service right before its endpoints', async (t) => {
  const paths = ['ns/aaa-udp', 'ns/aaa/b', 'ns/bbb', 'ns/aaa', 'ns/aaa/a', 'ns/aaa-udp/x'];
  t.strictSame(paths.sort(comparePaths), [
    'ns/aaa',
    'ns/aaa/a',
    'ns/aaa/b',
    'ns/aaa-udp',
    'ns/aaa-udp/x',
    'ns/bbb',
  ]);
  t.equal(comparePaths('a', 'a'), 0);
  t.ok(comparePaths('a', 'a/') < 0, 'the shorter first');
});

t.test('path order is that of the parts, compared one by one', async () => {
  const part = fc.string({ unit: fc.constantFrom('a', 'b', '-', '.', '0'), minLength: 1 });
  const parts = fc.array(part, { minLength: 1, maxLength: 3 });
  fc.assert(
    fc.property(parts, parts, (a, b) => {
      const different = a.findIndex((value, i) => value !== b[i]);
      const expected =
        different === -1 || b[different] === undefined
          ? a.length - b.length
          : (a[different] ?? '') < (b[different] ?? '')
            ? -1
            : 1;
      return Math.sign(comparePaths(a.join('/'), b.join('/'))) === Math.sign(expected);
    }),
    LIMIT,
  );
});
