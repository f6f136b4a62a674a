/** What redirects external IPs to endpoints without the proxy, with real rules and packets. */
import t, { type Test } from 'tap';
import { findTools } from '../../src/portal/iptables/tools.ts';
import { ExtipSink } from '../../src/sinks/extip.ts';
import type { LocalView } from '../../src/store/local-view.ts';
import { endpoint, entry, TestView } from '../support/messages.ts';
import { lab } from './support/lab.ts';
import { ADDRESSES } from './support/network.ts';

/** Addresses that the client sends to the node. */
const EXTERNAL = { v4: '203.0.113.40', v6: '2001:db8:40::1' } as const;

/** One service with the external IPs, and these pods. */
function state(...pods: ('pod-a' | 'pod-b')[]): LocalView {
  const view = new TestView();
  const endpoints = pods.map((pod) => {
    const { v4, v6 } = ADDRESSES[pod];
    return [pod, endpoint('', { ips: { v4: [v4], v6: [v6] }, local: true })] as const;
  });
  const externalIPs = { v4: [EXTERNAL.v4], v6: [EXTERNAL.v6] };
  const ports = ([1, 2] as const).map((protocol) => ({
    name: `p${protocol}`,
    protocol,
    port: 80,
    targetPort: 8080,
  }));
  view.set(entry('d/web', { ips: { externalIPs }, ports }, Object.fromEntries(endpoints)));
  return view;
}

function change(view: LocalView) {
  return { view, changed: new Set<string>() };
}

t.test('to-extip: clients reach endpoints, which speak from the external IP', async (t: Test) => {
  const here = await lab(t);
  const { exec } = here;
  for (const flavor of ['nft', 'legacy'] as const) {
    const tools = await findTools(exec, flavor);
    const sink = new ExtipSink({
      exec,
      tools: async () => tools,
      chainPrefix: 'k8s-',
      loadBalancersOnly: false,
    });
    await sink.sync(change(state('pod-a')));
    const programs = [tools.name, tools.name.replace('ip', 'ip6')];
    const hook = async (how: '-A' | '-D'): Promise<void> => {
      for (const file of programs) {
        await exec({ file, args: [how, 'FORWARD', '-j', 'k8s-forward'] });
        await exec({ file, args: ['-t', 'nat', how, 'PREROUTING', '-j', 'k8s-DNAT'] });
        await exec({ file, args: ['-t', 'nat', how, 'POSTROUTING', '-j', 'k8s-SNAT'] });
      }
    };
    await hook('-A');
    for (const place of [`${EXTERNAL.v4}:80`, `[${EXTERNAL.v6}]:80`]) {
      t.match(await here.client.ask(place), /^pod-a /, `${flavor} ${place}`);
      t.match(await here.client.ask(`${place}/UDP`), /^pod-a /, `${flavor} ${place}/UDP`);
    }
    const port = flavor === 'nft' ? 7001 : 7002;
    await here.world.serve(`${ADDRESSES.world.v4}:${port}/TCP`, 'world');
    t.equal(await here.podA.ask(`${ADDRESSES.world.v4}:${port}`), `world ${EXTERNAL.v4}`);
    await sink.sync(change(state('pod-b')));
    t.match(await here.client.ask(`${EXTERNAL.v4}:80`), /^pod-b /, 'a change');
    await sink.sync(change(new TestView()));
    t.notMatch(await here.client.askInVain(`${EXTERNAL.v4}:80`), /^pod/, 'nothing is left');
    await hook('-D');
  }
});
