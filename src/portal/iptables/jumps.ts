/** Jumps into our chains, and the rules that precede those of services. */
import type { RuleContext, Slot, Table } from './chains.ts';

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

/** The built-in chains with jumps. */
export function hooksOf(table: Table): string[] {
  return JUMPS[table].map((line) => line.split(' ')[1] ?? '');
}

/** The lines that add the jumps of a table. */
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

/** A comment as part of a rule, in quotes. */
export function comment(text: string): string {
  return `-m comment --comment "${text}"`;
}
