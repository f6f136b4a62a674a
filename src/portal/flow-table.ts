/** The kernel's memory of UDP flows, as the program `conntrack` shows it. */

import type { Family } from '../util/family.ts';

/** Where packets are sent by the rules, by family; undefined: not known. */
export type FlowTargets = Readonly<Record<Family, string | undefined>>;

/** A place whose UDP flows may lead wrong. */
export interface FlowPlace {
  readonly family: Family;
  /** Undefined: a node port, so an address of the node. */
  readonly address: string | undefined;
  readonly port: number;
  /** The proxy port that flows should lead to; undefined: none should. */
  readonly proxyPort: number | undefined;
  /**
   * Where its flows have led so far: to a proxy port, or `past`, by the rules. `unknown` when the
   * rules were not there all the time, or not ours.
   */
  readonly formerly: number | 'past' | 'unknown';
}

/** One remembered flow: where its client sends to, and who answers. */
export interface Flow {
  readonly destination: string;
  readonly destinationPort: number;
  readonly answeringAddress: string;
  readonly answeringPort: number;
}

const FLOW = /\bdst=(\S+) sport=\d+ dport=(\d+) .*?\bsrc=(\S+) dst=\S+ sport=(\d+) dport=\d+/;

/** Reads the lines of `conntrack -L -p udp`. Lines that are something else are passed over. */
export function* readFlows(text: string): Generator<Flow> {
  for (const line of text.split('\n')) {
    const match = FLOW.exec(line);
    if (match === null) continue;
    const [, destination = '', destinationPort, answeringAddress = '', answeringPort] = match;
    yield {
      destination,
      destinationPort: Number(destinationPort),
      answeringAddress,
      answeringPort: Number(answeringPort),
    };
  }
}

/**
 * Picks the flows that lead elsewhere than their place says, one of each that look the same. `local` are
 * the addresses of the node: a node port of another node is not ours.
 */
export function staleAmong(
  places: readonly FlowPlace[],
  flows: Iterable<Flow>,
  target: string | undefined,
  local: ReadonlySet<string>,
): Flow[] {
  const byPlace = new Map<string, FlowPlace>();
  for (const place of places) byPlace.set(placeKey(place.address, place.port), place);
  const stale = new Map<string, Flow>();
  for (const flow of flows) {
    const { destination, destinationPort, answeringAddress, answeringPort } = flow;
    const place =
      byPlace.get(placeKey(destination, destinationPort)) ??
      (local.has(destination) ? byPlace.get(placeKey(undefined, destinationPort)) : undefined);
    if (place === undefined) continue;
    const right =
      answeringPort === place.proxyPort && (target === undefined || answeringAddress === target);
    if (!right) stale.set(Object.values(flow).join(' '), flow);
  }
  return [...stale.values()];
}

/** Arguments of `conntrack` that remove flows like this one. */
export function removalOf(family: Family, flow: Flow): string[] {
  const { destination, destinationPort, answeringAddress, answeringPort } = flow;
  const args = removal(family, destinationPort);
  args.push('--orig-dst', destination, '--reply-src', answeringAddress);
  args.push('--reply-port-src', String(answeringPort));
  return args;
}

/**
 * Arguments of `conntrack` that remove the flows of a place that lead where they formerly did; flows
 * that have begun since then, and lead where they should, are spared.
 */
export function formerRemovalOf(
  { family, address, port, formerly }: FlowPlace & { readonly formerly: number | 'past' },
  target: string | undefined,
): string[] {
  const args = removal(family, port);
  if (address !== undefined) args.push('--orig-dst', address);
  if (formerly === 'past') return [...args, '--reply-port-src', String(port)];
  if (target !== undefined) args.push('--reply-src', target);
  return [...args, '--reply-port-src', String(formerly)];
}

function removal(family: Family, port: number): string[] {
  const name = family === 4 ? 'ipv4' : 'ipv6';
  return ['-D', '-f', name, '-p', 'udp', '--orig-port-dst', String(port)];
}

function placeKey(address: string | undefined, port: number): string {
  return `${address ?? 'node'} ${port}`;
}
