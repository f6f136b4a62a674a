/** The kernel's memory of UDP flows, as the program `conntrack` shows it. */

/** A place whose UDP flows may lead wrong. */
export interface FlowPlace {
  readonly family: 4 | 6;
  /** Undefined: a node port, so an address of the node. */
  readonly address: string | undefined;
  readonly port: number;
  /** The proxy port that flows should lead to; undefined: none should. */
  readonly proxyPort: number | undefined;
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
 * Picks the places that have a flow that leads elsewhere than it should. `target` is where the rules
 * send packets; undefined: not known, then only ports are compared.
 */
export function staleAmong(
  places: readonly FlowPlace[],
  flows: Iterable<Flow>,
  target: string | undefined,
): FlowPlace[] {
  const byPlace = new Map<string, FlowPlace>();
  for (const place of places) byPlace.set(placeKey(place.address, place.port), place);
  const stale = new Set<FlowPlace>();
  for (const flow of flows) {
    const { destination, destinationPort, answeringAddress, answeringPort } = flow;
    const place =
      byPlace.get(placeKey(destination, destinationPort)) ??
      byPlace.get(placeKey(undefined, destinationPort));
    if (place === undefined) continue;
    const right =
      answeringPort === place.proxyPort && (target === undefined || answeringAddress === target);
    if (!right) stale.add(place);
  }
  return [...stale];
}

/** Arguments of `conntrack` that remove the flows of a place: one or more commands. */
export function removalsOf(
  { family, address, port }: FlowPlace,
  target: string | undefined,
): string[][] {
  const start = ['-D', '-f', family === 4 ? 'ipv4' : 'ipv6', '-p', 'udp'];
  const toPort = ['--orig-port-dst', String(port)];
  if (address !== undefined) return [[...start, '--orig-dst', address, ...toPort]];
  if (target === undefined) return [[...start, ...toPort]];
  return [
    // Those that were sent to a proxy port, and those that the node itself should have answered.
    [...start, ...toPort, '--reply-src', target],
    [...start, ...toPort, '--reply-port-src', String(port)],
  ];
}

function placeKey(address: string | undefined, port: number): string {
  return `${address ?? 'node'} ${port}`;
}
