/** Others who write rules at the same time. */
import t from 'tap';
import { lab } from '../support/lab.ts';
import { NODE } from '../support/network.ts';
import { PORTALS, startWith } from '../support/portals-under-test.ts';
import { Program } from '../support/program.ts';
import { CLUSTER, NODE_PORTS, pod, service } from '../support/state.ts';

/** Written and removed again in one transaction. */
const OTHER_RULES = `add table inet other
add chain inet other input { type filter hook input priority 0; }
add rule inet other input tcp dport 9 accept
delete table inet other
`;

for (const portal of PORTALS) {
  if (portal.name !== 'address')
    t.test(`${portal.name}: changes get through beside others who write rules`, async (t) => {
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
