import { CHAINS_INTERVAL_MS, JUMP_AUDIT } from '../bounds.ts';
import { systemExec } from '../exec.ts';
import type { RuleConfig } from '../rules/backend.ts';
import type { RuleCanary } from '../rules/canary.ts';
import { RulePortal, type RulePortalOptions } from '../rules/rule-portal.ts';
import { iptablesCanary } from './canary.ts';
import { DEFAULT_PREFIX } from './chains.ts';
import { IptablesBackend } from './backend.ts';
import { findTools, type Tools } from './tools.ts';
import { rulesOf } from './translate.ts';

export interface IptablesPortalOptions extends RulePortalOptions {
  /** Prefix of the chain names. Default `KUBE`. Several proxiers on one host need different ones. */
  readonly prefix?: string;
  /** Finds the programs; called again as long as it rejects. Default: `findTools` with `auto`. */
  readonly tools?: () => Promise<Tools>;
  /** Creates the canary; tests have one without sockets. */
  readonly canary?: (config: RuleConfig) => RuleCanary;
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
      canary: options.canary ?? ((config) => iptablesCanary(config, prefix)),
    });
  }
}
