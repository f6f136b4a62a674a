import t from 'tap';
import { stringify } from 'yaml';
import { Protocol } from '../../src/api/generated/localv1/api.ts';
import { StateParser } from '../../src/file/parse.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { formatProblems } from '../../src/file/problem.ts';
import {
  fileWith,
  inOnePiece,
  lines,
  problemsOf,
  servicesFrom,
  stateOf,
} from '../support/file-rig.ts';

t.test('V19 (kept): defaults; any key but a name may be missing', async (t) => {
  const { services, nodes } = stateOf(
    lines(
      'nodes: [{name: n1, labels: null, topology: null}]',
      'services:',
      '- service:',
      '    name: bare',
      '    ports: [{port: 80}]',
      '    ips: {externalips: null}',
      '    labels: null',
      '    ipfilters:',
      '    sessionaffinity: {clientip: {}}',
      '  endpoints:',
      '  - {}',
      '  - endpoint:',
      '    topology:',
      '    conditions: {}',
      '    hints: {}',
      '  - {conditions: null, hints: null}',
    ),
  );
  const bare = services.get('default/bare');
  const empty = { type: '', labels: {}, ipFilters: [], mapIP: false };
  t.match(bare?.service, { namespace: 'default', ...empty });
  t.match(bare?.service.ips, { externalIPs: undefined, headless: false });
  t.equal(stateOf(fileWith('ips:')).services.get('default/web')?.service.ips, undefined);
  t.match(nodes.get('n1'), { labels: {}, topology: undefined });
  t.match(bare?.service.ports, [{ name: '', protocol: Protocol.TCP, nodePort: 0, targetPort: 0 }]);
  const value = { timeoutSeconds: 10_800 };
  t.strictSame(bare?.service.sessionAffinity, { $case: 'clientIP', value });
  const common = { namespace: 'default', sourceName: 'bare', serviceName: 'bare', podName: '' };
  const none = { endpoint: undefined, topology: undefined };
  t.match(bare?.endpoints, [
    { ...common, ...none, conditions: { ready: true }, hints: undefined },
    // Written without a value.
    { ...common, ...none, conditions: { ready: false }, hints: { zones: [] } },
    { ...common, ...none, conditions: { ready: true }, hints: undefined },
  ]);
});

t.test('JSON, CRLF, comments, indentation, key order and start marks', async (t) => {
  const block = lines('services:', '- service:', '    name: web', '  endpoints: []');
  const forms = {
    json: '{"services": [{"service": {"name": "web"}, "endpoints": []}]}',
    'quotes in JSON': '{"services": [{"service": {"name": "web", "labels": {"a:": "\\":"}}}]}',
    crlf: block.replaceAll('\n', '\r\n'),
    comments: block.replaceAll('\n', ' # a comment\n# - another\n'),
    'start mark': `# first\n---\n${block}`,
    'end mark': `${block}...\n`,
    indented: lines('services:', '  - service:', '      name: web'),
    'deeply indented': lines('services:', '        - service: {name: web}'),
    'dash alone': lines('services:', '-', '  service:', '    name: web'),
    'no newline at the end': 'services:\n- service: {name: web}',
    'blank lines': block.replaceAll('\n', '\n\n'),
    'nodes behind': `${block}nodes:\n- name: n1\n`,
    'nodes on both sides': `# yes\n${block}"nodes": []\n`,
    flow: 'services: [service: {name: web}]',
  };
  for (const [name, text] of Object.entries(forms)) {
    t.strictSame([...stateOf(text).services.keys()], ['default/web'], name);
  }
  for (const text of ['services: []\n', '{services: []}', 'nodes:\nservices: [] # none\n'])
    t.equal(stateOf(text).services.size, 0, text);
});

t.test('keys that JavaScript knows have no special meaning', async (t) => {
  const text = fileWith('labels: {__proto__: a, constructor: b, toString: c}');
  const labels = stateOf(text).services.get('default/web')?.service.labels ?? {};
  t.strictSame(Object.keys(labels), ['__proto__', 'constructor', 'toString']);
  t.equal(Object.getPrototypeOf(labels), Object.prototype);
});

for (const form of ['YAML', 'JSON', 'flow style'] as const) {
  t.test(`${form}: a service that did not change is not parsed again`, async (t) => {
    const text = (ports: Record<string, number>): string => {
      const items = Object.entries(ports).map(([name, port]) => {
        return { service: { name, ports: [{ port }] } };
      });
      if (form === 'YAML') return `services:\n${items.map((each) => stringify([each])).join('')}`;
      const json = JSON.stringify({ services: items });
      return form === 'JSON' ? json : `services: ${JSON.stringify(items)}`;
    };
    const parser = new StateParser();
    const first = parser.parse(text({ a: 1, b: 2, c: 3 }));
    const changed: string[] = [];
    const second = parser.parse(text({ c: 3, b: 20, a: 1 }), (item) => changed.push(item));
    if (!first.ok || !second.ok) throw new Error('both are valid');
    t.strictSame([first.parsedItems, second.parsedItems], [3, 1]);
    const services = servicesFrom(changed);
    t.strictSame([...services.keys()], ['default/b'], 'only what has changed');
    t.equal(services.get('default/b')?.service.ports[0]?.port, 20);
    const third = parser.parse(text({ a: 1, b: 2 }));
    t.equal(third.ok && third.parsedItems, 1, 'what is gone from the file is forgotten');
    t.strictSame(third.ok && third.removed, ['default/c']);
  });
}

t.test('scalars mean what they mean in YAML 1.2', async (t) => {
  const port = (text: string): unknown => {
    const { services } = stateOf(`services:\n- service: {name: a, ports: [{port: ${text}}]}\n`);
    return services.get('default/a')?.service.ports[0]?.port;
  };
  const numbers = { '017': 17, '0o17': 15, '0x1F': 31, '+8': 8, '8e1': 80 };
  for (const [text, value] of Object.entries(numbers)) {
    t.equal(port(text), value, text);
  }
  const labels = (text: string): unknown =>
    stateOf(`services:\n- service: {name: a, labels: ${text}}\n`).services.get('default/a')?.service
      .labels;
  const texts = ['1_000', '2001-12-14', 'yes', 'No', 'on', '0b1', '1:30', '<<', 'tRUE', '!!str 1'];
  for (const text of texts) {
    t.strictSame(labels(`{a: ${text}}`), { a: text.replace('!!str ', '') }, text);
  }
  const keys = labels('{1.0: a, null: b, true: c, 0x1: d}') ?? {};
  t.strictSame(Object.keys(keys).sort(), ['0x1', '1.0', 'null', 'true']);
  for (const text of ['17', '.5', '.inf', 'true', '~', 'Null', '0o7', '{}']) {
    t.equal(problemsOf(`services:\n- service: {name: a, labels: {a: ${text}}}\n`).length, 1, text);
  }
});

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
  const parser = new StateParser({ ...DEFAULT_FILE_LIMITS, maxPieceChars: 30 });
  const text = fileWith('type: ClusterIP');
  for (const [each, line, what] of [
    [text, 2, 'a service'],
    [inOnePiece(text), 1, 'a file that is not JSON, or YAML in block style without aliases,'],
  ] as const) {
    const message = `${what} may have at most 30 characters; write it as JSON`;
    t.match(parser.parse(each), { errors: { first: [{ line, message }] } });
  }
  t.ok(parser.parse('{"services": [{"service": {"name": "web"}}]}').ok);
  const first = [{ line: 1, column: 2, message: "'services' is missing" }];
  t.match(parser.parse(' {"nodes": [{"name": "node-1", "labels": {}}]}'), { errors: { first } });
});

t.test('the first problems are listed by line, the others are counted', async (t) => {
  const item = '- service: {name: ok, port: 1, x: 2}\n';
  const result = new StateParser().parse(`node: 1\nservices:\n${item.repeat(500)}`);
  if (result.ok) throw new Error('there are errors');
  const listed = formatProblems('state.yaml', result.errors).split('\n');
  t.equal(listed.length, 21);
  t.strictSame(listed.slice(0, 2), [
    "state.yaml:1:1: node: unknown key 'node'; did you mean 'nodes'?",
    "state.yaml:3:23: services[0].service.port: unknown key 'port'; did you mean 'ports'?",
  ]);
  t.equal(listed.at(-1), '… and 981 more');
});

t.test('a warning is new until it goes away, wherever its service is', async (t) => {
  const parser = new StateParser();
  const item = (name: string, namespace: string) =>
    `- service: {name: ${name}}\n  endpoints: [{namespace: ${namespace}}]\n`;
  /** The services with a new warning. */
  const warned = (...items: string[]): unknown => {
    const result = parser.parse(`services:\n${items.join('')}`);
    return result.ok && result.newWarnings.first.map(({ path }) => path.replace(/\].*/, ']'));
  };
  t.strictSame(warned(item('a', 'x')), ['services[0]']);
  t.strictSame(warned(item('b', 'default'), item('a', 'x')), [], 'the same, further down');
  t.strictSame(warned(item('b', 'x'), item('a', 'x')), ['services[0]'], 'another one');
  t.strictSame(warned(item('b', 'z'), item('a', 'x')), ['services[0]'], 'with another text');
  t.strictSame(warned(item('b', 'z')), []);
  t.strictSame(warned(item('b', 'z'), item('a', 'x')), ['services[1]'], 'it has come back');
  t.equal(warned(item('a b', 'x')), false);
  t.strictSame(warned(item('b', 'z'), item('a', 'x')), [], 'after an error');
});
