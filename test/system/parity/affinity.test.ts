/** Session affinity, and the pages of kube-proxy. */
import { setTimeout as wait } from 'node:timers/promises';
import { PORTALS, testEach, type KindLab } from '../support/kinds.ts';
import type { Machine } from '../support/machine.ts';
import { ADDRESSES, NODE } from '../support/network.ts';
import { CLUSTER, NODE_PORTS, pod, service, type Pod } from '../support/services.ts';

testEach('kube-proxy’s pages keep their addresses', ['nftables'], async (t, here) => {
  const program = here.start({ usualPorts: true });
  await program.serve(service([pod('pod-a')]));
  t.match(await here.sh('curl -sS http://127.0.0.1:10249/proxyMode'), /^userspace$/);
  t.match(await here.sh('curl -sSf http://127.0.0.1:10249/healthz'), /./);
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

function affinity(timeoutseconds: number): Record<string, unknown> {
  return { sessionaffinity: { clientip: { timeoutseconds } } };
}

/** The cluster IP and the node port, with who uses it and of both protocols. */
function places(here: KindLab): { machine: Machine; place: string }[] {
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

testEach('session affinity is switched on and off under clients', PORTALS, async (t, here) => {
  const program = here.start();
  for (const round of [1, 2]) {
    await program.serve(service());
    for (const { machine, place } of places(here)) {
      t.equal(await pods(machine, place), 'pod-a and pod-b', `${place}, off, round ${round}`);
    }
    await program.serve(service(undefined, affinity(10_800)));
    for (const { machine, place } of places(here)) {
      t.match(await pods(machine, place), /^pod-[ab]$/, `${place}, on, round ${round}`);
    }
  }
});

testEach(
  'affinity ends after its timeout, even an edited one, and with its endpoint',
  ['nftables'],
  async (t, here) => {
    const program = here.start();
    await program.serve(service(undefined, affinity(10_800)));
    // One of each family, since clients of one family take turns with the two pods.
    const used = [
      { machine: here.podA, place: `${CLUSTER.v4}:80` },
      { machine: here.client, place: `[${NODE.v6}]:${NODE_PORTS.TCP}` },
    ];
    const first = await Promise.all(used.map(({ machine, place }) => pods(machine, place)));
    await program.serve(service(undefined, affinity(1)));
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

    const servers = { 'pod-a': here.podA, 'pod-b': here.podB };
    for (const [name, server] of Object.entries(servers)) {
      await server.serve(`${ADDRESSES[name as Pod].v4}:9000`, name);
    }
    const ports = [
      { name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport: 9000 },
    ];
    await program.serve(service(undefined, { ports, ...affinity(10_800) }));
    for (const place of [`${CLUSTER.v4}:80`, `${NODE.v4}:${NODE_PORTS.TCP}`]) {
      const before = (await here.client.who(place)) as Pod;
      const other = before === 'pod-a' ? 'pod-b' : 'pod-a';
      // No one has noticed yet: it is still among the endpoints.
      await servers[before].call('stopServing');
      t.equal(await pods(here.client, place), other, `${place}, ${before} is dead`);
      await servers[before].serve(`${ADDRESSES[before].v4}:9000`, before);
      t.equal(await pods(here.client, place), other, `${place}, stays where it is now`);
    }
  },
);
