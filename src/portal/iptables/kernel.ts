import type { Family } from '../../util/family.ts';
import { MAX_RULE_LIST, WRITE_TIMEOUT_MS } from '../bounds.ts';
import { ExecError, type Exec } from '../exec.ts';
import { TABLES } from './chains.ts';
import { iptablesFailure } from './failure.ts';
import { findRules, type Found } from './listing.ts';
import { programOf, restore, save, type Tools } from './tools.ts';

/** Runs the programs of one flavour. Everything rejects with a `ToolError`. */
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
      const { stdout } = await this.#exec({
        ...restore(this.#tools, family),
        stdin,
        timeoutMs: WRITE_TIMEOUT_MS,
        maxOutput: MAX_RULE_LIST,
      });
      return stdout;
    } catch (error) {
      throw iptablesFailure(await this.#cause(family, error), doing, stdin);
    }
  }

  /** What there is of ours. Without `make`, tables that do not exist are not made by looking at them. */
  async find(family: Family, prefix: string, make: boolean): Promise<Found> {
    const tables = make ? TABLES.map((table) => ['-t', table]) : [[]];
    const file = save(this.#tools, family);
    try {
      const outputs = await Promise.all(
        tables.map((args) => this.#exec({ file, args, maxOutput: MAX_RULE_LIST })),
      );
      return findRules(prefix, outputs.map(({ stdout }) => stdout).join(''));
    } catch (error) {
      throw iptablesFailure(error, `listing the rules of ${this.#tools.name}`);
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
