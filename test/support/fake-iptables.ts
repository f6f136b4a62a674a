import type { Command } from '../../src/portal/exec.ts';
import { exits, FakeExec, type Reaction } from './fake-exec.ts';

type Family = 4 | 6;
type Flavor = 'nft' | 'legacy';

/** The chains of one table, each with its rules as text behind `-A chain`. */
export type FakeChains = Map<string, string[]>;
/** Tables by name. */
export type FakeTables = Map<string, FakeChains>;

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

  /** Scripts that were carried out, or would have been. */
  get scripts(): string[] {
    return this.commands.flatMap(({ file, stdin = '' }) =>
      file.endsWith('-restore') ? [stdin] : [],
    );
  }

  tables(family: Family = 4, flavor: Flavor = 'nft'): FakeTables {
    const name = `${flavor} ${family}` as const;
    let tables = this.#tables.get(name);
    if (tables === undefined) this.#tables.set(name, (tables = new Map()));
    return tables;
  }

  /** Rules of a chain; none when it is not there. */
  rules(chain: string, family: Family = 4): readonly string[] {
    const all = [...this.tables(family).values()];
    return all.find((chains) => chains.has(chain))?.get(chain) ?? [];
  }

  /** Another program runs a script. */
  run(script: string, family: Family = 4, flavor: Flavor = 'nft'): void {
    this.#restore(family, flavor, script);
  }

  /** What `iptables-save` prints. */
  listing(family: Family = 4, flavor: Flavor = 'nft'): string {
    const lines: string[] = ['# Generated'];
    for (const [table, chains] of this.tables(family, flavor)) {
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
    if (kind === '-save') return { stdout: this.listing(family, flavor) };
    return this.#restore(family, flavor, stdin, file);
  }

  #restore(family: Family, flavor: Flavor, script: string, file = ''): Reaction {
    const tables = this.tables(family, flavor);
    let table = '';
    let chains: FakeChains = new Map();
    for (const [index, line] of script.split('\n').entries()) {
      if (line.startsWith('*')) {
        table = line.slice(1);
        const before = tables.get(table) ?? new Map(BUILT_IN[table]?.map((name) => [name, []]));
        chains = structuredClone(before);
      } else if (line === 'COMMIT') tables.set(table, chains);
      else if (this.refuses(line)) {
        return exits(`${file}: line ${index + 1}: RULE_APPEND failed (Invalid argument)\n`);
      } else if (line !== '' && !carryOut(chains, line)) {
        const why = 'No chain/target/match by that name.';
        return exits(`${file}: line ${index + 1} failed: ${why}\n`);
      }
    }
    return {};
  }
}

/** False when it cannot be done. */
function carryOut(chains: FakeChains, line: string): boolean {
  const [verb = '', chain = '', ...rest] = line.split(' ');
  if (verb.startsWith(':')) return chains.set(verb.slice(1), []).has(verb.slice(1));
  const text = rest.join(' ');
  const rules = chains.get(chain);
  const target = /(?:^| )-j (\S+)/.exec(text)?.[1] ?? '';
  if (rules === undefined) return false;
  if (/^-[AI]$/.test(verb) && !TARGETS.has(target) && !chains.has(target)) return false;
  const index = rules.indexOf(text);
  const isJumpedTo = (): boolean =>
    [...chains.values()].some((some) => some.some((rule) => rule.endsWith(` -j ${chain}`)));
  if (verb === '-A') rules.push(text);
  else if (verb === '-I') rules.unshift(text);
  else if (verb === '-F') rules.length = 0;
  else if (verb === '-D') return index !== -1 && rules.splice(index, 1).length === 1;
  else if (verb === '-X') return rules.length === 0 && !isJumpedTo() && chains.delete(chain);
  else return false;
  return true;
}

const TARGETS = new Set(['', ...'ACCEPT DROP RETURN REJECT DNAT REDIRECT MASQUERADE'.split(' ')]);
