import { execFileSync } from 'node:child_process';
import { Machine } from './machine.ts';
import { ADDRESSES, MACHINES, Network } from './network.ts';
import { Proxy } from './proxy.ts';

/** The part of a test that is needed here. */
interface Tearing {
  teardown(action: () => Promise<void>): unknown;
}

/** A network with its machines, and backends in the pods. Ends with the test. */
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
  /** The node's rules, as nft lists them. */
  ruleset(): Promise<string>;
}

/** Builds a network. In `pod-a` and `pod-b` something answers on TCP and UDP port 8080 of both families. */
export async function lab(t: Tearing): Promise<Lab> {
  const network = new Network();
  const ends: (() => Promise<void>)[] = [];
  const removeAtExit = (): void => removeNow(network);
  process.once('exit', removeAtExit);
  t.teardown(async () => {
    await Promise.all(ends.map((end) => end()));
    await network.remove();
    process.off('exit', removeAtExit);
  });
  await network.create();
  const machine = (name: (typeof MACHINES)[number]): Machine => {
    const made = new Machine(network, name);
    ends.push(() => made.end());
    return made;
  };
  const made: Lab = {
    network,
    node: machine('node'),
    client: machine('client'),
    world: machine('world'),
    podA: machine('pod-a'),
    podB: machine('pod-b'),
    routed: machine('routed'),
    start(options) {
      const proxy = new Proxy(network, options);
      ends.push(() => proxy.kill());
      return proxy;
    },
    ruleset: () => network.inside('node', 'nft', ['list', 'ruleset']),
  };
  for (const pod of [made.podA, made.podB]) {
    const { v4, v6 } = ADDRESSES[pod.name as 'pod-a' | 'pod-b'];
    for (const protocol of ['TCP', 'UDP']) {
      await pod.serve(`${v4}:8080/${protocol}`, pod.name);
      await pod.serve(`[${v6}]:8080/${protocol}`, pod.name);
    }
  }
  return made;
}

/** When the process ends in the middle of a test: no promise is waited for any more. */
function removeNow(network: Network): void {
  for (const machine of MACHINES) {
    try {
      execFileSync('ip', ['netns', 'delete', network.namespace(machine)], { stdio: 'ignore' });
    } catch {
      // It was never made, or is gone.
    }
  }
}
