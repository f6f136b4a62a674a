import type { Writable } from 'node:stream';
import type { ProxySubject } from '../admin/subject.ts';
import type { Log } from '../observe/log.ts';
import type { MeasuredDataPath } from '../observe/metrics.ts';
import type { GlobalSource } from '../store/global-source.ts';
import type { GlobalStore } from '../store/global-store.ts';
import type { EngineLimits, LimitChange } from '../proxysocket/limits.ts';
import type { LocalSink } from '../store/local-view.ts';
import type { Turn } from '../util/turn.ts';
import type { GlobalOptions } from './flags/global.ts';
import { pickValues, type FlagTable, type FlagValues, type RawValues } from './flags/table.ts';

/** What a running command is given. */
export interface RunContext {
  readonly log: Log;
  readonly globals: GlobalOptions;
  /** For what a sink prints; the log goes elsewhere. */
  readonly stdout: Writable;
  /** The node that the backend works for; absent: none, or all. */
  readonly nodeName?: string;
  /** Aborted by the first signal that ends the program, before anything is stopped. */
  readonly stopping?: AbortSignal;
  /** When what else this process serves may begin. A sink that `takesOver` from another process makes it come. */
  readonly turn?: Turn;
  /** What else this process listens on, to be handed over: TCP ports. */
  readonly otherPorts?: () => readonly number[];
}

/** Where node-local state comes from, while it runs. */
export interface RunningSource {
  /**
   * Feeds the sink until the signal aborts; then resolves when the sink is not at work any more.
   * Rejects only when it cannot go on: what can be retried, is.
   */
  run(sink: LocalSink, signal: AbortSignal): Promise<void>;
}

/** What can be ended in order, or at once. */
export interface Running {
  /** Resolves when nobody needs it any more, such as when a reader has gone. */
  readonly ended?: Promise<void>;
  /** Carries traffic; absent: it does not. */
  readonly dataPath?: MeasuredDataPath;
  /** What the admin API tells about it. */
  readonly proxy?: ProxySubject;
  /** Resolves with its number when another process serves the clients; absent: that does not happen. */
  readonly handedOver?: Promise<number>;
  /**
   * What is waited for when everything has ended; absent: nothing. `asked` resolves at a signal. Returns the
   * exit code.
   */
  afterwards?(asked: Promise<void>): Promise<number>;
  /** Changes limits of the data path, for what begins from now on. Absent: there is none. */
  setLimits?(limits: LimitChange): Promise<void>;
  /** Takes no more clients and resolves when the last has gone. Idempotent. */
  close(): Promise<void>;
  /** Cuts what `close` waits for. Resolves when everything is released. Idempotent. */
  destroy(): Promise<void>;
}

/** Where node-local state goes, while it runs. */
export interface RunningSink extends Running {
  readonly sink: LocalSink;
  /** Told after each change set that is in place, when health knows of it. */
  inPlace?(): Promise<void>;
}

/** A source or sink whose flags have been read and found good, ready to be started. */
interface Bound {
  readonly word: string;
  /** The options as read, for tests and messages. */
  readonly options: object;
}

export interface SourceContext extends RunContext {
  /** The node whose local view the sink wants. */
  readonly nodeName: string;
}

/** A source that knows what one node needs. */
export interface BoundLocalSource extends Bound {
  readonly scope: 'local';
  start(context: SourceContext): Promise<RunningSource>;
}

/** A source that knows the whole cluster. It has done nothing before it is told to feed a store. */
export interface BoundGlobalSource extends Bound {
  readonly scope: 'global';
  start(context: RunContext): Promise<GlobalSource>;
}

export type BoundSource = BoundLocalSource | BoundGlobalSource;

interface BoundSinkBase extends Bound {
  /** Whether the servers for metrics and health run although their flags were not given. */
  readonly servesByDefault: boolean;
  /** Whether it only says what it would do: then no server runs at all. */
  readonly isDry?: boolean;
  /** Of the data path; absent: it has none. */
  readonly limits?: EngineLimits | undefined;
}

/** A sink that takes what one node needs: a backend. */
export interface BoundLocalSink extends BoundSinkBase {
  readonly scope: 'local';
  readonly nodeName: string;
  /** Whether it may take over from a process that runs. Default: no. */
  readonly takesOver?: boolean;
  start(context: RunContext): Promise<RunningSink>;
}

/** A sink that takes the state of the whole cluster, from a store that a source feeds. */
export interface BoundGlobalSink extends BoundSinkBase {
  readonly scope: 'global';
  start(context: RunContext, store: GlobalStore): Promise<Running>;
}

export type BoundSink = BoundLocalSink | BoundGlobalSink;

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

interface SourceText extends CommandText {
  /** Whether backends come right after the source, so that `to-local` may be left out. */
  readonly toLocalOptional: boolean;
}

/** A source word. To add a source, write one file that exports one of these and list it in registry.ts. */
export type SourceCommand = SourceText & {
  /** Whether it knows the state of the whole cluster, or what one node needs of it. */
  readonly scope: BoundSource['scope'];
  bind(raw: RawValues): BoundSource;
};

interface SinkText extends CommandText {
  /** Whether the servers for metrics and health run although their flags were not given. */
  readonly servesByDefault: boolean;
}

/** A sink word. Added like a source. */
export type SinkCommand = SinkText & {
  /** Whether it takes the state of the whole cluster, or what one node needs of it: a backend. */
  readonly scope: BoundSink['scope'];
  /** Of a backend: whether the word `to-local` may be left out after every source. */
  readonly toLocalOptional: boolean;
  bind(raw: RawValues): BoundSink;
};

/** Reads the values of the flags of one command; throws what is wrong with them. */
interface Reads<Table extends FlagTable, Options extends object> {
  readonly flags: Table;
  read(values: FlagValues<Table>, given: ReadonlySet<string>): Options;
}

/** Describes a source of node-local state. */
export function defineSource<Table extends FlagTable, Options extends object>(
  command: Omit<SourceText, 'flags'> &
    Reads<Table, Options> & {
      start(options: Options, context: SourceContext): Promise<RunningSource>;
    },
): SourceCommand {
  return {
    ...command,
    scope: 'local',
    bind(raw) {
      const { word } = command;
      const options = command.read(pickValues(command.flags, raw), raw.given);
      const start = (context: SourceContext) => command.start(options, context);
      return { word, options, scope: 'local', start };
    },
  };
}

/** Describes a source of cluster-wide state. */
export function defineGlobalSource<Table extends FlagTable, Options extends object>(
  command: Omit<SourceText, 'flags' | 'toLocalOptional'> &
    Reads<Table, Options> & {
      start(options: Options, context: RunContext): Promise<GlobalSource>;
    },
): SourceCommand {
  return {
    ...command,
    toLocalOptional: false,
    scope: 'global',
    bind(raw) {
      const { word } = command;
      const options = command.read(pickValues(command.flags, raw), raw.given);
      const start = (context: RunContext) => command.start(options, context);
      return { word, options, scope: 'global', start };
    },
  };
}

/** Describes a backend. */
export function defineSink<Table extends FlagTable, Options extends { readonly nodeName: string }>(
  command: Omit<SinkText, 'flags'> &
    Reads<Table, Options> & {
      readonly toLocalOptional: boolean;
      /** Whether the options ask for a dry run; absent: none do. */
      isDry?(options: Options): boolean;
      /** The limits of the data path; absent: it has none. */
      limits?(options: Options): EngineLimits;
      /** Whether it may take over from a process that runs; absent: no. */
      takesOver?(options: Options): boolean;
      start(options: Options, context: RunContext): Promise<RunningSink>;
    },
): SinkCommand {
  return {
    ...command,
    scope: 'local',
    bind(raw) {
      const { word, servesByDefault } = command;
      const options = command.read(pickValues(command.flags, raw), raw.given);
      const { nodeName } = options;
      const start = (context: RunContext) => command.start(options, context);
      const isDry = command.isDry?.(options) ?? false;
      const limits = command.limits?.(options);
      const takesOver = command.takesOver?.(options) ?? false;
      const known = { word, options, nodeName, servesByDefault, isDry, limits, takesOver };
      return { ...known, scope: 'local', start };
    },
  };
}

/** Describes a sink of cluster-wide state. */
export function defineGlobalSink<Table extends FlagTable, Options extends object>(
  command: Omit<SinkText, 'flags'> &
    Reads<Table, Options> & {
      start(options: Options, context: RunContext, store: GlobalStore): Promise<Running>;
    },
): SinkCommand {
  return {
    ...command,
    toLocalOptional: true,
    scope: 'global',
    bind(raw) {
      const { word, servesByDefault } = command;
      const options = command.read(pickValues(command.flags, raw), raw.given);
      const start = (context: RunContext, store: GlobalStore) =>
        command.start(options, context, store);
      return { word, options, scope: 'global', servesByDefault, start };
    },
  };
}
