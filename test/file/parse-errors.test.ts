import * as fc from 'fast-check';
import t from 'tap';
import { parse } from 'yaml';
import { decodeText, parseStateFile } from '../../src/file/parse.ts';
import { formatPath, formatProblems, problemsIn } from '../../src/file/problem.ts';
import { flowText as text } from '../../src/util/yaml-text.ts';
import { closest } from '../../src/util/suggest.ts';
import { holds } from '../support/property.ts';
import {
  fileWith as service,
  inOnePiece,
  lines,
  problemsOf,
  warningsOf,
} from '../support/file-rig.ts';

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
    'nested too deeply',
    `services: ${'['.repeat(101)}${']'.repeat(101)}\n`,
    ['1:110: nested too deeply'],
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

t.test('an empty file is refused as incomplete', async (t) => {
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

/** The mistake, the text, and all that is said about it. */
const MISTAKES: [string, string, string[]][] = [
  [
    'duplicate key',
    service('mapip: true', 'mapip: false'),
    ["5:5: services[0]: duplicate key 'mapip'"],
  ],
  [
    'a quote that is not closed',
    service('type: "ClusterIP'),
    ['5:1: services[0]: a quote or bracket is not closed before this, or the indentation is wrong'],
  ],
  ['a tab', service('\tports: []'), ['4:5: services[0]: a tab where only spaces may be']],
  [
    'a line that is indented too far, and one that is not far enough',
    lines('services:', '- service:', '    name: web', '     type: ClusterIP', '   mapip: true'),
    ["4:10: services[0]: wrong indentation of a key, or a ': ' too many in a text without quotes"],
  ],
  [
    'a line that is not indented enough',
    lines('services:', '- service:', '    name: web', ' endpoints: []'),
    ['4:2: services[0]: wrong indentation: the items of a list start in one column'],
  ],
  [
    "':' without a space",
    service('mapip:true'),
    [
      "4:15: services[0]: this is neither a key with ': ' nor part of the line before; is the indentation right?",
    ],
  ],
  [
    'a list and a map that are not closed',
    service('ips: {clusterips: {v4: [10.0.0.1}}'),
    ["4:37: services[0]: a comma is missing before this, or a '[' or '{' is not closed"],
  ],
  [
    'an unknown tag',
    service('type: !kind ClusterIP'),
    ['4:11: services[0]: no tag but !!str is supported'],
  ],
];

for (const [name, text, expected] of MISTAKES) {
  t.test(name, async (t) => {
    t.strictSame(problemsOf(text), expected);
    t.equal(parseStateFile(inOnePiece(text)).ok, false, 'refused in one piece, too');
  });
}

const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.constantFrom('', 'yes', 'No', 'null', '~', '1e3', '0x10', '010', '1:30', '.5', '-', 'a: b'),
  fc.constantFrom(
    '10.0.0.1',
    '10.0.0.0/8',
    'fd00::1',
    '::',
    '# x',
    '&a',
    '*a',
    '!x',
    "'",
    '"',
    '=',
  ),
);

/** What kpng's reader (YAML 1.1) and ours (1.2) make of a text. */
function readings(yaml: string): unknown[] {
  return (['1.1', '1.2'] as const).map((version) => parse(yaml, { version }));
}

t.test('common texts are written without quotes', async (t) => {
  for (const plain of ['web', 'ClusterIP', 'web-0', 'topology.kubernetes.io/zone', '10.96.0.1']) {
    t.equal(text(plain), plain);
  }
  for (const quoted of ['', 'true', 'Null', 'n', '8080', 'fd00::1', 'a b', 'a,b', '-a']) {
    t.equal(text(quoted), JSON.stringify(quoted));
  }
});

t.test('any text is read back unchanged, in lists and maps too', async (t) => {
  holds(
    t,
    fc.property(anyText, anyText, (one, two) => {
      const map = { [one]: two, x: one };
      const expected = JSON.stringify([one, [one, two], map]);
      const yaml = `- ${text(one)}\n- ${text([one, two])}\n- ${text(map)}\n`;
      const sortedLike = (value: unknown): string => JSON.stringify(value);
      return readings(yaml).every((read) => {
        const [first, list, object] = read as [string, string[], Record<string, string>];
        const again = Object.fromEntries(Object.keys(map).map((key) => [key, object[key]]));
        return sortedLike([first, list, again]) === expected;
      });
    }),
  );
});

t.test('paths', async (t) => {
  t.equal(formatPath([]), '');
  t.equal(
    formatPath(['services', 2, 'service', 'ports', 0, 'port']),
    'services[2].service.ports[0].port',
  );
  t.equal(formatPath(['labels', 'a/b', '', 'c-d', '1']), 'labels["a/b"][""].c-d["1"]');
  t.equal(formatPath(['x'.repeat(100)]), `["${'x'.repeat(57)}..."]`);
});

t.test('suggestions for a misspelled word', async (t) => {
  const known = ['clusterips', 'externalips', 'loadbalancerips', 'headless'];
  t.equal(closest('clusterip', known), 'clusterips');
  t.equal(closest('ClusterIPs', known), 'clusterips');
  t.equal(closest('clutserips', known), 'clusterips');
  t.equal(closest('hedles', known), 'headless');
  t.equal(closest('flie', ['kube', 'file', 'api']), 'file', 'two letters are swapped');
  t.equal(closest('ports', known), undefined);
  t.equal(closest('', known), undefined);
  t.equal(closest('x', ['y', 'z']), undefined);
  t.equal(closest('a', []), undefined);
});

t.test('positions are counted from 1, up to the end of the text', async (t) => {
  const found = [0, 3, 6, 7, 99].map((offset) => ({ offset, path: '', message: '' }));
  t.strictSame(
    problemsIn('ab\ncd\n\ne', found, 5, 5).first.map(({ line, column }) => `${line}:${column}`),
    ['1:1', '2:1', '3:1', '4:1', '4:2'],
  );
  t.equal(decodeText(Buffer.from('\ufeffa')), 'a', 'without a byte order mark');
});
