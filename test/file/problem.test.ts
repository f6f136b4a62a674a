import t from 'tap';
import { decodeText } from '../../src/file/parse.ts';
import { formatPath, formatProblem, formatProblems, problemsIn } from '../../src/file/problem.ts';
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
  const found = [0, 1, 2, 3, 5, 6, 7, 8, 99].map((offset) => ({ offset, path: '', message: '' }));
  t.strictSame(
    problemsIn(text, found, 9, 9).first.map(({ line, column }) => `${line}:${column}`),
    ['1:1', '1:2', '1:3', '2:1', '2:3', '3:1', '4:1', '4:2', '4:2'],
  );
});

t.test('a problem is one line', async (t) => {
  const problem = { line: 3, column: 4, path: 'a.b', message: 'is wrong' };
  t.equal(formatProblem('f.yaml', problem), 'f.yaml:3:4: a.b: is wrong');
  t.equal(formatProblem('f.yaml', { ...problem, path: '' }), 'f.yaml:3:4: is wrong');
});

t.test('the first problems are listed by position, all are counted', async (t) => {
  const found = [8, 2, 6, 3].map((offset) => ({ offset, path: '', message: `at ${offset}` }));
  const problems = problemsIn('a\nbc\ndef\n', found, 14, 2);
  t.equal(formatProblems('f', problems), 'f:2:1: at 2\nf:2:2: at 3\n… and 12 more');
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
  t.strictSame(decodeText(Buffer.from('é\n')), 'é\n');
  t.strictSame(decodeText(Buffer.from('\ufeffa')), 'a', 'byte order mark');
  t.strictSame(decodeText(Buffer.from('a\ufffdb')), 'a\ufffdb');
  t.strictSame(decodeText(Buffer.from([0x61, 0x0a, 0x62, 0xc3])), {
    ok: false,
    errors: {
      first: [{ line: 2, column: 2, path: '', message: 'the file is not UTF-8 text' }],
      total: 1,
    },
  });
});
