import { familyOf } from '../../util/family.ts';
import type { ListenSpec, ServicePortSpec } from '../spec.ts';

/** A listener of a leader that is open, and its real port. */
export interface Bound {
  readonly listen: ListenSpec;
  readonly port: number;
}

/** The service port as its leader is told: others will listen at the same places. */
export function leading(spec: ServicePortSpec, sockets: number): ServicePortSpec {
  const listen = spec.listen.map((each) => ({ ...each, group: { sockets, joins: false } }));
  return { ...spec, listen };
}

/** The service port as another engine is told: it listens where the leader does, and nowhere else. */
export function following(
  spec: ServicePortSpec,
  bound: readonly Bound[],
  sockets: number,
): ServicePortSpec {
  const free = [...bound];
  const listen = spec.listen.flatMap((each): ListenSpec[] => {
    const index = free.findIndex(
      ({ listen: { address, port, traffic } }) =>
        port === each.port && address === each.address && traffic === each.traffic,
    );
    const [found] = index < 0 ? [] : free.splice(index, 1);
    if (found === undefined) return [];
    return [{ ...each, port: found.port, group: { sockets, joins: true } }];
  });
  return { ...spec, listen };
}

/** The places that only one service port can have. */
export function placesOf({ protocol, listen }: ServicePortSpec): string[] {
  return listen.flatMap(({ address, port }) =>
    port === 0 ? [] : [`${protocol} ${address} ${port}`],
  );
}

/**
 * Places of a service port which the kernel does not let others have beside it: a wildcard address and
 * a single one of the same family.
 */
export function placesInTheWay(
  spec: ServicePortSpec,
  wanted: readonly ServicePortSpec[],
): Set<string> {
  const others = wanted.flatMap(({ protocol, listen }) =>
    protocol === spec.protocol ? listen : [],
  );
  const inTheWay = spec.listen.filter(({ address, port }) =>
    others.some(
      (other) =>
        port !== 0 &&
        other.port === port &&
        other.address !== address &&
        familyOf(other.address) === familyOf(address) &&
        (isWildcard(address) || isWildcard(other.address)),
    ),
  );
  return new Set(placesOf({ ...spec, listen: inTheWay }));
}

/** Whether it means every address. */
export function isWildcard(address: string): boolean {
  return address === '0.0.0.0' || address === '::';
}

/** The service port without its listeners at these places. */
export function without(spec: ServicePortSpec, places: ReadonlySet<string>): ServicePortSpec {
  const listen = spec.listen.filter(
    ({ address, port }) => !places.has(`${spec.protocol} ${address} ${port}`),
  );
  return { ...spec, listen };
}
