import type { Protocol } from '../../proxysocket/spec.ts';
import { type Family, hostNetwork } from '../../util/family.ts';
import type { ProxyPort, Redirect } from '../redirect-plan.ts';
import type { Element, RuleCanary, RuleConfig } from '../rules/backend.ts';
import type { HostPort } from '../../util/host-port.ts';
import { createCanary } from '../rules/canary.ts';
import { networksOf } from '../node-addresses.ts';
import { chainName, comment, slotName, type Slot } from './script.ts';

/** Maximum length of a comment, with its final zero: 256 bytes. */
const MAX_COMMENT = 255;

/** The rules of one service port. Its name is their comment. */
export function rulesOf(
  name: string,
  redirects: readonly Redirect[],
  proxyPorts: readonly ProxyPort[],
): Element[] {
  return [
    ...redirects.flatMap((redirect) => redirectRules(name, redirect)),
    ...proxyPorts.map(({ family, protocol, port }) =>
      rule('proxy-ports', family, matching(name, protocol, port), reject(family, protocol)),
    ),
  ];
}

function redirectRules(
  name: string,
  { family, portal, proxyPort, drops = false }: Redirect,
): Element[] {
  const { address, protocol, port, sourceRanges, clusterClients } = portal;
  const to = address === undefined ? '' : toAddress(address);
  /** A rule for each network of clients, or one for all clients. */
  const rules = (slot: Slot, value: string, networks?: readonly string[], text = name): Element[] =>
    (networks?.map((network) => ` -s ${network}`) ?? ['']).map((from) =>
      rule(slot, family, matching(text, protocol, port) + to + from, value),
    );
  const refuse = (slot: Slot, networks?: readonly string[]): Element[] =>
    rules(slot, reject(family, protocol), networks, `${name} has no endpoints`);
  const dropped = drops ? `${name} has no local endpoints` : name;
  const pods = drops ? networksOf(clusterClients?.networks ?? [], family) : undefined;
  const toPort = String(proxyPort);
  const elements: Element[] = [];
  if (address === undefined) {
    if (drops) elements.push(...rules('nodeport-refuse', '-j DROP', undefined, dropped));
    else if (proxyPort === undefined) elements.push(...refuse('nodeport-refuse'));
    if (proxyPort === undefined) return elements;
    const redirected = `${matching(name, protocol, proxyPort)} -m state --state NEW`;
    return [
      ...elements,
      ...rules('nodeport-container', toPort, pods),
      ...rules('nodeport-host', toPort),
      rule('non-local', family, redirected, '-j ACCEPT'),
    ];
  }
  // With ranges of only the other family, no client is allowed: guard the address.
  const ranges = sourceRanges.length > 0 ? networksOf(sourceRanges, family) : undefined;
  if (proxyPort !== undefined) {
    const inside = pods && ranges ? overlaps(pods, ranges, family) : (pods ?? ranges);
    elements.push(...rules('portals-container', toPort, inside));
    elements.push(...rules('portals-host', toPort, ranges));
  } else if (!drops) elements.push(...refuse(ranges ? 'refuse-some' : 'refuse', ranges));
  if (drops || ranges) elements.push(...rules('refuse', '-j DROP', undefined, dropped));
  if (drops || ranges || proxyPort === undefined) {
    elements.push(...rules('nodeport-container-except', '-j RETURN'));
    elements.push(...rules('nodeport-host-except', '-j RETURN'));
  }
  return elements;
}

/** The networks within one of `a` and one of `b`: of two that overlap, one contains the other. */
function overlaps(a: readonly string[], b: readonly string[], family: Family): string[] {
  const within = (some: readonly string[], others: readonly string[]): string[] =>
    some.filter((each) =>
      others.some((other) => networksOf([each, other], family).join() === other),
    );
  return networksOf([...within(a, b), ...within(b, a)], family);
}

/** In the order of kube-proxy's userspace mode. Special characters, which Kubernetes names do not have, become `?`. */
function matching(text: string, protocol: Protocol, port: number): string {
  const word = protocol.toLowerCase();
  const plain = text.replaceAll(/[^\x20-\x7E]|["\\]/g, '?').slice(0, MAX_COMMENT);
  return `${comment(plain)} -p ${word} -m ${word} --dport ${port}`;
}

function toAddress(address: string): string {
  return ` -d ${hostNetwork(address)}`;
}

/** Rejects as the kernel does for a closed port. */
function reject(family: Family, protocol: Protocol): string {
  const icmp = family === 4 ? 'icmp-port-unreachable' : 'icmp6-port-unreachable';
  return `-j REJECT --reject-with ${protocol === 'TCP' ? 'tcp-reset' : icmp}`;
}

function rule(slot: Slot, family: Family, key: string, value: string): Element {
  return { set: slotName(slot, family), key, value };
}

const NAME = 'kpng-userspace canary';

/** Chains in the order in which a canary packet passes them; a jump past one of them ends the path early. */
const PORTALS: readonly Slot[] = ['portals-host', 'portals-container'];
const NODE_PORTS: readonly Slot[] = ['portals-host', 'nodeport-host', 'nodeport-container'];

/** Two connections pass all our nat chains in each family, for service addresses and for node ports, to a proxy port. */
export function iptablesCanary({ owner, families }: RuleConfig, prefix: string): RuleCanary {
  const pathOf = (slots: readonly Slot[]) => (family: Family, at: HostPort, port: number) => {
    const match = matching(NAME, 'TCP', at.port) + toAddress(at.host);
    // Each chain jumps to the next, and the last one to the proxy port.
    return slots.map((slot, index): Element => {
      const next = slots[index + 1];
      const jump = next && `-j ${chainName(prefix, next)}`;
      return rule(slot, family, match, jump ?? String(port));
    });
  };
  const guard = (family: Family, port: number): Element =>
    rule('proxy-ports', family, matching(NAME, 'TCP', port), reject(family, 'TCP'));
  return createCanary(owner, families, [
    (family, at, port) => [...pathOf(PORTALS)(family, at, port), guard(family, port)],
    pathOf(NODE_PORTS),
  ]);
}
