import { NftablesPortal, type NftablesPortalOptions } from '../../src/portal/nftables/portal.ts';
import type { ServicePortPortals } from '../../src/portal/portal.ts';
import type { Element } from '../../src/portal/rules/elements.ts';
import type { RuleCanary } from '../../src/portal/rules/rule-portal.ts';
import type { Reaction } from './fake-exec.ts';
import { FakeNft } from './fake-nft.ts';
import { landing, type Landing, type Packet } from './landing.ts';
import { RuleRig } from './rule-rig.ts';

/** The portal on a nft that evaluates. */
export class NftablesRig extends RuleRig {
  readonly kind = 'nftables';
  readonly nft = new FakeNft();
  readonly exec = this.nft.exec;
  readonly portal: NftablesPortal;

  constructor(options: Partial<NftablesPortalOptions> = {}) {
    super();
    this.portal = new NftablesPortal({
      ...this.options(),
      exec: this.exec,
      canary: ({ owner }) => this.#canary(owner),
      ...options,
    });
  }

  get runs(): number {
    return this.nft.commands.length;
  }

  get scripts(): readonly string[] {
    return this.nft.scripts;
  }

  breakTools(reaction: Reaction | undefined): void {
    this.nft.broken = reaction;
  }

  flush(): void {
    this.nft.flush();
  }

  damage(): void {
    this.nft.table().sets.get('services4')?.delete('10.0.0.1 . tcp . 80');
  }

  refuse(text: string | undefined): void {
    this.nft.refuses = (element) => text !== undefined && element.startsWith(text);
  }

  async takeOver(services: readonly ServicePortPortals[]): Promise<string> {
    let name = '';
    const other = new NftablesRig({
      exec: this.exec,
      canary: ({ owner }) => {
        name = owner;
        return this.#canary(owner);
      },
    });
    await other.sync(services);
    await other.portal.close();
    return name;
  }

  protected landing(packet: Packet, local: ReadonlySet<string>): Landing {
    return landing(this.nft.table().sets, packet, local);
  }

  protected hasRulesOf(owner: string): boolean {
    return this.nft.tables.get('kpng-userspace')?.chains.has(`owner-${owner}`) === true;
  }

  #canary(owner: string): RuleCanary {
    const key = `127.200.0.1 . tcp . ${20_000 + (Number.parseInt(owner.slice(0, 4), 16) % 9000)}`;
    return {
      open: async (): Promise<Element[]> => [{ set: 'services4', key, value: '39999' }],
      probe: async (asked = owner) => this.probe(asked),
      pidOf: async () => 4711,
      close: (): void => undefined,
    };
  }
}
