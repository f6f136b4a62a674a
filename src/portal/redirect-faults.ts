import { isIP } from 'node:net';
import type { PortalProblem, PortalSpec } from './portal.ts';
import { portalText } from './text.ts';

/** What is wrong with a portal, and the code of the error table for that. */
type Why = readonly [code: string, text: string];

const NO_ADDRESS: Why = ['KPNG_SERVICE_INVALID', 'that is not an address'];
const NO_PORT: Why = ['KPNG_SERVICE_INVALID', 'a port is a number from 1 to 65535'];
const NO_RANGES: Why = ['KPNG_SERVICE_INVALID', 'a node port cannot be limited to source ranges'];
const NO_FAMILY: Why = [
  'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
  'the host does not have that address family',
];

/** A portal that can never be had as it is. */
export interface Fault {
  readonly portal: PortalSpec;
  readonly why: Why;
}

/** `10.0.0.1:80/TCP`, or `node port 30080/TCP`. */
export function placeText({ address, port, protocol }: PortalSpec): string {
  if (address === undefined) return `node port ${port}/${protocol}`;
  return portalText({ address, port, protocol });
}

/** Why a portal can never be had as it is; undefined: it can. `families` are those of it that the host has. */
export function faultOf(
  { address, port, sourceRanges }: PortalSpec,
  families: readonly (4 | 6)[],
): Why | undefined {
  if (address !== undefined && (isIP(address) === 0 || address.includes('%'))) return NO_ADDRESS;
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return NO_PORT;
  if (address === undefined && sourceRanges.length > 0) return NO_RANGES;
  return families.length === 0 ? NO_FAMILY : undefined;
}

interface Mine {
  readonly first: Fault;
  count: number;
}

/** The faults of all service ports, counted as they come and go: there may be hundreds of thousands. */
export class FaultCounts {
  /** By code and service port. */
  readonly #byCode = new Map<string, { count: number; readonly mine: Map<string, Mine> }>();

  /** Replaces the faults of a service port. */
  set(name: string, faults: readonly Fault[]): void {
    for (const group of this.#byCode.values()) {
      group.count -= group.mine.get(name)?.count ?? 0;
      group.mine.delete(name);
    }
    for (const first of faults) {
      const [code] = first.why;
      const group = this.#byCode.get(code) ?? { count: 0, mine: new Map<string, Mine>() };
      this.#byCode.set(code, group);
      const mine = group.mine.get(name) ?? { first, count: 0 };
      group.mine.set(name, mine);
      mine.count += 1;
      group.count += 1;
    }
  }

  /** At most one for each code. */
  problems(): PortalProblem[] {
    return [...this.#byCode].flatMap(([code, { count, mine }]) => {
      const [servicePort, { first } = { first: undefined }] = mine.entries().next().value ?? [];
      if (servicePort === undefined || first === undefined) return [];
      const { portal, why } = first;
      const message = `${servicePort} cannot have ${placeText(portal)}: ${why[1]}`;
      return [{ servicePort, portal, code, message, count }];
    });
  }
}
