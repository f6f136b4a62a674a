import { KpngError, messageOf } from '../errors.ts';
import { ExecError, type Command, type Exec } from './exec.ts';
import {
  formerRemovalOf,
  readFlows,
  removalOf,
  staleAmong,
  type FlowPlace,
  type FlowTargets,
} from './flow-table.ts';
import { MAX_FLOW_COMMANDS, MAX_FLOW_LIST, MAX_FLOW_PLACES } from './bounds.ts';

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
      commands.push(...stale.map((flow) => removalOf(family, flow)));
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
