/** Others who write rules at the same time. */
import t from 'tap';
import { eventually } from '../../support/until.ts';
import { lab, type Lab } from '../support/lab.ts';
import { ADDRESSES, NODE } from '../support/network.ts';
import { PORTALS, startWith, Program } from '../support/portals-under-test.ts';
import { CLUSTER, NODE_PORTS, pod, service } from '../support/proxy.ts';

/** Written and removed again in one transaction. */
const OTHER_RULES = `add table inet other
add chain inet other input { type filter hook input priority 0; }
add rule inet other input tcp dport 9 accept
delete table inet other
`;

for (const portal of PORTALS) {
  if (portal.name !== 'address')
    t.test(`${portal.name}: changes succeed while other programs write rules`, async (t) => {
      const here = await lab(t);
      const program = startWith(t, here, portal);
      await program.serve(service([pod('pod-a')]));
      const stop = new AbortController();
      let transactions = 0;
      const other = async (): Promise<void> => {
        while (!stop.signal.aborted) {
          await here.network.inside('node', 'nft', ['-f', '-'], OTHER_RULES);
          transactions += 1;
        }
      };
      const others = Promise.all([other(), other()]);
      for (let round = 0; round < 6; round += 1) {
        const ports = [
          { name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport: 8080 },
          { name: 'more', protocol: 'TCP', port: 1000 + round, targetport: 8080 },
        ];
        await program.serve(service([pod(round % 2 === 0 ? 'pod-a' : 'pod-b')], { ports }));
        t.match(await here.client.ask(`${CLUSTER.v4}:${1000 + round}`), /^pod/);
        t.match(await here.client.ask(`${NODE.v4}:${NODE_PORTS.TCP}`), /^pod/);
        if (round === 0) continue;
        const former = await here.client.askInVain(`${CLUSTER.v4}:${1000 + round - 1}`);
        t.match(former, /silence|ECONNREFUSED/, 'what was before is gone');
      }
      stop.abort();
      await others;
      t.ok(transactions >= 6, `${transactions} transactions of others`);
      t.same(program.complaints, []);
      t.notMatch(await here.ruleset(), /table inet other/);
    });

  t.test(`${portal.name}: two proxies with services of their own`, async (t) => {
    const here = await lab(t);
    const first = startWith(t, here, portal);
    const servers = ['--metrics-bind-address=127.0.0.1:0', '--healthz-bind-address=127.0.0.1:0'];
    const second = new Program(t, here, { flags: [...portal.otherFlags, ...servers] });
    const mine = (address: string) => ({
      ips: { clusterips: { v4: [address] } },
      ports: [{ name: 'web', protocol: 'TCP', port: 80, targetport: 8080 }],
    });
    for (let round = 0; round < 3; round += 1) {
      await Promise.all([
        first.serve(service([pod('pod-a')], mine(`10.96.8.${round}`))),
        second.serve(service([pod('pod-b')], mine(`10.96.9.${round}`))),
      ]);
      t.match(await here.client.ask(`10.96.8.${round}:80`), /^pod-a/);
      t.match(await here.client.ask(`10.96.9.${round}:80`), /^pod-b/);
    }
    t.same([...first.complaints, ...second.complaints], []);
  });
}

const WEB = { name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport: 9080 };
const DNS = { name: 'dns', protocol: 'UDP', port: 53, targetport: 8080 };

/** Connections on a machine in a state, as ss names it. */
async function sockets(here: Lab, machine: 'node' | 'pod-a', state: string): Promise<number> {
  const text = await here.network.inside(machine, 'ss', ['-Htan', 'state', state]);
  return text.split('\n').filter((line) => line !== '').length;
}

const WEB_LABELS = { service: 'parity', port: 'web' };

/** A client on another machine, and a server in `pod-a` that greets it. */
async function ends(here: Lab, options: { ends: boolean }) {
  const server = here.podA.agent;
  const { v4, v6 } = ADDRESSES['pod-a'];
  await server.call('greet', `${v4}:${WEB.targetport}`, options);
  await server.call('greet', `[${v6}]:${WEB.targetport}`, options);
  return { client: here.client.agent, server };
}

const [portal] = PORTALS;

t.test(`half-open connections leave no CLOSE_WAIT and no descriptor`, async (t) => {
  const here = await lab(t);
  const program = startWith(t, here, portal, { flags: ['--half-close-timeout=1s'] });
  const { client, server } = await ends(here, { ends: false });
  await program.serve(service([pod('pod-a')], { ports: [WEB] }));
  const before = program.descriptors;
  const count = 30;
  const places = [`${CLUSTER.v4}:80`, `[${NODE.v6}]:${NODE_PORTS.TCP}`];
  const outcomes = await Promise.all(
    places.map((place) => client.call('connectMany', place, { count, after: 'half-close' })),
  );
  t.same(outcomes, [{ greeted: count }, { greeted: count }]);
  t.ok(
    await eventually(async () => (await server.call('ended')) === 2 * count),
    'servers are reported that the clients have ended',
  );
  // Neither side ever closes the rest by itself.
  t.ok(await eventually(() => program.descriptors <= before), 'descriptors are free');
  for (const machine of ['node', 'pod-a'] as const) {
    for (const state of ['established', 'close-wait', 'fin-wait-2', 'last-ack']) {
      const none = await eventually(async () => (await sockets(here, machine, state)) === 0);
      t.ok(none, `none in ${state} on ${machine}`);
    }
  }
  const metrics = await program.metrics();
  const labels = WEB_LABELS;
  t.equal(metrics.value('kpng_userspace_connections_active', labels), 0);
  t.equal(metrics.value('kpng_userspace_half_close_timeouts_total', labels), 2 * count);
});

t.test(`it recovers when descriptors run out`, async (t) => {
  const here = await lab(t);
  const program = startWith(t, here, portal, {
    before: ['prlimit', '--nofile=400:400'],
    flags: ['--reserved-descriptors=200'],
  });
  const { client } = await ends(here, { ends: true });
  await program.serve(service([pod('pod-a')], { ports: [WEB] }));
  const place = `${NODE.v4}:${NODE_PORTS.TCP}`;
  const many = await client.call('connectMany', place, { count: 120, waitMs: 200 });
  const served = many['greeted'] ?? 0;
  t.ok(served >= 60 && served < 120, `some are served: ${JSON.stringify(many)}`);
  t.ok(program.runs);
  t.ok(program.descriptors < 400, `${program.descriptors} descriptors`);
  t.match(await program.page('http://127.0.0.1:10256/healthz'), /^200 /, 'it can still be asked');
  // So do changes continue, though rules are written by programs, which need descriptors.
  await program.serve(service([pod('pod-a')], { ports: [WEB, DNS] }));

  await client.call('closeClients');
  t.ok(await eventually(async () => (await sockets(here, 'pod-a', 'established')) === 0));
  // The proxy closes its end of each connection, and so gets the descriptor back, a moment later.
  const active = async () =>
    (await program.metrics()).value('kpng_userspace_connections_active', WEB_LABELS);
  t.ok(await eventually(async () => (await active()) === 0));
  t.same(
    await client.call('connectMany', place, { count: 50 }),
    { greeted: 50 },
    'all is well again',
  );
  await client.call('closeClients');
  t.match(await here.client.ask(`${CLUSTER.v4}:53/UDP`), /^pod-a/);
  const labels = { limit: 'reserved-descriptors' };
  const metrics = await program.metrics();
  t.ok((metrics.value('kpng_userspace_limit_reached_total', labels) ?? 0) >= 1);
});

for (const portal of PORTALS) {
  // Both kinds of rules are written for the listeners that there are.
  if (portal.name === 'iptables') continue;
  t.test(`${portal.name}: more service ports than descriptors`, async (t) => {
    const here = await lab(t);
    const program = startWith(t, here, portal, {
      before: ['prlimit', '--nofile=300:300'],
      flags: ['--reserved-descriptors=100'],
    });
    const many = Array.from({ length: 250 }, (_, n) => n);
    const plain = (n: number) =>
      service([pod('pod-a')], {
        name: `s${n}`,
        ips: { clusterips: { v4: [`10.96.20.${n}`] } },
        ports: [{ name: '', protocol: 'TCP', port: 80, targetport: 8080 }],
      });
    await program.serve(...many.map(plain));
    const answers = async (numbers: readonly number[]): Promise<Record<string, number>> => {
      const counts: Record<string, number> = {};
      for (const n of numbers) {
        const answer = (await here.client.ask(`10.96.20.${n}:80`)).split(' ')[0] ?? '';
        counts[answer] = (counts[answer] ?? 0) + 1;
      }
      return counts;
    };
    const { 'pod-a': served = 0, ECONNREFUSED: refused = 0 } = await answers(many);
    if (portal.name === 'transparent') {
      t.equal(served, many.length, 'they share a socket');
      t.match(await program.page('http://127.0.0.1:10256/healthz'), /^200 (?!.*not served)/s);
      return;
    }
    t.ok(served >= 100, `${served} are served`);
    t.equal(served + refused, many.length, 'clients of the others are refused at once');
    t.match(await program.page('http://127.0.0.1:10256/healthz'), /^200 .*not served/);
    t.match(program.complaints.join(), /no file descriptor left/);
    const kept = many.slice(-90);
    await program.serve(...kept.map(plain));
    t.ok(
      await eventually(async () => (await answers(kept))['pod-a'] === kept.length),
      'then all fit',
    );
    t.match(await program.page('http://127.0.0.1:10256/healthz'), /^200 (?!.*not served)/s);
  });
}
