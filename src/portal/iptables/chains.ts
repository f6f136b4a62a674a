/** Our chains, named as in kube-proxy's userspace mode, and the jumps to them. */
import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import type { RuleConfig } from '../rules/backend.ts';

export interface RuleContext {
  readonly prefix: string;
  readonly family: Family;
  readonly config: RuleConfig;
}

export const DEFAULT_PREFIX = 'KUBE';

export type Table = 'filter' | 'nat';

/** In the order in which they are written. */
export const TABLES: readonly Table[] = ['filter', 'nat'];

/**
 * Slots for service rules, in their order within a chain, with the chain's name without the prefix. `at`: whether new rules
 * are inserted before existing ones or appended. No packet matches two rules of one slot.
 * - `…-except`: rejected service addresses, which must not match a node port of the same number
 * - `refuse-some`: rejected clients of a guarded service address without endpoints
 * - `refuse`: other rejected service addresses, and all clients that a guarded one does not allow
 */
export const SLOTS = {
  'portals-container': { table: 'nat', chain: 'PORTALS-CONTAINER', at: 'last' },
  'portals-host': { table: 'nat', chain: 'PORTALS-HOST', at: 'last' },
  'nodeport-container-except': { table: 'nat', chain: 'NODEPORT-CONTAINER', at: 'first' },
  'nodeport-container': { table: 'nat', chain: 'NODEPORT-CONTAINER', at: 'last' },
  'nodeport-host-except': { table: 'nat', chain: 'NODEPORT-HOST', at: 'first' },
  'nodeport-host': { table: 'nat', chain: 'NODEPORT-HOST', at: 'last' },
  'non-local': { table: 'filter', chain: 'NODEPORT-NON-LOCAL', at: 'last' },
  'proxy-ports': { table: 'filter', chain: 'PROXY-PORTS', at: 'last' },
  'refuse-some': { table: 'filter', chain: 'PORTALS-REJECT', at: 'first' },
  refuse: { table: 'filter', chain: 'PORTALS-REJECT', at: 'last' },
  'nodeport-refuse': { table: 'filter', chain: 'NODEPORT-REJECT', at: 'last' },
} as const satisfies Record<string, { table: Table; chain: string; at: 'first' | 'last' }>;

export type Slot = keyof typeof SLOTS;
export type Chain = (typeof SLOTS)[Slot]['chain'];

export const SLOT_ORDER = Object.keys(SLOTS) as readonly Slot[];

/** The name of the set of a slot's rules in a family: the key of a rule is its match, the value a proxy port or target. */
export function slotName(slot: Slot, family: Family): string {
  return `${slot}${family}`;
}

export function readSlotName(name: string): { slot: Slot; family: Family } {
  return { slot: name.slice(0, -1) as Slot, family: name.endsWith('6') ? 6 : 4 };
}

/** Throws KPNG_USAGE for an invalid chain prefix: chain names have at most 28 characters. */
export function checkPrefix(prefix: string): void {
  if (/^[a-z][a-z0-9]{0,8}$/i.test(prefix)) return;
  throw new KpngError(
    'KPNG_USAGE',
    `${JSON.stringify(prefix)} cannot be what iptables chains begin with: a letter and up to 8 letters and digits`,
  );
}

export function chainName(prefix: string, chain: Chain): string {
  return `${prefix}-${chain}`;
}

/** Names of all our chains in a table, without the owner chain. */
export function chainNames(prefix: string, table: Table): string[] {
  const slots = Object.values(SLOTS).filter((slot) => slot.table === table);
  return [...new Set(slots.map(({ chain }) => chainName(prefix, chain)))];
}

/** An empty chain that marks the chains of this prefix as ours and names their owner. kube-proxy has none. */
export function ownerChain(prefix: string, owner: string): string {
  return `KPNG-${prefix}-${owner}`;
}

/** A temporary chain for checking whether the kernel accepts some rules. */
export function trialChain(prefix: string): string {
  return `KPNG-${prefix}-TRIAL`;
}

export function ownerOfChain(prefix: string, chain: string): string | undefined {
  const begin = `KPNG-${prefix}-`;
  if (!chain.startsWith(begin) || chain === trialChain(prefix)) return undefined;
  return chain.slice(begin.length);
}

/** New connections that have not been redirected to a proxy port. */
const UNLED = '-m conntrack ! --ctstate ESTABLISHED,RELATED,DNAT';
/** Packets to the networks with node ports, by a rule for each. */
const NODE = 'NODE -m addrtype --dst-type LOCAL';

const PORTALS = comment('handle ClusterIPs; NOTE: this must be before the NodePort rules');
const NODE_PORTS = comment(
  'handle service NodePorts; NOTE: this must be the last rule in the chain',
);
const NON_LOCAL = comment('Ensure that non-local NodePort traffic can flow');
const PROXY_PORTS = comment('refuse what comes to proxy ports directly');
const REFUSED = comment('refuse service ports without endpoints');

/** In the order in which they are written: of those inserted into a chain, the last one comes first. */
const JUMPS: Readonly<Record<Table, readonly string[]>> = {
  filter: [
    `-I OUTPUT ${NODE} ${UNLED} ${REFUSED} -j NODEPORT-REJECT`,
    `-I INPUT ${NODE} ${UNLED} ${REFUSED} -j NODEPORT-REJECT`,
    `-I OUTPUT ${UNLED} ${REFUSED} -j PORTALS-REJECT`,
    `-I FORWARD ${UNLED} ${REFUSED} -j PORTALS-REJECT`,
    `-I INPUT ${UNLED} ${REFUSED} -j PORTALS-REJECT`,
    `-I INPUT ! -i lo ${UNLED} ${PROXY_PORTS} -j PROXY-PORTS`,
    `-I INPUT ${NON_LOCAL} -j NODEPORT-NON-LOCAL`,
  ],
  nat: [
    `-I OUTPUT ${PORTALS} -j PORTALS-HOST`,
    `-I PREROUTING ${PORTALS} -j PORTALS-CONTAINER`,
    `-A PREROUTING ${NODE} ${NODE_PORTS} -j NODEPORT-CONTAINER`,
    `-A OUTPUT ${NODE} ${NODE_PORTS} -j NODEPORT-HOST`,
  ],
};

export function jumpLines({ prefix, family, config }: RuleContext, table: Table): string[] {
  return JUMPS[table].flatMap((line) => {
    const jump = line.replace('-j ', `-j ${prefix}-`);
    if (!jump.includes(' NODE ')) return [jump];
    return config.nodePortNetworks[family].map((network) =>
      jump.replace(' NODE', network.endsWith('/0') ? '' : ` -d ${network}`),
    );
  });
}

/** Whether rules with jumps are the same ones, by number, as iptables lists matches in a different form. */
export function areSameJumps(written: readonly string[], listed: readonly string[]): boolean {
  const ends = (rules: readonly string[]): string =>
    rules
      .map((rule) => rule.replace(/^(?:-[AI] )?(\S+).* -[jg] (\S+)$/, '$1 $2'))
      .sort()
      .join();
  return ends(written) === ends(listed);
}

/**
 * The rules before those of a slot: NODEPORT-NON-LOCAL accepts redirected packets only, and only first packets pass the
 * comparisons.
 */
export const PRELUDE = {
  slot: 'non-local',
  rules: [
    '-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN',
    '-m conntrack ! --ctstate DNAT -j RETURN',
  ],
} as const satisfies { slot: Slot; rules: readonly string[] };

export function comment(text: string): string {
  return `-m comment --comment "${text}"`;
}
