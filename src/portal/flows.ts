/** The kernel's memory of UDP flows, as the program `conntrack` shows and changes it. */
import { KpngError, messageOf } from '../errors.ts';
import type { Family } from '../util/family.ts';
import { MAX_FLOW_COMMANDS, MAX_FLOW_LIST, MAX_FLOW_PLACES } from './bounds.ts';
import { ExecError, type Command, type Exec } from './exec.ts';

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
interface Flow {
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
function removalOf(family: Family, flow: Flow): string[] {
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
function formerRemovalOf(
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

/**
 * Removes UDP flows that lead to the wrong place from connection tracking.
 *
 * The kernel decides where a flow goes when it sees its first datagram, and keeps to that as long as
 * the client goes on sending. So when a portal begins, ends, moves or is refused, what the
 * kernel remembers of it has to go. Flows that lead where they should are spared, since an answer
 * on its way would miss them.
 *
 * Each removal walks through the kernel's whole table, and so does a list. Up to `MAX_FLOW_PLACES` places
 * of which it is known where their flows have led are removed straight away; otherwise the flows are
 * listed once, and those that lead wrong are removed, one process for each: `conntrack --load-file`
 * reads files only, and a file needs disk space.
 */
export class FlowCleaner {
  readonly #exec: Exec;

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /**
   * `local` are the addresses of the node. Rejects with a KpngError when it could not be done; it is not
   * tried again.
   */
  async clear(
    places: readonly FlowPlace[],
    targets: FlowTargets,
    local: ReadonlySet<string>,
  ): Promise<void> {
    try {
      const commands = knownCommands(places, targets) ?? (await this.#list(places, targets, local));
      for (const args of commands.slice(0, MAX_FLOW_COMMANDS)) {
        await this.#run({ file: 'conntrack', args });
      }
      if (commands.length > MAX_FLOW_COMMANDS) {
        const left = commands.length - MAX_FLOW_COMMANDS;
        throw new KpngError(
          'KPNG_LIMIT_REACHED',
          `removing UDP flows: ${left} of ${commands.length} removals are left out; these flows end when their clients pause`,
        );
      }
    } catch (cause) {
      throw cause instanceof KpngError ? cause : flowError(cause);
    }
  }

  async #list(
    places: readonly FlowPlace[],
    targets: FlowTargets,
    local: ReadonlySet<string>,
  ): Promise<string[][]> {
    const commands: string[][] = [];
    for (const family of [4, 6] as const) {
      const mine = places.filter((place) => place.family === family);
      if (mine.length === 0) continue;
      const args = ['-L', '-f', family === 4 ? 'ipv4' : 'ipv6', '-p', 'udp'];
      const { stdout } = await this.#exec({ file: 'conntrack', args, maxOutput: MAX_FLOW_LIST });
      const stale = staleAmong(mine, readFlows(stdout), targets[family], local);
      for (const flow of stale) commands.push(removalOf(family, flow));
    }
    return commands;
  }

  async #run(command: Command): Promise<void> {
    try {
      await this.#exec(command);
    } catch (error) {
      // conntrack ends with 1 when there was nothing to remove.
      if (error instanceof ExecError && / 0 flow entries have been deleted/.test(error.stderr))
        return;
      throw error;
    }
  }
}

/**
 * Removes the flows of places that lead nowhere any more. Resolves with an error when they stay. `local`
 * are the addresses of the node.
 */
export async function forgetFlows(
  exec: Exec,
  places: readonly FlowPlace[],
  local: ReadonlySet<string>,
): Promise<KpngError | undefined> {
  if (places.length === 0) return undefined;
  try {
    await new FlowCleaner(exec).clear(places, { 4: undefined, 6: undefined }, local);
    return undefined;
  } catch (error) {
    if (error instanceof KpngError) return error;
    throw error;
  }
}

/** The commands that need no list; undefined when one is needed, or better. */
function knownCommands(places: readonly FlowPlace[], targets: FlowTargets): string[][] | undefined {
  if (places.length > MAX_FLOW_PLACES) return undefined;
  const commands: string[][] = [];
  for (const place of places) {
    const { formerly, family } = place;
    if (formerly === 'unknown') return undefined;
    commands.push(formerRemovalOf({ ...place, formerly }, targets[family]));
  }
  return commands;
}

function flowError(cause: unknown): KpngError {
  const doing = 'removing UDP flows from connection tracking';
  const later = 'flows that lead to the wrong place end when their clients pause';
  if (cause instanceof ExecError && cause.failure === 'missing') {
    return new KpngError(
      'KPNG_PORTAL_TOOL_MISSING',
      `${doing}: there is no conntrack on the PATH; install the package conntrack; ${later}`,
      { cause },
    );
  }
  const message = messageOf(cause);
  const code =
    cause instanceof ExecError && /CAP_NET_ADMIN|not permitted/.test(cause.stderr)
      ? 'KPNG_PORTAL_PERMISSION'
      : 'KPNG_PORTAL_FAILED';
  return new KpngError(code, `${doing}: ${message}; ${later}`, { cause });
}
