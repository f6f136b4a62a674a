import t from 'tap';
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
