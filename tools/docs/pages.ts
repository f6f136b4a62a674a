/**
 * The parts of pages that are made from the flag tables: between `<!-- begin NAME -->` and `<!-- end NAME -->`.
 * test/cli/docs.test.ts compares them, and writes them with UPDATE_DOCS=1.
 */
import type { Registry } from '../../src/cli/command.ts';
import { configurableFlags } from '../../src/cli/flags/fields.ts';
import { FOREIGN_FLAGS } from '../../src/cli/flags/foreign.ts';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import {
  defaultText,
  variableOf,
  type FlagSpec,
  type FlagTable,
} from '../../src/cli/flags/table.ts';
import { helpText } from '../../src/cli/help.ts';
import { fieldName } from '../../src/config/field.ts';
import { KUBE_PROXY_FIELDS, type FieldRules } from '../../src/config/kube-proxy-fields.ts';

/** A page with its parts written again. Throws where a part has no place in it. */
export function fillPage(page: string, parts: Readonly<Record<string, string>>): string {
  return Object.entries(parts).reduce((text, [name, part]) => {
    const [begin, end] = [`<!-- begin ${name} -->\n`, `\n<!-- end ${name} -->`];
    const [from, to] = [text.indexOf(begin), text.indexOf(end)];
    if (from === -1 || to < from) throw new Error(`no place for ${name}`);
    return text.slice(0, from) + begin + part + text.slice(to);
  }, page);
}

/** The parts of docs/reference/command-line.md. */
export function cliParts(registry: Registry): Record<string, string> {
  const { sources, sinks, others } = registry;
  const help = helpText({ kind: 'nothing' }, registry);
  const tables: [string, FlagTable][] = [
    ['all', GLOBAL_FLAGS],
    ...[...sources, ...sinks, ...others].map(({ word, flags }): [string, FlagTable] => [
      word,
      flags,
    ]),
  ];
  const rows = new Map<string, { name: string; words: string[]; spec: FlagSpec<unknown> }>();
  for (const [word, table] of tables) {
    for (const [name, spec] of Object.entries(table)) {
      const key = `${name} ${defaultText(spec)}`;
      const row = rows.get(key) ?? { name, words: [], spec };
      row.words.push(word);
      rows.set(key, row);
    }
  }
  const groups = Map.groupBy(rows.values(), ({ spec }) => spec.group);
  const flags = [...groups].map(([group, list]) => {
    const table = tableOf(['flag', 'value', 'default', 'of', ''], list.map(flagRow));
    return `### ${group}\n\n${table}`;
  });
  const foreign = Map.groupBy(FOREIGN_FLAGS, ([, { why, refuses }]) =>
    [why, refuses !== undefined].join(),
  );
  const foreignRows = [...foreign.values()].map((list) => [
    list.map(([name]) => `\`--${name}\``).join(', '),
    list[0]?.[1].refuses === undefined ? 'warning' : 'error',
    list[0]?.[1].why ?? '',
  ]);
  return {
    help: `<!-- compared by: test/cli/docs.test.ts -->\n\`\`\`text\n${help}\`\`\``,
    flags: flags.join('\n\n'),
    'foreign flags': tableOf(['flag', 'answer', ''], foreignRows),
  };
}

/** The parts of docs/reference/configuration.md. */
export function configParts(registry: Registry): Record<string, string> {
  const flags = configurableFlags(registry);
  const live = flags.filter(({ spec }) => spec.live === true);
  const fields = flags.map(({ flag, spec, commands }) => [
    `\`${fieldName(flag)}\``,
    [variableOf(flag), spec.env]
      .filter((name) => name !== undefined)
      .map((name) => `\`${name}\``)
      .join(', '),
    spec.kind.placeholder,
    defaultText(spec) ?? '',
    commands.length === 0 ? 'all' : commands.join(', '),
  ]);
  return {
    live: live.map(({ flag }) => `- \`${fieldName(flag)}\` (\`--${flag}\`)`).join('\n'),
    fields: tableOf(['field', 'environment', 'value', 'default', 'of'], fields),
    'kube-proxy fields': tableOf(['field', 'here'], ruleRows(KUBE_PROXY_FIELDS, '')),
  };
}

function flagRow({
  name,
  words,
  spec,
}: {
  name: string;
  words: string[];
  spec: FlagSpec<unknown>;
}) {
  const names = [name, ...(spec.aliases ?? [])].map((each) => `\`--${each}\``);
  if (spec.short !== undefined) names.unshift(`\`-${spec.short}\``);
  return [
    names.join(', '),
    spec.kind.placeholder,
    defaultText(spec) ?? '',
    words.join(', '),
    spec.help,
  ];
}

function ruleRows(rules: FieldRules, prefix: string): string[][] {
  return Object.entries(rules).flatMap(([name, rule]) => {
    const path = `${prefix}${name}`;
    if (rule.kind === 'object') return ruleRows(rule.fields, `${path}.`);
    if (rule.kind === 'flag') return [[`\`${path}\``, `\`--${rule.flag}\``]];
    const effect = rule.kind === 'only' ? 'Only describes the program' : 'No effect';
    return [[`\`${path}\``, `${effect}: ${rule.why}.`]];
  });
}

function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}
