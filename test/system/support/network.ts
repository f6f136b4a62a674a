import { systemExec } from '../../../src/portal/exec.ts';

/** Names of the namespaces begin with this, the id of the test process, and a number. */
export const PREFIX = 'kpngsys';

let made = 0;

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
  readonly id = `${PREFIX}-${process.pid}-${(made += 1)}`;

  /** Name of the namespace of a machine. */
  namespace(machine: MachineName): string {
    return `${this.id}-${machine}`;
  }

  async create(): Promise<void> {
    for (const machine of MACHINES) {
      await ip(['netns', 'add', this.namespace(machine)]);
      await this.inside(machine, 'sysctl', ['-q', '-w', ...SYSCTLS]);
      await this.#batch(machine, ['link set lo up']);
    }
    await this.inside('node', 'sysctl', ['-q', '-w', ...FORWARDING]);
    await this.#batch('node', [
      `link add eth0 type veth peer name eth0 netns ${this.namespace('client')}`,
      `link add eth1 type veth peer name eth0 netns ${this.namespace('world')}`,
      'link add bridge type bridge',
      ...(['pod-a', 'pod-b'] as const).flatMap((pod) => [
        `link add ${pod} type veth peer name eth0 netns ${this.namespace(pod)}`,
        `link set ${pod} master bridge`,
        `link set ${pod} up`,
      ]),
      `link add routed type veth peer name eth0 netns ${this.namespace('routed')}`,
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
    await this.#batch('client', [
      'link set eth0 up',
      `address add ${ADDRESSES.client.v4}/24 dev eth0`,
      `address add ${ADDRESSES.client.v6}/64 dev eth0 nodad`,
      `address add ${STRANGER.v4}/24 dev eth0`,
      `address add ${STRANGER.v6}/64 dev eth0 nodad preferred_lft 0`,
      `route add default via ${NODE.v4}`,
      `route add default via ${NODE.v6}`,
    ]);
    await this.#batch('world', [
      'link set eth0 up',
      `address add ${ADDRESSES.world.v4}/24 dev eth0`,
      `address add ${ADDRESSES.world.v6}/64 dev eth0 nodad`,
      `route add default via ${NODE.world4}`,
      `route add default via ${NODE.world6}`,
    ]);
    for (const pod of ['pod-a', 'pod-b'] as const) {
      const { v4, v6 } = ADDRESSES[pod];
      await this.#batch(pod, [
        'link set eth0 up',
        `address add ${v4}/24 dev eth0`,
        `address add ${v6}/64 dev eth0 nodad`,
        `route add default via ${NODE.pods4}`,
        `route add default via ${NODE.pods6}`,
      ]);
    }
    await this.#batch('routed', [
      'link set eth0 up',
      `address add ${ADDRESSES.routed.v4}/32 dev eth0`,
      `address add ${ADDRESSES.routed.v6}/128 dev eth0 nodad`,
      'route add 169.254.1.1 dev eth0 scope link',
      'route add default via 169.254.1.1 dev eth0',
      'route add default via fe80::1 dev eth0',
    ]);
    await this.#batch('node', [
      `route add default via ${ADDRESSES.world.v4}`,
      `route add default via ${ADDRESSES.world.v6}`,
      `route add ${STRANGER.v4.replace(/\d+$/, '0')}/24 via ${ADDRESSES.client.v4}`,
      `route add ${ADDRESSES.routed.v4} dev routed`,
      `route add ${ADDRESSES.routed.v6} dev routed`,
    ]);
    await this.inside('node', 'sysctl', ['-q', '-w', 'net.ipv4.conf.routed.proxy_arp=1']);
  }

  /** Runs a program on a machine and returns what it prints. */
  async inside(
    machine: MachineName,
    file: string,
    args: readonly string[],
    stdin = '',
  ): Promise<string> {
    const inside = ['netns', 'exec', this.namespace(machine), file, ...args];
    const { stdout } = await systemExec({ file: 'ip', args: inside, stdin, maxOutput: 2 ** 26 });
    return stdout;
  }

  /** Several `ip` commands on one machine. */
  async #batch(machine: MachineName, commands: readonly string[]): Promise<void> {
    for (const family of ['-4', '-6']) {
      const mine = commands.filter((command) => isV6(command) === (family === '-6'));
      if (mine.length === 0) continue;
      const args = [family, '-n', this.namespace(machine), '-batch', '-'];
      await systemExec({ file: 'ip', args, stdin: `${mine.join('\n')}\n` });
    }
  }
}

function isV6(command: string): boolean {
  return /[0-9a-f]::|::[0-9a-f]/.test(command);
}

async function ip(args: readonly string[]): Promise<void> {
  await systemExec({ file: 'ip', args });
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

/** Removes namespaces that test processes have left which do not run any more. */
export async function removeStale(): Promise<void> {
  const { stdout } = await systemExec({ file: 'ip', args: ['netns', 'list'] });
  for (const line of stdout.split('\n')) {
    const name = line.split(' ')[0] ?? '';
    const pid = makerOf(name);
    if (pid !== undefined && !runs(pid)) await ip(['netns', 'delete', name]);
  }
}

/** Whether a namespace belongs to a test process that runs, maybe one of another user. */
export function isInUse(namespace: string): boolean {
  const pid = makerOf(namespace);
  return pid !== undefined && runs(pid);
}

/** The test process that has made a namespace; undefined: none of ours. */
function makerOf(namespace: string): number | undefined {
  const [, pid] = new RegExp(`^${PREFIX}-(\\d+)-`).exec(namespace) ?? [];
  return pid === undefined ? undefined : Number(pid);
}

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
