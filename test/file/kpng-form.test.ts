/**
 * What Go kpng's reader accepts, as data. Found by giving files to its decoder: it refuses the whole file for an
 * unknown key or a value of another kind, and crashes where a map is missing that it needs.
 */
import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { parse } from 'yaml';
import { stateText } from '../../src/file/write.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { draining, emptyCluster, perform, pod, step, type Cluster } from '../support/cluster.ts';
import { stateOf } from '../support/file-rig.ts';
import { holdsAsync } from '../support/property.ts';

/** A form: a kind of scalar, a list of a form, `{'*': form}` for any keys, or a map of keys to forms. */
type Form = 'string' | 'number' | 'boolean' | 'nothing' | [Form] | { [key: string]: Form };

const TEXTS: Form = { '*': 'string' };
const IPS: Form = { v4: ['string'], v6: ['string'] };
const TOPOLOGY: Form = { node: 'string', zone: 'string' };
const SERVICE: Form = {
  namespace: 'string',
  name: 'string',
  type: 'string',
  labels: TEXTS,
  annotations: TEXTS,
  ips: { clusterips: IPS, externalips: IPS, loadbalancerips: IPS, headless: 'boolean' },
  ipfilters: [{ targetips: IPS, sourceranges: ['string'] }],
  mapip: 'boolean',
  ports: [
    {
      name: 'string',
      protocol: 'number',
      port: 'number',
      nodeport: 'number',
      targetport: 'number',
      targetportname: 'string',
    },
  ],
  externaltraffictolocal: 'boolean',
  // Written by Go kpng, and a crash in its reader.
  sessionaffinity: 'nothing',
  internaltraffictolocal: 'boolean',
  healthchecknodeport: 'number',
};
const ENDPOINT: Form = {
  hash: 'number',
  namespace: 'string',
  sourcename: 'string',
  servicename: 'string',
  podname: 'string',
  endpoint: {
    hostname: 'string',
    ips: IPS,
    local: 'boolean',
    portoverrides: [{ name: 'string', port: 'number' }],
    scopes: { internal: 'boolean', external: 'boolean' },
  },
  conditions: { ready: 'boolean' },
  topology: TOPOLOGY,
  hints: { zones: ['string'] },
};
const FILE: Form = {
  nodes: [{ name: 'string', topology: TOPOLOGY, labels: TEXTS, annotations: TEXTS }],
  services: [{ service: SERVICE, endpoints: [ENDPOINT] }],
};
/** A null of these is a crash. */
const NEEDED = /\.(?:service|endpoint|topology)$/;
/** The characters that its YAML reader accepts, and the escapes that it does not. */
const CHARACTERS = /^[\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\u{10000}-\u{10ffff}]*$/u;
const SURROGATES = /\\u[dD][89a-fA-F]/;

/** The paths that Go kpng refuses or crashes on. */
function refused(value: unknown, form: Form, path: string): string[] {
  if (value === null) return NEEDED.test(path) ? [path] : [];
  if (typeof form === 'string') return typeof value === form ? [] : [path];
  if (Array.isArray(form)) {
    const [item] = form;
    return (value as unknown[]).flatMap((each) => refused(each, item, path));
  }
  return Object.entries(value as object).flatMap(([key, each]: [string, unknown]) => {
    const forms = form as Record<string, Form>;
    const known = Object.hasOwn(forms, key) ? forms[key] : forms['*'];
    return known === undefined ? [`${path}.${key}`] : refused(each, known, `${path}.${key}`);
  });
}

function written(store: GlobalStore, extended?: boolean): string {
  return [...stateText(store, store.revision, extended)].join('');
}

function refusedIn(text: string): string[] {
  const found = refused(parse(text, { version: '1.1' }), FILE, '');
  return CHARACTERS.test(text) && !SURROGATES.test(text) ? found : [...found, 'a character'];
}

/** A state with all that Go kpng does not know. */
async function rich(): Promise<Cluster> {
  return (await emptyCluster())
    .node('n1', '', { topology: undefined, labels: { 'topology.kubernetes.io/zone': 'z1' } })
    .service('demo/web', {
      sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds: 600 } },
      annotations: { note: `\ufffe\uffff\ufeff\u2028\0${String.fromCharCode(0xd800)}\u{1f600}` },
      ports: [{ name: 'http', protocol: 1, port: 80 }],
    })
    .slice(
      'demo/web',
      'web-1',
      pod('web-0', '10.1.0.5', 'n1', { hints: { zones: ['z1'], nodes: ['n1'] } }),
      draining(pod('web-1', '10.1.0.6')),
      { podName: 'web-2', conditions: { ready: true } },
    )
    .complete();
}

t.test('the default form leaves out or replaces what Go kpng cannot read', async (t) => {
  const { store } = await rich();
  t.strictSame(refusedIn(written(store, true)).sort(), [
    '.services.endpoints.conditions.serving',
    '.services.endpoints.conditions.terminating',
    '.services.endpoints.endpoint',
    '.services.endpoints.hints.nodes',
    '.services.service.sessionaffinity',
  ]);
  const text = written(store);
  t.strictSame(refusedIn(text), []);
  const { services, nodes } = stateOf(text);
  const web = services.get('demo/web');
  t.equal(web?.service.annotations['note'], '\ufffe\uffff\ufeff\u2028\0\ufffd\u{1f600}');
  t.equal(web?.service.sessionAffinity, undefined);
  t.match(
    web?.endpoints.map(({ podName, conditions, hints, topology }) => {
      return { podName, conditions, hints, topology };
    }),
    [
      {
        podName: 'web-0',
        conditions: { ready: true },
        hints: { zones: ['z1'], nodes: [] },
        topology: { node: 'n1' },
      },
      // Not used by Go kpng, which knows no more than its readiness.
      { podName: 'web-1', conditions: { ready: false, serving: false }, topology: { node: '' } },
    ],
  );
  t.equal(web?.endpoints.length, 2, 'an endpoint without addresses is left out');
  t.equal(nodes.get('n1')?.topology?.zone, 'z1', 'the zone that only the label has');
});

t.test('Go kpng can read the default form of any state', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(
      fc.array(step, { maxLength: 25 }),
      fc.dictionary(fc.string(), fc.string({ unit: 'binary' })),
      async (steps, annotations) => {
        const cluster = (await emptyCluster()).complete();
        for (const each of steps) perform(cluster, each);
        cluster.service('ns/text', { annotations, labels: { word: 'yes', number: '0o17' } });
        assert.deepEqual(refusedIn(written(cluster.store)), []);
      },
    ),
  );
});
