/** Jumps into our chains, and the rules that precede those of services. */
import { type Chain, chainName, type Table } from './chains.ts';

/** A rule of a built-in chain that jumps to one of ours. */
export interface Jump {
  readonly table: Table;
  /** The built-in chain. */
  readonly from: string;
  readonly at: 'first' | 'last';
  readonly match: string;
  readonly to: string;
}

/** New connections that have not been redirected to a proxy port. */
const UNLED = '-m conntrack ! --ctstate ESTABLISHED,RELATED,DNAT';
const LOCAL = '-m addrtype --dst-type LOCAL';

const PORTALS = comment('handle ClusterIPs; NOTE: this must be before the NodePort rules');
const NODE_PORTS = comment(
  'handle service NodePorts; NOTE: this must be the last rule in the chain',
);
const NON_LOCAL = comment('Ensure that non-local NodePort traffic can flow');
const PROXY_PORTS = comment('refuse what comes to proxy ports directly');
const REFUSED = comment('refuse service ports without endpoints');

/**
 * All jumps, from top to bottom of each built-in chain: service addresses first. `networks`: those with node ports.
 */
export function jumps(prefix: string, networks: readonly string[]): Jump[] {
  const forNodePorts = (jump: Jump): Jump[] =>
    networks.map((network) => ({ ...jump, match: `${destination(network)}${jump.match}` }));
  const nat = (from: string, at: Jump['at'], match: string, to: Chain): Jump => {
    return { table: 'nat', from, at, match, to: chainName(prefix, to) };
  };
  const filter = (from: string, match: string, to: Chain): Jump => {
    return { table: 'filter', from, at: 'first', match, to: chainName(prefix, to) };
  };
  return [
    nat('PREROUTING', 'first', PORTALS, 'PORTALS-CONTAINER'),
    nat('OUTPUT', 'first', PORTALS, 'PORTALS-HOST'),
    ...forNodePorts(nat('PREROUTING', 'last', `${LOCAL} ${NODE_PORTS}`, 'NODEPORT-CONTAINER')),
    ...forNodePorts(nat('OUTPUT', 'last', `${LOCAL} ${NODE_PORTS}`, 'NODEPORT-HOST')),
    filter('INPUT', NON_LOCAL, 'NODEPORT-NON-LOCAL'),
    filter('INPUT', `! -i lo ${UNLED} ${PROXY_PORTS}`, 'PROXY-PORTS'),
    ...['INPUT', 'FORWARD', 'OUTPUT'].map((from) =>
      filter(from, `${UNLED} ${REFUSED}`, 'PORTALS-REJECT'),
    ),
    ...['INPUT', 'OUTPUT'].flatMap((from) =>
      forNodePorts(filter(from, `${LOCAL} ${UNLED} ${REFUSED}`, 'NODEPORT-REJECT')),
    ),
  ];
}

/**
 * Whether the jumps are among listed rules (without `-A`), by number, as iptables lists matches in a different form.
 */
export function areThere(wanted: readonly Jump[], rules: readonly string[]): boolean {
  const missing = new Map<string, number>();
  const count = (from: string, to: string, by: number): void => {
    const key = `${from} ${to}`;
    missing.set(key, (missing.get(key) ?? 0) + by);
  };
  for (const { from, to } of wanted) count(from, to, 1);
  const targets = new Set(wanted.map(({ to }) => to));
  for (const rule of rules) {
    const [, from = '', to = ''] = /^(\S+)(?: .*)? -[jg] (\S+)$/.exec(rule) ?? [];
    if (targets.has(to)) count(from, to, -1);
  }
  return [...missing.values()].every((difference) => difference === 0);
}

/**
 * The rules before those of services: NODEPORT-NON-LOCAL accepts redirected packets only, and only first packets pass
 * the comparisons.
 */
export const PRELUDE = {
  table: 'filter',
  chain: 'NODEPORT-NON-LOCAL',
  rules: [
    '-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN',
    '-m conntrack ! --ctstate DNAT -j RETURN',
  ],
} as const;

/** A comment as part of a rule, in quotes. */
export function comment(text: string): string {
  return `-m comment --comment "${text}"`;
}

function destination(network: string): string {
  return network.endsWith('/0') ? '' : `-d ${network} `;
}
