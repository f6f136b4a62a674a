/** Others who write rules at the same time, and fewer descriptors than service ports. */
import { PORTALS, RULES, testEach } from './support/kinds.ts';
import { NODE } from './support/network.ts';
import { CLUSTER, NODE_PORTS, pod, service } from './support/services.ts';

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
  },
);
