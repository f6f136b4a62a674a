import { Namespaces } from '../../../bench/support/namespaces.ts';
import { systemExec } from '../../../src/portal/exec.ts';

/** Names of the namespaces begin with this, the id of the test process, and a number. */
export const PREFIX = 'kpngsys';

/**
 * A few machines on virtual wires, each in a network namespace of its own.
 *
 *     client ---- eth0  node  bridge ---- pod-a
 *     world  ---- eth1    |        \----- pod-b
 *                         \---- (no address) ---- routed
 *
 * The client is a machine beside the node and sends everything to it. `world` is the node's default
 * gateway, where packets go that no one on the node wants. `pod-a` and `pod-b` hang on a bridge that
 * has an address; `routed` is connected as Calico and others do it: the node's end of its wire has
 * no address at all. Everything has IPv4 and IPv6. Nothing outside the namespaces is touched.
 */
export class Network {
  readonly #namespaces = new Namespaces(PREFIX);

  constructor() {
    const to = (machine: MachineName) => `eth0 netns ${this.#namespaces.name(machine)}`;
    const ip = (machine: MachineName, commands: readonly string[]) =>
      this.#namespaces.ip(machine, commands);
    for (const machine of MACHINES) {
      this.#namespaces.add(machine);
      this.#namespaces.run(machine, ['sysctl', '-q', '-w', ...SYSCTLS]);
    }
    this.#namespaces.run('node', ['sysctl', '-q', '-w', ...FORWARDING]);
    ip('node', [
      `link add eth0 type veth peer name ${to('client')}`,
      `link add eth1 type veth peer name ${to('world')}`,
      'link add bridge type bridge',
      ...(['pod-a', 'pod-b'] as const).flatMap((pod) => [
        `link add ${pod} type veth peer name ${to(pod)}`,
        `link set ${pod} master bridge`,
        `link set ${pod} up`,
      ]),
      `link add routed type veth peer name ${to('routed')}`,
      'link set eth0 up',
      'link set eth1 up',
      'link set bridge up',
      'link set routed up',
      `address add ${NODE.v4}/24 dev eth0`,
      `address add ${NODE.v6}/64 dev eth0 nodad`,
      `address add ${NODE.world4}/24 dev eth1`,
      `address add ${NODE.world6}/64 dev eth1 nodad`,
      `address add ${NODE.pods4}/24 dev bridge`,
      `address add ${NODE.pods6}/64 dev bridge nodad`,
      'address add fe80::1/64 dev routed nodad',
    ]);
    const join = (machine: keyof typeof ADDRESSES, via4: string, via6: string): void => {
      const { v4, v6 } = ADDRESSES[machine];
      ip(machine, [
        'link set eth0 up',
        `address add ${v4}/24 dev eth0`,
        `address add ${v6}/64 dev eth0 nodad`,
        `route add default via ${via4}`,
        `route add default via ${via6}`,
      ]);
    };
    join('client', NODE.v4, NODE.v6);
    join('world', NODE.world4, NODE.world6);
    for (const pod of ['pod-a', 'pod-b'] as const) join(pod, NODE.pods4, NODE.pods6);
    ip('client', [
      `address add ${STRANGER.v4}/24 dev eth0`,
      `address add ${STRANGER.v6}/64 dev eth0 nodad preferred_lft 0`,
    ]);
    ip('routed', [
      'link set eth0 up',
      `address add ${ADDRESSES.routed.v4}/32 dev eth0`,
      `address add ${ADDRESSES.routed.v6}/128 dev eth0 nodad`,
      'route add 169.254.1.1 dev eth0 scope link',
      'route add default via 169.254.1.1 dev eth0',
      'route add default via fe80::1 dev eth0',
    ]);
    ip('node', [
      `route add default via ${ADDRESSES.world.v4}`,
      `route add default via ${ADDRESSES.world.v6}`,
      `route add ${STRANGER.v4.replace(/\d+$/, '0')}/24 via ${ADDRESSES.client.v4}`,
      `route add ${ADDRESSES.routed.v4} dev routed`,
      `route add ${ADDRESSES.routed.v6} dev routed`,
    ]);
    this.#namespaces.run('node', ['sysctl', '-q', '-w', 'net.ipv4.conf.routed.proxy_arp=1']);
  }

  /** The command line that runs a program on a machine. `ip` becomes the program, so its id is the program's. */
  command(machine: MachineName, ...words: readonly string[]): string[] {
    return this.#namespaces.command(machine, words);
  }

  remove(): void {
    this.#namespaces.remove();
  }

  /** Runs a program on a machine and returns what it prints. */
  async inside(
    machine: MachineName,
    file: string,
    args: readonly string[],
    stdin = '',
  ): Promise<string> {
    const [ip = '', ...inside] = this.command(machine, file, ...args);
    const { stdout } = await systemExec({ file: ip, args: inside, stdin, maxOutput: 2 ** 26 });
    return stdout;
  }
}

export const MACHINES = ['node', 'client', 'world', 'pod-a', 'pod-b', 'routed'] as const;
export type MachineName = (typeof MACHINES)[number];

/** Addresses of the node: towards the client, the world, and the pods on the bridge. */
export const NODE = {
  v4: '192.0.2.5',
  v6: '2001:db8:1::5',
  world4: '192.0.3.5',
  world6: '2001:db8:3::5',
  pods4: '10.1.0.1',
  pods6: 'fd00:1::1',
} as const;

/** Addresses of the other machines. */
export const ADDRESSES = {
  client: { v4: '192.0.2.9', v6: '2001:db8:1::9' },
  world: { v4: '192.0.3.1', v6: '2001:db8:3::1' },
  'pod-a': { v4: '10.1.0.10', v6: 'fd00:1::10' },
  'pod-b': { v4: '10.1.0.11', v6: 'fd00:1::11' },
  routed: { v4: '10.1.9.2', v6: 'fd00:9::2' },
} as const;

/** Further addresses of the client, which it uses only on request. */
export const STRANGER = { v4: '198.51.100.9', v6: '2001:db8:1::666' } as const;

/** Addresses are usable at once, and refusals are not held back. */
const SYSCTLS = [
  'net.ipv6.conf.all.accept_dad=0',
  'net.ipv6.conf.default.accept_dad=0',
  'net.ipv4.icmp_ratelimit=0',
  'net.ipv6.icmp.ratelimit=0',
];

const FORWARDING = ['net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1'];
