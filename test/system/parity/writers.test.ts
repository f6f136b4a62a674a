/** Others who write rules at the same time. */
import { eventually } from '../../support/until.ts';
import { PORTALS, RULES, testEach } from '../support/kinds.ts';
import { ADDRESSES, NODE } from '../support/network.ts';
import { CLUSTER, NODE_PORTS, pod, service } from '../support/services.ts';

/** Written and removed again in one transaction. */
const OTHER_RULES = `add table inet other
add chain inet other input { type filter hook input priority 0; }
add rule inet other input tcp dport 9 accept
delete table inet other
`;

testEach('changes succeed while other programs write rules', RULES, async (t, here) => {
  const program = here.start();
  await program.serve(service([pod('pod-a')]));
  const stop = new AbortController();
  let transactions = 0;
  const other = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      await here.sh('nft -f -', OTHER_RULES);
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

testEach('two proxies with services of their own', PORTALS, async (t, here) => {
  const first = here.start();
  const second = here.start({ other: true });
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

const WEB = { name: 'web', protocol: 'TCP', port: 80, nodeport: NODE_PORTS.TCP, targetport: 9080 };
const DNS = { name: 'dns', protocol: 'UDP', port: 53, targetport: 8080 };
const LABELS = { service: 'web', port: 'web' };

testEach(
  'half-open connections leave no CLOSE_WAIT and no descriptor',
  ['nftables'],
  async (t, here) => {
    const program = here.start({ flags: '--half-close-timeout=1s' });
    const { v4, v6 } = ADDRESSES['pod-a'];
    for (const host of [v4, `[${v6}]`]) {
      await here.podA.serve(`${host}:${WEB.targetport}`, 'pod-a', { keepsOpen: true });
    }
    await program.serve(service([pod('pod-a')], { ports: [WEB] }));
    const before = program.descriptors;
    const count = 30;
    const places = [`${CLUSTER.v4}:80`, `[${NODE.v6}]:${NODE_PORTS.TCP}`];
    for (const place of places) {
      for (let n = 0; n < count; n += 1) {
        const flow = `${place} ${n}`;
        await here.client.open(flow, place);
        t.match(await here.client.say(flow), /^pod-a/);
        await here.client.call('end', flow);
      }
    }
    // Neither side ever closes the rest by itself.
    t.ok(await eventually(() => program.descriptors <= before), 'descriptors are free');
    for (const machine of ['node', 'pod-a'] as const) {
      for (const state of ['established', 'close-wait', 'fin-wait-2', 'last-ack']) {
        const none = await eventually(
          async () => (await here.network.inside(machine, 'ss', ['-Htan', 'state', state])) === '',
        );
        t.ok(none, `none in ${state} on ${machine}`);
      }
    }
    t.equal(await program.metric('connections_active', LABELS), 0);
    t.equal(await program.metric('half_close_timeouts_total', LABELS), 2 * count);
  },
);

testEach('it recovers when descriptors run out', ['nftables'], async (t, here) => {
  const program = here.start({
    before: ['prlimit', '--nofile=400:400'],
    flags: '--reserved-descriptors=200',
  });
  await here.podA.serve(`${ADDRESSES['pod-a'].v4}:${WEB.targetport}`, 'pod-a');
  await program.serve(service([pod('pod-a')], { ports: [WEB] }));
  const place = `${NODE.v4}:${NODE_PORTS.TCP}`;
  const greeted = async (count: number): Promise<number> => {
    let greeted = 0;
    for (let n = 0; n < count; n += 1) {
      await here.client.open(`${n}`, place);
      if ((await here.client.say(`${n}`, 200)).startsWith('pod-a')) greeted += 1;
    }
    return greeted;
  };
  const served = await greeted(120);
  t.ok(served >= 60 && served < 120, `some are served: ${served}`);
  t.ok(program.runs);
  t.ok(program.descriptors < 400, `${program.descriptors} descriptors`);
  t.match(await program.page('health', '/healthz'), /^200 /, 'it can still be asked');
  // So do changes continue, though rules are written by programs, which need descriptors.
  await program.serve(service([pod('pod-a')], { ports: [WEB, DNS] }));

  for (let n = 0; n < 120; n += 1) await here.client.close(`${n}`);
  // The proxy closes its end of each connection, and so gets the descriptor back, a moment later.
  const isFree = async () => (await program.metric('connections_active', LABELS)) === 0;
  t.ok(await eventually(isFree));
  t.equal(await greeted(50), 50, 'all is well again');
  t.match(await here.client.ask(`${CLUSTER.v4}:53/UDP`), /^pod-a/);
  t.ok((await program.metric('limit_reached_total', { limit: 'reserved-descriptors' })) >= 1);
});

testEach(
  'more service ports than descriptors',
  // Both kinds of rules are written for the listeners that there are.
  PORTALS.filter((name) => name !== 'iptables-nft'),
  async (t, here) => {
    const program = here.start({
      before: ['prlimit', '--nofile=300:300'],
      flags: '--reserved-descriptors=100',
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
    if (here.kind.name === 'transparent') {
      t.equal(served, many.length, 'they share a socket');
      t.match(await program.page('health', '/healthz'), /^200 (?!.*not served)/s);
      return;
    }
    t.ok(served >= 100, `${served} are served`);
    t.equal(served + refused, many.length, 'clients of the others are refused at once');
    t.match(await program.page('health', '/healthz'), /^200 .*not served/);
    t.match(program.complaints.join(), /no file descriptor left/);
    const kept = many.slice(-90);
    await program.serve(...kept.map(plain));
    t.ok(
      await eventually(async () => (await answers(kept))['pod-a'] === kept.length),
      'then all fit',
    );
    t.match(await program.page('health', '/healthz'), /^200 (?!.*not served)/s);
  },
);
