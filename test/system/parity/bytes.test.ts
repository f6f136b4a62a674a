/** What does not depend on the portal: bytes both ways, all of them and in order, and the pages of kube-proxy. */
import { readFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { makeAuthority } from '../../support/certs.ts';
import { lab, type Lab } from '../support/lab.ts';
import type { Machine } from '../support/machine.ts';
import { ADDRESSES, NODE } from '../support/network.ts';
import { PORTALS, startWith } from '../support/portals-under-test.ts';
import { CLUSTER, NODE_PORTS, pod, service } from '../support/proxy.ts';

const INTACT = { up: 'intact', down: 'intact' };
const PLACES = [`${CLUSTER.v4}:80`, `[${CLUSTER.v6}]:80`, `${NODE.v4}:${NODE_PORTS.TCP}`];

function ports(targetport: number): Record<string, unknown> {
  return {
    ports: [{ name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport }],
  };
}

const [portal] = PORTALS;

t.test(`large first flights of both sides arrive intact`, async (t) => {
  const here = await lab(t);
  const program = startWith(t, here, portal);
  const [client, server] = [here.client.agent, here.podA.agent];
  const { v4, v6 } = ADDRESSES['pod-a'];
  for (const [port, bytes] of [
    [9100, 1],
    [9101, 5000],
    [9102, 3_000_000],
  ] as const) {
    await server.call('serveFirstFlight', `${v4}:${port}`, bytes);
    await server.call('serveFirstFlight', `[${v6}]:${port}`, bytes);
    await program.serve(service([pod('pod-a')], ports(port)));
    const all = await Promise.all(
      PLACES.map((place) =>
        Promise.all([1, 2, 3].map(() => client.call('firstFlight', place, bytes))),
      ),
    );
    t.same(
      all.flat(),
      Array.from({ length: 9 }, () => INTACT),
      `${bytes} bytes`,
    );
  }
});

t.test(`TLS with a long chain of certificates`, async (t) => {
  const here = await lab(t);
  const program = startWith(t, here, portal);
  const authority = await makeAuthority(t);
  const { key, crt } = await authority.issue('server');
  // The handshake of the server is longer than a segment, and than what TCP sends without an answer.
  const others = await Promise.all(['a', 'b', 'c'].map((name) => authority.issue(name, LONG)));
  const chain = [crt, ...others.map((other) => other.crt)].map((path) =>
    readFileSync(path, 'utf8'),
  );
  const cert = chain.join('');
  t.ok(cert.length > 20_000, `${cert.length} characters of certificates`);
  const server = here.podA.agent;
  const client = here.client.agent;
  const files = { key: readFileSync(key, 'utf8'), cert };
  await server.call('serveTls', `${ADDRESSES['pod-a'].v4}:9443`, files);
  await server.call('serveTls', `[${ADDRESSES['pod-a'].v6}]:9443`, files);
  await program.serve(service([pod('pod-a')], ports(9443)));
  const ca = readFileSync(authority.ca, 'utf8');
  for (const place of PLACES) {
    for (const text of ['hello', 'long '.repeat(50_000)]) {
      t.ok(
        (await client.call('askTls', place, { ca, text })) === text,
        `${place}, ${text.length} bytes`,
      );
    }
  }
});

/** Names that make a certificate some kilobytes long. */
const LONG = Array.from({ length: 200 }, (_, n) => `DNS:host-${n}.parity.example`).join(',');

t.test('kube-proxy’s pages keep their addresses', async (t) => {
  const here = await lab(t);
  const program = startWith(t, here, portal);
  await program.serve(service([pod('pod-a')]));
  t.match(await program.page('http://127.0.0.1:10249/proxyMode'), /^200 userspace$/);
  t.match(await program.page('http://127.0.0.1:10249/healthz'), /^200 /);
  const metrics = await program.metrics();
  t.equal(metrics.value('kpng_userspace_service_ports'), 2);
  t.ok((metrics.value('kubeproxy_sync_proxy_rules_duration_seconds_count') ?? 0) >= 2);
  const health = await here.network.inside('client', 'curl', [
    '-sS',
    `http://${NODE.v4}:10256/healthz`,
  ]);
  t.match(JSON.parse(health), { nodeEligible: true, lastUpdated: /^\d{4}-/ });
  t.match(
    await here.network
      .inside('client', 'curl', ['-sS', `http://${NODE.v4}:10249/metrics`])
      .catch(String),
    /Could ?n.t connect|Failed to connect|Connection refused/,
    'metrics are for the node itself',
  );
});

const BOTH = [pod('pod-a'), pod('pod-b')];

function affinity(timeoutseconds: number): Record<string, unknown> {
  return { sessionaffinity: { clientip: { timeoutseconds } } };
}

/** The cluster IP and the node port, with who uses it and of both protocols. */
function places(here: Lab): { machine: Machine; place: string }[] {
  return [
    { machine: here.podA, place: `${CLUSTER.v4}:80` },
    { machine: here.routed, place: `[${CLUSTER.v6}]:80` },
    { machine: here.client, place: `${NODE.v4}:${NODE_PORTS.TCP}` },
    { machine: here.client, place: `[${NODE.v6}]:${NODE_PORTS.TCP}` },
    { machine: here.client, place: `${NODE.v4}:${NODE_PORTS.UDP}/UDP` },
  ];
}

/** The pods that eight connections, or sockets, in a row get to. */
async function pods(machine: Machine, place: string): Promise<string> {
  const seen = new Set<string>();
  for (let n = 0; n < 8; n += 1) seen.add((await machine.ask(place)).split(' ')[0] ?? '');
  return [...seen].sort().join(' and ');
}

for (const portal of PORTALS) {
  t.test(`${portal.name}: session affinity is switched on and off under clients`, async (t) => {
    const here = await lab(t);
    const program = startWith(t, here, portal);
    for (const round of [1, 2]) {
      await program.serve(service(BOTH));
      for (const { machine, place } of places(here)) {
        t.equal(await pods(machine, place), 'pod-a and pod-b', `${place}, off, round ${round}`);
      }
      await program.serve(service(BOTH, affinity(10_800)));
      for (const { machine, place } of places(here)) {
        t.match(await pods(machine, place), /^pod-[ab]$/, `${place}, on, round ${round}`);
      }
    }
  });
}

t.test('affinity ends after its timeout, even an edited one, and with its endpoint', async (t) => {
  const here = await lab(t);
  const program = startWith(t, here, portal);
  await program.serve(service(BOTH, affinity(10_800)));
  // One of each family, since clients of one family take turns with the two pods.
  const used = [
    { machine: here.podA, place: `${CLUSTER.v4}:80` },
    { machine: here.client, place: `[${NODE.v6}]:${NODE_PORTS.TCP}` },
  ];
  const first = await Promise.all(used.map(({ machine, place }) => pods(machine, place)));
  await program.serve(service(BOTH, affinity(1)));
  const seen = used.map(() => new Set<string>());
  for (let n = 0; n < 6 && seen.some(({ size }) => size < 2); n += 1) {
    // Longer than the timeout, so each connection is a choice of its own.
    await wait(1100);
    for (const [index, { machine, place }] of used.entries()) {
      seen[index]?.add((await machine.ask(place)).split(' ')[0] ?? '');
    }
  }
  for (const [index, { place }] of used.entries()) {
    const both = [...(seen[index] ?? [])].sort().join(' and ');
    t.equal(both, 'pod-a and pod-b', `${place}: was ${first[index]}`);
  }

  const servers = {
    'pod-a': here.podA.agent,
    'pod-b': here.podB.agent,
  };
  for (const [name, server] of Object.entries(servers)) {
    await server.call('respond', `${ADDRESSES[name as 'pod-a'].v4}:9000`, name);
  }
  const ports = [
    { name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport: 9000 },
  ];
  await program.serve(service(BOTH, { ports, ...affinity(10_800) }));
  for (const place of [`${CLUSTER.v4}:80`, `${NODE.v4}:${NODE_PORTS.TCP}`]) {
    const before = (await here.client.ask(place)) as 'pod-a' | 'pod-b';
    const other = before === 'pod-a' ? 'pod-b' : 'pod-a';
    // No one has noticed yet: it is still among the endpoints.
    await servers[before].call('stopServing');
    t.equal(await pods(here.client, place), other, `${place}, ${before} is dead`);
    await servers[before].call('respond', `${ADDRESSES[before].v4}:9000`, before);
    t.equal(await pods(here.client, place), other, `${place}, stays where it is now`);
  }
});
