import * as fc from 'fast-check';
import t from 'tap';
import { parse } from 'yaml';
import { StateParser } from '../../src/file/parse.ts';
import { formatProblems } from '../../src/file/problem.ts';
import { flowText as text } from '../../src/util/yaml-text.ts';
import { closest } from '../../src/util/suggest.ts';
import { holds } from '../support/property.ts';
import {
  fileWith,
  inOnePiece,
  lines,
  problemsOf,
  stateOf,
  warningsOf,
} from '../support/file-rig.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';

t.test('an empty file is refused as incomplete', async (t) => {
  for (const text of ['', '\n', '  \n\t\n', '# only a comment\n', '---\n', 'null\n', '~']) {
    t.strictSame(
      problemsOf(text),
      ['1:1: the file is empty, perhaps not written to its end; `services: []` means no services'],
      JSON.stringify(text),
    );
  }
});

t.test('what is not JSON is limited', async (t) => {
  const limits = { ...DEFAULT_FILE_LIMITS, maxPieceChars: 30 };
  const text = fileWith('type: ClusterIP');
  const message = 'may have at most 30 characters; write it as JSON';
  const whole = `a file that is not JSON, or YAML in block style without aliases, ${message}`;
  for (const [each, line, problem] of [
    [text, 2, `a service ${message}`],
    [inOnePiece(text), 1, whole],
  ] as const) {
    t.match(new StateParser(limits).parse(each), {
      errors: { first: [{ line, message: problem }] },
    });
  }
  t.ok(new StateParser(limits).parse('{"services": [{"service": {"name": "web"}}]}').ok);
});

t.test('the first problems are listed by line, the others are counted', async (t) => {
  const items = Array.from({ length: 500 }, () => '- service: {name: ok, port: 1, x: 2}\n').join(
    '',
  );
  const result = new StateParser().parse(`node: 1\nservices:\n${items}`);
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

const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.constantFrom('true', 'False', 'on', 'Off', 'y', 'N'),
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

t.test('any text is read back unchanged, in lists and maps too', async (t) => {
  holds(
    t,
    fc.property(anyText, anyText, (one, two) => {
      const map = { [one]: two, x: one };
      const expected = JSON.stringify([one, [one, two], map]);
      const yaml = `- ${text(one)}\n- ${text([one, two])}\n- ${text(map)}\n`;
      return readings(yaml).every((read) => {
        const [first, list, object] = read as [string, string[], Record<string, string>];
        const again = Object.fromEntries(Object.keys(map).map((key) => [key, object[key]]));
        return JSON.stringify([first, list, again]) === expected;
      });
    }),
  );
});

t.test('suggestions for a misspelled word', async (t) => {
  const known = ['clusterips', 'externalips', 'loadbalancerips', 'headless'];
  for (const [word, meant] of [
    ['clusterip', 'clusterips'],
    ['ClusterIPs', 'clusterips'],
    ['clutserips', 'clusterips'],
    ['hedles', 'headless'],
    ['ports', undefined],
    ['', undefined],
  ] as const) {
    t.equal(closest(word, known), meant);
  }
  t.equal(closest('flie', ['kube', 'file', 'api']), 'file', 'two letters are swapped');
  t.equal(closest('x', ['y', 'z']), undefined);
});

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

t.test('aliases cannot make a small file expand', async (t) => {
  const levels = Array.from({ length: 12 }, (_, level) => {
    const refers = Array.from({ length: 10 }, () => (level === 0 ? 'x' : `*l${level - 1}`));
    return `  l${level}: &l${level} [${refers.join(', ')}]`;
  });
  t.strictSame(problemsOf(lines('services: []', 'nodes:', ...levels)), [
    '8:47: the aliases stand for more than 1000000 values',
  ]);
});
