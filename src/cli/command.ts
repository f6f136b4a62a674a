import type { Writable } from 'node:stream';
import type { Log } from '../observe/log.ts';
import type { MeasuredDataPath } from '../observe/metrics.ts';
import type { LocalSink } from '../store/local-view.ts';
import type { GlobalOptions } from './flags/global.ts';
import { pickValues, type FlagTable, type FlagValues, type RawValues } from './flags/table.ts';

/** What a running command is given. */
export interface RunContext {
  readonly log: Log;
  readonly globals: GlobalOptions;
  /** For what a sink prints; the log goes elsewhere. */
  readonly stdout: Writable;
}

/** Where state comes from, while it runs. */
export interface RunningSource {
  /**
   * Feeds the sink until the signal aborts; then resolves when the sink is not at work any more.
   * Rejects only when it cannot go on: what can be retried, is.
   */
  run(sink: LocalSink, signal: AbortSignal): Promise<void>;
}

/** Where state goes, while it runs. */
export interface RunningSink {
  readonly sink: LocalSink;
  readonly dataPath?: MeasuredDataPath;
  /** Resolves when nobody needs the sink any more, such as when a reader has gone. */
  readonly ended?: Promise<void>;
  /** Takes no more clients and resolves when the last has gone. Idempotent. */
  close(): Promise<void>;
  /** Cuts what `close` waits for. Resolves when everything is released. Idempotent. */
  destroy(): Promise<void>;
}

/** A source or sink whose flags have been read and found good, ready to be started. */
export interface Bound<Running, Context> {
  readonly word: string;
  /** The options as read, for tests and messages. */
  readonly options: object;
  start(context: Context): Promise<Running>;
}

export interface SourceContext extends RunContext {
  /** The node whose local view the sink wants. */
  readonly nodeName: string;
}

export interface BoundSink extends Bound<RunningSink, RunContext> {
  readonly nodeName: string;
  /** Whether the servers for metrics and health run although their flags were not given. */
  readonly servesByDefault: boolean;
}

export type BoundSource = Bound<RunningSource, SourceContext>;

interface CommandText {
  /** The word on the command line. */
  readonly word: string;
  /** What it is, in one line. */
  readonly summary: string;
  /** What one has to know to use it: paragraphs. */
  readonly description: readonly string[];
  /** Command lines without the program's name, with what they do. */
  readonly examples: readonly Example[];
  readonly flags: FlagTable;
}

export interface Example {
  readonly line: string;
  readonly does: string;
}

/** A source word. To add a source, write one file that exports one of these and list it in registry.ts. */
export interface SourceCommand extends CommandText {
  /** Whether backends come right after the source, so that `to-local` may be left out. */
  readonly toLocalOptional: boolean;
  bind(raw: RawValues): BoundSource;
}

/** A backend: a sink of node-local state. Added like a source. */
export interface SinkCommand extends CommandText {
  /** Whether the word `to-local` may be left out after every source. */
  readonly toLocalOptional: boolean;
  bind(raw: RawValues): BoundSink;
}

/** Describes a source; `read` turns flag values into options and throws what is wrong with them. */
export function defineSource<Table extends FlagTable, Options extends object>(
  command: Omit<SourceCommand, 'flags' | 'bind'> & {
    readonly flags: Table;
    read(values: FlagValues<Table>): Options;
    start(options: Options, context: SourceContext): Promise<RunningSource>;
  },
): SourceCommand {
  return {
    ...command,
    bind(raw) {
      const options = command.read(pickValues(command.flags, raw));
      return { word: command.word, options, start: (context) => command.start(options, context) };
    },
  };
}

/** Describes a sink, as `defineSource` does. */
export function defineSink<Table extends FlagTable, Options extends { readonly nodeName: string }>(
  command: Omit<SinkCommand, 'flags' | 'bind'> & {
    readonly flags: Table;
    readonly servesByDefault: boolean;
    read(values: FlagValues<Table>, given: ReadonlySet<string>): Options;
    start(options: Options, context: RunContext): Promise<RunningSink>;
  },
): SinkCommand {
  return {
    ...command,
    bind(raw) {
      const options = command.read(pickValues(command.flags, raw), raw.given);
      return {
        word: command.word,
        options,
        nodeName: options.nodeName,
        servesByDefault: command.servesByDefault,
        start: (context) => command.start(options, context),
      };
    },
  };
}
