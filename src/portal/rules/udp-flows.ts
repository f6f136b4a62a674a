/** UDP flows in the kernel's connection tracking, listed and removed with the program `conntrack`. */
import { KpngError, messageOf } from '../../errors.ts';
import type { Clock } from '../../util/clock.ts';
import type { Family } from '../../util/family.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import { MAX_FLOW_ADDRESSES, MAX_FLOW_COMMANDS, MAX_FLOW_LIST } from '../bounds.ts';
import { flowsCleared, flowsNotCleared } from '../events.ts';
import { type Exec, ExecError } from '../exec.ts';
import type { Portal } from '../portal.ts';
import type { Redirect } from '../redirect-plan.ts';
import { type Element, Elements, type RuleConfig } from './backend.ts';
import type { Written } from './rule-set.ts';

export interface UdpFlowsOptions {
  readonly portal: Portal['kind'];
  readonly exec: Exec;
  readonly clock: Clock;
  readonly interfaces: () => readonly HostAddress[];
  /** Whether rules deliver packets unchanged, so that only earlier rules may have redirected flows. */
  readonly isTransparent: boolean;
}

export class UdpFlows {
  readonly #options: UdpFlowsOptions;
  /** `4 10.0.0.1 53` or `4 node 30053`, with the proxy port, or nothing if clients are rejected. */
  readonly #portals = new Elements();

  constructor(options: UdpFlowsOptions) {
    this.#options = options;
  }

  set(name: string, redirects: readonly Redirect[]): void {
    const elements = redirects.flatMap(({ family, portal, proxyPort }): Element[] => {
      if (portal.protocol !== 'UDP') return [];
      const key = `${family} ${portal.address ?? 'node'} ${portal.port}`;
      return [{ set: '', key, value: String(proxyPort ?? '') }];
    });
    this.#portals.set(name, elements);
  }

  /**
   * Clears flows that may be stale after a write: of changed portals, or of all when rules were missing or foreign, or
   * were `removed`. Never rejects: clients that pause are served anyway.
   */
  async clear(after: Written['reason'] | 'removed', targets: RuleConfig['targets']): Promise<void> {
    const { portal, exec, clock, interfaces, isTransparent } = this.#options;
    const addresses = isTransparent && after !== 'start' ? [] : this.#stale(after);
    this.#portals.written();
    if (addresses.length === 0) return;
    const begin = clock.now();
    const local = new Set(interfaces().map(({ address }) => address));
    const error = await clearFlows(exec, addresses, local, targets);
    const durationMs = clock.now() - begin;
    if (error !== undefined) flowsNotCleared.publish({ portal, error });
    else flowsCleared.publish({ portal, addresses: addresses.length, durationMs });
  }

  #stale(after: Written['reason'] | 'removed'): FlowAddress[] {
    if (after === 'change') {
      return this.#portals.changes().map(({ key, after: now = '' }) => flowAddress(key, now));
    }
    return [...this.#portals].map(({ key, value }) =>
      flowAddress(key, after === 'removed' ? '' : value),
    );
  }
}

function flowAddress(key: string, proxyPort: string): FlowAddress {
  const [family, address, port] = key.split(' ');
  return {
    family: family === '6' ? 6 : 4,
    address: address === 'node' ? undefined : address,
    port: Number(port),
    proxyPort: proxyPort === '' ? undefined : Number(proxyPort),
  };
}

export interface FlowAddress {
  readonly family: Family;
  /** Undefined: a node port, on any address of the node. */
  readonly address: string | undefined;
  readonly port: number;
  /** The proxy port that flows should be redirected to; undefined: none. */
  readonly proxyPort: number | undefined;
}

/** One tracked flow: its original destination, and the answering address. */
interface Flow {
  readonly to: string;
  readonly toPort: string;
  readonly from: string;
  readonly fromPort: string;
}

const FLOW =
  /\bdst=(?<to>\S+) sport=\d+ dport=(?<toPort>\d+) .*?\bsrc=(?<from>\S+) dst=\S+ sport=(?<fromPort>\d+) dport=\d+/g;

/** The flows in the output of `conntrack -L -p udp`. Other lines are skipped. */
export function* readFlows(text: string): Generator<Flow> {
  for (const { groups } of text.matchAll(FLOW)) yield groups as unknown as Flow;
}

/** Flows whose destination is wrong, one of each kind. `local`: the addresses of this node. */
export function staleAmong(
  addresses: readonly FlowAddress[],
  flows: Iterable<Flow>,
  target: string | undefined,
  local: ReadonlySet<string>,
): Flow[] {
  const key = (address: string | undefined, port: number | string): string =>
    `${address ?? 'node'} ${port}`;
  const byKey = new Map(addresses.map((place) => [key(place.address, place.port), place]));
  const stale = new Map<string, Flow>();
  for (const flow of flows) {
    const { to, toPort, from, fromPort } = flow;
    const place =
      byKey.get(key(to, toPort)) ?? (local.has(to) ? byKey.get(key(undefined, toPort)) : undefined);
    if (place === undefined) continue;
    const isRight =
      Number(fromPort) === place.proxyPort && (target === undefined || from === target);
    if (!isRight) stale.set(Object.values(flow).join(' '), flow);
  }
  return [...stale.values()];
}

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
 * `local`: the addresses of this node. Resolves with an error if flows stay; it is not retried.
 */
export async function clearFlows(
  exec: Exec,
  addresses: readonly FlowAddress[],
  local: ReadonlySet<string>,
  targets: RuleConfig['targets'] = { 4: undefined, 6: undefined },
): Promise<KpngError | undefined> {
  try {
    const commands = await removals(exec, addresses, targets, local);
    for (const args of commands.slice(0, MAX_FLOW_COMMANDS)) await remove(exec, args);
    const left = commands.length - MAX_FLOW_COMMANDS;
    if (left <= 0) return undefined;
    return new KpngError(
      'KPNG_LIMIT_REACHED',
      `removing UDP flows: ${left} of ${commands.length} removals are left out; these flows end when their clients pause`,
    );
  } catch (cause) {
    return flowError(cause);
  }
}

/** Arguments that remove stale flows but not new ones. */
async function removals(
  exec: Exec,
  addresses: readonly FlowAddress[],
  targets: RuleConfig['targets'],
  local: ReadonlySet<string>,
): Promise<string[][]> {
  const commands: string[][] = [];
  for (const [family, mine] of Map.groupBy(addresses, (place) => place.family)) {
    const all = ['-f', `ipv${family}`, '-p', 'udp'];
    const isFew = addresses.length <= MAX_FLOW_ADDRESSES;
    let printed = '';
    for (const filter of isFew ? mine.map((each) => filterOf(each.port, each.address)) : [[]]) {
      const args = ['-L', ...all, ...filter];
      printed += (await exec({ file: 'conntrack', args, maxOutput: MAX_FLOW_LIST })).stdout;
    }
    for (const flow of staleAmong(mine, readFlows(printed), targets[family], local)) {
      const answering = ['--reply-src', flow.from, '--reply-port-src', flow.fromPort];
      commands.push(['-D', ...all, ...filterOf(flow.toPort, flow.to), ...answering]);
    }
  }
  return commands;
}

function filterOf(port: number | string, address: string | undefined): string[] {
  const filter = ['--orig-port-dst', String(port)];
  return address === undefined ? filter : [...filter, '--orig-dst', address];
}

async function remove(exec: Exec, args: readonly string[]): Promise<void> {
  await exec({ file: 'conntrack', args }).catch((error: unknown) => {
    // conntrack exits with 1 if there was nothing to remove.
    const none = / 0 flow entries have been deleted/;
    if (!(error instanceof ExecError && none.test(error.stderr))) throw error;
  });
}

function flowError(cause: unknown): KpngError {
  const isExec = cause instanceof ExecError;
  let code: KpngError['code'] = 'KPNG_PORTAL_FAILED';
  let what = messageOf(cause);
  if (isExec && /CAP_NET_ADMIN|not permitted/.test(cause.stderr)) code = 'KPNG_PORTAL_PERMISSION';
  if (isExec && cause.failure === 'missing') {
    code = 'KPNG_PORTAL_TOOL_MISSING';
    what = 'there is no conntrack on the PATH; install the package conntrack';
  }
  const message = `removing UDP flows from connection tracking: ${what}`;
  const later = 'flows to the wrong address end when their clients pause';
  return new KpngError(code, `${message}; ${later}`, { cause });
}
