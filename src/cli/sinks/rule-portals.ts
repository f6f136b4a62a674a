/** Portals with packet rules: which one `--portal auto` selects, and why; and what they find on the host. */
import { KpngError, messageOf } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import { TRIAL } from '../../portal/bounds.ts';
import type { Exec } from '../../portal/exec.ts';
import { cleanUpIptables, iptablesBackend, tryIptables } from '../../portal/iptables/backend.ts';
import type { Flavor, Tools } from '../../portal/iptables/tools.ts';
import {
  cleanUpNftables,
  hostChains,
  nftablesBackend,
  nftablesProblem,
  otherMarkingTable,
  portalIn,
  removeUnusedRoute,
  tableOwner,
} from '../../portal/nftables/backend.ts';
import * as trial from '../../portal/nftables/trial.ts';
import { bindAddresses, hostFamilies } from '../../portal/node-addresses.ts';
import type { Portal } from '../../portal/portal.ts';
import { findOwner } from '../../portal/rules/canary.ts';
import { waitForOtherWriters, writerText } from '../../portal/rules/other-writers.ts';
import { RulePortal, type RulePortalOptions } from '../../portal/rules/rule-portal.ts';
import { pause, systemClock, type Clock } from '../../util/clock.ts';
import type { Family } from '../../util/family.ts';
import { hostAddresses } from '../../util/host-addresses.ts';
import { socketHolder } from '../../util/listen-failure.ts';
import type { UserspaceOptions } from './userspace-options.ts';

export interface PortalHost extends Pick<RulePortalOptions, 'allocator'> {
  readonly options: UserspaceOptions;
  readonly log: Log;
  readonly exec: Exec;
  readonly tools: () => Promise<Tools>;
  readonly engine: 'node' | 'linux';
  /**
   * Of a dry run: replaces values that differ from run to run, and parts that open sockets. Nothing is probed, nothing
   * of other portals removed, and `auto` means nftables on Linux.
   */
  readonly dry: Pick<RulePortalOptions, 'owner' | 'random' | 'canary'> | undefined;
}

/** Creates a portal with packet rules. Rejects with KPNG_USAGE for an address that rules cannot redirect to. */
export async function createRulePortal(
  kind: 'nftables' | 'transparent' | 'iptables',
  host: PortalHost,
): Promise<Portal> {
  const { options, log, exec, tools, dry, allocator } = host;
  const { bindAddress, nodePortAddresses } = options;
  const watch = kind === 'transparent' && dry === undefined ? watchSettings(log) : undefined;
  /** Removes stale rules of other portals with the same names; logs those of running processes. */
  const afterStart = async (signal: AbortSignal): Promise<void> => {
    const flavor = kind === 'iptables' ? (await tools()).flavor : undefined;
    const check = () => removeStaleRules(kind, flavor, options, log, exec);
    await Promise.all([watch?.(signal), waitForOtherWriters(kind, check, signal)]);
  };
  const rules = { allocator, bindAddress, nodePortAddresses, exec, ...(dry ?? { afterStart }) };
  if (kind === 'iptables') {
    const families = dry ? undefined : await iptablesFamilies(host);
    const backend = iptablesBackend(exec, tools, options.portalChainPrefix);
    return new RulePortal({ ...rules, ...(families && { families }) }, backend);
  }
  const table = options.portalTable;
  if (kind === 'nftables') return new RulePortal(rules, nftablesBackend(exec, table));
  const { kernelPortRange } = await import('../../proxysocket/core/kernel-port.ts');
  const { transparentSocket: socket } = await import('../../proxysocket/linux/open-listener.ts');
  const kernelPorts = dry ? undefined : kernelPortRange();
  const route = { ...options.portalRoute, ...(kernelPorts && { kernelPorts }) };
  return new RulePortal(rules, nftablesBackend(exec, table, { route, socket }));
}

/** A portal that serves all traffic of the host, and why it is chosen. */
type Choice = readonly [
  portal: 'transparent' | 'nftables' | 'iptables' | 'address',
  reason: string,
  code?: string | undefined,
];

/** Probes the portals, once, best first, and logs the choice and its reason. The last one always works. */
export async function choosePortal(host: PortalHost): Promise<Choice[0]> {
  const [portal, reason, code] = await bestPortal(host);
  host.log.info(`Chose --portal ${portal}`, { reason, ...(code !== undefined && { code }) });
  return portal;
}

async function bestPortal(host: PortalHost): Promise<Choice> {
  if (process.platform === 'win32') return ['address', 'Windows has no packet rules of this kind'];
  const problems: KpngError[] = [];
  try {
    const families = familiesFor(host.options);
    const problem = await nftablesProblem(host.exec, families);
    if (problem === undefined) {
      if (host.engine === 'node') return ['nftables', 'transparent needs the linux engine'];
      return await chooseNftables(host, families);
    }
    problems.push(problem);
    const usable = await tryIptables(host.exec, await host.tools(), families);
    const [reason] = usable.problems.values();
    if (usable.families.length === 0 && reason !== undefined) throw reason;
    return ['iptables', problem.message, problem.code];
  } catch (error) {
    if (!(error instanceof KpngError)) throw error;
    problems.push(error);
    return ['address', problems.map(({ message }) => message).join('; '), problems[0]?.code];
  }
}

/** The port of a cluster's DNS service, and an address as that service's: no socket is bound to it alone. */
const DNS = { protocol: 'UDP', address: '198.51.100.1', port: 53 } as const;

/**
 * `transparent` if nothing speaks against it and a trial connection arrives, else `nftables`. While a process of ours
 * runs, its portal: a new process takes over its connections. Never rejects.
 */
async function chooseNftables(
  { options, exec }: PortalHost,
  families: readonly Family[],
): Promise<Choice> {
  const { bindAddress, portRange, portalTable: table, portalRoute: route } = options;
  const not = (reason: string): Choice => ['nftables', reason];
  if (bindAddress !== '0.0.0.0' || portRange !== undefined) {
    return not('transparent has no proxy ports for --bind-address and --port-range');
  }
  try {
    const hurried: Exec = (command) => exec({ ...command, timeoutMs: TRIAL.limitMs });
    const chains = await hostChains(hurried);
    const previous = portalIn(chains, table);
    if (previous !== undefined && (await findOwner(previous.owner)) !== undefined) {
      return [previous.kind, 'a running process uses it; auto chooses again when none does'];
    }
    const setting = trial.conflictingSetting();
    if (setting !== undefined) return not(`with transparent, ${setting}`);
    const marking = otherMarkingTable(chains, [table, trial.trialTable(table)]);
    if (marking !== undefined) return not(`another proxy uses transparent (table ${marking})`);
    const chain = await trial.obstructingChain(hurried, chains);
    if (chain !== undefined) return not(chain);
    const holder = await socketHolder(DNS);
    if (holder !== undefined) {
      const place = 'UDP port 53 on every address';
      return not(`${holder} is bound to ${place}; transparent could not serve DNS`);
    }
    const { transparentSocket: socket } = await import('../../proxysocket/linux/open-listener.ts');
    const arrived = await trial
      .tryTransparent(exec, table, families, { route, socket })
      .catch((error: unknown) => messageOf(error));
    if (typeof arrived === 'string') return not(`the trial of transparent failed: ${arrived}`);
    const names = arrived.map((family) => `IPv${family}`).join(' and ');
    return ['transparent', `a trial connection arrived in ${names}`];
  } catch (error) {
    return not(`transparent could not be tried: ${messageOf(error)}`);
  }
}

/** How often the settings are read: VPNs, for instance, change them when they start. Milliseconds. */
const INTERVAL_MS = 15_000;

/**
 * Logs the setting of the host, if any, that keeps packets from transparent sockets, also when no rules can be written.
 * Returns a function that logs later ones until the signal aborts.
 */
export function watchSettings(
  log: Log,
  find: () => string | undefined = trial.conflictingSetting,
  clock: Clock = systemClock,
): (signal: AbortSignal) => Promise<void> {
  let known: string | undefined;
  const check = (): void => {
    const reason = find();
    if (reason !== undefined && reason !== known) {
      log.warn('Some clients cannot reach services with --portal transparent', { reason });
    }
    known = reason;
  };
  check();
  return async (signal) => {
    while (!signal.aborted) {
      await pause(INTERVAL_MS, clock, signal);
      if (!signal.aborted) check();
    }
  };
}

/** Codes of failures that retrying does not fix. */
const LASTING = new Set<string>(['KPNG_PORTAL_UNSUPPORTED', 'KPNG_PORTAL_TOOL_MISSING']);

/**
 * The families that iptables can write rules for; undefined if unknown or none: then each write retries, and its
 * error gives the reason.
 */
async function iptablesFamilies({ options, log, exec, tools }: PortalHost) {
  const wanted = familiesFor(options);
  const found = await tools().catch((error: unknown) => {
    if (!(error instanceof KpngError)) throw error;
  });
  const usable = found && (await tryIptables(exec, found, wanted));
  if (usable === undefined || usable.families.length === 0) return undefined;
  for (const [family, { code, message: reason }] of usable.problems) {
    if (!LASTING.has(code)) return undefined;
    log.warn(`There will be no packet rules for IPv${family}`, { reason, code });
  }
  return usable.families;
}

/** The families that the host has. Throws KPNG_USAGE if packets cannot be redirected to the bind address. */
function familiesFor({ bindAddress }: UserspaceOptions): Family[] {
  const families = hostFamilies(hostAddresses());
  bindAddresses(bindAddress, families);
  return families;
}

/**
 * Removes stale rules under our names, written by an ended process with another portal or iptables flavour: they
 * would redirect clients to closed ports. Rules of running processes stay and are described. Failures are only logged.
 * `kind`, `inUse`: the portal in use, and the flavour of its iptables.
 */
export async function removeStaleRules(
  kind: Portal['kind'],
  inUse: Flavor | undefined,
  { portalTable: table, portalChainPrefix: prefix, portalRoute: route }: UserspaceOptions,
  log: Log,
  exec: Exec,
): Promise<readonly string[]> {
  const writers: string[] = [];
  const attempt = async (
    what: string,
    remove: (stays: (owners: readonly string[]) => Promise<boolean>) => Promise<boolean>,
  ): Promise<void> => {
    const living: { readonly pid: number | undefined }[] = [];
    const stays = async (owners: readonly string[]): Promise<boolean> => {
      const found = await Promise.all(owners.map((owner) => findOwner(owner)));
      const alive = found.filter((owner) => owner !== undefined);
      living.push(...alive);
      return alive.length > 0;
    };
    try {
      if (await remove(stays)) log.info('Removed stale rules of a previous process', { what });
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      // Without the programs, there are no rules.
      if (error.code === 'KPNG_PORTAL_TOOL_MISSING') return;
      log.warn('Stale rules of a previous process not removed', { what, err: error });
    }
    const pids = new Set(living.flatMap(({ pid }) => pid ?? []));
    if (living.length > 0) writers.push(writerText(what, [...pids]));
  };
  if (kind === 'iptables') {
    await attempt(`the nftables table inet ${table}`, async (stays) => {
      const owner = await tableOwner(exec, table);
      if (owner === undefined || (await stays([owner]))) return false;
      await cleanUpNftables(exec, table);
      return true;
    });
  }
  await attempt('the nftables table of a trial', () => trial.removeTrial(exec, table));
  if (kind !== 'transparent') {
    const rule = `the routing rule of mark 0x${route.mark.toString(16)}`;
    await attempt(rule, () => removeUnusedRoute(exec, route));
  }
  for (const flavor of ['nft', 'legacy'] as const) {
    if (flavor === inUse) continue;
    await attempt(`the chains ${prefix}-* of iptables-${flavor}`, async (stays) => {
      const options = { prefix, kubeProxy: false, flavors: [flavor], stays };
      return (await cleanUpIptables(exec, options)).removed;
    });
  }
  return writers;
}
