import { isIPv6 } from 'node:net';
import type { Protocol } from '../../proxysocket/spec.ts';
import type { Family } from '../../util/family.ts';
import type { ProxyPort, Redirect } from '../redirect-plan.ts';
import { networksOf } from '../rules/host.ts';
import { slotName, type Rule, type Slot } from './chains.ts';
import { comment } from './jumps.ts';

/** Maximum length of a comment, with its final zero: 256 bytes. */
const MAX_COMMENT = 255;

/** The rules of one service port. Its name is their comment. */
export function rulesOf(
  name: string,
  redirects: readonly Redirect[],
  proxyPorts: readonly ProxyPort[],
): Rule[] {
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

function nodePortRules(name: string, { family, portal, proxyPort }: Redirect): Rule[] {
  const { protocol, port } = portal;
  if (proxyPort === undefined) {
    const match = matching(withoutEndpoints(name), protocol, port);
    return [rule('nodeport-refuse', family, match, reject(family, protocol))];
  }
  const match = matching(name, protocol, port);
  const newFlows = `${matching(name, protocol, proxyPort)} -m state --state NEW`;
  return [
    rule('nodeport-container', family, match, String(proxyPort)),
    rule('nodeport-host', family, match, String(proxyPort)),
    rule('non-local', family, newFlows, '-j ACCEPT'),
  ];
}

function addressRules(name: string, redirect: Redirect, address: string): Rule[] {
  const { family, portal, proxyPort } = redirect;
  const { protocol, port, sourceRanges } = portal;
  const guarded = sourceRanges.length > 0;
  // With ranges of only the other family, no client is allowed: guard the address.
  const sources = guarded ? networksOf(sourceRanges, family).map((net) => ` -s ${net}`) : [''];
  const rules: Rule[] = [];
  if (proxyPort === undefined) {
    const match = `${matching(withoutEndpoints(name), protocol, port)} ${toAddress(address)}`;
    const slot = guarded ? 'refuse-some' : 'refuse';
    for (const source of sources) {
      rules.push(rule(slot, family, `${match}${source}`, reject(family, protocol)));
    }
  } else {
    const match = `${matching(name, protocol, port)} ${toAddress(address)}`;
    for (const source of sources) {
      rules.push(rule('portals-container', family, `${match}${source}`, String(proxyPort)));
      rules.push(rule('portals-host', family, `${match}${source}`, String(proxyPort)));
    }
  }
  if (!guarded && proxyPort !== undefined) return rules;
  const match = `${matching(name, protocol, port)} ${toAddress(address)}`;
  if (guarded) rules.push(rule('refuse', family, match, '-j DROP'));
  rules.push(
    rule('nodeport-container-except', family, match, '-j RETURN'),
    rule('nodeport-host-except', family, match, '-j RETURN'),
  );
  return rules;
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

export function rule(slot: Slot, family: Family, key: string, value: string): Rule {
  return { set: slotName(slot, family), key, value };
}

function withoutEndpoints(name: string): string {
  return `${name} has no endpoints`;
}

/** Drops special characters, including quotes; Kubernetes names have none. */
function commentText(text: string): string {
  return text.replaceAll(/[^\x20-\x7E]|["\\]/g, '?').slice(0, MAX_COMMENT);
}
