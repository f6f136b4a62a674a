import { closest } from '../util/suggest.ts';
import type { OtherCommand, SinkCommand, SourceCommand } from './command.ts';
import { tooMany, usage } from './flags/read.ts';
import { REGISTRY } from './registry.ts';

/** The meaning of the words of a command line: a whole command, or a partial one. */
export type Topic =
  | { readonly kind: 'nothing' }
  | {
      readonly kind: 'other';
      readonly command: OtherCommand;
      readonly operands: readonly string[];
    }
  | { readonly kind: 'source'; readonly source: SourceCommand }
  | { readonly kind: 'command'; readonly source: SourceCommand; readonly sink: SinkCommand };

/** Matches words to commands. `to-local` is optional everywhere. Throws a usage error with the expected words. */
export function readTopic(words: readonly string[]): Topic {
  const { sources, sinks, others } = REGISTRY;
  const [first, ...rest] = words;
  if (first === undefined) return { kind: 'nothing' };
  const command = others.find(({ word }) => word === first);
  if (command !== undefined) return { kind: 'other', command, operands: rest };
  const source = sources.find(({ word }) => word === first);
  if (source === undefined) throw unknownCommand(first);

  const isLocal = rest[0] === 'to-local';
  const [sinkWord, ...extra] = isLocal ? rest.slice(1) : rest;
  if (sinkWord === undefined) return { kind: 'source', source };
  const sink = sinks.find(({ word }) => word === sinkWord);
  if (sink === undefined) throw unknownSink(sinkWord);
  if (!fits(source, sink)) {
    const global = sources.filter(({ scope }) => scope === 'global');
    throw usage(
      `${sink.word} needs the state of the whole cluster, and ${source.word} has that of one node; ` +
        `use one of the sources ${wordList(global)}`,
    );
  }
  if (isLocal && sink.scope === 'global') {
    throw usage(
      `${sink.word} is not for one node: write ${source.word} ${sink.word} without to-local`,
    );
  }
  if (extra.length > 0) throw tooMany(extra, sink.word);
  return { kind: 'command', source, sink };
}

export function fits(source: SourceCommand, sink: SinkCommand): boolean {
  return source.scope === 'global' || sink.scope === 'local';
}

/** The words of a topic, for `help`. */
export function topicWords(topic: Topic): string[] {
  if (topic.kind === 'other') return [topic.command.word];
  if (topic.kind === 'source') return [topic.source.word];
  return topic.kind === 'command' ? [topic.source.word, topic.sink.word] : [];
}

function unknownCommand(word: string): Error {
  const { sources, sinks, others, hints } = REGISTRY;
  const hint = hints[word];
  if (hint !== undefined) return usage(`${word}: ${hint}`);
  if (word === 'to-local' || sinks.some((sink) => sink.word === word)) {
    return usage(`${word} needs a source before it: ${wordList(sources)}`);
  }
  const meant = suggestion(word, [...sources, ...others, { word: 'help' }]);
  return usage(`unknown command ${JSON.stringify(word)}${meant}; sources are ${wordList(sources)}`);
}

function unknownSink(word: string): Error {
  const { sources, sinks, hints } = REGISTRY;
  const known = `backends are ${wordList(sinks)}`;
  const hint = hints[word];
  if (hint !== undefined) return usage(`${word}: ${hint}; ${known}`);
  if (sources.some((source) => source.word === word)) {
    return usage(`${word} is a second source; ${known}`);
  }
  return usage(`unknown backend ${JSON.stringify(word)}${suggestion(word, sinks)}; ${known}`);
}

function suggestion(word: string, commands: readonly { readonly word: string }[]): string {
  const found = closest(
    word,
    commands.map((command) => command.word),
  );
  return found === undefined ? '' : ` (did you mean ${found}?)`;
}

function wordList(commands: readonly { readonly word: string }[]): string {
  return commands.map(({ word }) => word).join(', ');
}
