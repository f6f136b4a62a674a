/** Scripts for `iptables-restore --noflush`, each for one family. Each table is one transaction. */
import type { Family } from '../../util/family.ts';
import type { ElementChange, Elements } from '../rules/elements.ts';
import {
  chainName,
  ownerChain,
  readSlotName,
  SLOT_ORDER,
  slotName,
  SLOTS,
  TABLES,
  trialChain,
  type Table,
} from './chains.ts';
import { jumpsIn, ownChains, wantedCounts, type Found, type RuleContext } from './listing.ts';
import { areThere, PRELUDE, type Jump } from './jumps.ts';

/**
 * Replaces all rules under our names, including those of other processes. `found`: the existing ones. Each table
 * changes atomically.
 */
export function renderFull(context: RuleContext, elements: Elements, found: Found): string {
  return TABLES.map((table) => {
    const parts = { chains: ownChains(context, table), jumps: true };
    return renderTable(context, elements, found, table, parts);
  }).join('');
}

/**
 * Replaces chains with a wrong number of rules, and the jumps of a table if some are missing; '' if nothing is wrong.
 */
export function renderRepair(context: RuleContext, elements: Elements, found: Found): string {
  return TABLES.map((table) => {
    const parts = damagedParts(context, elements, found, table);
    if (parts.chains.length === 0 && !parts.jumps) return '';
    return renderTable(context, elements, found, table, parts);
  }).join('');
}

/** The chains whose number of rules differs from the elements, and whether jumps are missing. */
export function damagedParts(
  context: RuleContext,
  elements: Elements,
  found: Found,
  table: Table,
): { readonly chains: readonly string[]; readonly jumps: boolean } {
  const wanted = wantedCounts(context, elements);
  const { counts, jumps: lines } = found[table];
  return {
    chains: ownChains(context, table).filter(
      (name) => counts.get(name) !== (wanted.get(name) ?? 0),
    ),
    jumps: !areThere(jumpsIn(context, table), lines),
  };
}

/** `parts`: what to write. */
function renderTable(
  context: RuleContext,
  elements: Elements,
  found: Found,
  table: Table,
  parts: ReturnType<typeof damagedParts>,
): string {
  const { jumps: stale, counts } = found[table];
  const known = new Set(ownChains(context, table));
  const prelude = chainName(context.prefix, PRELUDE.chain);
  const written = new Set(parts.chains);
  return section(table, [
    ...parts.chains.map((name) => `:${name} - [0:0]`),
    ...(parts.jumps ? stale.map((line) => `-D ${line}`) : []),
    ...[...counts.keys()].filter((name) => !known.has(name)).flatMap(removal),
    ...(parts.jumps ? jumpLines(jumpsIn(context, table)) : []),
    ...ruleLines(context, table, 'first', elements, written),
    ...(written.has(prelude) ? PRELUDE.rules : []).map((rule) => `-A ${prelude} ${rule}`),
    ...ruleLines(context, table, 'last', elements, written),
  ]);
}

/**
 * Writes the difference. Fails if the chains are gone or belong to another process.
 *
 * Rejects are added first and removed last, so that no packet slips through between two tables: redirected packets
 * never match them.
 */
export function renderDelta(context: RuleContext, changes: readonly ElementChange[]): string {
  const { prefix, config } = context;
  const lines = { add: [] as string[], nat: [] as string[], remove: [] as string[] };
  const owned = `-F ${ownerChain(prefix, config.owner)}`;
  const note = (verb: '-D' | 'add', { set, key }: ElementChange, value: string): void => {
    const { slot } = readSlotName(set);
    const { table, chain, at } = SLOTS[slot];
    const word = verb === '-D' ? verb : at === 'first' ? '-I' : '-A';
    const line = `${word} ${chainName(prefix, chain)} ${ruleText(context, key, value)}`;
    if (table === 'nat') lines.nat.push(line);
    else lines[verb === '-D' ? 'remove' : 'add'].push(line);
  };
  for (const change of changes) if (change.before !== undefined) note('-D', change, change.before);
  for (const change of changes) if (change.after !== undefined) note('add', change, change.after);
  const text = [
    ['filter', lines.add],
    ['nat', lines.nat],
    ['filter', lines.remove],
  ] as const;
  return text
    .filter(([, some]) => some.length > 0)
    .map(([table, some]) => section(table, [owned, ...some]))
    .join('');
}

/** Tests all rules in chains that no rule jumps to, and removes these again. */
export function renderTrial(context: RuleContext, elements: Elements): string {
  const { prefix } = context;
  const name = trialChain(prefix);
  const own = new RegExp(String.raw`^-A \S+ (.*?)(?: -j ${prefix}-\S+)?$`);
  const text = TABLES.map((table) =>
    section(table, [
      `:${name} - [0:0]`,
      // Some matches are valid only for some built-in chains, but all are valid here.
      ...jumpsIn(context, table).map(({ match }) => `-A ${name} ${match}`),
      ...(table === PRELUDE.table ? PRELUDE.rules : []).map((rule) => `-A ${name} ${rule}`),
      ...(['first', 'last'] as const)
        .flatMap((at) => ruleLines(context, table, at, elements))
        .map((line) => line.replace(own, `-A ${name} $1`)),
    ]),
  );
  return [...text, ...TABLES.map((table) => section(table, removal(name)))].join('');
}

/** Removes the found rules, jumps first. Empty if there are none. */
export function renderRemoval(found: Found): string {
  return TABLES.map((table) => {
    const { jumps: lines, counts } = found[table];
    const chains = [...counts.keys()];
    if (lines.length + chains.length === 0) return '';
    return section(table, [
      ...lines.map((line) => `-D ${line}`),
      // All are flushed before any is removed, as they may jump to each other.
      ...chains.map((name) => `-F ${name}`),
      ...chains.map((name) => `-X ${name}`),
    ]);
  }).join('');
}

/** Number of service rules in a family. */
export function ruleCount(family: Family, elements: Elements): number {
  return SLOT_ORDER.reduce((sum, slot) => sum + elements.size(slotName(slot, family)), 0);
}

function ruleLines(
  context: RuleContext,
  table: Table,
  at: 'first' | 'last',
  elements: Elements,
  chains?: ReadonlySet<string>,
): string[] {
  const lines: string[] = [];
  const sets = elements.bySet();
  for (const slot of SLOT_ORDER) {
    if (SLOTS[slot].table !== table || SLOTS[slot].at !== at) continue;
    const chain = chainName(context.prefix, SLOTS[slot].chain);
    if (chains?.has(chain) === false) continue;
    for (const { key, value } of sets.get(slotName(slot, context.family)) ?? []) {
      lines.push(`-A ${chain} ${ruleText(context, key, value)}`);
    }
  }
  return lines;
}

function ruleText({ family, config }: RuleContext, key: string, value: string): string {
  if (value.startsWith('-')) return `${key} ${value}`;
  const target = config.targets[family];
  if (target === undefined) return `${key} -j REDIRECT --to-ports ${value}`;
  const host = family === 6 ? `[${target}]` : target;
  return `${key} -j DNAT --to-destination ${host}:${value}`;
}

/** Inserted rules end up in reverse order. */
function jumpLines(all: readonly Jump[]): string[] {
  const first = all.filter(({ at }) => at === 'first').reverse();
  const last = all.filter(({ at }) => at === 'last');
  return [
    ...first.map(({ from, match, to }) => `-I ${from} ${match} -j ${to}`),
    ...last.map(({ from, match, to }) => `-A ${from} ${match} -j ${to}`),
  ];
}

function removal(chain: string): string[] {
  return [`-F ${chain}`, `-X ${chain}`];
}

function section(table: Table, lines: readonly string[]): string {
  return `*${table}\n${lines.map((line) => `${line}\n`).join('')}COMMIT\n`;
}
