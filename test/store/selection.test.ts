import t, { type Test } from 'tap';
import { EndpointInfo, Node } from '../../src/api/generated/globalv1/api.ts';
import type { DeepPartial, Service } from '../../src/api/generated/localv1/api.ts';
import { ipSetOf, isMappedIPv4 } from '../../src/store/ip-set.ts';
import { zoneOf } from '../../src/store/stored.ts';
import { service } from '../support/messages.ts';
import { localEndpoints } from '../support/cluster.ts';

type Info = DeepPartial<EndpointInfo>;

/** An endpoint of a pod on a node; the zones are its hints. */
function pod(podName: string, node: string, v4: string, zones?: string[]): Info {
  return {
    podName,
    endpoint: { ips: { v4: [v4] } },
    topology: { node },
    ...(zones === undefined ? {} : { hints: { zones } }),
  };
}

/** `key` or `key:scopes` of each endpoint, with `*` in front of the local ones. */
function view(
  infos: readonly Info[],
  node: { name: string; zone?: string },
  policies: Partial<Service> = {},
): string[] {
  const messages = infos.map((info) => EndpointInfo.fromPartial(info));
  const found = localEndpoints(service('demo/web', policies), messages, { zone: '', ...node });
  return [...found].map(([key, { local, scopes }]) => {
    const words = [scopes?.internal ? 'int' : '', scopes?.external ? 'ext' : ''];
    return `${local ? '*' : ''}${key} ${words.filter((word) => word !== '').join('+')}`;
  });
}

const A = pod('a', 'host-a', '10.0.0.1');
const B = pod('b', 'host-b', '10.0.0.2');

/** Endpoints, the node that looks, policies, and what it sees. */
type Case = [what: string, Info[], node: { name: string; zone?: string }, Partial<Service>, string];

function checkViews(t: Test, cases: readonly Case[]): void {
  for (const [what, infos, node, policies, expected] of cases) {
    t.equal(view(infos, node, policies).join(', '), expected, what);
  }
}

const OFF = { conditions: { ready: false } };
const EXTERNAL = { externalTrafficToLocal: true };
const INTERNAL = { internalTrafficToLocal: true };

t.test('V7 (kept): readiness', async (t) => {
  const on = { name: 'n' };
  checkViews(t, [
    ['absent conditions: ready', [A], on, {}, 'a int+ext'],
    ['ready', [{ ...A, conditions: { ready: true } }], on, {}, 'a int+ext'],
    ['not ready', [{ ...A, ...OFF }, B], on, {}, 'b int+ext'],
  ]);
});

t.test('V8 (kept): Local policies', async (t) => {
  const on = { name: 'host-a' };
  checkViews(t, [
    ['none', [A, B], on, {}, '*a int+ext, b int+ext'],
    ['external', [A, B], on, EXTERNAL, '*a int+ext, b int'],
    ['internal', [A, B], on, INTERNAL, '*a int+ext, b ext'],
    ['both', [A, B], on, { ...EXTERNAL, ...INTERNAL }, '*a int+ext'],
    ['elsewhere', [A, B], { name: 'host-c' }, { ...EXTERNAL, ...INTERNAL }, ''],
  ]);
});

t.test('V9 (kept, different): hints', async (t) => {
  const z1 = pod('z1', 'n', '10.0.0.1', ['z1']);
  const z2 = pod('z2', 'm', '10.0.0.2', ['z2']);
  const both = pod('both', 'm', '10.0.0.3', ['z1', 'z2']);
  const none = pod('none', 'm', '10.0.0.4');
  const here = pod('here', 'n', '10.0.0.5', ['z2']);
  const there = pod('there', 'm', '10.0.0.6', ['z1']);
  const inZ1 = { name: 'n', zone: 'z1' };
  const inZ2 = { name: 'm', zone: 'z2' };
  const anyZone = '*z1 int+ext, z2 int+ext';
  checkViews(t, [
    ['kept: no hint for this zone', [z1, z2, both], inZ1, {}, 'both int+ext, *z1 int+ext'],
    ['kept: nor for the other', [z1, z2, both], inZ2, {}, '*both int+ext, *z2 int+ext'],
    // Hints that cannot be followed are ignored.
    ['different: one without hints', [z1, z2, none], inZ1, {}, `none int+ext, ${anyZone}`],
    ['not if it is not ready', [z1, z2, { ...none, ...OFF }], inZ1, {}, '*z1 int+ext'],
    ['a node in no known zone', [z1, z2], { name: 'n', zone: '' }, {}, anyZone],
    ['when nothing is left', [z1, z2], { name: 'n', zone: 'z3' }, {}, anyZone],
    ['what is not ready does not count', [{ ...z1, ...OFF }, z2], inZ1, {}, 'z2 int+ext'],
    // They do not take local endpoints from a Local policy.
    ['different: external Local', [here, there], inZ1, EXTERNAL, '*here ext, there int'],
    ['internal Local', [here, there], inZ1, INTERNAL, '*here int, there ext'],
    ['without a Local policy', [here, there], inZ1, {}, 'there int+ext'],
  ]);
});

t.test('V5 (kept): the keys of a local endpoint', async (t) => {
  const info: Info = {
    podName: 'web-0',
    endpoint: { ips: { v4: ['10.1.0.5'] }, portOverrides: [{ name: 'http', port: 8080 }] },
    topology: { node: 'node-a', zone: 'zone-1' },
  };
  const anonymous = { ...info, podName: '' };
  t.strictSame(view([info], { name: 'node-a' }), ['*web-0 int+ext']);
  t.strictSame(view([anonymous], { name: 'node-a' }), ['*de09cf017a7802d8 int+ext']);
  t.strictSame(view([anonymous], { name: 'node-b' }), ['3ddb39e30288c3e6 int+ext']);
  t.strictSame(view([anonymous, anonymous], { name: 'node-b' }), ['3ddb39e30288c3e6 int+ext']);
});

t.test('fields that one endpoint cannot express make a second endpoint', async (t) => {
  const first: Info = {
    podName: 'p',
    endpoint: { ips: { v4: ['10.0.0.1'] }, portOverrides: [{ name: 'http', port: 1 }] },
    topology: { node: 'n1' },
  };
  const otherPort = {
    ...first,
    endpoint: { ips: { v4: ['10.0.0.1'] }, portOverrides: [{ name: 'http', port: 2 }] },
  };
  const elsewhere = { ...first, topology: { node: 'n2' } };
  const keys = view([first, otherPort, elsewhere], { name: 'n1' });
  t.equal(keys.length, 3);
  t.ok(keys.includes('*p int+ext'));
  t.equal(keys.filter((key) => /^\*?[0-9a-f]{14,16} int\+ext$/.test(key)).length, 2);
});

t.test('ports and hostname of one pod in two slices are joined', async (t) => {
  const info = (name: string, hostname: string): EndpointInfo =>
    EndpointInfo.fromPartial({
      podName: 'p',
      endpoint: { hostname, ips: { v4: ['10.0.0.1'] }, portOverrides: [{ name, port: 1 }] },
    });
  const infos = [info('a', ''), info('b', 'host'), info('a', '')];
  const before = structuredClone(infos);
  const found = localEndpoints(service('demo/web'), infos, { name: 'n', zone: '' });
  t.strictSame(infos, before, 'none of them is changed');
  t.match(found.get('p'), {
    hostname: 'host',
    portOverrides: [
      { name: 'a', port: 1 },
      { name: 'b', port: 1 },
    ],
  });
  t.equal(found.get('p')?.portOverrides.length, 2);
});

t.test('an endpoint without addresses and ports is left out', async (t) => {
  t.strictSame(view([{ podName: 'p' }, A], { name: 'n' }), ['a int+ext']);
});

t.test('the zone of a node: its topology, or else its label', async (t) => {
  const zone = (more: DeepPartial<Node>): string =>
    zoneOf(Node.fromPartial({ name: 'n1', ...more }));
  const labels = { 'topology.kubernetes.io/zone': 'label' };
  t.equal(zone({ topology: { zone: 'own' }, labels }), 'own');
  t.equal(zone({ topology: { zone: '' }, labels }), 'label');
  t.equal(zone({ labels }), 'label');
  t.equal(zone({}), '');
});

t.test('an IPv4-mapped address counts as IPv4 and keeps its text', async (t) => {
  t.strictSame(ipSetOf(['::ffff:1.2.3.4', '0:0:0:0:0:ffff:102:304']), {
    v4: ['0:0:0:0:0:ffff:102:304', '::ffff:1.2.3.4'],
    v6: [],
  });
  t.equal(isMappedIPv4('::FFFF:1.2.3.4'), true);
  const others = ['::1.2.3.4', 'ffff::1', '::ffff:1.2.3.4%eth0', '1.2.3.4', '::ffff:1.2.3.4.5'];
  t.strictSame(others.filter(isMappedIPv4), []);
});
