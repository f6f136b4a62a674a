/** Which of the portals with nftables rules `--portal auto` takes, and why. */
import { messageOf } from '../../errors.ts';
import { TRIAL_LIMIT_MS } from '../../portal/bounds.ts';
import type { Exec } from '../../portal/exec.ts';
import {
  conflictingSetting,
  hostChains,
  inputFilter,
  markReplacer,
  otherMarkingTable,
  portalIn,
  trialTable,
  tryTransparent,
} from '../../portal/nftables/trial.ts';
import { findOwner } from '../../portal/rules/canary.ts';
import { transparentSocket as socket } from '../../proxysocket/linux/open-listener.ts';
import type { Family } from '../../util/family.ts';
import { socketHolder } from '../../util/listen-failure.ts';
import type { UserspaceOptions } from './userspace-options.ts';
import type { Log } from '../../observe/log.ts';
import { pause, systemClock, type Clock } from '../../util/clock.ts';

export interface NftablesChoice {
  readonly portal: 'nftables' | 'transparent';
  readonly reason: string;
}

/** The port of a cluster's DNS service, and an address as that service's: no socket is bound to it alone. */
const DNS = { protocol: 'UDP', address: '198.51.100.1', port: 53 } as const;

/**
 * `transparent` if nothing speaks against it and a trial connection arrives, else `nftables`. While a process of ours
 * runs, its portal: a new process takes over its connections. Never rejects.
 */
export async function chooseNftables(
  options: UserspaceOptions,
  exec: Exec,
  families: readonly Family[],
): Promise<NftablesChoice> {
  const { bindAddress, portRange, portalTable: table, portalRoute: route } = options;
  const not = (reason: string): NftablesChoice => ({ portal: 'nftables', reason });
  if (bindAddress !== '0.0.0.0' || portRange !== undefined) {
    return not('transparent has no proxy ports for --bind-address and --port-range');
  }
  try {
    const hurried: Exec = (command) => exec({ ...command, timeoutMs: TRIAL_LIMIT_MS });
    const chains = await hostChains(hurried);
    const previous = portalIn(chains, table);
    if (previous !== undefined && (await findOwner(previous.owner)) !== undefined) {
      const reason = 'a running process uses it; auto chooses again when none does';
      return { portal: previous.kind, reason };
    }
    const setting = conflictingSetting();
    if (setting !== undefined) return not(`with transparent, ${setting}`);
    const marking = otherMarkingTable(chains, [table, trialTable(table)]);
    if (marking !== undefined) return not(`another proxy uses transparent (table ${marking})`);
    const filter = await inputFilter(hurried, chains);
    if (filter !== undefined) {
      return not(
        `${filter} may drop what transparent delivers; give --portal transparent if it does not`,
      );
    }
    const replacer = await markReplacer(hurried, chains);
    if (replacer !== undefined) return not(`${replacer} may replace the mark of packets`);
    const holder = await socketHolder(DNS);
    if (holder !== undefined) {
      const place = 'UDP port 53 on every address';
      return not(`${holder} is bound to ${place}; transparent could not serve DNS`);
    }
    const found = await tryTransparent({ exec, table, route, families, socket });
    if ('problem' in found) return not(`the trial of transparent failed: ${found.problem}`);
    const arrived = found.families.map((family) => `IPv${family}`).join(' and ');
    return { portal: 'transparent', reason: `a trial connection arrived in ${arrived}` };
  } catch (error) {
    return not(`transparent could not be tried: ${messageOf(error)}`);
  }
}

/** How often the settings are read: VPNs, for instance, change them when they start. Milliseconds. */
const INTERVAL_MS = 15_000;

/**
 * Logs the setting of the host, if any, that keeps packets from transparent sockets. Returns a function that logs later
 * ones until the signal aborts.
 */
export function watchSettings(
  log: Log,
  find: () => string | undefined = conflictingSetting,
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
