import type { Family } from '../../util/family.ts';
import { MAX_RULE_LIST, WRITE_TIMEOUT_MS } from '../bounds.ts';
import { ExecError, type Exec } from '../exec.ts';
import type { LedgerView } from '../rules/ledger.ts';
import { TABLES, type SlotName } from './chains.ts';
import { iptablesFailure } from './failure.ts';
import { findRules, type Found } from './found.ts';
import { readInspection, renderInspection } from './inspect.ts';
import type { Place } from './script.ts';
import { programOf, restore, save, type Tools } from './tools.ts';

/** Runs the programs of one flavour. Everything rejects with a `RuleError`. */
export class Kernel {
  readonly #exec: Exec;
  readonly #tools: Tools;

  constructor(exec: Exec, tools: Tools) {
    this.#exec = exec;
    this.#tools = tools;
  }

  /** Carries out a script, and returns what it prints. `doing` is for the message when it fails. */
  async restore(family: Family, stdin: string, doing: string): Promise<string> {
    try {
      const command = { ...restore(this.#tools, family), stdin, timeoutMs: WRITE_TIMEOUT_MS };
      const { stdout } = await this.#exec(command);
      return stdout;
    } catch (error) {
      throw iptablesFailure(await this.#cause(family, error), doing, stdin);
    }
  }

  /**
   * What there is of ours. Without `make`, tables that do not exist are not made by looking at them.
   */
  async find(family: Family, prefix: string, make: boolean): Promise<Found> {
    const tables = make
      ? [
          ['-t', 'filter'],
          ['-t', 'nat'],
        ]
      : [[]];
    const file = save(this.#tools, family);
    try {
      const texts = await Promise.all(
        tables.map(async (args) => {
          const { stdout } = await this.#exec({ file, args, maxOutput: MAX_RULE_LIST });
          return stdout;
        }),
      );
      return findRules(prefix, texts.join(''));
    } catch (error) {
      throw iptablesFailure(error, `listing the rules of ${this.#tools.name}`);
    }
  }

  /** The same, quickly, of what was written before. Undefined when a chain of ours is not there. */
  async inspect(place: Place, ledger: LedgerView<SlotName>): Promise<Found | undefined> {
    const command = restore(this.#tools, place.family);
    const listings = TABLES.map(async (table) => {
      const stdin = renderInspection(place, ledger, table);
      const { stdout } = await this.#exec({ ...command, stdin, maxOutput: MAX_RULE_LIST });
      return stdout;
    });
    try {
      return readInspection(place, ledger, await Promise.all(listings));
    } catch (error) {
      // The thorough way finds out what is wrong.
      if (error instanceof ExecError) return undefined;
      throw error;
    }
  }

  /** The restoring program of the legacy flavour does not say why it has no table; the other one does. */
  async #cause(family: Family, error: unknown): Promise<unknown> {
    if (!(error instanceof ExecError)) return error;
    const [, table] = /unable to initialize table '(\w+)'/.exec(error.stderr) ?? [];
    if (table === undefined) return error;
    try {
      const file = programOf(this.#tools, family);
      await this.#exec({ file, args: ['-t', table, '-S', 'OUTPUT'] });
      return error;
    } catch (better) {
      return better;
    }
  }
}
