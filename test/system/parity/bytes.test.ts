/** What does not depend on the portal: bytes both ways, all of them and in order, and the pages of kube-proxy. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { makeAuthority } from '../../support/certs.ts';
import { lab } from '../support/lab.ts';
import { ADDRESSES, NODE } from '../support/network.ts';
import { PORTALS, startWith } from '../support/portals-under-test.ts';
import { CLUSTER, NODE_PORTS, pod, service } from '../support/state.ts';
import { Traffic } from '../support/traffic.ts';

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
  const [client, server] = [
    new Traffic(t, here.network, 'client'),
    new Traffic(t, here.network, 'pod-a'),
  ];
  const { v4, v6 } = ADDRESSES['pod-a'];
  for (const [port, bytes] of [
    [9100, 1],
    [9101, 5000],
    [9102, 3_000_000],
  ] as const) {
    await server.serveFirstFlight(`${v4}:${port}`, bytes);
    await server.serveFirstFlight(`[${v6}]:${port}`, bytes);
    await program.serve(service([pod('pod-a')], ports(port)));
    const all = await Promise.all(
      PLACES.map((place) => Promise.all([1, 2, 3].map(() => client.firstFlight(place, bytes)))),
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
  const server = new Traffic(t, here.network, 'pod-a');
  const client = new Traffic(t, here.network, 'client');
  const files = { key: readFileSync(key, 'utf8'), cert };
  await server.serveTls(`${ADDRESSES['pod-a'].v4}:9443`, files);
  await server.serveTls(`[${ADDRESSES['pod-a'].v6}]:9443`, files);
  await program.serve(service([pod('pod-a')], ports(9443)));
  const ca = readFileSync(authority.ca, 'utf8');
  for (const place of PLACES) {
    for (const text of ['hello', 'long '.repeat(50_000)]) {
      t.ok((await client.askTls(place, { ca, text })) === text, `${place}, ${text.length} bytes`);
    }
  }
});

/** Names that make a certificate some kilobytes long. */
const LONG = Array.from({ length: 200 }, (_, n) => `DNS:host-${n}.parity.example`).join(',');

t.test('the pages of kube-proxy are where they always were', async (t) => {
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
