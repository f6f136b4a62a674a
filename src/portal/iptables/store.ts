import type { Family } from '../../util/family.ts';
import { MAX_COMPARISONS } from '../bounds.ts';
import type { Exec } from '../exec.ts';
import type { RuleConfig } from '../rules/config.ts';
import { isFlowSet, type FlowSet } from '../rules/flow-items.ts';
import type { ItemChange, LedgerView } from '../rules/ledger.ts';
import { RuleError, type RuleStore } from '../rules/store.ts';
import { checkPrefix, readSlotName, TABLES, type SlotName } from './chains.ts';
import { isNothing, ownersOf, type Found } from './found.ts';
import { hasAllJumps, readJumpListing, renderJumpListing } from './inspect.ts';
import { Kernel } from './kernel.ts';
import {
  damagedParts,
  renderDelta,
  renderFull,
  renderMending,
  renderRemoval,
  renderTrial,
  ruleCount,
} from './script.ts';
import type { Tools } from './tools.ts';

/** Rules in chains of iptables, and the chains themselves, in both families. */
export class IptablesStore implements RuleStore<SlotName | FlowSet> {
  readonly what: string;
  readonly #exec: Exec;
  readonly #findTools: () => Promise<Tools>;
  #tools: Tools | undefined;
  readonly #prefix: string;
  /**
   * What the chains were last written for, as long as they are as they were written, or somebody else has
   * changed them. Undefined while they are being written, and when it is not known what of a change is there.
   */
  #written: RuleConfig | undefined;
  /**
   * The built-in chains of each family as they were listed, when all that is known to be wrong is that jumps are
   * missing there which packets of the host do not meet.
   */
  #withoutJumps: ReadonlyMap<Family, string> | undefined;

  /** `tools` is asked again as long as it rejects. Throws KPNG_USAGE for a prefix that cannot be. */
  constructor(exec: Exec, tools: () => Promise<Tools>, prefix: string) {
    checkPrefix(prefix);
    this.what = `the iptables chains ${prefix}-*`;
    this.#exec = exec;
    this.#findTools = tools;
    this.#prefix = prefix;
  }

  /**
   * Lists the tables, to see whose the chains are and what leads to them. When somebody else has removed some
   * of what was written, it only looks whether all seems to be there, and writes again what does not.
   */
  async replace(
    config: RuleConfig,
    ledger: LedgerView<SlotName>,
    onlyOwn: boolean,
  ): Promise<string | undefined> {
    const damaged = onlyOwn && this.#written === config;
    this.#written = undefined;
    const known = damaged ? this.#withoutJumps : undefined;
    this.#withoutJumps = undefined;
    const kernel = await this.#kernel();
    const found = await inFamilies(config.families, async (family) => {
      const place = this.#place(config, family);
      const listing = known?.get(family);
      const inspect = async () => (damaged ? kernel.inspect(place, ledger) : undefined);
      const seen =
        listing === undefined ? await inspect() : readJumpListing(place, ledger, listing);
      return { family, found: seen ?? (await kernel.find(family, this.#prefix, true)) };
    });
    const other = found
      .map((each) => otherOwner(each.found, config.owner))
      .find((owner) => owner !== undefined);
    if (onlyOwn && other !== undefined) return other;
    const render = (how: typeof renderFull): Map<Family, string> =>
      new Map(
        found.map((each) => [
          each.family,
          how(this.#place(config, each.family), ledger, each.found),
        ]),
      );
    let scripts = damaged ? render(renderMending) : undefined;
    // What is wrong then is not how many rules there are.
    if (scripts === undefined || [...scripts.values()].every((script) => script === '')) {
      scripts = render(renderFull);
    }
    await inFamilies([...scripts.keys()], async (family) => {
      const script = scripts.get(family) ?? '';
      if (script !== '') await kernel.restore(family, script, `writing ${this.what}`);
    });
    this.#written = config;
    return undefined;
  }

  async change(
    config: RuleConfig,
    changes: readonly ItemChange<SlotName | FlowSet>[],
    ledger: LedgerView<SlotName>,
  ): Promise<string | undefined> {
    const before = this.#written;
    this.#written = undefined;
    const rules = changes.filter((change) => isRule(change));
    const byFamily = new Map<Family, ItemChange<SlotName>[]>();
    for (const change of rules) {
      const { family } = readSlotName(change.set);
      const list = byFamily.get(family);
      if (list === undefined) byFamily.set(family, [change]);
      else list.push(change);
    }
    for (const [family, list] of byFamily) {
      if (comparisons(list, ledger) > MAX_COMPARISONS * ruleCount(family, ledger)) {
        return this.replace(config, ledger, true);
      }
    }
    const kernel = await this.#kernel();
    await inFamilies([...byFamily.keys()], async (family) => {
      const script = renderDelta(this.#place(config, family), byFamily.get(family) ?? []);
      await kernel.restore(family, script, `changing ${this.what}`);
    });
    this.#written = before;
    return undefined;
  }

  async wouldTake(config: RuleConfig, ledger: LedgerView<SlotName>): Promise<boolean> {
    const kernel = await this.#kernel();
    try {
      await inFamilies(config.families, async (family) => {
        const script = renderTrial(this.#place(config, family), ledger);
        await kernel.restore(family, script, `checking ${this.what}`);
      });
      return true;
    } catch (error) {
      if (error instanceof RuleError && error.blame === 'content') return false;
      throw error;
    }
  }

  async difference(config: RuleConfig, ledger: LedgerView<SlotName>): Promise<string | undefined> {
    if (this.#written !== config) return undefined;
    const kernel = await this.#kernel();
    const differences = await inFamilies(config.families, async (family) => {
      const place = this.#place(config, family);
      const found = await kernel.inspect(place, ledger);
      if (found === undefined) return [`chains of IPv${family} are missing`];
      return TABLES.flatMap((table) => {
        const { chains, jumps } = damagedParts(place, ledger, found, table);
        return [...chains, ...(jumps ? [`jumps in ${table}`] : [])].map(
          (part) => `IPv${family} ${part} has other rules than were written`,
        );
      });
    });
    return this.#written === config ? differences.flat()[0] : undefined;
  }

  async remove(config: RuleConfig): Promise<void> {
    const kernel = await this.#kernel();
    await inFamilies(config.families, async (family) => {
      const found = await kernel.find(family, this.#prefix, false);
      if (isNothing(found) || otherOwner(found, config.owner) !== undefined) return;
      await kernel.restore(family, renderRemoval(found), `removing ${this.what}`);
    });
  }

  /**
   * Whether built-in chains still lead to ours, also where packets of the host itself do not come by. True as well
   * while the rules are being written. To be asked only when packets pass our chains: then the next `replace` takes
   * it that these jumps are all that is missing, and need not look again.
   */
  async leadsThere(): Promise<boolean> {
    const config = this.#written;
    if (config === undefined) return true;
    const kernel = await this.#kernel();
    const listings = await inFamilies(config.families, async (family) => {
      const script = renderJumpListing(this.#place(config, family));
      const text = await kernel.restore(family, script, `looking for jumps to ${this.what}`);
      return [family, text] as const;
    });
    if (this.#written !== config) return true;
    const there = listings.every(([family, text]) =>
      hasAllJumps(this.#place(config, family), text),
    );
    this.#withoutJumps = there ? undefined : new Map(listings);
    return there;
  }

  async #kernel(): Promise<Kernel> {
    this.#tools ??= await this.#findTools();
    return new Kernel(this.#exec, this.#tools);
  }

  #place(config: RuleConfig, family: Family) {
    return { prefix: this.#prefix, family, config };
  }
}

function isRule(change: ItemChange<SlotName | FlowSet>): change is ItemChange<SlotName> {
  return !isFlowSet(change.set);
}

/** How many rules iptables compares to find those that are to go. */
function comparisons(
  changes: readonly ItemChange<SlotName>[],
  ledger: LedgerView<SlotName>,
): number {
  return changes.reduce(
    (sum, { set, before }) => sum + (before === undefined ? 0 : ledger.items(set).size),
    0,
  );
}

/** Another process of ours that has written the chains, unless this one has as well. */
function otherOwner(found: Found, owner: string): string | undefined {
  const owners = ownersOf(found);
  return owners.includes(owner) ? undefined : owners[0];
}

/** All at once; each gets its end, also when another one fails. Rejects with the first failure. */
async function inFamilies<T>(
  families: readonly Family[],
  action: (family: Family) => Promise<T>,
): Promise<T[]> {
  const outcomes = await Promise.allSettled(families.map(async (family) => action(family)));
  return outcomes.map((outcome) => {
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  });
}
