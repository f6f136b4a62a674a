import t from 'tap';
import { decodeText } from '../../src/file/read.ts';
import {
  formatPath,
  formatProblem,
  formatProblems,
  positionAt,
  ProblemList,
} from '../../src/file/problem.ts';
import { closest } from '../../src/util/suggest.ts';

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
  const text = 'a\nbc\ndef\n';
  const list = new ProblemList(2);
  for (const offset of [8, 2, 6, 3]) list.add({ offset, path: '', message: `at ${offset}` });
  list.add({ offset: 2, path: 'p', message: 'too' });
  list.addUnlisted(10);
  t.equal(list.total, 15);
  t.strictSame(list.in(text), {
    total: 15,
    first: [
      { line: 2, column: 1, path: '', message: 'at 2' },
      { line: 2, column: 1, path: 'p', message: 'too' },
    ],
  });
  t.equal(formatProblems('f', list.in(text)), 'f:2:1: at 2\nf:2:1: p: too\n… and 13 more');
  t.equal(list.full, false);
  for (let n = 0; n < 10_000; n += 1) list.add({ offset: 0, path: '', message: 'x' });
  t.equal(list.full, true);
  t.equal(list.in(text).total, 10_015);
});

t.test('suggestions for a misspelled word', async (t) => {
  const known = ['clusterips', 'externalips', 'loadbalancerips', 'headless'];
  t.equal(closest('clusterip', known), 'clusterips');
  t.equal(closest('ClusterIPs', known), 'clusterips');
  t.equal(closest('clutserips', known), 'clusterips');
  t.equal(closest('hedles', known), 'headless');
  t.equal(closest('flie', ['kube', 'file', 'api']), 'file', 'two letters changed places');
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
