import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { stringify } from 'yaml';
import { Protocol } from '../../src/api/generated/localv1/api.ts';
import { parseStateFile } from '../../src/file/parse.ts';
import type { Problem } from '../../src/file/problem.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { parseYaml } from '../../src/util/yaml.ts';
import { yamlBits } from '../support/property.ts';
import { nodeView } from '../support/cluster.ts';
import { inOnePiece, lines, stateOf } from '../support/file-rig.ts';

const BOUNDED = { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false };

const name = fc.stringMatching(/^[a-z][a-z0-9]{0,5}$/);
const ipv4 = fc.ipV4();
const ipv6 = fc.ipV6().filter((text) => !text.includes('.') && !/^(0*:)*:?0*ffff:/i.test(text));
const ipSet = fc.record({
  v4: fc.array(ipv4, { maxLength: 3 }),
  v6: fc.array(ipv6, { maxLength: 3 }),
});
const portNumber = fc.integer({ min: 1, max: 65_535 });
const maybe = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | null> =>
  fc.option(arbitrary, { nil: null });
/** Any text at all, such as a description in an annotation. */
const anyText = fc.string({ unit: 'grapheme', maxLength: 30 });

const port = fc.record({
  name,
  protocol: fc.constantFrom('TCP', 'UDP', 'SCTP', 1, 2, 3),
  port: portNumber,
  nodeport: fc.integer({ min: 0, max: 65_535 }),
  targetport: fc.integer({ min: 0, max: 65_535 }),
  targetportname: fc.constantFrom('', 'http', 'dns'),
});

const service = fc.record({
  namespace: name,
  name,
  type: fc.constantFrom('ClusterIP', 'NodePort', 'LoadBalancer'),
  labels: fc.dictionary(anyText, anyText, { maxKeys: 3 }),
  annotations: fc.dictionary(anyText, anyText, { maxKeys: 3 }),
  ips: maybe(
    fc.record({
      clusterips: maybe(ipSet),
      externalips: maybe(ipSet),
      loadbalancerips: maybe(ipSet),
      headless: fc.boolean(),
    }),
  ),
  ports: fc.uniqueArray(port, {
    maxLength: 3,
    comparator: (a, b) => a.name === b.name || a.port === b.port,
  }),
  externaltraffictolocal: fc.boolean(),
  internaltraffictolocal: fc.boolean(),
  sessionaffinity: maybe(
    fc.record({ clientip: fc.record({ timeoutseconds: fc.integer({ min: 1, max: 86_400 }) }) }),
  ),
});

const endpoint = fc.record({
  podname: fc.constantFrom('', 'pod-0', 'pod-1', 'pod-2'),
  endpoint: maybe(
    fc.record({
      ips: maybe(ipSet),
      portoverrides: fc.uniqueArray(fc.record({ name, port: portNumber }), {
        maxLength: 2,
        selector: (override) => override.name,
      }),
    }),
  ),
  conditions: maybe(fc.record({ ready: fc.boolean() })),
  topology: maybe(fc.record({ node: fc.constantFrom('n1', 'n2'), zone: fc.constant('z1') })),
  hints: maybe(fc.record({ zones: fc.array(fc.constantFrom('z1', 'z2'), { maxLength: 2 }) })),
});

const file = fc.record({
  nodes: fc.constant([{ name: 'n1', topology: { node: 'n1', zone: 'z1' } }]),
  services: fc.uniqueArray(
    fc.record({ service, endpoints: fc.array(endpoint, { maxLength: 4 }) }),
    { maxLength: 4, selector: (item) => `${item.service.namespace}/${item.service.name}` },
  ),
});

t.test('every form of a file is read back as what was written', async () => {
  const view = (text: string): unknown => [...nodeView(stateOf(text), 'n1').values()];
  fc.assert(
    fc.property(
      file,
      fc.constantFrom<'block' | 'flow' | 'any'>('block', 'flow', 'any'),
      (value, collectionStyle) => {
        const text = stringify(value, { collectionStyle, aliasDuplicateObjects: false });
        const { services } = stateOf(text);
        if (services.size !== value.services.length) return false;
        for (const { service, endpoints } of value.services) {
          const read = services.get(`${service.namespace}/${service.name}`);
          assert.partialDeepStrictEqual(read?.service, {
            labels: service.labels,
            annotations: service.annotations,
            externalTrafficToLocal: service.externaltraffictolocal,
            ports: service.ports.map((port) => ({
              name: port.name,
              protocol:
                typeof port.protocol === 'number'
                  ? port.protocol
                  : Protocol[port.protocol as 'TCP'],
              port: port.port,
              nodePort: port.nodeport,
            })),
          });
          if (read?.endpoints.length !== endpoints.length) return false;
        }
        const others = [JSON.stringify(value), JSON.stringify(value, undefined, '\t')];
        for (const other of [inOnePiece(text), ...others]) {
          assert.deepEqual(view(other), view(text));
        }
        return true;
      },
    ),
    BOUNDED,
  );
});

const SAMPLE = lines(
  'nodes:',
  '- name: edge-1',
  '  topology: {node: edge-1, zone: north}',
  'services:',
  '- service:',
  '    namespace: bakery',
  '    name: oven',
  '    annotations:',
  '      text: |',
  '        # two',
  '        - lines',
  '    ips:',
  '      clusterips: {v4: [10.96.10.20], v6: ["fd00:10:96::20"]}',
  '    ports:',
  '    - {name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080}',
  '    sessionaffinity: {clientip: {timeoutseconds: 60}}',
  '  endpoints:',
  '  - podname: oven-0',
  '    endpoint:',
  '      ips: {v4: [10.244.1.11]}',
  '      portoverrides: [{name: http, port: 8080}]',
  '    topology: {node: edge-1, zone: north}',
  '  - podname: oven-1',
  '    endpoint: {ips: {v4: [10.244.1.12]}}',
  '    # of the second',
  '    hints: {zones: [north]}',
  '  - endpoint: {ips: {v6: ["fd00::1"]}}',
  '# between',
  '- service:',
  '    name: flour',
  '    ports: [{protocol: TCP, port: 7000}]',
  '  endpoints: []',
);

interface Mutation {
  at: number;
  remove: number;
  insert: string;
}

const mutation: fc.Arbitrary<Mutation> = fc.record({
  at: fc.nat(SAMPLE.length),
  remove: fc.oneof(fc.constant(0), fc.nat(3), fc.nat(80)),
  insert: fc.oneof(fc.constant(''), yamlBits, fc.string({ maxLength: 4 })),
});

function mutate(text: string, mutations: readonly Mutation[]): string {
  let result = text;
  for (const { at, remove, insert } of mutations) {
    result = result.slice(0, at) + insert + result.slice(at + remove);
  }
  return result;
}

/** A CR that ends no line. */
const LONE_CR: Mutation = { at: SAMPLE.lastIndexOf('  endpoints'), remove: 0, insert: '\r' };

t.test('after any edits, a file means the same in pieces; nothing throws', async (t) => {
  let [both, refused] = [0, 0];
  fc.assert(
    fc.property(fc.array(mutation, { minLength: 1, maxLength: 4 }), (mutations) => {
      const text = mutate(SAMPLE, mutations);
      const whole = inOnePiece(text);
      const a = parseStateFile(text);
      const b = parseStateFile(whole);
      if (a.ok !== b.ok)
        throw new Error(`${a.ok ? 'accepted' : 'refused'} in pieces only:\n${text}`);
      if (a.ok && b.ok) {
        both += 1;
        assert.deepEqual(stateOf(text), stateOf(whole));
      } else if (!a.ok && !b.ok) {
        refused += 1;
        assert.ok(a.errors.total > 0 && a.errors.first.length > 0);
        if (!parseYaml(whole, DEFAULT_FILE_LIMITS).ok) return;
        // What is missing has no position, so its place among the others depends on the pieces.
        assert.deepEqual(a.errors.first.map(said).sort(), b.errors.first.map(said).sort());
      }
    }),
    { ...BOUNDED, numRuns: 2000, examples: [[[LONE_CR]]] },
  );
  t.ok(both > 0 && refused > 0, `${both} were valid, ${refused} refused`);
});

/** Where there is no value to point at, it may be the start of one list or of another. */
function said({ line, column, path, message }: Problem): string {
  const where = message.startsWith('there is no value') ? '' : `${line}:${column}: `;
  return `${where}${path}: ${message}`;
}
