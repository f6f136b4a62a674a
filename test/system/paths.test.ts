/** Which clients reach a service at which of its addresses. */
import { eventually } from '../support/until.ts';
import { ADDRESSES, NODE, STRANGER } from './support/network.ts';
import type { Machine } from './support/machine.ts';
import { ALL, PORTALS, testEach, type KindLab } from './support/kinds.ts';
import { PRELOADED } from './support/program.ts';
import {
  CLUSTER,
  EXTERNAL,
  LOAD_BALANCER,
  NODE_PORTS,
  PLACES,
  places,
  pod,
  service,
  simple,
} from './support/services.ts';

/** Clients of all kinds, by what they are. */
function clients({ client, podA, routed, node }: KindLab): Readonly<Record<string, Machine>> {
  return {
    'another machine': client,
    'a pod that is one of the endpoints': podA,
    'a pod behind a wire without addresses': routed,
    'the node itself': node,
  };
}

/** Connections and flows that the kernel tracks. */
const TRACKED = 'conntrack -L 2>/dev/null; conntrack -L -f ipv6 2>/dev/null';

testEach('all clients reach all addresses of a service', ALL, async (t, here) => {
  const program = here.start();
  await program.serve(service());
  t.same(program.complaints, []);
  for (const [name, machine] of Object.entries(clients(here))) {
    for (const [what, list] of Object.entries(PLACES)) {
      for (const place of list) {
        t.equal(await machine.who(place, 4), 'pod-a pod-b', `${name}: ${what}, ${place}`);
      }
    }
  }
  await here.node.serve(`${NODE.v4}:9000`, 'node');
  t.match(await here.client.ask(`${NODE.v4}:9000`), /^node/, 'what is not a service');
  t.match(await here.client.ask(`${ADDRESSES['pod-a'].v4}:8080`), `pod-a ${ADDRESSES.client.v4}`);
  t.match(await here.client.ask(`[${ADDRESSES['pod-b'].v6}]:8080/UDP`), /^pod-b/);
  if (here.kind.name === 'address') {
    t.equal(await here.ruleset(), '');
    t.notMatch(await here.sh(TRACKED), CLUSTER.v4, 'connection tracking does not know of it');
    for (const pod of ['pod-a', 'routed'] as const) {
      for (const address of Object.values(ADDRESSES[pod])) {
        const [, source = ''] = / src (\S+)/.exec(await here.sh(`ip route get ${address}`)) ?? [];
        const own = Object.values<string>(NODE).includes(source);
        t.ok(own, `service addresses are not the source of what is sent to ${address}: ${source}`);
      }
    }
    return;
  }
  for (const place of places({ v4: '127.0.0.1', v6: '::1' }, NODE_PORTS.TCP, NODE_PORTS.UDP)) {
    t.equal(await here.node.who(place, 4), 'pod-a pod-b', place);
  }
  t.equal(await here.client.askInVain(`${CLUSTER.v4}:81`), 'silence');

  // Packets of the node pass the rules only after the kernel has found a route for them.
  await here.sh('ip route delete default');
  t.equal(await here.node.ask(`${CLUSTER.v4}:80`), 'ENETUNREACH');
  t.match(await here.podA.ask(`${CLUSTER.v4}:80`), /^pod/, 'pods can all the same');
  await here.sh('ip route add 10.96.0.0/12 dev lo');
  t.match(await here.node.ask(`${CLUSTER.v4}:80`), /^pod/, 'any route will do');
});

testEach('--portal-notrack: services are not tracked', ['transparent'], async (t, here) => {
  // Others do need it.
  await here.sh(here.kind.addOthers);
  await here.start({ flags: '--portal-notrack' }).serve(service());
  for (const machine of [here.client, here.routed, here.node]) {
    for (const place of Object.values(PLACES).flat()) {
      t.match(await machine.ask(place), /^pod/, `${machine.name}: ${place}`);
    }
  }
  const flows = await here.sh(TRACKED);
  for (const text of [CLUSTER.v4, CLUSTER.v6, EXTERNAL.v4, `dport=${NODE_PORTS.TCP}`]) {
    t.notOk(flows.includes(`${text} `), text);
  }
  t.match(flows, /dport=8080 /, 'only those to endpoints');
});

testEach('source ranges guard only load-balancer addresses', PORTALS, async (t, here) => {
  const program = here.start();
  const guarded = (...sourceranges: string[]) =>
    service(undefined, { ipfilters: [{ sourceranges }] });
  const web = `${LOAD_BALANCER.v4}:80`;
  const web6 = `[${LOAD_BALANCER.v6}]:80`;
  await program.serve(
    guarded('192.0.2.0/24', '192.0.2.128/25', '2001:db8:1::/120', '198.51.100.0/25'),
  );
  for (const place of [web, web6, `${web.replace(/80$/, '53')}/UDP`]) {
    t.match(await here.client.ask(place), /^pod/, place);
  }
  await here.isDropped(here.client, web6, STRANGER.v6);
  await here.isDropped(here.client, `[${LOAD_BALANCER.v6}]:53/UDP`, STRANGER.v6);
  await here.isDropped(here.podA, web);
  t.match(await here.podA.ask(`${EXTERNAL.v4}:80`), /^pod/);
  t.match(await here.podA.ask(`${CLUSTER.v4}:80`), /^pod/);

  // 198.51.100.9 is inside as long as the range is there.
  t.match(await here.client.ask(web, { source: STRANGER.v4 }), /^pod/);
  await program.serve(guarded('192.0.2.0/24'));
  await here.isDropped(here.client, web, STRANGER.v4);
  await program.serve(service());
  t.match(await here.client.ask(web, { source: STRANGER.v4 }), /^pod/);
});

testEach('the rules guard the shared socket', ['transparent'], async (t, here) => {
  await here.start().serve(simple('web', '10.96.0.1', 'TCP 80'));
  const port = /listeners4 \{[^}]*tcp : (\d+)/.exec(await here.rules())?.[1] ?? '';
  t.match(await here.client.ask('10.96.0.1:80'), /^pod-a/);
  t.equal(await here.client.ask(`${NODE.v4}:${port}`), 'ECONNREFUSED');
  t.equal(await here.node.ask(`127.0.0.1:${port}`), 'ECONNRESET');
});

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

/** With the policy Local, and a word for the annotation, if any. */
function local(word?: string, name: 'pod-a' | 'pod-b' = 'pod-a', externaltraffictolocal = true) {
  const annotations = word === undefined ? {} : { 'kpng-userspace.io/client-address': word };
  return service([pod(name)], { externaltraffictolocal, annotations });
}

testEach('with policy Local, endpoints see the client', ['transparent'], async (t, here) => {
  await here.sh('nft -f -', OTHERS);
  const program = here.start();
  await program.serve(local());
  t.same(program.complaints, []);
  const own = ADDRESSES.client;
  for (const [place, seen] of [
    [`${EXTERNAL.v4}:80`, own.v4],
    [`[${EXTERNAL.v6}]:80`, own.v6],
    [`${NODE.v4}:${NODE_PORTS.TCP}`, own.v4],
    [`[${NODE.v6}]:${NODE_PORTS.TCP}`, own.v6],
    [`${EXTERNAL.v4}:53/UDP`, own.v4],
    [`[${EXTERNAL.v6}]:53/UDP`, own.v6],
    [`${NODE.v4}:${NODE_PORTS.UDP}/UDP`, own.v4],
  ] as const) {
    // From the second connection on, the port of an earlier one may be in TIME_WAIT.
    for (let again = 0; again < 3; again += 1) {
      t.equal(await here.client.ask(place), `pod-a ${seen}`, place);
    }
  }
  await here.client.open('kept', `${EXTERNAL.v4}:80`);
  t.match(await here.client.say('kept'), /^pod-a/);

  for (const place of [`${CLUSTER.v4}:80`, `${CLUSTER.v4}:53/UDP`]) {
    t.equal(await here.client.ask(place), `pod-a ${NODE.pods4}`, 'not at the cluster IP');
  }
  t.match(await here.podA.ask(`${EXTERNAL.v4}:80`), /^pod-a/, 'a client that is the endpoint');
  t.match(await here.podB.ask(`${EXTERNAL.v4}:80`), /^pod-a/, 'a client on the same bridge');
  t.match(await here.podB.ask(`${EXTERNAL.v4}:53/UDP`), /^pod-a/);
  t.match(await here.node.ask(`${EXTERNAL.v4}:80`), /^pod-a/, 'the node itself');
  t.match(await here.node.ask(`127.0.0.1:${NODE_PORTS.TCP}`), /^pod-a/);

  await program.serve(local('node'));
  t.equal(await here.client.ask(`${EXTERNAL.v4}:80`), `pod-a ${NODE.pods4}`);
  t.match(await here.client.say('kept'), /^pod-a/, 'an open connection continues');

  // An endpoint of another node would answer the client directly, so the annotation is refused.
  await program.serve(local('client', 'pod-b', false));
  t.match(
    program.complaints.join(),
    /client-address \\?"client\\?" is not possible without externalTrafficPolicy: Local/,
  );
  t.equal(await here.client.ask(`${EXTERNAL.v4}:80`), `pod-b ${NODE.pods4}`);
});

testEach('pods on a bridge connect with SYN cookies, too', ['transparent'], async (t, here) => {
  const program = here.start();
  await program.serve(service());
  await here.sh('sysctl -q -w net.ipv4.tcp_syncookies=2');
  for (const list of Object.values(PLACES)) {
    for (const place of list) t.equal(await here.podA.who(place, 4), 'pod-a pod-b', place);
  }
});

testEach('a mark of another program redirects nothing', ['transparent'], async (t, here) => {
  const program = here.start();
  await program.serve(service());
  for (const link of ['pod-a', 'eth0']) {
    const rules = `type filter hook ingress device ${link} priority 0;\nmeta mark set 0x40\n`;
    await here.sh('nft -f -', `table netdev ${link} {\nchain marking {\n${rules}}\n}\n`);
  }
  await here.node.serve(`${NODE.v4}:9000`, 'node');
  for (const machine of [here.podA, here.client]) {
    t.match(await machine.ask(`${NODE.v4}:9000`), /^node/, machine.name);
    t.equal(await machine.who(`${CLUSTER.v4}:80`, 4), 'pod-a pod-b', machine.name);
  }
});

testEach('where packets are redirected, endpoints see the node', ['nftables'], async (t, here) => {
  await here.start().serve(local());
  t.equal(await here.client.ask(`${EXTERNAL.v4}:80`), `pod-a ${NODE.pods4}`);
});

testEach('several workers share the socket of all services', ['transparent'], async (t, here) => {
  const program = here.start({ flags: '--workers=3', before: PRELOADED });
  const sessionaffinity = { clientip: { timeoutseconds: 600 } };
  const more = simple('more', '10.96.0.77', 'TCP 80');
  const both = 'pod-a pod-b';
  await program.serve(service());
  t.equal(await here.client.who(`${CLUSTER.v4}:80`, 24), both);
  t.equal(await here.podA.who(`[${CLUSTER.v6}]:80`, 24), both);

  const rules = await here.rules();
  for (const lost of [1, 2]) {
    program.kill('SIGUSR2');
    await program.until(
      () => program.log.filter(({ msg }) => /[Ww]orker/.test(msg)).length >= lost,
      'a worker is replaced',
    );
    const isServed = async () => (await here.client.who(`${CLUSTER.v4}:80`, 24)) === both;
    t.ok(await eventually(isServed), `after ${lost}`);
  }
  t.equal(await here.rules(), rules);
  await program.serve(service(), more);
  t.equal(await here.client.who('10.96.0.77:80', 24), 'pod-a', 'all workers have it');
  await program.serve();
  await program.serve(more);
  t.equal(await here.client.who('10.96.0.77:80', 24), 'pod-a', 'after there was none');

  await program.serve(service(undefined, { sessionaffinity }));
  for (const source of [ADDRESSES.client.v4, STRANGER.v4]) {
    const pods = new Set<string>();
    for (let n = 0; n < 12; n += 1) {
      pods.add((await here.client.ask(`${CLUSTER.v4}:80`, { source })).split(' ')[0] ?? '');
    }
    t.match([...pods], [/^pod-[ab]$/], `${source} keeps its endpoint: ${[...pods].join()}`);
    t.equal(pods.size, 1);
  }
});
