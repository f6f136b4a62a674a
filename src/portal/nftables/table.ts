/** Our table as text: its sets, their elements, chains and rules, and scripts for `nft -f -`, each one transaction. */
import { KpngError } from '../../errors.ts';
import type { Protocol } from '../../proxysocket/spec.ts';
import type { Family } from '../../util/family.ts';
import { networksOf } from '../node-addresses.ts';
import type { ProxyPort, Redirect } from '../redirect-plan.ts';
import type { Element, ElementChange, Elements, RuleConfig } from '../rules/backend.ts';
import {
  block,
  BRIDGED_CHAIN,
  DROP_OTHERS,
  DROP_OUTSIDE,
  DROP_OUTSIDE_NODE_PORT,
  HEADER,
  hooked,
  OF_NODE,
  renderChains,
  TO_NODE_PORT,
  TO_SERVICE,
  transparentChains,
} from './chains.ts';

export const DEFAULT_TABLE = 'kpng-userspace';

export function checkTableName(name: string): void {
  if (/^[a-zA-Z][\w.-]{0,99}$/.test(name)) return;
  throw new KpngError(
    'KPNG_USAGE',
    `${JSON.stringify(name)} cannot be the name of an nftables table`,
  );
}

const PORT = 'inet_proto . inet_service';
const SERVICE = `address . ${PORT}`;

/** Keys and values of the sets of each family. `proxy-port`: nothing where packets are delivered unchanged. */
const SETS = {
  services: `${SERVICE} : proxy-port`,
  /** Service ports without endpoints, whose clients are refused. */
  empty: SERVICE,
  /** Service ports that only some clients may use. */
  guarded: SERVICE,
  /** Their clients. */
  allowed: `${SERVICE} . network`,
  /** Service ports with endpoints on other nodes only, for clients in the cluster. */
  'no-local': SERVICE,
  /** Such clients. */
  pods: `${SERVICE} . network`,
  /** On addresses of the node. */
  'node-ports': `${PORT} : proxy-port`,
  'empty-node-ports': PORT,
  'no-local-node-ports': PORT,
  'node-port-pods': `${PORT} . network`,
  /** Where the proxy listens, which clients may not reach directly. */
  'proxy-ports': PORT,
  /** Of the addresses of the node with node ports. */
  'node-networks': 'network',
  /** Only where packets are delivered unchanged: the port of the socket that all services share. */
  listeners: 'inet_proto : inet_service',
  /** The same for the service address of the canary. */
  canary: `${SERVICE} : inet_service`,
} as const;

const TRANSPARENT: ReadonlySet<string> = new Set(['listeners', 'canary']);

type SetKind = keyof typeof SETS;
type SetName = `${SetKind}${Family}`;

export const KINDS = Object.keys(SETS) as readonly SetKind[];

export function setName(kind: SetKind, family: Family): SetName {
  return `${kind}${family}`;
}

/** `10.0.0.1 . tcp . 80` */
export function addressKey(address: string, protocol: Protocol, port: number): string {
  // Joined, since the parts of a concatenation would stay in memory.
  return [address, portKey(protocol, port)].join(' . ');
}

/** `tcp . 80` */
function portKey(protocol: Protocol, port: number): string {
  return `${protocol === 'TCP' ? 'tcp' : 'udp'} . ${port}`;
}

export function proxyPortElement({ family, protocol, port }: ProxyPort): Element {
  return { set: setName('proxy-ports', family), key: portKey(protocol, port), value: '' };
}

export function listenerElement({ family, port }: ProxyPort): Element {
  return { set: setName('listeners', family), key: 'tcp', value: String(port) };
}

/** `unchanged`: packets keep their destination. */
export function elementsOfRedirect(
  { family, portal, proxyPort, drops = false }: Redirect,
  unchanged: boolean,
): Element[] {
  const { address, protocol, port, sourceRanges, clusterClients } = portal;
  const isNodePort = address === undefined;
  const key = isNodePort ? portKey(protocol, port) : addressKey(address, protocol, port);
  const element = (kind: SetKind, value = '', suffix = ''): Element => ({
    set: setName(kind, family),
    key: key + suffix,
    value,
  });
  const withNetworks = (kind: SetKind, networks: readonly string[]): Element[] =>
    networksOf(networks, family).map((network) => element(kind, '', ` . ${network}`));
  const elements: Element[] = [];
  if (proxyPort !== undefined) {
    const value = unchanged ? '' : String(proxyPort);
    elements.push(element(isNodePort ? 'node-ports' : 'services', value));
  } else if (!drops) elements.push(element(isNodePort ? 'empty-node-ports' : 'empty'));
  const isClosed = drops && proxyPort === undefined && !isNodePort;
  if (drops && !isClosed) {
    elements.push(
      element(isNodePort ? 'no-local-node-ports' : 'no-local'),
      ...withNetworks(isNodePort ? 'node-port-pods' : 'pods', clusterClients?.networks ?? []),
    );
  }
  if (isNodePort || (sourceRanges.length === 0 && !isClosed)) return elements;
  // Without an allowed network of the family, no client is admitted.
  elements.push(element('guarded'));
  if (!isClosed) elements.push(...withNetworks('allowed', sourceRanges));
  return elements;
}

/**
 * Before `dstnat` (-100), the destination is still unchanged; after it, redirected packets have a proxy port, and all
 * others are matched by their destination.
 */
const NAT_PRIORITY = -100;
const REFUSE_PRIORITY = -90;

/** Name of the chain that identifies the table's owner. Empty, and never jumped to. */
export function ownerChain(owner: string): string {
  return `owner-${owner}`;
}

/** Rejects packets to service addresses and node ports without endpoints. */
const REFUSAL = `
refusal#
  ${TO_SERVICE} @empty# goto refuse
  ${TO_NODE_PORT} @empty-node-ports# ${OF_NODE} goto refuse
refuse
  meta l4proto tcp reject with tcp reset
  reject with icmpx type port-unreachable
`;

/** Sends the first packet of a connection to a proxy port; connection tracking does so with the others. */
const REDIRECTING = `
destination#
  ${DROP_OTHERS}
  ${DROP_OUTSIDE}
  meta l4proto { tcp, udp } SEND : ${TO_SERVICE} map @services#
  // A service address takes precedence over node ports on the same address.
  ${TO_SERVICE} @empty# return
  ${DROP_OUTSIDE_NODE_PORT}
  ${OF_NODE} meta l4proto { tcp, udp } SEND : ${TO_NODE_PORT} map @node-ports#
${REFUSAL}
direct
  meta nfproto ipv# ${TO_NODE_PORT} @proxy-ports# goto refuse
nat-prerouting
  ${hooked('nat', 'prerouting', NAT_PRIORITY)}
  meta nfproto ipv# jump destination#
nat-output
  ${hooked('nat', 'output', NAT_PRIORITY)}
  meta nfproto ipv# jump destination#
filter-prerouting
  ${hooked('filter', 'prerouting', REFUSE_PRIORITY)}
  ct state != new accept
  ct status dnat accept
  meta nfproto ipv# jump refusal#
  iif != lo fib daddr type local jump direct
filter-output
  ${hooked('filter', 'output', REFUSE_PRIORITY)}
  ct state != new accept
  ct status dnat accept
  meta nfproto ipv# jump refusal#
`;

/** Rules are added to those of an existing table. */
export function renderTable(table: string, config: RuleConfig): string {
  const { families, route, targets } = config;
  const send = (family: Family): string =>
    targets[family] === undefined ? 'redirect to' : `dnat ${HEADER[family]} to ${targets[family]}`;
  const chains = route === undefined ? REDIRECTING : REFUSAL + transparentChains(route);
  const blocks = [
    block(`chain ${ownerChain(config.owner)}`, []),
    ...families.flatMap((family) => renderSets(config, family)),
    ...renderChains(families, chains, { SEND: { 4: send(4), 6: send(6) } }),
  ];
  return `table inet ${table} {\n${blocks.join('\n')}}\n`;
}

const ADDRESS_TYPE: Record<Family, string> = { 4: 'ipv4_addr', 6: 'ipv6_addr' };

function renderSets({ route }: RuleConfig, family: Family): string[] {
  const kinds = KINDS.filter((kind) =>
    route === undefined ? !TRANSPARENT.has(kind) : kind !== 'proxy-ports',
  );
  return kinds.map((kind) => {
    const type = SETS[kind]
      .replace(' : proxy-port', route === undefined ? ' : inet_service' : '')
      .replaceAll(/address|network/g, ADDRESS_TYPE[family]);
    const flags = SETS[kind].endsWith('network') ? ' flags interval;' : '';
    const word = type.includes(' : ') ? 'map' : 'set';
    return block(`${word} ${setName(kind, family)}`, [`type ${type};${flags}`]);
  });
}

/** All elements, also those that do not depend on services. */
export function allElements(config: RuleConfig, elements: Elements): Element[] {
  const networks = config.families.flatMap((family) => {
    const set = setName('node-networks', family);
    return config.nodePortNetworks[family].map((key) => ({ set, key, value: '' }));
  });
  return [...elements, ...networks];
}

/**
 * Replaces the table, in one transaction. A packet that the old rules look at meanwhile finds their sets empty, and may be
 * refused.
 */
export function renderFull(table: string, config: RuleConfig, elements: Elements): string {
  const all = renderElements('add', table, allElements(config, elements));
  return renderRemoval(table) + renderTable(table, config) + all;
}

/**
 * Turns an existing table into ours, in one transaction: its rules are replaced, and elements that stay are not touched, so
 * that every packet finds them. `stale`: chains and sets to remove, as `chain owner-1234`.
 */
export function renderMended(
  table: string,
  config: RuleConfig,
  stale: readonly string[],
  changes: readonly ElementChange[],
): string {
  const bridged = `chain inet ${table} ${BRIDGED_CHAIN}\n`;
  return [
    `flush table inet ${table}\n`,
    // So that it comes first again.
    ...(config.route === undefined ? [] : [`add ${bridged}`, `delete ${bridged}`]),
    ...stale.map((name) => `delete ${name.replace(' ', ` inet ${table} `)}\n`),
    renderTable(table, config),
    renderChanges(table, changes),
  ].join('');
}

/** Writes the difference. Fails if the table is missing, foreign, or differs from the last write. */
export function renderDelta(
  table: string,
  owner: string,
  changes: readonly ElementChange[],
): string {
  return `flush chain inet ${table} ${ownerChain(owner)}\n${renderChanges(table, changes)}`;
}

/** Removals first: a changed value is a new element. */
function renderChanges(table: string, changes: readonly ElementChange[]): string {
  const list = (side: 'before' | 'after'): Element[] =>
    changes.flatMap(({ set, key, [side]: value }) =>
      value === undefined ? [] : { set, key, value },
    );
  return (
    renderElements('delete', table, list('before')) + renderElements('add', table, list('after'))
  );
}

function renderElements(verb: 'add' | 'delete', table: string, all: readonly Element[]): string {
  const textOf = ({ key, value }: Element): string =>
    verb === 'delete' || value === '' ? key : `${key} : ${value}`;
  const bySet = Map.groupBy(all, ({ set }) => set);
  const render = ([set, some]: [string, Element[]]): string =>
    `${verb} element inet ${table} ${set} {\n${some.map(textOf).join(',\n')}\n}\n`;
  return Array.from(bySet, render).join('');
}

/** Removes the table; no error when there is none. */
export function renderRemoval(table: string): string {
  return `add table inet ${table}\ndelete table inet ${table}\n`;
}
