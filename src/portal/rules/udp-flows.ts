/** UDP flows, and half-open TCP ones, in the kernel's connection tracking, listed and removed with the program `conntrack`. */
import { KpngError } from '../../errors.ts';
import { pause, type Clock } from '../../util/clock.ts';
import { FAMILIES, type Family } from '../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import { FLOW_WAIT_MS, MAX_FLOW_ADDRESSES, MAX_FLOW_COMMANDS, MAX_FLOW_LIST } from '../bounds.ts';
import { flowsCleared, flowsNotCleared } from '../events.ts';
import { type Exec, ExecError, NOT_PERMITTED, type Tool, toolFailure } from '../exec.ts';
import type { Portal } from '../portal.ts';
import type { Protocol } from '../../proxysocket/spec.ts';
import type { Redirect } from '../redirect-plan.ts';
import { Elements, type RuleConfig } from './backend.ts';
import type { Written } from './rule-set.ts';

const DOING = 'removing UDP flows from connection tracking';

const CONNTRACK: Tool = {
  program: 'conntrack',
  remedy: 'install the package conntrack',
  diagnoses: [NOT_PERMITTED],
};

/** UDP portals by `flowKey`, and the proxy port that their flows should be redirected to; empty: none. */
type FlowPorts = ReadonlyMap<string, string>;

/** `4 10.0.0.1 53`, or `4 node 30053` for a node port, which is on any address of the node. */
export function flowKey(family: Family, address: string | undefined, port: number | string) {
  return `${family} ${address ?? 'node'} ${port}`;
}

interface UdpFlowsOptions {
  readonly portal: Portal['kind'];
  readonly exec: Exec;
  readonly clock: Clock;
  readonly interfaces: () => readonly HostAddress[];
  /** Whether rules deliver packets unchanged, so that only earlier rules may have redirected flows. */
  readonly isTransparent: boolean;
  /** Those of all service ports. */
  readonly redirects: () => readonly Redirect[];
}

function portsOf(redirects: readonly Redirect[], protocol: Protocol) {
  const some = redirects.filter(({ portal }) => portal.protocol === protocol);
  return some.map(({ family, portal, proxyPort = '' }) => {
    return [flowKey(family, portal.address, portal.port), String(proxyPort)] as const;
  });
}

export class UdpFlows {
  readonly #options: UdpFlowsOptions;
  readonly #portals = new Elements();
  /** Those whose flows may be stale, until conntrack runs for them. */
  #stale = new Map<string, string>();
  readonly #queue = new SerialQueue();

  constructor(options: UdpFlowsOptions) {
    this.#options = options;
  }

  set(name: string, redirects: readonly Redirect[]): void {
    const elements = portsOf(redirects, 'UDP').map(([key, value]) => ({ set: '', key, value }));
    this.#portals.set(name, elements);
  }

  /**
   * Clears flows that may be stale after a write: of changed portals, or of all when rules were missing or foreign, or
   * were `removed`. Never rejects: clients that pause are served anyway. What takes longer than `FLOW_WAIT_MS`
   * continues in the background, since the next rules matter more.
   */
  async clear(after: Written['reason'] | 'removed', targets: RuleConfig['targets']): Promise<void> {
    const ports =
      after === 'change'
        ? this.#portals.changes().map(({ key, after: port = '' }) => [key, port] as const)
        : [...this.#portals].map(
            ({ key, value }) => [key, after === 'removed' ? '' : value] as const,
          );
    this.#portals.written();
    const { exec, interfaces, isTransparent, redirects } = this.#options;
    if (after === 'repair' && !isTransparent) {
      // The kernel keeps these clients from the rules as well: they would hang until they time out.
      const tcp = new Map(portsOf(redirects(), 'TCP'));
      void this.#queue.run(() => clearFlows(exec, tcp, interfaces(), targets, HALF_OPEN));
    }
    if (ports.length === 0 || (isTransparent && after !== 'start')) return;
    for (const [key, port] of ports) this.#stale.set(key, port);
    const cleared = new AbortController();
    void this.#queue.run(() => this.#clear(targets)).then(() => cleared.abort());
    await pause(FLOW_WAIT_MS, this.#options.clock, cleared.signal);
  }

  /** Resolves when all flows are cleared. */
  idle(): Promise<void> {
    return this.#queue.idle();
  }

  async #clear(targets: RuleConfig['targets']): Promise<void> {
    const { portal, exec, clock, interfaces } = this.#options;
    const ports = this.#stale;
    if (ports.size === 0) return;
    this.#stale = new Map();
    const begin = clock.now();
    const error = await clearFlows(exec, ports, interfaces(), targets);
    const durationMs = clock.now() - begin;
    if (error !== undefined) flowsNotCleared.publish({ portal, error });
    else flowsCleared.publish({ portal, addresses: ports.size, durationMs });
  }
}

/** What conntrack lists and removes: all UDP flows, or those of TCP clients that wait for an answer. */
const UDP: readonly string[] = ['-p', 'udp'];
const HALF_OPEN: readonly string[] = ['-p', 'tcp', '--state', 'SYN_SENT'];

/** A tracked flow as conntrack prints it: its original destination and port, and the answering address and port. */
const FLOW = /\bdst=(\S+) sport=\d+ dport=(\d+) .*?\bsrc=(\S+) dst=\S+ sport=(\d+) dport=\d+/g;

/**
 * Removes stale UDP flows from connection tracking.
 *
 * The kernel decides a flow's destination at its first datagram and keeps it while the client sends. So flows have to
 * be removed when a portal is added, removed, moved or rejected. Other flows stay, since answers in flight would not
 * match without them.
 *
 * Each removal and each list walks the kernel's whole table. Up to `MAX_FLOW_ADDRESSES` addresses have a list each, with
 * their flows only; otherwise there is one list of all flows of a family.
 *
 * `host`: the addresses of this node. `flows`: which ones, as arguments of conntrack. Resolves with an error if flows
 * stay; it is not retried.
 */
export async function clearFlows(
  exec: Exec,
  ports: FlowPorts,
  host: readonly HostAddress[] = hostAddresses(),
  targets: RuleConfig['targets'] = { 4: undefined, 6: undefined },
  flows = UDP,
): Promise<KpngError | undefined> {
  const local = new Set(host.map(({ address }) => address));
  try {
    const commands: string[][] = [];
    for (const family of FAMILIES) {
      commands.push(...(await removals(exec, family, flows, ports, targets[family], local)));
    }
    for (const args of commands.slice(0, MAX_FLOW_COMMANDS)) {
      await exec({ file: 'conntrack', args }).catch((error: unknown) => {
        // conntrack exits with 1 if there was nothing to remove.
        const none = / 0 flow entries have been deleted/;
        if (!(error instanceof ExecError && none.test(error.stderr))) throw error;
      });
    }
    const left = commands.length - MAX_FLOW_COMMANDS;
    if (left <= 0) return undefined;
    return new KpngError(
      'KPNG_LIMIT_REACHED',
      `${DOING}: ${left} of ${commands.length} removals are left out; these flows end when their clients pause`,
    );
  } catch (cause) {
    const { code, message } = toolFailure(cause, DOING, CONNTRACK);
    const later = 'flows to the wrong address end when their clients pause';
    return new KpngError(code, `${message}; ${later}`, { cause });
  }
}

/** Arguments that remove the flows of a family with a wrong destination, but not new ones. */
async function removals(
  exec: Exec,
  family: Family,
  flows: readonly string[],
  ports: FlowPorts,
  target: string | undefined,
  local: ReadonlySet<string>,
): Promise<string[][]> {
  const mine = [...ports.keys()].filter((key) => key.startsWith(`${family} `));
  if (mine.length === 0) return [];
  const all = ['-f', `ipv${family}`, ...flows];
  let printed = '';
  for (const key of flows === UDP && ports.size <= MAX_FLOW_ADDRESSES ? mine : ['']) {
    const [, address, port] = key.split(' ');
    const args = ['-L', ...all, ...(port === undefined ? [] : filterOf(port, address))];
    printed += (await exec({ file: 'conntrack', args, maxOutput: MAX_FLOW_LIST })).stdout;
  }
  const commands = new Map<string, string[]>();
  for (const [, to = '', toPort = '', from = '', fromPort = ''] of printed.matchAll(FLOW)) {
    const ofNode = local.has(to) ? ports.get(flowKey(family, undefined, toPort)) : undefined;
    const port = ports.get(flowKey(family, to, toPort)) ?? ofNode;
    const isRight = fromPort === port && (target === undefined || from === target);
    if (port === undefined || isRight) continue;
    const answering = ['--reply-src', from, '--reply-port-src', fromPort];
    const args = ['-D', ...all, ...filterOf(toPort, to), ...answering];
    commands.set(args.join(' '), args);
  }
  return [...commands.values()];
}

function filterOf(port: string, address = 'node'): string[] {
  const filter = ['--orig-port-dst', port];
  return address === 'node' ? filter : [...filter, '--orig-dst', address];
}
