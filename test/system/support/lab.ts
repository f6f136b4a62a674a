import { execFileSync } from 'node:child_process';
import { systemExec, type Exec } from '../../../src/portal/exec.ts';
import { Machine } from './machine.ts';
import { ADDRESSES, MACHINES, Network } from './network.ts';
import { Proxy } from './proxy.ts';

/** The part of a test that is needed here. */
interface Tearing {
  teardown(action: () => Promise<void>): unknown;
}

/** A network with its machines, and backends in the pods. */
export interface Lab {
  readonly network: Network;
  readonly node: Machine;
  readonly client: Machine;
  /** The node's default gateway. */
  readonly world: Machine;
  /** Answers on TCP and UDP port 8080, as `pod-b` does. */
  readonly podA: Machine;
  readonly podB: Machine;
  /** A pod whose wire has no address on the node's side. */
  readonly routed: Machine;
  /** Starts a proxy on the node. */
  start(options?: ConstructorParameters<typeof Proxy>[1]): Proxy;
  /** Runs programs on the node. */
  readonly exec: Exec;
  /** The node's rules, as nft lists them. */
  ruleset(): Promise<string>;
  /** Addresses, interfaces and rules of the node. */
  state(): Promise<string>;
}

interface Site {
  readonly lab: Omit<Lab, 'start'>;
  readonly machines: readonly Machine[];
  /** Addresses and routes as they are without a proxy. */
  readonly fresh: string;
}

/** Building one takes a second, so the tests of a file use the same one after another. */
let site: Site | undefined;
let isUsed = false;

/** A network in which `pod-a` and `pod-b` answer on TCP and UDP port 8080 of both families. One at a time. */
export async function lab(t: Tearing): Promise<Lab> {
  if (isUsed) throw new Error('the network is in use: end the other test first');
  isUsed = true;
  site ??= await build();
  const { network } = site.lab;
  const proxies: Proxy[] = [];
  t.teardown(async () => {
    await Promise.all(proxies.map((proxy) => proxy.kill()));
    await reset();
    isUsed = false;
  });
  return {
    ...site.lab,
    start(options) {
      const proxy = new Proxy(network, options);
      proxies.push(proxy);
      return proxy;
    },
  };
}

async function build(): Promise<Site> {
  const network = new Network();
  const machines: Machine[] = [];
  // Each machine and each proxy ends with this process.
  process.setMaxListeners(100).once('exit', () => removeNow(network));
  await network.create();
  const machine = (name: (typeof MACHINES)[number]): Machine => {
    const made = new Machine(network, name);
    machines.push(made);
    return made;
  };
  const made: Omit<Lab, 'start'> = {
    network,
    node: machine('node'),
    client: machine('client'),
    world: machine('world'),
    podA: machine('pod-a'),
    podB: machine('pod-b'),
    routed: machine('routed'),
    exec({ file, args, ...rest }) {
      const inside = ['netns', 'exec', network.namespace('node'), file, ...args];
      return systemExec({ ...rest, file: 'ip', args: inside });
    },
    ruleset: () => network.inside('node', 'nft', ['list', 'ruleset']),
    state() {
      const show = 'ip -o address show; ip -o link show; nft list ruleset';
      return network.inside('node', 'sh', ['-c', show]);
    },
  };
  for (const pod of [made.podA, made.podB]) {
    const { v4, v6 } = ADDRESSES[pod.name as 'pod-a' | 'pod-b'];
    for (const protocol of ['TCP', 'UDP']) {
      await pod.serve(`${v4}:8080/${protocol}`, pod.name, true);
      await pod.serve(`[${v6}]:8080/${protocol}`, pod.name, true);
    }
  }
  return { lab: made, machines, fresh: await addressesOf(network) };
}

/** Makes the network as it was for the next test. One whose addresses or routes a test has changed is not used again. */
async function reset(): Promise<void> {
  if (site === undefined) return;
  const { lab: here, machines, fresh } = site;
  await Promise.all(machines.map(({ agent }) => agent.call('reset')));
  await here.network.inside('node', 'sh', ['-c', CLEAR]);
  if ((await addressesOf(here.network)) !== fresh) site = undefined;
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
sysctl -q -w net.ipv4.conf.eth0.src_valid_mark=0
for link in kpng0 kpng1
do ip link delete $link
done
true`;

async function addressesOf(network: Network): Promise<string> {
  const show = 'ip -o address; ip route; ip -6 route';
  const texts = (['node', 'client', 'world'] as const).map((name) =>
    network.inside(name, 'sh', ['-c', show]),
  );
  const lines = (await Promise.all(texts)).join('').split('\n');
  return lines
    .map((line) => line.replace(/ (?:valid|preferred)_lft .*| expires \S+/g, ''))
    .sort()
    .join('\n');
}

/** When the process ends: no promise is waited for any more. */
function removeNow(network: Network): void {
  for (const machine of MACHINES) {
    try {
      execFileSync('ip', ['netns', 'delete', network.namespace(machine)], { stdio: 'ignore' });
    } catch {
      // It was never made, or is gone.
    }
  }
}
