import type { KpngError } from '../../errors.ts';
import { FULL_AUDIT, MAX_RULE_LIST, ROUTE_AUDIT, WRITE_TIMEOUT_MS } from '../bounds.ts';
import { type Exec, isAccepted, NOT_PERMITTED, problemOf, runTool, type Tool } from '../exec.ts';
import {
  type Backend,
  type Comparison,
  type Element,
  Elements,
  type TransparentRoute,
  trialConfig,
} from '../rules/backend.ts';
import type { Family } from '../../util/family.ts';
import type { HostPort } from '../../util/host-port.ts';
import { createCanary } from '../rules/canary.ts';
import { clearFlows, flowKey } from '../rules/udp-flows.ts';
import { elementsIn, linesOf, readTable } from './listing.ts';
import { policyRoute } from './policy-route.ts';
import {
  addressKey,
  DEFAULT_TABLE,
  elementsOfRedirect,
  listenerElement,
  proxyPortElement,
  renderDelta,
  renderFull,
  renderMended,
  renderRemoval,
  setName,
} from './table.ts';
import { MARKING_CHAIN } from './chains.ts';

/** nft sets no locale and prints strerror's messages, so these texts are the same everywhere. */
export const NFT: Tool = {
  program: 'nft',
  remedy: 'install the package nftables, or use another --portal',
  diagnoses: [
    NOT_PERMITTED,
    {
      pattern:
        /Unable to initialize Netlink socket|Protocol not supported|Address family not supported/,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'the kernel has no nf_tables; use another --portal',
    },
    {
      pattern: /Operation not supported|syntax error|unknown identifier|Invalid argument/,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      blame: 'content',
      advice: 'nft 0.9.7 and Linux 5.9 or later are needed',
    },
  ],
};

/** Runs nft and returns its output. Rejects with a `ToolError`. `doing`: the action, for the message. */
export function nft(exec: Exec, doing: string, args: readonly string[], stdin?: string) {
  const limits = { timeoutMs: WRITE_TIMEOUT_MS, maxOutput: MAX_RULE_LIST };
  return runTool(exec, NFT, doing, { args, ...limits, ...(stdin && { stdin }) });
}

export interface TransparentOptions {
  readonly route: TransparentRoute;
  /** Makes a transparent socket on a loopback address; resolves with its descriptor. */
  readonly socket: (family: Family) => Promise<number>;
}

/**
 * One nftables table: a constant number of rules, and maps of services. A change is a few elements. It redirects packets
 * to proxy ports, or with `transparent` delivers them unchanged to such sockets. `table`: see `checkTableName`.
 */
export function nftablesBackend(
  exec: Exec,
  table = DEFAULT_TABLE,
  transparent?: TransparentOptions,
): Backend {
  const what = `the nftables table inet ${table}`;
  const apart = 'give each a --portal-table of its own';
  const isTransparent = transparent !== undefined;
  const route = transparent && policyRoute(exec, transparent.route);
  const list = () => nft(exec, `listing ${what}`, ['list', 'table', 'inet', table]);
  const write = (doing: string, script: string, flags: readonly string[] = []) =>
    nft(exec, `${doing} ${what}`, [...flags, '-f', '-'], script);
  const difference: Comparison['difference'] = async (config, elements) =>
    (await readTable(await list(), config, elements)).difference;
  const comparisons: Comparison[] = [{ policy: FULL_AUDIT, difference }];
  if (route !== undefined) {
    const missing: Comparison['difference'] = ({ families }) => route.difference(families);
    comparisons.push({ policy: ROUTE_AUDIT, difference: missing });
  }
  let ensuring: ReturnType<NonNullable<typeof route>['ensure']> | undefined;
  return {
    kind: isTransparent ? 'transparent' : 'nftables',
    what,
    apart: isTransparent
      ? `${apart}, and --portal-mark, --portal-route-table and --portal-rule-priority`
      : apart,
    route: transparent?.route,
    comparisons,
    elements: (_, redirects, proxyPorts) => [
      ...redirects.flatMap((each) => elementsOfRedirect(each, isTransparent)),
      ...proxyPorts.map(proxyPortElement),
    ],
    ...(isTransparent && { listener: listenerElement }),

    /** In one family: the table is added and removed atomically. */
    canary({ owner, families }) {
      const path = (family: Family, at: HostPort, port: number): Element[] => {
        const key = addressKey(at.host, 'TCP', at.port);
        const value = String(port);
        const set = setName('services', family);
        return isTransparent
          ? [
              { set, key, value: '' },
              { set: setName('canary', family), key, value },
            ]
          : [{ set, key, value }, proxyPortElement({ family, protocol: 'TCP', port })];
      };
      return createCanary(owner, [families.includes(4) ? 4 : 6], [path], transparent?.socket);
    },

    prepare:
      route &&
      (({ families }) => {
        // Again for each attempt: what an earlier one has found may no longer be so.
        ensuring = Promise.allSettled([ensuring]).then(() => route.ensure(families));
        ensuring.catch(() => undefined);
      }),

    /** Changes only what differs, so that no packet misses an element. */
    async replace(config, elements, onlyOwn) {
      // No table, or an unreadable one: writing reports why.
      const listing = await list().catch(() => undefined);
      const found = listing === undefined ? undefined : await readTable(listing, config, elements);
      if (onlyOwn && found?.owner !== undefined && found.owner !== config.owner) return found.owner;
      const begun = ensuring ?? route?.ensure(config.families);
      ensuring = undefined;
      const routed = await begun;
      const mended = found && renderMended(table, config, found.stale, found.changes);
      if (mended === undefined || !(await isAccepted(write('writing', mended)))) {
        await write('writing', renderFull(table, config, elements));
      }
      if (routed !== undefined) await route?.removeOthers(routed);
      return undefined;
    },

    async change({ owner }, changes) {
      await write('changing', renderDelta(table, owner, changes));
      return undefined;
    },

    accepts: (config, elements) =>
      isAccepted(write('checking', renderFull(table, config, elements), ['-c'])),

    async remove({ owner }) {
      const writer = (await tableOwner(exec, table)) ?? owner;
      if (writer !== owner) return;
      await removeNftables(exec, table);
      await Promise.allSettled([ensuring]);
      await route?.remove();
    },
  };
}

export type HostChain = Awaited<ReturnType<typeof hostChains>>[number];

/**
 * The chains of all tables, without their rules: to list tables, nft reads all rules of the host, and again whenever one
 * changes. `table`: with its family, `inet kpng-userspace`; `hook` undefined: other chains jump to it. Rejects with
 * KPNG_PORTAL_*.
 */
export async function hostChains(exec: Exec) {
  const text = await nft(exec, 'listing chains', ['list', 'chains']);
  return text.split(/^table /m).flatMap((part) => {
    const [table = ''] = part.split(' {', 1);
    const chains = part.matchAll(
      /^\tchain (\S+) \{\n(?:\t\tcomment .*\n)?(?:.* hook (\w+) .*?(?:policy (\w+);)?$)?/gm,
    );
    return Array.from(chains, ([, name = '', hook, policy]) => ({ table, name, hook, policy }));
  });
}

/** The portal that wrote a table, and the process; undefined: there is no such table. */
export function portalIn(
  chains: readonly HostChain[],
  table: string,
): { readonly kind: 'nftables' | 'transparent'; readonly owner: string } | undefined {
  const own = chains.filter((chain) => chain.table === `inet ${table}`);
  const owner = own.map(({ name }) => /^owner-(\w+)$/.exec(name)?.[1]).find(Boolean);
  if (owner === undefined) return undefined;
  const isTransparent = own.some(({ name }) => name === MARKING_CHAIN);
  return { kind: isTransparent ? 'transparent' : 'nftables', owner };
}

/** A table of another proxy that marks packets. `tables`: those of this one. */
export function otherMarkingTable(chains: readonly HostChain[], tables: readonly string[]) {
  const own = new Set(tables.map((table) => `inet ${table}`));
  return chains.find(({ table, name }) => name === MARKING_CHAIN && !own.has(table))?.table;
}

/** The process that wrote a table; undefined if there is none, or none can be listed: writing reports why. */
export async function tableOwner(exec: Exec, table: string): Promise<string | undefined> {
  const chains = await hostChains(exec).catch(() => []);
  return portalIn(chains, table)?.owner;
}

/** Removes the table, if it exists. Rejects with KPNG_PORTAL_*. A running portal restores its table. */
export async function removeNftables(exec: Exec, table: string): Promise<void> {
  const doing = `removing the nftables table inet ${table}`;
  await nft(exec, doing, ['-f', '-'], renderRemoval(table));
}

/** Why nftables cannot be used here; undefined: it can. Changes nothing. */
export async function nftablesProblem(exec: Exec, families: readonly Family[]) {
  // An unused name, so that existing tables do not affect the check.
  const script = renderFull('kpng-userspace-check', trialConfig(families), new Elements());
  return problemOf(nft(exec, 'checking whether nftables can be used', ['-c', '-f', '-'], script));
}

/**
 * Removes the table, and the UDP flows that it redirected: their clients would keep sending to closed ports.
 *
 * Succeeds if there is no table. Rejects with KPNG_PORTAL_*; resolves with an error if only flows are left.
 */
export async function cleanUpNftables(
  exec: Exec,
  table: string,
  route?: TransparentRoute,
): Promise<KpngError | undefined> {
  const args = ['list', 'table', 'inet', table];
  // Removing the table reports any problem other than its absence.
  const listing = await nft(exec, 'looking for UDP portals', args).catch(() => '');
  await removeNftables(exec, table);
  if (route !== undefined) await policyRoute(exec, route).remove();
  return clearFlows(exec, udpPortals(listing));
}

function udpPortals(listing: string): Map<string, string> {
  const portals = new Map<string, string>();
  for (const [name, text] of linesOf(listing)) {
    const [, digit] = / (?:services|node-ports)([46])$/.exec(name) ?? [];
    if (digit === undefined) continue;
    for (const [key] of elementsIn(text)) {
      const [, address, port] = /^(?:(\S+) \. )?udp \. (\d+)$/.exec(key) ?? [];
      if (port !== undefined) portals.set(flowKey(digit === '4' ? 4 : 6, address, port), '');
    }
  }
  return portals;
}

/**
 * Removes the rule and route of a transparent portal unless a table on this host marks packets for them, maybe one of
 * another process. Returns whether there were any. Rejects with KPNG_PORTAL_*.
 */
export async function removeUnusedRoute(exec: Exec, route: TransparentRoute): Promise<boolean> {
  if (otherMarkingTable(await hostChains(exec), []) !== undefined) return false;
  return policyRoute(exec, route).remove();
}
