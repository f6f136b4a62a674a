import t from 'tap';
import { lines, problemsOf, stateOf } from '../support/file-rig.ts';

t.test('aliases are filled in', async (t) => {
  const { services } = stateOf(
    lines(
      'nodes:',
      '- name: n1',
      '  topology: &north {node: n1, zone: north}',
      'services:',
      '- service:',
      '    name: a',
      '    ips: &none {clusterips: {v4: &list [10.0.0.1]}}',
      '  endpoints:',
      '  - topology: *north',
      '    endpoint: {ips: {v4: *list}}',
      '- service:',
      '    name: b',
      '    ips: *none',
    ),
  );
  t.match(services.get('default/a')?.endpoints[0], {
    topology: { node: 'n1', zone: 'north' },
    endpoint: { ips: { v4: ['10.0.0.1'] } },
  });
  t.match(services.get('default/b')?.service.ips?.clusterIPs?.v4, ['10.0.0.1']);
});

t.test('a problem behind an alias is found where it is written', async (t) => {
  t.strictSame(
    problemsOf(
      lines(
        'nodes: &all',
        '- {name: n1, topology: &t {node: 5}}',
        '- {name: n2, topology: *t}',
        'services: []',
      ),
    ),
    [
      '2:34: nodes[0].topology.node: 5 is not text; put it in quotes: "5"',
      '2:34: nodes[1].topology.node: 5 is not text; put it in quotes: "5"',
    ],
  );
});

t.test('aliases that refer to nothing, or to themselves', async (t) => {
  t.strictSame(problemsOf('services: *no\n'), ["1:11: alias '*no' refers to nothing before it"]);
  t.strictSame(
    problemsOf('services:\n- service: {name: a, labels: *later}\n- service: &later {name: b}\n'),
    ["2:30: alias '*later' refers to nothing before it"],
  );
  t.strictSame(problemsOf('services: &all [*all]\n'), ["1:17: alias '*all' refers to itself"]);
});

t.test('aliases cannot make a small file expand', async (t) => {
  const levels = Array.from({ length: 12 }, (_, level) => {
    const refers = Array.from({ length: 10 }, () => (level === 0 ? 'x' : `*l${level - 1}`));
    return `  l${level}: &l${level} [${refers.join(', ')}]`;
  });
  t.strictSame(problemsOf(lines('services: []', 'nodes:', ...levels)), [
    '8:47: the aliases stand for more than 1000000 values',
  ]);
});

t.test('an unterminated key, and a very long line', async (t) => {
  const long = 'x'.repeat(100_000);
  for (const problem of problemsOf(`services: []\n${long}: 1\n`)) {
    t.ok(problem.length < 300, problem.slice(0, 300));
  }
  for (const problem of problemsOf(
    `services:\n- service: {name: ${long}, type: ${long}, ${long}: 1}\n`,
  )) {
    t.ok(problem.length < 300, problem.slice(0, 300));
  }
});
