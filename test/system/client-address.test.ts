import { type WantedService, everywhere, SERVICE } from './support/proxy.ts';
import { ADDRESSES, NODE } from './support/network.ts';
import { testEachKind } from './support/rule-kinds.ts';

const { client, 'pod-a': podA, 'pod-b': podB } = ADDRESSES;
/** What network plugins do with packets to pods, and a firewall that drops by default. */
const OTHERS = `table inet plugin {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr != 10.1.0.0/16 ip daddr 10.1.0.0/16 masquerade
    ip6 saddr != fd00::/16 ip6 daddr fd00::/16 masquerade
  }
  chain input {
    type filter hook input priority filter; policy drop;
    iif lo accept
    ct state established accept
    ct state invalid drop
    meta mark and 0x40 == 0x40 accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
  }
}
`;

/** A service with the policy Local, whose endpoints are here. */
function local(annotation?: string): WantedService {
  const all = everywhere([podA.v4, podA.v6]);
  const annotations =
    annotation === undefined ? {} : { 'kpng-userspace.io/client-address': annotation };
  return { ...all, service: { ...all.service, externalTrafficToLocal: true, annotations } };
}

testEachKind(
  'with the policy Local, endpoints see the address of the client',
  async (t, here) => {
    await here.exec({ file: 'nft', args: ['-f', '-'], stdin: OTHERS });
    const proxy = here.start();
    t.same((await proxy.sync({ 'd/all': local() })).problems, []);
    const { external, cluster, nodePort } = SERVICE;
    const places: readonly (readonly [string, string])[] = [
      [`${external.v4}:80`, client.v4],
      [`[${external.v6}]:80`, client.v6],
      [`${NODE.v4}:${nodePort.TCP}`, client.v4],
      [`[${NODE.v6}]:${nodePort.TCP}`, client.v6],
      [`${external.v4}:53/UDP`, client.v4],
      [`[${external.v6}]:53/UDP`, client.v6],
      [`${NODE.v4}:${nodePort.UDP}/UDP`, client.v4],
    ];
    for (const [place, seen] of places) {
      // From the second connection on, the port of an earlier one may be in TIME_WAIT.
      for (let again = 0; again < 3; again += 1) {
        t.equal(await here.client.ask(place), `pod-a ${seen}`, place);
      }
    }
    await here.client.open('kept', `${external.v4}:80`);
    t.match(await here.client.say('kept'), /^pod-a/);

    t.equal(
      await here.client.ask(`${cluster.v4}:80`),
      `pod-a ${NODE.pods4}`,
      'not at the cluster IP',
    );
    t.match(await here.podA.ask(`${external.v4}:80`), /^pod-a/, 'a client that is the endpoint');
    t.match(await here.podB.ask(`${external.v4}:80`), /^pod-a/, 'a client on the same bridge');
    t.match(await here.node.ask(`${external.v4}:80`), /^pod-a/, 'the node itself');
    t.match(await here.node.ask(`127.0.0.1:${nodePort.TCP}`), /^pod-a/);

    t.match(await here.podB.ask(`${external.v4}:53/UDP`), /^pod-a/);
    t.equal(await here.client.ask(`${cluster.v4}:53/UDP`), `pod-a ${NODE.pods4}`);

    await proxy.sync({ 'd/all': local('node') });
    t.equal(await here.client.ask(`${external.v4}:80`), `pod-a ${NODE.pods4}`);
    t.match(await here.client.say('kept'), /^pod-a/, 'an open connection continues');
  },
  ['transparent'],
);

testEachKind(
  'an endpoint of another node would answer the client directly, so the annotation is refused',
  async (t, here) => {
    const all = everywhere([podB.v4]);
    const annotations = { 'kpng-userspace.io/client-address': 'client' };
    const proxy = here.start();
    const { problems } = await proxy.sync({
      'd/all': { ...all, service: { ...all.service, annotations } },
    });
    t.match(
      problems.join(),
      /client-address "client" is not client with externalTrafficPolicy: Local/,
    );
    t.equal(await here.client.ask(`${SERVICE.external.v4}:80`), `pod-b ${NODE.pods4}`);
  },
  ['transparent'],
);

testEachKind(
  'where packets are redirected, endpoints see the node',
  async (t, here) => {
    await here.start().sync({ 'd/all': local() });
    t.equal(await here.client.ask(`${SERVICE.external.v4}:80`), `pod-a ${NODE.pods4}`);
  },
  ['nftables'],
);
