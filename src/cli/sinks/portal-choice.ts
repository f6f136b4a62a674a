/** The portal for `--portal auto`, and the iptables to use. */
import { KpngError } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Exec } from '../../portal/exec.ts';
import type { Usable } from '../../portal/iptables/backend.ts';
import type { Tools } from '../../portal/iptables/tools.ts';
import type { Family } from '../../util/family.ts';
import type { UserspaceOptions } from './userspace-options.ts';

/** The portals that serve all traffic of the host, best first, and the one that always works. */
export type AutoKind = 'transparent' | 'nftables' | 'iptables' | 'address';

/** What a dry run, which tries nothing, assumes. */
export const ASSUMED: AutoKind = process.platform === 'linux' ? 'nftables' : 'address';

export interface PortalHost {
  readonly options: UserspaceOptions;
  readonly log: Log;
  readonly exec: Exec;
  readonly tools: () => Promise<Tools>;
  readonly engine: 'node' | 'linux';
}

/** Probes the portals, once, and logs the choice and its reason. */
export async function choosePortal(host: PortalHost): Promise<AutoKind> {
  const { options, log, exec, engine } = host;
  const chose = (portal: AutoKind, reason: string, code?: string): AutoKind => {
    log.info(`Chose --portal ${portal}`, { reason, ...(code !== undefined && { code }) });
    return portal;
  };
  if (process.platform === 'win32')
    return chose('address', 'Windows has no packet rules of this kind');
  const families = await familiesFor(options);
  if (families instanceof KpngError) return chose('address', families.message, families.code);
  const { nftablesProblem } = await import('../../portal/nftables/backend.ts');
  const problem = await nftablesProblem(exec, families);
  if (problem === undefined) {
    if (engine === 'node') return chose('nftables', 'transparent needs the linux engine');
    const { chooseNftables } = await import('./transparent-choice.ts');
    const { portal, reason } = await chooseNftables(options, exec, families);
    return chose(portal, reason);
  }
  const { message, code } = problem;
  const usable = await tryTools(host, families);
  if (usable instanceof KpngError) return chose('address', `${message}; ${usable.message}`, code);
  return chose('iptables', message, code);
}

/**
 * The families that iptables can write rules for; undefined if unknown or none: then each write retries, and its
 * error gives the reason.
 */
export async function iptablesFamilies(host: PortalHost): Promise<readonly Family[] | undefined> {
  const families = await familiesFor(host.options);
  if (families instanceof KpngError) throw families;
  const usable = await tryTools(host, families);
  if (usable instanceof KpngError) return undefined;
  for (const [family, error] of usable.problems) {
    if (!LASTING.has(error.code)) return undefined;
    const { message: reason, code } = error;
    host.log.warn(`There will be no packet rules for IPv${family}`, { reason, code });
  }
  return usable.families.length > 0 ? usable.families : undefined;
}

/** Codes of failures that retrying does not fix. */
const LASTING = new Set<string>(['KPNG_PORTAL_UNSUPPORTED', 'KPNG_PORTAL_TOOL_MISSING']);

/** Finds the iptables programs, once. A call after a failure searches again. A dry run assumes what others have. */
export function iptablesTools(
  exec: Exec,
  flavor: UserspaceOptions['iptablesFlavor'],
  log: Log,
  isDry: boolean,
): () => Promise<Tools> {
  let found: Tools | undefined;
  return async () => {
    if (isDry) {
      const name = flavor === 'auto' ? 'iptables' : `iptables-${flavor}`;
      found = { name, flavor: flavor === 'auto' ? 'nft' : flavor, version: '1.8.9' };
    }
    if (found !== undefined) return found;
    const { findTools } = await import('../../portal/iptables/tools.ts');
    const chosen = await findTools(exec, flavor);
    const { version, name: program, reason } = chosen;
    log.info('Found iptables', { flavor: chosen.flavor, version, program, reason });
    found = chosen;
    return found;
  };
}

/** The families that the host has; an error if packets cannot be redirected to the bind address. */
async function familiesFor({ bindAddress }: UserspaceOptions): Promise<Family[] | KpngError> {
  const [{ bindAddresses, hostFamilies }, { hostAddresses }] = await Promise.all([
    import('../../portal/node-addresses.ts'),
    import('../../util/host-addresses.ts'),
  ]);
  return orError(async () => {
    const families = hostFamilies(hostAddresses());
    bindAddresses(bindAddress, families);
    return families;
  });
}

/** The families that iptables can write rules for, and why not the others; an error if there is none. */
async function tryTools(
  { exec, tools }: PortalHost,
  families: readonly Family[],
): Promise<Usable | KpngError> {
  const { tryIptables } = await import('../../portal/iptables/backend.ts');
  return orError(async () => {
    const usable = await tryIptables(exec, await tools(), families);
    const [problem] = usable.problems.values();
    return usable.families.length === 0 && problem !== undefined ? problem : usable;
  });
}

async function orError<T>(work: () => Promise<T>): Promise<T | KpngError> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof KpngError) return error;
    throw error;
  }
}
