import { isIPv6 } from 'node:net';
import type { Protocol } from '../../proxysocket/spec.ts';
import type { Family } from '../../util/family.ts';
import type { ProxyPort, Redirect } from '../redirect-plan.ts';
import type { Element } from '../rules/backend.ts';
import { networksOf } from '../node-addresses.ts';
import { comment, slotName, type Slot } from './chains.ts';

/** Maximum length of a comment, with its final zero: 256 bytes. */
const MAX_COMMENT = 255;

/** The rules of one service port. Its name is their comment. */
export function rulesOf(
  name: string,
  redirects: readonly Redirect[],
  proxyPorts: readonly ProxyPort[],
): Element[] {
  return [
    ...redirects.flatMap((redirect) =>
      redirect.portal.address === undefined
        ? nodePortRules(name, redirect)
        : addressRules(name, redirect, redirect.portal.address),
    ),
    ...proxyPorts.map(({ family, protocol, port }) =>
      rule('proxy-ports', family, matching(name, protocol, port), reject(family, protocol)),
    ),
  ];
}

function nodePortRules(name: string, redirect: Redirect): Element[] {
  const { family, portal, proxyPort, drops = false } = redirect;
  const { protocol, port } = portal;
  const rules: Element[] = [];
  if (drops || proxyPort === undefined) {
    const text = drops ? withoutLocalEndpoints(name) : withoutEndpoints(name);
    const target = drops ? '-j DROP' : reject(family, protocol);
    rules.push(rule('nodeport-refuse', family, matching(text, protocol, port), target));
  }
  if (proxyPort === undefined) return rules;
  const match = matching(name, protocol, port);
  const newFlows = `${matching(name, protocol, proxyPort)} -m state --state NEW`;
  for (const source of drops ? fromNetworks(podNetworks(redirect)) : ['']) {
    rules.push(rule('nodeport-container', family, `${match}${source}`, String(proxyPort)));
  }
  rules.push(
    rule('nodeport-host', family, match, String(proxyPort)),
    rule('non-local', family, newFlows, '-j ACCEPT'),
  );
  return rules;
}

function addressRules(name: string, redirect: Redirect, address: string): Element[] {
  const { family, portal, proxyPort, drops = false } = redirect;
  const { protocol, port, sourceRanges } = portal;
  const guarded = sourceRanges.length > 0;
  // With ranges of only the other family, no client is allowed: guard the address.
  const ranges = networksOf(sourceRanges, family);
  const sources = guarded ? fromNetworks(ranges) : [''];
  const to = (text: string): string => `${matching(text, protocol, port)} ${toAddress(address)}`;
  const match = to(name);
  const rules: Element[] = [];
  if (proxyPort !== undefined) {
    const pods = podNetworks(redirect);
    const inside = drops ? fromNetworks(guarded ? overlaps(pods, ranges, family) : pods) : sources;
    for (const source of inside) {
      rules.push(rule('portals-container', family, `${match}${source}`, String(proxyPort)));
    }
    for (const source of sources) {
      rules.push(rule('portals-host', family, `${match}${source}`, String(proxyPort)));
    }
  } else if (!drops) {
    for (const source of sources) {
      const slot = guarded ? 'refuse-some' : 'refuse';
      const key = `${to(withoutEndpoints(name))}${source}`;
      rules.push(rule(slot, family, key, reject(family, protocol)));
    }
  }
  if (!guarded && !drops && proxyPort !== undefined) return rules;
  if (drops) rules.push(rule('refuse', family, to(withoutLocalEndpoints(name)), '-j DROP'));
  else if (guarded) rules.push(rule('refuse', family, match, '-j DROP'));
  rules.push(
    rule('nodeport-container-except', family, match, '-j RETURN'),
    rule('nodeport-host-except', family, match, '-j RETURN'),
  );
  return rules;
}

function podNetworks({ family, portal }: Redirect): string[] {
  return networksOf(portal.clusterClients?.networks ?? [], family);
}

function fromNetworks(networks: readonly string[]): string[] {
  return networks.map((network) => ` -s ${network}`);
}

/** The networks within one of `a` and one of `b`: of two that overlap, one contains the other. */
function overlaps(a: readonly string[], b: readonly string[], family: Family): string[] {
  const within = (some: readonly string[], others: readonly string[]): string[] =>
    some.filter((each) =>
      others.some((other) => networksOf([each, other], family).join() === other),
    );
  return networksOf([...within(a, b), ...within(b, a)], family);
}

/** In the order of kube-proxy's userspace mode. */
export function matching(text: string, protocol: Protocol, port: number): string {
  const word = protocol === 'TCP' ? 'tcp' : 'udp';
  return `${comment(commentText(text))} -p ${word} -m ${word} --dport ${port}`;
}

export function toAddress(address: string): string {
  return `-d ${address}/${isIPv6(address) ? 128 : 32}`;
}

/** Rejects as the kernel does for a closed port. */
export function reject(family: Family, protocol: Protocol): string {
  const icmp = family === 4 ? 'icmp-port-unreachable' : 'icmp6-port-unreachable';
  return `-j REJECT --reject-with ${protocol === 'TCP' ? 'tcp-reset' : icmp}`;
}

export function rule(slot: Slot, family: Family, key: string, value: string): Element {
  return { set: slotName(slot, family), key, value };
}

function withoutEndpoints(name: string): string {
  return `${name} has no endpoints`;
}

function withoutLocalEndpoints(name: string): string {
  return `${name} has no local endpoints`;
}

/** Drops special characters, including quotes; Kubernetes names have none. */
function commentText(text: string): string {
  return text.replaceAll(/[^\x20-\x7E]|["\\]/g, '?').slice(0, MAX_COMMENT);
}
