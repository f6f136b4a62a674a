import { systemExec, type Exec } from '../../../src/portal/exec.ts';
import type { Teardown } from '../../support/sockets.ts';
import { Machine } from './machine.ts';
import { ADDRESSES, MACHINES, Network } from './network.ts';

/** A network with its machines, and backends in the pods. */
export type Lab = Awaited<ReturnType<typeof build>>['lab'];

/** Building one takes a second, so the tests of a file use the same one after another. */
let site: Awaited<ReturnType<typeof build>> | undefined;
let isUsed = false;

/** A network in which `pod-a` and `pod-b` answer on TCP and UDP port 8080 of both families. One at a time. */
export async function lab(t: Teardown): Promise<Lab> {
  if (isUsed) throw new Error('the network is in use: end the other test first');
  isUsed = true;
  site ??= await build();
  t.teardown(async () => {
    await reset();
    isUsed = false;
  });
  return site.lab;
}

async function build() {
  // Each machine and each proxy ends with this process.
  process.setMaxListeners(100);
  const network = new Network();
  /** Runs a line in a shell on the node; resolves with what it prints. */
  const sh = (line: string, stdin?: string) =>
    network.inside('node', 'sh', ['-e', '-c', line], stdin);
  /** Runs programs on the node. */
  const exec: Exec = ({ file, args, ...rest }) => {
    const [ip = '', ...inside] = network.command('node', file, ...args);
    return systemExec({ ...rest, file: ip, args: inside });
  };
  const made = {
    network,
    node: new Machine(network, 'node'),
    client: new Machine(network, 'client'),
    /** The node's default gateway. */
    world: new Machine(network, 'world'),
    /** Answers on TCP and UDP port 8080, as `pod-b` does. */
    podA: new Machine(network, 'pod-a'),
    podB: new Machine(network, 'pod-b'),
    /** A pod whose wire has no address on the node's side. */
    routed: new Machine(network, 'routed'),
    exec,
    sh,
    /** The node's rules, as nft lists them. */
    ruleset: () => sh('nft list ruleset'),
    /** Addresses, interfaces and rules of the node. */
    state: () => sh('ip -o address show; ip -o link show; nft list ruleset'),
  };
  for (const pod of [made.podA, made.podB]) {
    const { v4, v6 } = ADDRESSES[pod.name as 'pod-a' | 'pod-b'];
    for (const protocol of ['TCP', 'UDP']) {
      await pod.serve(`${v4}:8080/${protocol}`, pod.name, true);
      await pod.serve(`[${v6}]:8080/${protocol}`, pod.name, true);
    }
  }
  return {
    lab: made,
    /** Addresses and routes as they are without a proxy. */
    fresh: await addressesOf(network),
  };
}

/** Makes the network as it was for the next test. One whose addresses or routes a test has changed is not used again. */
async function reset(): Promise<void> {
  if (site === undefined) return;
  const { lab: here, fresh } = site;
  const { node, client, world, podA, podB, routed, network } = here;
  await Promise.all(
    [node, client, world, podA, podB, routed].map((machine) => machine.call('reset')),
  );
  await network.inside('node', 'sh', ['-c', CLEAR]);
  if ((await addressesOf(network)) !== fresh) site = undefined;
}

/** Without what a proxy may have left: rules, what the kernel remembers of flows, interfaces. */
const CLEAR = `nft flush ruleset
for tool in iptables-legacy-restore ip6tables-legacy-restore
do printf '*nat\\nCOMMIT\\n*filter\\nCOMMIT\\n' | $tool
done
conntrack -F
for family in -4 -6
do ip $family rule delete priority 40; ip $family rule delete priority 41; ip $family route flush table 10040
ip $family route flush table 10041
done
sysctl -q -w net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1
sysctl -q -w net.ipv4.tcp_syncookies=1
sysctl -q -w net.ipv4.conf.eth0.src_valid_mark=0 net.ipv4.conf.eth1.src_valid_mark=0
for link in kpng0 kpng1
do ip link delete $link
done
true`;

async function addressesOf(network: Network): Promise<string> {
  const show = 'ip -o address; ip route; ip -6 route';
  const texts = MACHINES.slice(0, 3).map((name) => network.inside(name, 'sh', ['-c', show]));
  const lines = (await Promise.all(texts)).join('').split('\n');
  return lines
    .map((line) => line.replace(/ (?:valid|preferred)_lft .*| expires \S+/g, ''))
    .sort()
    .join('\n');
}
