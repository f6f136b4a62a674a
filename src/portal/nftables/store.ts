import { MAX_RULE_LIST, WRITE_TIMEOUT_MS } from '../bounds.ts';
import { ExecError, type Exec } from '../exec.ts';
import type { RuleConfig } from '../rules/config.ts';
import { isFlowSet, type FlowSet } from '../rules/flow-items.ts';
import type { ItemChange, LedgerView } from '../rules/ledger.ts';
import type { RuleStore } from '../rules/store.ts';
import type { SetName } from './elements.ts';
import { nftFailure } from './failure.ts';
import { differenceIn } from './inspect.ts';
import { renderDelta, renderFull } from './script.ts';
import { checkTableName } from './table-name.ts';
import { removeNftables } from './tool.ts';

/** Elements of one table of nftables, and the table itself. */
export class NftablesStore implements RuleStore<SetName | FlowSet> {
  readonly what: string;
  readonly #exec: Exec;
  readonly #table: string;

  /** Throws KPNG_USAGE for a name that no table can have. */
  constructor(exec: Exec, table: string) {
    checkTableName(table);
    this.what = `the nftables table inet ${table}`;
    this.#exec = exec;
    this.#table = table;
  }

  /** It reads the table only to see whose it is. */
  async replace(
    config: RuleConfig,
    ledger: LedgerView<SetName>,
    onlyOwn: boolean,
  ): Promise<string | undefined> {
    if (onlyOwn) {
      const owner = await tableOwner(this.#exec, this.#table);
      if (owner !== undefined && owner !== config.owner) return owner;
    }
    await this.#run(renderFull(this.#table, config, ledger), 'writing');
    return undefined;
  }

  async change(
    config: RuleConfig,
    changes: readonly ItemChange<SetName | FlowSet>[],
  ): Promise<undefined> {
    const elements = changes.filter((change) => isElement(change));
    if (elements.length === 0) return;
    await this.#run(renderDelta(this.#table, config.owner, elements), 'changing');
  }

  async wouldTake(config: RuleConfig, ledger: LedgerView<SetName>): Promise<boolean> {
    const stdin = renderFull(this.#table, config, ledger);
    try {
      const args = ['-c', '-f', '-'];
      await this.#exec({ file: 'nft', args, stdin, timeoutMs: WRITE_TIMEOUT_MS });
      return true;
    } catch (cause) {
      const failure = nftFailure(cause, `checking ${this.what}`);
      if (failure.blame === 'host') throw failure;
      return false;
    }
  }

  async difference(config: RuleConfig, ledger: LedgerView<SetName>): Promise<string | undefined> {
    const args = ['list', 'table', 'inet', this.#table];
    try {
      const limits = { timeoutMs: WRITE_TIMEOUT_MS, maxOutput: MAX_RULE_LIST };
      const { stdout } = await this.#exec({ file: 'nft', args, ...limits });
      return await differenceIn(stdout, config, ledger);
    } catch (cause) {
      throw nftFailure(cause, `listing ${this.what}`);
    }
  }

  async remove({ owner }: RuleConfig): Promise<void> {
    const writer = (await tableOwner(this.#exec, this.#table)) ?? owner;
    if (writer === owner) await removeNftables(this.#exec, this.#table);
  }

  async #run(stdin: string, doing: 'changing' | 'writing'): Promise<void> {
    try {
      const args = ['-f', '-'];
      await this.#exec({ file: 'nft', args, stdin, timeoutMs: WRITE_TIMEOUT_MS });
    } catch (cause) {
      throw nftFailure(cause, `${doing} ${this.what}`);
    }
  }
}

/** Who has written a table; undefined when there is none, or when it does not say. */
export async function tableOwner(exec: Exec, table: string): Promise<string | undefined> {
  try {
    const args = ['--terse', 'list', 'table', 'inet', table];
    const { stdout } = await exec({ file: 'nft', args, timeoutMs: WRITE_TIMEOUT_MS });
    return /^\s*chain owner-(\w+) /m.exec(stdout)?.[1];
  } catch (cause) {
    // No table, or one that cannot be read: writing will tell.
    if (cause instanceof ExecError) return undefined;
    throw cause;
  }
}

function isElement(change: ItemChange<SetName | FlowSet>): change is ItemChange<SetName> {
  return !isFlowSet(change.set);
}
