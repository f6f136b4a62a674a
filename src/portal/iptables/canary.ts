import type { Server } from 'node:net';
import type { Family } from '../../util/family.ts';
import {
  Canary,
  canaryAddress,
  findOwner,
  openServer,
  portOf,
  probeAddress,
  type CanaryAddress,
  type ProbeResult,
} from '../rules/canary.ts';
import type { RuleConfig } from '../rules/backend.ts';
import type { RuleCanary } from '../rules/rule-portal.ts';
import { chainName, SLOTS, type Slot } from './chains.ts';
import type { Element } from '../rules/elements.ts';
import { matching, reject, rule, toAddress } from './translate.ts';

const NAME = 'kpng-userspace canary';

/**
 * Checks that the rules exist, in each family and chain:
 * - two connections to a canary pass all our nat chains, for service addresses and for node ports, to its proxy port;
 * - connections to two ports with a server are refused by the filter chains, one on its way out, one on its way in.
 */
export function iptablesCanary({ owner, families }: RuleConfig, prefix: string): RuleCanary {
  const all = families.map((family) => new FamilyCanary(owner, family, prefix));
  return {
    async open() {
      const rules = await Promise.all(all.map((each) => each.open()));
      return rules.flat();
    },
    async probe(asked = owner) {
      const results = await Promise.all(all.map((each) => each.probe(asked)));
      // Another process may have rules in one family only.
      return asked !== owner && results.includes('alive') ? 'alive' : worst(results);
    },
    pidOf: async (asked) => (await findOwner(asked))?.pid,
    close() {
      for (const each of all) each.close();
    },
  };
}

/** Chains in the order in which a canary packet passes them; a jump past one of them ends the path early. */
const PORTALS: readonly Slot[] = ['portals-host', 'portals-container'];
const NODE_PORTS: readonly Slot[] = ['portals-host', 'nodeport-host', 'nodeport-container'];
const FILTER: readonly Slot[] = ['refuse', 'nodeport-refuse', 'proxy-ports', 'non-local-first'];

class FamilyCanary {
  readonly #owner: string;
  readonly #family: Family;
  readonly #prefix: string;
  readonly #canary: Canary;
  readonly #refused: { server: Server; address: CanaryAddress }[] = [];

  constructor(owner: string, family: Family, prefix: string) {
    this.#owner = owner;
    this.#family = family;
    this.#prefix = prefix;
    this.#canary = new Canary(owner, family);
  }

  async open(): Promise<Element[]> {
    const proxyPort = await this.#canary.open();
    const canary = this.#canary.address;
    const out = await this.#listen(canary.address);
    const into = await this.#listen(canary.address);
    const refuse = reject(this.#family, 'TCP');
    const direct = matching(NAME, 'TCP', proxyPort);
    return [
      ...this.#through(PORTALS, match(canary), String(proxyPort)),
      ...this.#through(NODE_PORTS, match(beside(canary)), String(proxyPort)),
      // Outgoing packets match only an outgoing interface, incoming packets only an incoming one.
      ...this.#through(FILTER, `${match(out)} -o lo`, refuse),
      rule('refuse', this.#family, `${match(into)} -i lo`, refuse),
      rule('proxy-ports', this.#family, direct, refuse),
    ];
  }

  async probe(owner: string): Promise<ProbeResult> {
    const redirected = this.#canary.probe(owner);
    if (owner !== this.#owner) return redirected;
    const redirectedBeside = probeAddress(beside(canaryAddress(owner, this.#family)));
    const refused = this.#refused.map(async ({ address }) => refusal(await probeAddress(address)));
    return worst(await Promise.all([redirected, redirectedBeside, ...refused]));
  }

  close(): void {
    this.#canary.close();
    for (const { server } of this.#refused.splice(0)) server.close();
  }

  async #listen(address: string): Promise<CanaryAddress> {
    const server = await openServer(address);
    const canary = { address, port: portOf(server) };
    this.#refused.push({ server, address: canary });
    return canary;
  }

  /** Each chain jumps to the next, and the last one to the target. */
  #through(slots: readonly Slot[], key: string, target: string): Element[] {
    return slots.map((slot, index) => {
      const next = slots[index + 1];
      const value =
        next === undefined ? target : `-j ${chainName(this.#prefix, SLOTS[next].chain)}`;
      return rule(slot, this.#family, key, value);
    });
  }
}

function match({ address, port }: CanaryAddress): string {
  return `${matching(NAME, 'TCP', port)} ${toAddress(address)}`;
}

function beside({ address, port }: CanaryAddress): CanaryAddress {
  return { address, port: port + 1 };
}

/** Where a server listens, only a rule refuses connections. */
function refusal(found: ProbeResult): ProbeResult {
  if (found === 'silent') return found;
  return found === 'gone' ? 'alive' : 'gone';
}

function worst(results: readonly ProbeResult[]): ProbeResult {
  if (results.includes('gone')) return 'gone';
  return results.includes('silent') ? 'silent' : 'alive';
}
