import type { CommandText } from './command.ts';
import { GLOBAL_FLAGS } from './flags/global.ts';
import { splitLine } from './flags/read.ts';
import type { FlagSpec, FlagTable } from './flags/table.ts';
import { allFlags } from './parse.ts';
import { REGISTRY } from './registry.ts';
import { fits } from './topic.ts';

type Candidate = readonly [value: string, summary: string];

/** A file of the host. */
const FILES = ':files\n';
/** Placeholders of flags whose value is a file or folder. */
const PATHS = new Set(['path', 'folder']);

/**
 * Answers a script of assets/completion/: the candidates at the cursor, one per line, followed by a tab and a
 * description; the line `:files` stands for any file. The last argument is what is typed at the cursor, the others stand before it.
 */
export function answerQuery(args: readonly string[]): string {
  const before = args.slice(0, -1);
  const last = args.at(-1) ?? '';
  // PowerShell loses an empty argument, and passes quotes instead.
  const current = last === '""' ? '' : last;
  const everything = allFlags();
  const { words, flags: given } = splitLine(before, everything);
  const open = given.at(-1);
  const isOpen = before.at(-1)?.startsWith('-') === true;
  if (isOpen && open !== undefined && open.text === undefined) {
    return valuesOf(everything[open.name], '', current);
  }
  const flags = flagsOf(words);
  const [, prefix = '', name = '', value = ''] = /^(--?([^=]+)=)(.*)$/.exec(current) ?? [];
  if (prefix !== '') return valuesOf(findFlag(flags, name), prefix, value);
  if (current.startsWith('-')) {
    const all = Object.entries(flags).map(([each, { help }]): Candidate => {
      return [`--${each}`, /^.*?[.:](?= |$)/.exec(help)?.[0].slice(0, -1) ?? help];
    });
    return matching([...all, ['--help', 'Explain the command']], current);
  }
  if (words.at(-1) === 'validate') return FILES;
  return matching(nextWords(words), current);
}

function findFlag(table: FlagTable, name: string): FlagSpec<unknown> | undefined {
  if (Object.hasOwn(table, name)) return table[name];
  return Object.values(table).find(
    ({ short, aliases }) => short === name || aliases?.includes(name),
  );
}

function valuesOf(flag: FlagSpec<unknown> | undefined, prefix: string, current: string): string {
  const { choices, placeholder = '' } = flag?.kind ?? {};
  if (choices === undefined) return PATHS.has(placeholder) ? FILES : '';
  return matching(
    choices.map((choice) => [prefix + choice, '']),
    prefix + current,
  );
}

/** Every flag of a line with these words. */
function flagsOf([first, ...words]: readonly string[]): FlagTable {
  const { sources, sinks, others } = REGISTRY;
  const other = others.find(({ word }) => word === first);
  if (other !== undefined) {
    return other.readsSettings === true ? { ...GLOBAL_FLAGS, ...other.flags } : other.flags;
  }
  const named = [...sources, ...sinks].filter(({ word }) => word === first || words.includes(word));
  return Object.assign({}, GLOBAL_FLAGS, ...named.map(({ flags }) => flags)) as FlagTable;
}

function nextWords(words: readonly string[]): readonly Candidate[] {
  const [first, ...rest] = words[0] === 'help' ? words.slice(1) : words;
  const { sources, sinks, others } = REGISTRY;
  if (first === undefined) {
    return [...[...sources, ...others].map(candidate), ['help', 'Explain a command']];
  }
  const other = others.find(({ word }) => word === first);
  if (other !== undefined)
    return rest.length > 0 ? [] : (other.next ?? []).map((word) => [word, '']);
  const source = sources.find(({ word }) => word === first);
  if (source === undefined || sinks.some(({ word }) => rest.includes(word))) return [];
  const isLocal = rest[0] === 'to-local';
  const fitting = sinks.filter(
    (sink) => fits(source, sink) && (!isLocal || sink.scope === 'local'),
  );
  const toLocal: Candidate = ['to-local', 'What this node needs of the state'];
  return [...(isLocal ? [] : [toLocal]), ...fitting.map(candidate)];
}

function candidate({ word, summary }: CommandText): Candidate {
  return [word, summary];
}

function matching(candidates: readonly Candidate[], current: string): string {
  return candidates
    .filter(([value]) => value.startsWith(current))
    .map(([value, summary]) => (summary === '' ? `${value}\n` : `${value}\t${summary}\n`))
    .join('');
}
