import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { stringify } from 'yaml';
import { StateParser } from '../../src/file/parse.ts';
import type { Problem } from '../../src/file/problem.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { parseYaml } from '../../src/util/yaml.ts';
import { yamlBits } from '../support/property.ts';
import { inOnePiece, stateOf } from '../support/file-rig.ts';

const BOUNDED = { seed: 1, interruptAfterTimeLimit: 3000, markInterruptAsFailure: false };

/** Any text at all, such as a description in an annotation. */
const anyText = fc.string({ unit: 'grapheme', maxLength: 30 });
const texts = fc.dictionary(anyText, anyText, { maxKeys: 3 });
const services = fc.uniqueArray(
  fc.record({
    name: fc.stringMatching(/^[a-z][a-z0-9]{0,5}$/),
    labels: texts,
    annotations: texts,
    ips: fc.constantFrom(null, { clusterips: { v4: ['10.0.0.1'], v6: ['fd00::1'] } }),
    ports: fc.constantFrom([], [{ name: 'http', protocol: 'UDP', port: 80 }]),
  }),
  { maxLength: 4, selector: ({ name }) => name },
);

t.test('every form of a file is read back as what was written', async () => {
  const styles = fc.constantFrom<'block' | 'flow' | 'any'>('block', 'flow', 'any');
  const property = fc.property(services, styles, fc.boolean(), (all, collectionStyle, aliases) => {
    const endpoints = [{ podname: 'pod-0', endpoint: { ips: { v4: ['10.1.0.1'] } } }];
    const value = {
      nodes: [{ name: 'n1' }],
      services: all.map((service) => ({ service, endpoints })),
    };
    const text = stringify(value, { collectionStyle, aliasDuplicateObjects: aliases });
    const state = stateOf(text);
    for (const { name, labels, annotations } of all) {
      const read = state.services.get(`default/${name}`)?.service;
      assert.partialDeepStrictEqual(read, { labels, annotations });
    }
    const others = [JSON.stringify(value), JSON.stringify(value, undefined, '\t')];
    for (const other of [inOnePiece(text), ...others]) assert.deepEqual(stateOf(other), state);
    return state.services.size === all.length;
  });
  fc.assert(property, BOUNDED);
});

const SAMPLE = `nodes:
- name: edge-1
  topology: {node: edge-1, zone: north}
services:
- service:
    name: oven
    annotations:
      text: |
        # two
        - service:
      folded: >-
        services:
        - no
      quoted: "a
        - b
        nodes: c"
    ips:
      clusterips: {v4: [10.96.10.20], v6: ["fd00:10:96::20"]}
    ports:
    - {name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080}
  endpoints:
  - podname: oven-0
    endpoint:
      ips: {v4: [10.244.1.11]}
      portoverrides: [{name: http, port: 8080}]
  - podname: oven-1
    endpoint: {ips: {v4: [10.244.1.12]}}
    # of the second
    hints: {zones: [north]}
# between
- service:
    name: flour
    ports: [{protocol: TCP, port: 7000}]
  endpoints: []
`;

/** Offset, number of removed characters, and what is inserted. */
type Mutation = readonly [at: number, remove: number, insert: string];

const mutation: fc.Arbitrary<Mutation> = fc.tuple(
  fc.nat(SAMPLE.length),
  fc.oneof(fc.constant(0), fc.nat(3), fc.nat(80)),
  fc.oneof(fc.constant(''), yamlBits, fc.string({ maxLength: 4 })),
);

function mutate(text: string, mutations: readonly Mutation[]): string {
  return mutations.reduce(
    (result, [at, remove, insert]) => result.slice(0, at) + insert + result.slice(at + remove),
    text,
  );
}

const NONE: Mutation = [0, 0, ''];
/** A CR that ends no line. */
const LONE_CR: Mutation = [SAMPLE.lastIndexOf('  endpoints'), 0, '\r'];

t.test('after any edits, a file means the same in pieces; nothing throws', async (t) => {
  let [both, refused] = [0, 0];
  fc.assert(
    fc.property(fc.array(mutation, { minLength: 1, maxLength: 4 }), (mutations) => {
      const text = mutate(SAMPLE, mutations);
      const whole = inOnePiece(text);
      const a = new StateParser().parse(text);
      const b = new StateParser().parse(whole);
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
    { ...BOUNDED, numRuns: 2000, examples: [[[NONE]], [[LONE_CR]]] },
  );
  t.ok(both > 0 && refused > 0, `${both} were valid, ${refused} refused`);
});

/** Where there is no value to point at, it may be the start of one list or of another. */
function said({ line, column, path, message }: Problem): string {
  const where = message.startsWith('there is no value') ? '' : `${line}:${column}: `;
  return `${where}${path}: ${message}`;
}
