import t from 'tap';
import * as fc from 'fast-check';
import {
  comparePaths,
  endpointPath,
  globalEndpointPath,
  globalNodePath,
  globalServicePath,
  parseEndpointPath,
  parseGlobalEndpointPath,
  parseGlobalNodePath,
  parseGlobalServicePath,
  parseServicePath,
  servicePath,
} from '../../src/api/paths.ts';

t.test('paths of the local sets', async (t) => {
  t.equal(servicePath('demo', 'web'), 'demo/web');
  t.equal(endpointPath('demo', 'web', 'web-0'), 'demo/web/web-0');
  t.strictSame(parseServicePath('demo/web'), { namespace: 'demo', name: 'web' });
  t.strictSame(parseEndpointPath('demo/web/web-0'), {
    namespace: 'demo',
    name: 'web',
    key: 'web-0',
  });
  t.strictSame(parseEndpointPath('a/b/c/d')?.key, 'c/d', 'slashes in the key belong to it');
});

t.test('paths of the global sets', async (t) => {
  t.equal(globalServicePath('demo', 'web'), 'demo|web||');
  t.equal(globalNodePath('node-a'), '|node-a||');
  const ref = { namespace: 'demo', serviceName: 'web', sourceName: 'web-abcde', key: '1f' };
  t.equal(globalEndpointPath(ref), 'demo|web|web-abcde|1f');
  t.strictSame(parseGlobalEndpointPath('demo|web|web-abcde|1f'), ref);
  t.strictSame(parseGlobalEndpointPath('demo||web-abcde|1f'), { ...ref, serviceName: '' });
  t.strictSame(parseGlobalServicePath('demo|web||'), { namespace: 'demo', name: 'web' });
  t.equal(parseGlobalNodePath('|node-a||'), 'node-a');
});

t.test('paths of other sets are refused', async (t) => {
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
