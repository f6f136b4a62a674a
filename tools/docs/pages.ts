/**
 * The parts of docs/reference/command-line.md that are made from the flag tables.
 * test/cli/docs.test.ts compares them, and writes them with UPDATE_DOCS=1.
 */
import type { CommandText } from '../../src/cli/command.ts';
import { FOREIGN_FLAGS } from '../../src/cli/flags/read.ts';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { defaultText, type FlagSpec, type FlagTable } from '../../src/cli/flags/table.ts';
import type { Registry } from '../../src/cli/registry.ts';
import { KUBE_PROXY_FIELDS, type FieldRule, type FieldRules } from '../../src/config/fields.ts';

/** They have the flags of `to-userspace`, which the page says once. */
const VARIANTS = ['to-userspacelin', 'to-winuserspace'];

/** The parts of docs/reference/command-line.md. */
export function cliParts(registry: Registry): Record<string, string> {
  const { sources, sinks, others } = registry;
  const words = (commands: readonly CommandText[]): string =>
    commands.map(({ word, summary }) => `* \`${word}\`: ${summary}`).join('\n');
  const refused = [...FOREIGN_FLAGS].filter(([, { isRefused }]) => isRefused);
  return {
    sources: words(sources),
    backends: words(sinks),
    'other commands': words(others.filter(({ forRunningProxy }) => !forRunningProxy)),
    flags: flagLists(registry),
    'refused flags': tableOf(
      ['flag', 'use instead'],
      refused.map(([name, { why }]) => [`\`--${name}\``, why]),
    ),
    'kube-proxy fields': kubeProxyFields(),
  };
}

/** A list for each group of flags and the commands that have them. A flag with two defaults occurs twice. */
function flagLists({ sources, sinks, others }: Registry): string {
  const tables: [string, FlagTable][] = [
    ['all', GLOBAL_FLAGS],
    ...[...sources, ...sinks, ...others].map(({ word, flags }): [string, FlagTable] => [
      word,
      flags,
    ]),
  ];
  const rows = new Map<string, FlagRow>();
  for (const [word, table] of tables) {
    for (const [name, spec] of Object.entries(table)) {
      const key = `${name} ${defaultText(spec)}`;
      const row = rows.get(key) ?? { name, words: [], spec };
      row.words.push(word);
      rows.set(key, row);
    }
  }
  const groups = Map.groupBy(rows.values(), ({ spec }) => spec.group);
  return [...groups]
    .map(([group, list]) => {
      const parts = [...Map.groupBy(list, commandsOf)].map(([commands, some]) => {
        const head = commands === 'all' ? '' : `For ${commands}:\n\n`;
        return head + some.map((row) => flagLine(row, group === 'Limits')).join('\n');
      });
      return [`### ${group}`, ...parts].join('\n\n');
    })
    .join('\n\n');
}

/** The fields of kube-proxy's configuration that stand for a flag. */
function kubeProxyFields(): string {
  return leavesOf(KUBE_PROXY_FIELDS, '')
    .flatMap(([path, rule]) => (rule.kind === 'flag' ? [`* \`${path}\`: \`--${rule.flag}\``] : []))
    .join('\n');
}

interface FlagRow {
  readonly name: string;
  readonly words: string[];
  readonly spec: FlagSpec<unknown>;
}

/** `to-userspace` also stands for its two variants where all three have the flag. */
function commandsOf({ words }: FlagRow): string {
  const variants = new Set(words.includes('to-userspace') ? VARIANTS : []);
  return words.filter((word) => !variants.has(word)).join(', ');
}

/** `* `-v`, `--v` number † (0): Log level.` Brief: without the text, which docs/reference/limits.md has. */
function flagLine({ name, spec }: FlagRow, isBrief: boolean): string {
  const names = [name, ...(spec.aliases ?? [])].map((each) => `\`--${each}\``);
  if (spec.short !== undefined) names.unshift(`\`-${spec.short}\``);
  const mark = spec.live === true ? ' †' : '';
  const standard = defaultText(spec);
  const variable = spec.env === undefined ? '' : ` Environment: \`${spec.env}\`.`;
  const head = `${names.join(', ')} ${spec.kind.placeholder}${mark}`;
  const bracketed = standard === '' ? '' : ` (${standard})`;
  return `* ${head}${bracketed}${isBrief ? '' : `: ${spec.help}${variable}`}`;
}

type Leaf = Exclude<FieldRule, { readonly kind: 'object' }>;

function leavesOf(rules: FieldRules, prefix: string): [path: string, rule: Leaf][] {
  return Object.entries(rules).flatMap(([name, rule]): [string, Leaf][] =>
    rule.kind === 'object'
      ? leavesOf(rule.fields, `${prefix}${name}.`)
      : [[`${prefix}${name}`, rule]],
  );
}

function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}
