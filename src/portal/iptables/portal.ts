import { CHAINS_INTERVAL_MS, JUMP_AUDIT } from '../bounds.ts';
import { systemExec } from '../exec.ts';
import type { Family } from '../../util/family.ts';
import type { Element, RuleConfig } from '../rules/backend.ts';
import { type CanaryAddress, createCanary, type RuleCanary } from '../rules/canary.ts';
import { RulePortal, type RulePortalOptions } from '../rules/rule-portal.ts';
import { chainName, DEFAULT_PREFIX, SLOTS, type Slot } from './chains.ts';
import { IptablesBackend } from './backend.ts';
import { findTools, type Tools } from './tools.ts';
import { matching, reject, rule, rulesOf, toAddress } from './translate.ts';

export interface IptablesPortalOptions extends RulePortalOptions {
  /** Prefix of the chain names. Default `KUBE`. Several proxiers on one host need different ones. */
  readonly prefix?: string;
  /** Finds the programs; called again as long as it rejects. Default: `findTools` with `auto`. */
  readonly tools?: () => Promise<Tools>;
}

/**
 * Redirects traffic with the chains of kube-proxy's userspace mode, in IPv4 and IPv6.
 *
 * The cost per packet grows with the number of portals. A change is a few lines for one `iptables-restore` per
 * affected family.
 */
export class IptablesPortal extends RulePortal {
  /** Throws KPNG_USAGE for an invalid bind address or prefix, RangeError for node port addresses. */
  constructor(options: IptablesPortalOptions) {
    const { exec = systemExec, prefix = DEFAULT_PREFIX } = options;
    const backend = new IptablesBackend(
      exec,
      options.tools ?? (() => findTools(exec, 'auto')),
      prefix,
    );
    super(options, {
      kind: 'iptables',
      apart: 'give each a --portal-chain-prefix of its own',
      intervalMs: CHAINS_INTERVAL_MS,
      backend,
      quickAudit: {
        policy: JUMP_AUDIT,
        difference: (config, elements) => backend.jumpDifference(config, elements),
      },
      elements: rulesOf,
      canary: (config) => iptablesCanary(config, prefix),
    });
  }
}

const NAME = 'kpng-userspace canary';

/** Chains in the order in which a canary packet passes them; a jump past one of them ends the path early. */
const PORTALS: readonly Slot[] = ['portals-host', 'portals-container'];
const NODE_PORTS: readonly Slot[] = ['portals-host', 'nodeport-host', 'nodeport-container'];
const FILTER: readonly Slot[] = ['refuse', 'nodeport-refuse', 'proxy-ports', 'non-local-first'];

/**
 * Checks that the rules exist, in each family and chain:
 * - two connections pass all our nat chains, for service addresses and for node ports, to a proxy port;
 * - connections to two ports with a server are refused by the filter chains, one on its way out, one on its way in.
 */
function iptablesCanary({ owner, families }: RuleConfig, prefix: string): RuleCanary {
  /** Each chain jumps to the next, and the last one to the target. */
  const through = (slots: readonly Slot[], family: Family, key: string, target: string) =>
    slots.map((slot, index): Element => {
      const next = slots[index + 1];
      const jump = next && `-j ${chainName(prefix, SLOTS[next].chain)}`;
      return rule(slot, family, key, jump ?? target);
    });
  return createCanary(owner, families, {
    reached: [
      (family, at, proxyPort) => [
        ...through(PORTALS, family, match(at), String(proxyPort)),
        rule('proxy-ports', family, matching(NAME, 'TCP', proxyPort), reject(family, 'TCP')),
      ],
      (family, at, proxyPort) => through(NODE_PORTS, family, match(at), String(proxyPort)),
    ],
    // Outgoing packets match only an outgoing interface, incoming packets only an incoming one.
    refused: [
      (family, at) => through(FILTER, family, `${match(at)} -o lo`, reject(family, 'TCP')),
      (family, at) => [rule('refuse', family, `${match(at)} -i lo`, reject(family, 'TCP'))],
    ],
  });
}

function match({ address, port }: CanaryAddress): string {
  return `${matching(NAME, 'TCP', port)} ${toAddress(address)}`;
}
