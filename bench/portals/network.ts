/** The network namespace that rules are written in. The machine's own is never touched. */
import { Namespaces } from '../support/namespaces.ts';

/** Addresses of the namespace. */
export const NODE_ADDRESS = '192.0.2.5';
export const ENDPOINT_ADDRESSES = ['10.1.0.10', '10.1.0.11'] as const;
export const ENDPOINT_PORT = 8080;

/**
 * Refuses, at once, connections to service addresses that no rule redirects. So a client
 * that keeps retrying sees the very moment when a portal comes and when it goes.
 */
const REFUSE_THE_REST = `table inet bench {
  chain output {
    type filter hook output priority 10; policy accept;
    meta mark 0 ip daddr 10.96.0.0/12 fib daddr type != local meta l4proto tcp reject with tcp reset
  }
}
`;

/** A namespace that looks like a node: an interface, a default route, two endpoints. */
export class BenchNetwork {
  readonly #namespaces = new Namespaces('kpngbench');

  /**
   * Makes it. `local`: the service addresses belong to the host, for portals that listen on them.
   * Throws when that is not allowed.
   */
  constructor({ local }: { readonly local: boolean }) {
    this.#namespaces.add('node');
    this.#namespaces.ip('node', [
      'link add eth0 type veth peer name eth1',
      'link set eth0 up',
      'link set eth1 up',
      `address add ${NODE_ADDRESS}/24 dev eth0`,
      ...ENDPOINT_ADDRESSES.map((address) => `address add ${address}/32 dev eth0`),
      'route add default via 192.0.2.1 dev eth0',
      ...(local ? ['route add local 10.96.0.0/12 dev lo'] : []),
    ]);
    if (!local) this.#namespaces.run('node', ['nft', '-f', '-'], REFUSE_THE_REST);
  }

  /** The command line that runs any program in it. `ip` becomes the program, so its id is the program's. */
  command(...words: readonly string[]): string[] {
    return this.#namespaces.command('node', words);
  }

  /** Removes it with all that is in it. Idempotent; done at the latest when this process ends. */
  remove(): void {
    this.#namespaces.remove();
  }
}
