/** Others who write rules at the same time. */
import { PORTALS, RULES, testEach } from './support/kinds.ts';
import { ADDRESSES, NODE } from './support/network.ts';
import { CLUSTER, NODE_PORTS, pod, service, simple } from './support/services.ts';

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
  t.ok(transactions > 0, 'others have written');
  t.same(program.complaints, []);
  t.notMatch(await here.ruleset(), /table inet other/);
});

testEach('two proxies with services of their own', PORTALS, async (t, here) => {
  const first = here.start();
  const second = here.start({ other: true });
  const at = (address: string, name: 'pod-a' | 'pod-b') =>
    simple('web', address, 'TCP 80', [ADDRESSES[name].v4]);
  for (let round = 0; round < 3; round += 1) {
    await Promise.all([
      first.serve(at(`10.96.8.${round}`, 'pod-a')),
      second.serve(at(`10.96.9.${round}`, 'pod-b')),
    ]);
    t.match(await here.client.ask(`10.96.8.${round}:80`), /^pod-a/);
    t.match(await here.client.ask(`10.96.9.${round}:80`), /^pod-b/);
  }
  t.same([...first.complaints, ...second.complaints], []);
});
