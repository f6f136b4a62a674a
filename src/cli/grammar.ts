import { KpngError } from '../errors.ts';
import { closest } from '../util/suggest.ts';
import { ADMIN_COMMANDS, type AdminCommand } from './admin/commands.ts';
import type { SinkCommand, SourceCommand } from './command.ts';
import type { Registry } from './registry.ts';

/** What the words of a command line name: a whole command, or how far they got. */
export type Words =
  | { readonly kind: 'nothing' }
  | { readonly kind: 'version' }
  | { readonly kind: 'cleanup' }
  | {
      readonly kind: 'admin';
      readonly command: AdminCommand;
      readonly operand: string | undefined;
    }
  | { readonly kind: 'config'; readonly action: ConfigAction | undefined }
  | { readonly kind: 'source'; readonly source: SourceCommand; readonly toLocal: boolean }
  | { readonly kind: 'command'; readonly source: SourceCommand; readonly sink: SinkCommand };

/** What to do with a configuration file: look for errors, or tell what it and the flags come to. */
export type ConfigAction =
  | { readonly name: 'validate'; readonly file: string }
  | { readonly name: 'print'; readonly words: readonly string[] };

/** Matches words to the registry. Throws a usage error that says which words would have been right. */
export function readWords(words: readonly string[], registry: Registry): Words {
  const [first, ...rest] = words;
  if (first === undefined) return { kind: 'nothing' };
  if (first === 'version' || first === 'cleanup') {
    if (rest.length > 0) throw tooMany(rest, first);
    return { kind: first };
  }
  if (first === 'config') return { kind: 'config', action: configAction(rest) };
  const command = ADMIN_COMMANDS.find(({ word }) => word === first);
  if (command !== undefined) {
    const operand = command.operand === undefined ? undefined : rest.shift();
    if (rest.length > 0) throw tooMany(rest, operand ?? first);
    return { kind: 'admin', command, operand };
  }
  const source = registry.sources.find(({ word }) => word === first);
  if (source === undefined) throw notASource(first, registry);

  const toLocal = rest[0] === 'to-local';
  const [sinkWord, ...extra] = toLocal ? rest.slice(1) : rest;
  if (sinkWord === undefined) return { kind: 'source', source, toLocal };
  const sink = registry.sinks.find(({ word }) => word === sinkWord);
  if (sink === undefined) throw notASink(sinkWord, registry);
  if (source.scope === 'local' && sink.scope === 'global') {
    throw usage(
      `${sink.word} needs the state of the whole cluster, and ${source.word} has that of one node only; ` +
        `sources for it are ${wordList(registry.sources.filter(({ scope }) => scope === 'global'))}`,
    );
  }
  if (toLocal && sink.scope === 'global') {
    throw usage(
      `${sink.word} is not for one node: ${source.word} ${sink.word}, without "to-local"`,
    );
  }
  if (!toLocal && !source.toLocalOptional && !sink.toLocalOptional) {
    throw usage(`write "to-local" before ${sink.word}: ${source.word} to-local ${sink.word}`);
  }
  if (extra.length > 0) throw tooMany(extra, sink.word);
  return { kind: 'command', source, sink };
}

function configAction([name, ...rest]: readonly string[]): ConfigAction | undefined {
  if (name === undefined) return undefined;
  if (name === 'print') return { name, words: rest };
  if (name !== 'validate') {
    throw usage(`unknown command config ${name}; there are config validate and config print`);
  }
  const [file, ...more] = rest;
  if (file === undefined) throw usage('name the file: config validate FILE');
  if (more.length > 0) throw tooMany(more, file);
  return { name, file };
}

/** The words of a command as they are taught: `to-local` only where it is needed. */
export function commandWords(source: SourceCommand, sink: SinkCommand): string {
  const direct = source.toLocalOptional || sink.toLocalOptional;
  return `${source.word} ${direct ? '' : 'to-local '}${sink.word}`;
}

function notASource(word: string, registry: Registry): KpngError {
  const sources = wordList(registry.sources);
  if (registry.planned.includes(word)) {
    return usage(`${word} is not in this version; sources are ${sources}`);
  }
  if (word === 'to-local' || registry.sinks.some((sink) => sink.word === word)) {
    return usage(`${word} needs a source before it: ${sources}`);
  }
  const others = ['version', 'cleanup', 'config', 'help'].map((each) => ({ word: each }));
  const meant = guess(word, [...registry.sources, ...ADMIN_COMMANDS, ...others]);
  return usage(`unknown command ${JSON.stringify(word)}${meant}; sources are ${sources}`);
}

function notASink(word: string, registry: Registry): KpngError {
  const sinks = wordList(registry.sinks);
  if (registry.planned.includes(word)) {
    return usage(`${word} is not in this version; backends are ${sinks}`);
  }
  if (registry.foreign.includes(word)) {
    return usage(
      `${word} is a backend of kpng that this program does not have; its own are ${sinks}`,
    );
  }
  if (registry.sources.some((source) => source.word === word)) {
    return usage(`${word} is a source, and there is one already; backends are ${sinks}`);
  }
  return usage(
    `unknown backend ${JSON.stringify(word)}${guess(word, registry.sinks)}; backends are ${sinks}`,
  );
}

/** What a misspelled word was probably meant to be, to be added to what is said of it. */
function guess(word: string, commands: readonly { readonly word: string }[]): string {
  const found = closest(
    word,
    commands.map((command) => command.word),
  );
  return found === undefined ? '' : ` (did you mean ${found}?)`;
}

function tooMany(words: readonly string[], after: string): KpngError {
  return usage(
    `nothing may follow ${after} but flags: ${words.map((word) => JSON.stringify(word)).join(' ')}`,
  );
}

/** `a, b and c` */
function wordList(commands: readonly { readonly word: string }[]): string {
  return commands.map(({ word }) => word).join(', ');
}

export function usage(message: string): KpngError {
  return new KpngError('KPNG_USAGE', message);
}
