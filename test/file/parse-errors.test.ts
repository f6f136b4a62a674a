import t from 'tap';
import { parseStateFile } from '../../src/file/parse.ts';
import { formatProblems } from '../../src/file/problem.ts';
import { lines, problemsOf, warningsOf } from '../support/state-file.ts';

const FILE_ERRORS: [string, string, string[]][] = [
  [
    'nodes',
    lines(
      'nodes:',
      '- name: n1',
      '- {}',
      '- name: n2',
      '  topology: {node: n2, zone: 1}',
      'services: []',
      'node: []',
    ),
    [
      "3:3: nodes[1]: 'name' is missing",
      '5:30: nodes[2].topology.zone: 1 is not text; put it in quotes: "1"',
      "7:1: node: unknown key 'node'; did you mean 'nodes'?",
    ],
  ],
  [
    'a problem behind the services',
    lines('services:', '- service: {name: web}', '# end', 'nodes:', '- name: n1', '- name: n1'),
    ["6:9: nodes[1].name: duplicate node 'n1' (see nodes[0])"],
  ],
  ['no services', 'nodes: []\n', ["1:1: 'services' is missing"]],
  [
    'services without a value',
    'nodes: []\nservices:\n',
    ['2:1: services: there is no value; it must be a list of services'],
  ],
  [
    'services as a map',
    'services:\n  web: {}\n',
    ['2:3: services: a map is not a list of services'],
  ],
  ['a list', '- service: {name: web}\n', ['1:1: a state file is a map with the key `services`']],
  ['text', 'hello\n', ['1:1: a state file is a map with the key `services`']],
  [
    'two documents',
    'services: []\n---\nservices: []\n',
    ['3:1: a second document begins here; a state file has one'],
  ],
  [
    'two documents with services in block style',
    'services:\n- service: {name: a}\n---\nservices:\n- service: {name: b}\n',
    ['4:1: a second document begins here; a state file has one'],
  ],
  [
    'services twice',
    'services:\n- service: {name: a}\nservices: []\n',
    ["3:1: duplicate key 'services'"],
  ],
];

for (const [name, text, expected] of FILE_ERRORS) {
  t.test(name, async (t) => t.strictSame(problemsOf(text), expected));
}

t.test('an empty file is most likely not written to its end', async (t) => {
  for (const text of ['', '\n', '  \n\t\n', '# only a comment\n', '---\n', 'null\n', '~']) {
    t.strictSame(
      problemsOf(text),
      ['1:1: the file is empty, perhaps not written to its end; `services: []` means no services'],
      JSON.stringify(text),
    );
  }
});

t.test('the first problems are listed by line, the others are counted', async (t) => {
  const items = Array.from({ length: 500 }, () => '- service: {name: ok, port: 1, x: 2}\n').join(
    '',
  );
  const result = parseStateFile(`node: 1\nservices:\n${items}`);
  if (result.ok) throw new Error('there are errors');
  t.equal(result.errors.total, 1001);
  t.equal(result.errors.first.length, 20);
  t.strictSame(
    result.errors.first.slice(0, 3).map(({ line, path }) => [line, path]),
    [
      [1, 'node'],
      [3, 'services[0].service.port'],
      [3, 'services[0].service.x'],
    ],
  );
  const text = formatProblems('state.yaml', result.errors);
  t.equal(text.split('\n').length, 21);
  t.ok(text.startsWith("state.yaml:1:1: node: unknown key 'node'; did you mean 'nodes'?\n"));
  t.ok(text.endsWith('\n… and 981 more'));
});

t.test('warnings: overrides of unknown ports, endpoints of another service', async (t) => {
  const text = lines(
    'services:',
    '- service:',
    '    name: web',
    '    ports:',
    '    - {name: http, port: 80, targetportname: t-http}',
    '  endpoints:',
    '  - endpoint: {portoverrides: [{name: http, port: 1}, {name: t-http, port: 2}, {name: x, port: 3}]}',
    '    servicename: other',
    '    namespace: default',
  );
  t.strictSame(problemsOf(text), []);
  t.strictSame(warningsOf(text), [
    "7:87: services[0].endpoints[0].endpoint.portoverrides[2].name: the service has no port 'x'; the override has no effect",
    "8:18: services[0].endpoints[0].servicename: 'other' is ignored; an endpoint belongs to the service above it (web)",
  ]);
});
