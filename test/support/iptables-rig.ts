import { IptablesPortal, type IptablesPortalOptions } from '../../src/portal/iptables/portal.ts';
import type { Flavor } from '../../src/portal/iptables/tools.ts';
import type { ServicePortPortals } from '../../src/portal/portal.ts';
import type { Reaction } from './fake-exec.ts';
import { FakeIptables } from './fake-iptables.ts';
import { iptablesLanding } from './iptables-landing.ts';
import type { Landing, Packet } from './landing.ts';
import { RuleRig } from './rule-rig.ts';

/** The portal on programs of iptables that evaluate, of the flavour nft by default. */
export class IptablesRig extends RuleRig {
  readonly kind = 'iptables';
  readonly iptables = new FakeIptables();
  readonly exec = this.iptables.exec;
  readonly portal: IptablesPortal;
  readonly #flavor: Flavor;

  constructor(options: Partial<IptablesPortalOptions> = {}, flavor: Flavor = 'nft') {
    super();
    this.#flavor = flavor;
    this.portal = new IptablesPortal({
      ...this.options(),
      exec: this.exec,
      tools: async () => ({ flavor, name: `iptables-${flavor}`, version: '1.8.9' }),
      canary: ({ owner }) => this.#canary(owner),
      ...options,
    });
  }

  get runs(): number {
    return this.iptables.commands.length;
  }

  get scripts(): readonly string[] {
    return this.iptables.scripts;
  }

  breakTools(reaction: Reaction | undefined): void {
    this.iptables.broken = reaction;
  }

  flush(): void {
    this.iptables.flush();
  }

  damage(): void {
    const chains = this.iptables.tables(4, this.#flavor).get('nat');
    for (const chain of ['KUBE-PORTALS-CONTAINER', 'KUBE-PORTALS-HOST']) {
      const rules = chains?.get(chain) ?? [];
      chains?.set(
        chain,
        rules.filter((rule) => !rule.includes('-d 10.0.0.1/32')),
      );
    }
  }

  refuse(text: string | undefined): void {
    this.iptables.refuses = (line) => text !== undefined && line.includes(`-d ${text}`);
  }

  async takeOver(services: readonly ServicePortPortals[]): Promise<string> {
    let name = '';
    const canary = ({ owner }: { owner: string }) => {
      name = owner;
      return this.#canary(owner);
    };
    const other = new IptablesRig({ exec: this.exec, canary }, this.#flavor);
    await other.sync(services);
    await other.portal.close();
    return name;
  }

  protected landing(packet: Packet, local: ReadonlySet<string>): Landing {
    const family = packet.destination.includes(':') ? 6 : 4;
    return iptablesLanding(this.iptables.tables(family, this.#flavor), packet, local);
  }

  protected hasRulesOf(owner: string): boolean {
    const tables = this.iptables.tables(4, this.#flavor);
    return tables.get('nat')?.has(`KPNG-KUBE-${owner}`) === true;
  }

  #canary(owner: string) {
    return {
      open: async () => [],
      probe: async (asked = owner) => this.probe(asked),
      pidOf: async () => 4711,
      close: (): void => undefined,
    };
  }
}
