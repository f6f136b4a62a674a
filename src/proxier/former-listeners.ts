import type { ListenSpec, Protocol, ServicePortSpec } from '../proxysocket/spec.ts';

/** Where service ports are to listen on a port of their choice; only one can have such a place. */
export class Places {
  readonly #owners = new Map<string, string>();

  constructor(specs: Iterable<ServicePortSpec>) {
    for (const { name, protocol, listen } of specs) {
      for (const each of listen) {
        if (each.port !== 0) this.#owners.set(placeKey(protocol, each), name);
      }
    }
  }

  /** Whether another service port than this one is to listen there. */
  isWantedByOther({ name, protocol }: ServicePortSpec, listen: ListenSpec): boolean {
    return (this.#owners.get(placeKey(protocol, listen)) ?? name) !== name;
  }
}

/**
 * A service port that goes on listening where it did, besides where it is to listen now, except at
 * places that others want. The same object when that adds nothing.
 */
export function withFormer(
  now: ServicePortSpec,
  former: ServicePortSpec,
  places: Places,
): ServicePortSpec {
  // With another protocol it is another service port, and its listeners go with the former one.
  if (now.protocol !== former.protocol) return now;
  const counts = new Map<string, number>();
  for (const each of now.listen)
    counts.set(listenerKey(each), (counts.get(listenerKey(each)) ?? 0) + 1);
  const kept = former.listen.filter((each) => {
    const count = counts.get(listenerKey(each)) ?? 0;
    if (count > 0) counts.set(listenerKey(each), count - 1);
    return count === 0 && !places.isWantedByOther(now, each);
  });
  return kept.length === 0 ? now : { ...now, listen: [...now.listen, ...kept] };
}

function placeKey(protocol: Protocol, { address, port }: ListenSpec): string {
  return `${protocol} ${address} ${port}`;
}

/** The engine takes listeners that are alike in these for the same one. */
function listenerKey({ address, port, traffic }: ListenSpec): string {
  return `${address} ${port} ${traffic}`;
}
