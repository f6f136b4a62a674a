import t from 'tap';
import { decodeText } from '../../src/file/read.ts';
import {
  formatPath,
  formatProblem,
  formatProblems,
  positionAt,
  ProblemList,
} from '../../src/file/problem.ts';
import { closest } from '../../src/file/suggest.ts';

t.test('paths', async (t) => {
  t.equal(formatPath([]), '');
  t.equal(
    formatPath(['services', 2, 'service', 'ports', 0, 'port']),
    'services[2].service.ports[0].port',
  );
  t.equal(formatPath(['labels', 'a/b', '', 'c-d', '1']), 'labels["a/b"][""].c-d["1"]');
  t.equal(formatPath(['x'.repeat(100)]), `["${'x'.repeat(57)}..."]`);
});

t.test('positions are counted from 1', async (t) => {
  const text = 'ab\ncd\n\ne';
  const at = (offset: number): string => {
    const { line, column } = positionAt(text, offset);
    return `${line}:${column}`;
  };
  t.strictSame([0, 1, 2, 3, 5, 6, 7, 8, 99].map(at), [
    '1:1',
    '1:2',
    '1:3',
    '2:1',
    '2:3',
    '3:1',
    '4:1',
    '4:2',
    '4:2',
  ]);
});

t.test('a problem is one line', async (t) => {
  const problem = { line: 3, column: 4, path: 'a.b', message: 'is wrong' };
  t.equal(formatProblem('f.yaml', problem), 'f.yaml:3:4: a.b: is wrong');
  t.equal(formatProblem('f.yaml', { ...problem, path: '' }), 'f.yaml:3:4: is wrong');
});

t.test('a list keeps the first problems by position and counts all', async (t) => {
  const list = new ProblemList(2);
  for (const line of [9, 3, 7, 5]) list.add({ line, column: 1, path: '', message: 'x' });
  list.add({ line: 3, column: 0, path: '', message: 'y' });
  list.addUnlisted(10);
  t.equal(list.total, 15);
  t.strictSame(
    list.first.map(({ line, message }) => `${line}${message}`),
    ['3y', '3x'],
  );
  t.equal(formatProblems('f', list), 'f:3:0: y\nf:3:1: x\n… and 13 more');
  for (let n = 0; n < 10_000; n += 1) list.add({ line: 1, column: n, path: '', message: 'z' });
  t.equal(list.first.length, 2);
});

t.test('suggestions for a misspelled word', async (t) => {
  const known = ['clusterips', 'externalips', 'loadbalancerips', 'headless'];
  t.equal(closest('clusterip', known), 'clusterips');
  t.equal(closest('ClusterIPs', known), 'clusterips');
  t.equal(closest('clutserips', known), 'clusterips');
  t.equal(closest('hedles', known), 'headless');
  t.equal(closest('ports', known), undefined);
  t.equal(closest('', known), undefined);
  t.equal(closest('x', ['y', 'z']), undefined);
  t.equal(closest('a', []), undefined);
});

t.test('text is decoded', async (t) => {
  t.strictSame(decodeText(Buffer.from('é\n')), { ok: true, text: 'é\n' });
  t.strictSame(decodeText(Buffer.from('\ufeffa')), { ok: true, text: 'a' }, 'byte order mark');
  t.strictSame(decodeText(Buffer.from('a\ufffdb')), { ok: true, text: 'a\ufffdb' });
  t.strictSame(decodeText(Buffer.from([0x61, 0x0a, 0x62, 0xc3])), {
    ok: false,
    problem: { line: 2, column: 2, path: '', message: 'the file is not UTF-8 text' },
  });
});
