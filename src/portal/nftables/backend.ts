import type { KpngError } from '../../errors.ts';
import { MAX_RULE_LIST, WRITE_TIMEOUT_MS } from '../bounds.ts';
import {
  type Exec,
  type ExecError,
  isAccepted,
  NET_ADMIN,
  problemOf,
  runTool,
  type Tool,
} from '../exec.ts';
import {
  type Backend,
  type ElementChange,
  Elements,
  type RuleConfig,
  type TransparentRoute,
} from '../rules/backend.ts';
import { clearFlows, type FlowAddress } from '../rules/udp-flows.ts';
import { elementsIn, linesOf, readTable } from './listing.ts';
import { PolicyRoute } from './policy-route.ts';
import { checkTableName, renderDelta, renderFull, renderMended, renderRemoval } from './table.ts';
import { MARKING_CHAIN } from './chains.ts';

/** nft sets no locale and prints strerror's messages, so these texts are the same everywhere. */
export const NFT: Tool = {
  program: 'nft',
  remedy: 'install the package nftables, or use another --portal',
  diagnoses: [
    {
      pattern: /Operation not permitted|Permission denied|you must be root/,
      code: 'KPNG_PORTAL_PERMISSION',
      advice: NET_ADMIN,
    },
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
  excerpt: firstErrors,
};

/** nft prints each error with its line, which may be as long as the script. */
function firstErrors({ stderr }: ExecError): string {
  const lines = stderr
    .split('\n')
    .filter((line) => line.includes('Error') || line.includes('not '));
  const [first = stderr.trim().split('\n')[0] ?? ''] = lines;
  const more = lines.length > 1 ? ` (and ${lines.length - 1} more)` : '';
  return `${JSON.stringify(first.trim().slice(0, 200))}${more}`;
}

/** Runs nft and returns its output. Rejects with a `ToolError`. `doing`: the action, for the message. */
export function nft(
  exec: Exec,
  doing: string,
  args: readonly string[],
  stdin?: string,
): Promise<string> {
  const limits = { timeoutMs: WRITE_TIMEOUT_MS, maxOutput: MAX_RULE_LIST };
  return runTool(exec, NFT, doing, { args, ...limits, ...(stdin && { stdin }) });
}

/** One nftables table and its elements. */
export class NftablesBackend implements Backend {
  readonly what: string;
  readonly #exec: Exec;
  readonly #table: string;
  readonly #route: PolicyRoute | undefined;

  /** `route`: the route of packets that are delivered unchanged. Throws KPNG_USAGE for a name that no table can have. */
  constructor(exec: Exec, table: string, route?: PolicyRoute) {
    checkTableName(table);
    this.#route = route;
    this.what = `the nftables table inet ${table}`;
    this.#exec = exec;
    this.#table = table;
  }

  /**
   * Of another process's elements, it changes only what differs, so that no packet misses one. After damage, it writes all
   * of them, since that is quicker than listing them.
   */
  async replace(
    config: RuleConfig,
    elements: Elements,
    onlyOwn: boolean,
  ): Promise<string | undefined> {
    const ensureRoute = () => this.#route?.ensure(config.families);
    const [listing] = await Promise.all([
      // No table, or an unreadable one: writing reports why.
      this.#list(onlyOwn ? ['--terse'] : []).catch(() => undefined),
      onlyOwn ? undefined : ensureRoute(),
    ]);
    const found = listing === undefined ? undefined : await readTable(listing, config, elements);
    if (onlyOwn && found?.owner !== undefined && found.owner !== config.owner) return found.owner;
    if (onlyOwn) await ensureRoute();
    const doing = `writing ${this.what}`;
    if (found !== undefined) {
      const before = [
        ...found.stale.map((name) => `delete ${name}`),
        ...(onlyOwn ? found.sets.map((name) => `flush ${name}`) : []),
      ];
      const script = renderMended(this.#table, config, before, found.changes);
      if (await isAccepted(nft(this.#exec, doing, ['-f', '-'], script))) return undefined;
    }
    await nft(this.#exec, doing, ['-f', '-'], renderFull(this.#table, config, elements));
    return undefined;
  }

  async change(config: RuleConfig, changes: readonly ElementChange[]): Promise<undefined> {
    const script = renderDelta(this.#table, config.owner, changes);
    await nft(this.#exec, `changing ${this.what}`, ['-f', '-'], script);
  }

  async accepts(config: RuleConfig, elements: Elements): Promise<boolean> {
    const script = renderFull(this.#table, config, elements);
    return isAccepted(nft(this.#exec, `checking ${this.what}`, ['-c', '-f', '-'], script));
  }

  async difference(config: RuleConfig, elements: Elements): Promise<string | undefined> {
    const noRoute = await this.routeDifference(config);
    if (noRoute !== undefined) return noRoute;
    return (await readTable(await this.#list(), config, elements)).difference;
  }

  #list(flags: readonly string[] = []): Promise<string> {
    const args = [...flags, 'list', 'table', 'inet', this.#table];
    return nft(this.#exec, `listing ${this.what}`, args);
  }

  /** The differences of the routes of marked packets; undefined: none. */
  async routeDifference({ families }: RuleConfig): Promise<string | undefined> {
    return this.#route?.difference(families);
  }

  async remove({ owner }: RuleConfig): Promise<void> {
    const writer = (await tableOwner(this.#exec, this.#table)) ?? owner;
    if (writer !== owner) return;
    await removeNftables(this.#exec, this.#table);
    await this.#route?.remove();
  }
}

/** The process that wrote a table; undefined if there is no table, or no owner. */
export async function tableOwner(exec: Exec, table: string): Promise<string | undefined> {
  const args = ['--terse', 'list', 'table', 'inet', table];
  // No table, or an unreadable one: writing reports why.
  const listing = await nft(exec, 'looking for the owner', args).catch(() => '');
  return /^\s*chain owner-(\w+) /m.exec(listing)?.[1];
}

/** Removes the table, if it exists. Rejects with KPNG_PORTAL_*. A running portal restores its table. */
export async function removeNftables(exec: Exec, table: string): Promise<void> {
  checkTableName(table);
  const doing = `removing the nftables table inet ${table}`;
  await nft(exec, doing, ['-f', '-'], renderRemoval(table));
}

/** Why nftables cannot be used here; undefined: it can. Changes nothing. */
export async function nftablesProblem(
  exec: Exec,
  families: RuleConfig['families'],
  route?: TransparentRoute,
): Promise<KpngError | undefined> {
  // An unused name, so that existing tables do not affect the check.
  const config: RuleConfig = {
    owner: 'check',
    families,
    targets: { 4: '192.0.2.1', 6: '2001:db8::1' },
    nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['::/0'] },
    ...(route !== undefined && { route }),
  };
  const script = renderFull('kpng-userspace-check', config, new Elements());
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
  local: ReadonlySet<string>,
  route?: TransparentRoute,
): Promise<KpngError | undefined> {
  checkTableName(table);
  const addresses = await udpAddresses(exec, table);
  await removeNftables(exec, table);
  if (route !== undefined) await new PolicyRoute(exec, route).remove();
  return clearFlows(exec, addresses, local);
}

/**
 * Removes the rule and route of a transparent portal unless a table on this host marks packets for them, maybe one of
 * another process. Returns whether there were any. Rejects with KPNG_PORTAL_*.
 */
export async function removeUnusedRoute(exec: Exec, route: TransparentRoute): Promise<boolean> {
  const chains = await nft(exec, 'listing chains', ['list', 'chains', 'inet']);
  if (chains.includes(`chain ${MARKING_CHAIN} `)) return false;
  return new PolicyRoute(exec, route).remove();
}

/** The UDP portals in the table; none if it does not exist or cannot be read. */
async function udpAddresses(exec: Exec, table: string): Promise<FlowAddress[]> {
  const args = ['list', 'table', 'inet', table];
  // Removing the table reports any problem other than its absence.
  const listing = await nft(exec, 'looking for UDP portals', args).catch(() => '');
  return [...linesOf(listing)].flatMap(({ block, text }) => addressesIn(block, text));
}

function addressesIn(block: string, text: string): FlowAddress[] {
  const [, digit] = /^(?:services|node-ports)([46])$/.exec(block) ?? [];
  if (digit === undefined) return [];
  const family = digit === '4' ? 4 : 6;
  return [...elementsIn(text)].flatMap(([key]) => {
    const [, address, port] = /^(?:(\S+) \. )?udp \. (\d+)$/.exec(key) ?? [];
    if (port === undefined) return [];
    return [{ family, address, port: Number(port), proxyPort: undefined }];
  });
}
