import t from 'tap';
import { stringify } from 'yaml';
import { Protocol } from '../../src/api/generated/localv1/api.ts';
import { StateParser } from '../../src/file/parse.ts';
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

t.test('addresses are sorted as strings, each once, and their text is kept', async (t) => {
  const ips =
    'ips: {externalips: {v4: [10.0.0.9, 10.0.0.10, 10.0.0.9], v6: ["::2", ::1, FD00::1]}}';
  t.strictSame(stateOf(fileWith(ips)).services.get('default/web')?.service.ips?.externalIPs, {
    v4: ['10.0.0.10', '10.0.0.9'],
    v6: ['::1', '::2', 'FD00::1'],
  });
});

t.test('files without services', async (t) => {
  for (const text of ['services: []\n', '{services: []}', 'nodes:\nservices: [] # none\n']) {
    t.equal(stateOf(text).services.size, 0, JSON.stringify(text));
  }
});

t.test('JSON, CRLF, comments, indentation, key order and start marks', async (t) => {
  const block = lines('services:', '- service:', '    name: web', '  endpoints: []');
  const forms = {
    json: '{"services": [{"service": {"name": "web"}, "endpoints": []}]}',
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
});

t.test('text that only looks like a new item', async (t) => {
  const text = lines(
    'services:',
    '- service:',
    '    name: web',
    '    annotations:',
    '      block: |',
    '        - service:',
    '            name: no',
    '        # not a comment',
    '      folded: >-',
    '        services:',
    '        - no',
    '      quoted: "a',
    '        - b',
    '        nodes: c"',
    '- service:',
    '    name: next',
  );
  const { services } = stateOf(text);
  t.strictSame([...services.keys()], ['default/web', 'default/next']);
  t.strictSame(services.get('default/web')?.service.annotations, {
    block: '- service:\n    name: no\n# not a comment\n',
    folded: 'services: - no',
    quoted: 'a - b nodes: c',
  });
  t.strictSame(stateOf(inOnePiece(text)), stateOf(text));
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
    const changed = new Set<string>();
    const second = parser.parse(text({ c: 3, b: 20, a: 1 }), changed);
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

t.test('errors of a service that is not parsed again have its present line', async (t) => {
  const bad = '- service:\n    name: a\n    ports: [{port: 0}]\n';
  const parser = new StateParser();
  parser.parse(`services:\n${bad}`);
  const result = parser.parse(`nodes: []\n\nservices:\n- service: {name: first}\n${bad}`);
  t.match(!result.ok && result.errors.first, [
    { line: 7, column: 20, path: 'services[1].service.ports[0].port' },
  ]);
});

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

t.test('quotes and colons in JSON are text', async (t) => {
  const text = '{"services": [{"service": {"name": "a", "labels": {"a:": "\\":"}}}]}';
  t.equal(stateOf(text).services.size, 1);
});
