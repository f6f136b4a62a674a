import ipaddr from 'ipaddr.js';
import type { HostAddress } from '../../util/host-addresses.ts';

/**
 * Marks the addresses that are ours: the metric of an address, which the kernel keeps and shows, in
 * both families, since Linux 4.18. It is the priority of the route to the address's network; an address
 * that is a network of its own has none. A label would be for IPv4 only, and the attribute `proto`, made
 * for this, needs Linux 5.18 and iproute2 6.3.
 */
export const MARK_METRIC = 27_504;

/** Marks the interfaces that this program has made. */
export const MARK_ALIAS = 'kpng-userspace';

/** An interface of the host. */
export interface Link {
  readonly name: string;
  readonly isUp: boolean;
  /** Whether this program has made it. */
  readonly isOurs: boolean;
  readonly addresses: readonly LinkAddress[];
}

export interface LinkAddress extends HostAddress {
  /** Whether this program has added it. */
  readonly isOurs: boolean;
  /** Whether it is of the kind that every IPv6 interface has by itself. */
  readonly isLinkLocal: boolean;
}

/** What is used of the JSON of `ip -j -d address show`. */
interface RawLink {
  readonly ifname?: string;
  readonly flags?: readonly string[];
  readonly ifalias?: string;
  readonly addr_info?: readonly {
    readonly local?: string;
    readonly prefixlen?: number;
    readonly metric?: number;
    readonly scope?: string;
  }[];
}

/** The interfaces in the output of `ip -j -d address show`. Throws a SyntaxError when it is not JSON. */
export function readLinks(json: string, spelling: Spelling): Link[] {
  const raw = JSON.parse(json) as readonly RawLink[];
  return raw.flatMap(({ ifname, flags = [], ifalias, addr_info: list = [] }) => {
    if (ifname === undefined) return [];
    const loopback = flags.includes('LOOPBACK');
    const addresses = list.flatMap(({ local, prefixlen, metric, scope }): LinkAddress[] => {
      if (local === undefined) return [];
      const host = prefixlen === (local.includes(':') ? 128 : 32);
      return [
        {
          address: spelling.canonical(local),
          loopback,
          isOurs: host && metric === MARK_METRIC,
          isLinkLocal: scope === 'link',
        },
      ];
    });
    return [
      { name: ifname, isUp: flags.includes('UP'), isOurs: ifalias === MARK_ALIAS, addresses },
    ];
  });
}

/**
 * The canonical text of addresses as the kernel spells them. It remembers those of the last listing,
 * as reading ten thousand IPv6 addresses anew each time would take long.
 */
export class Spelling {
  #known = new Map<string, string>();
  #next = new Map<string, string>();

  /** Says that a listing begins: what only the one before the last one had is forgotten. */
  begin(): void {
    this.#known = this.#next;
    this.#next = new Map();
  }

  canonical(text: string): string {
    if (!text.includes(':')) return text;
    const canonical = this.#known.get(text) ?? ipaddr.parse(text).toString();
    this.#next.set(text, canonical);
    return canonical;
  }
}
