import type { Command } from '../../src/portal/exec.ts';
import { exits, FakeExec, type Reaction } from './fake-exec.ts';

type Family = 4 | 6;
type Flavor = 'nft' | 'legacy';

/** The chains of one table, each with its rules as text behind `-A chain`. */
export type FakeChains = Map<string, string[]>;
/** Tables by name. */
export type FakeTables = Map<string, FakeChains>;

class IptablesError extends Error {}

const BUILT_IN: Readonly<Record<string, readonly string[]>> = {
  filter: ['INPUT', 'FORWARD', 'OUTPUT'],
  nat: ['PREROUTING', 'INPUT', 'OUTPUT', 'POSTROUTING'],
};

/**
 * The programs of iptables, of both flavours and families, and the kernel behind them, as far as our
 * scripts go. Each table of a script is a transaction. Other programs end well and do nothing.
 */
export class FakeIptables extends FakeExec {
  readonly #tables = new Map<`${Flavor} ${Family}`, FakeTables>();
  /** Programs for single rules that are not installed, such as `iptables-legacy` and `ip6tables`. */
  readonly missing = new Set<string>();
  /** What `iptables` on the PATH is. */
  plain: Flavor = 'nft';
  /** Lines for which this returns true are not taken. */
  refuses: (line: string) => boolean = () => false;
  /** Instead of carrying out a script, react so. */
  broken: Reaction | undefined;

  /** Scripts that were carried out, or would have been; those that only read are left out. */
  get scripts(): string[] {
    return this.commands.flatMap(({ file, stdin = '' }) =>
      file.endsWith('-restore') && !/^-S /m.test(stdin) ? [stdin] : [],
    );
  }

  tables(family: Family = 4, flavor: Flavor = 'nft'): FakeTables {
    const name = `${flavor} ${family}` as const;
    let tables = this.#tables.get(name);
    if (tables === undefined) this.#tables.set(name, (tables = new Map()));
    return tables;
  }

  /** Rules of a chain; none when it is not there. */
  rules(chain: string, family: Family = 4, flavor: Flavor = 'nft'): readonly string[] {
    const all = [...this.tables(family, flavor).values()];
    return all.find((chains) => chains.has(chain))?.get(chain) ?? [];
  }

  /** Another program runs a script. */
  run(script: string, family: Family = 4, flavor: Flavor = 'nft'): void {
    this.#restore(family, flavor, script);
  }

  /** What `iptables-save` prints. */
  listing(family: Family = 4, flavor: Flavor = 'nft', only?: string): string {
    const lines: string[] = ['# Generated'];
    for (const [table, chains] of this.tables(family, flavor)) {
      if (only !== undefined && only !== table) continue;
      lines.push(`*${table}`);
      for (const chain of chains.keys()) {
        const policy = BUILT_IN[table]?.includes(chain) === true ? 'ACCEPT' : '-';
        lines.push(`:${chain} ${policy} [0:0]`);
      }
      for (const [chain, rules] of chains)
        lines.push(...rules.map((rule) => `-A ${chain} ${rule}`));
      lines.push('COMMIT');
    }
    return `${lines.join('\n')}\n`;
  }

  protected override react({ file, args, stdin = '' }: Command): Reaction {
    const match = /^(ip(6?)tables(?:-(nft|legacy))?)(-restore|-save)?$/.exec(file);
    if (match === null) return {};
    const [, program = '', six, suffix, kind] = match;
    if (this.missing.has(program)) return { fails: 'missing' };
    const flavor = (suffix as Flavor | undefined) ?? this.plain;
    const family = six === '6' ? 6 : 4;
    const word = flavor === 'nft' ? 'nf_tables' : 'legacy';
    if (args[0] === '--version') return { stdout: `${program} v1.8.9 (${word})\n` };
    if (kind === undefined) return {};
    if (this.broken !== undefined) return this.broken;
    if (kind === '-save') {
      const only = args[0] === '-t' ? args[1] : undefined;
      return { stdout: this.listing(family, flavor, only) };
    }
    try {
      return { stdout: this.#restore(family, flavor, stdin) };
    } catch (error) {
      if (error instanceof IptablesError) return exits(`${file}: ${error.message}\n`);
      throw error;
    }
  }

  #restore(family: Family, flavor: Flavor, script: string): string {
    const tables = this.tables(family, flavor);
    let printed = '';
    let table = '';
    let chains: FakeChains = new Map();
    for (const [index, line] of script.split('\n').entries()) {
      if (line === '') continue;
      if (line.startsWith('*')) {
        table = line.slice(1);
        const before = tables.get(table) ?? new Map(BUILT_IN[table]?.map((name) => [name, []]));
        chains = structuredClone(before);
      } else if (line === 'COMMIT') tables.set(table, chains);
      else if (this.refuses(line)) {
        throw new IptablesError(`line ${index + 1}: RULE_APPEND failed (Invalid argument)`);
      } else if (!carryOut(chains, line, (text) => (printed += text))) {
        throw new IptablesError(`line ${index + 1} failed: No chain/target/match by that name.`);
      }
    }
    return printed;
  }
}

/** False when it cannot be done. */
function carryOut(chains: FakeChains, line: string, print: (text: string) => void): boolean {
  if (line.startsWith(':')) {
    chains.set(line.slice(1).split(' ')[0] ?? '', []);
    return true;
  }
  const [verb = '', chain = '', ...rest] = line.split(' ');
  const text = rest.join(' ');
  const rules = chains.get(chain);
  const target = /(?:^| )-j (\S+)/.exec(text)?.[1] ?? '';
  if (rules === undefined) return false;
  if ((verb === '-A' || verb === '-I') && !isTarget(chains, target)) return false;
  switch (verb) {
    case '-A':
      rules.push(text);
      return true;
    case '-I':
      rules.unshift(text);
      return true;
    case '-D': {
      const index = rules.indexOf(text);
      if (index !== -1) rules.splice(index, 1);
      return index !== -1;
    }
    case '-F':
      rules.length = 0;
      return true;
    case '-X':
      if (rules.length > 0 || isJumpedTo(chains, chain)) return false;
      return chains.delete(chain);
    case '-S':
      if (rest[0] !== undefined) {
        const rule = rules[Number(rest[0]) - 1];
        if (rule !== undefined) print(`-A ${chain} ${rule}\n`);
        return true;
      }
      print(`-P ${chain} ACCEPT\n${rules.map((rule) => `-A ${chain} ${rule}\n`).join('')}`);
      return true;
    default:
      return false;
  }
}

const TARGETS = new Set(['', ...'ACCEPT DROP RETURN REJECT DNAT REDIRECT MASQUERADE'.split(' ')]);

function isTarget(chains: FakeChains, name: string): boolean {
  return TARGETS.has(name) || chains.has(name);
}

function isJumpedTo(chains: FakeChains, name: string): boolean {
  return [...chains.values()].some((rules) => rules.some((rule) => rule.endsWith(` -j ${name}`)));
}
