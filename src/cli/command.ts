import type { Writable } from 'node:stream';
import type { ProxySubject } from '../admin/subject.ts';
import type { KpngClient } from '../client/client.ts';
import type { Fields } from '../config/fields.ts';
import type { ConfigFile, ConfigProblem } from '../config/file.ts';
import { KpngError } from '../errors.ts';
import type { Log } from '../observe/log.ts';
import type { EngineLimits, LimitChange } from '../proxysocket/limits.ts';
import type { GlobalSource, GlobalStore } from '../store/global-store.ts';
import type { LocalSink } from '../store/local-view.ts';
import type { Activation } from '../util/activation.ts';
import type { GlobalOptions } from './flags/global.ts';
import type { EffectiveSetting, GivenFlag, misspeltVariables } from './flags/read.ts';
import { type FlagTable, type FlagValues, prose } from './flags/table.ts';

export const PROGRAM = 'kpng-userspace';

/** The exit code after an error: 2 if another command line or configuration is needed. */
export function exitCodeOf(error: unknown): 1 | 2 {
  const needsChange = /^KPNG_(?:USAGE|TLS_FILE|KUBECONFIG|CONFIG_.*)$/;
  return error instanceof KpngError && needsChange.test(error.code) ? 2 : 1;
}

export interface RunContext {
  readonly log: Log;
  readonly globals: GlobalOptions;
  /** Output of a sink; the log goes elsewhere. */
  readonly stdout: Writable;
  /** The node whose local view the sink needs; empty: none, or all. */
  readonly nodeName: string;
  /** Gets the networks of that node's pods; absent: the sink treats clients in the cluster as all others. */
  readonly setPodNetworks?: ((networks: readonly string[]) => void) | undefined;
  /** Activates whatever else this process serves; a sink with a hand-over socket activates it. */
  readonly activation: Activation;
}

/** Rejects only on a permanent failure; retries others. */
export type RunningSource = Pick<KpngClient, 'run'>;

/** Something that can be stopped gracefully, or at once. */
export interface Running {
  /**
   * Resolves when the output is no longer needed, such as when its reader has closed it, or when another process has
   * taken over: then with its process id.
   */
  readonly ended?: Promise<number | void>;
  /** What the admin API and the metrics read from the data path; absent: there is none. */
  readonly proxy?: ProxySubject;
  /**
   * Called when everything has ended; absent: nothing to wait for. `asked` resolves at a signal. Returns the exit
   * code.
   */
  afterwards?(asked: Promise<unknown>): Promise<number>;
  /** Changes limits of the data path, for new connections. Absent: no data path. */
  setLimits?(limits: LimitChange): Promise<void>;
  /** Accepts no more clients and resolves when the last one is gone. Idempotent. Absent: there is nothing to wait for. */
  close?(): Promise<void>;
  /** Aborts what `close` waits for. Resolves when everything is released. Idempotent. Absent: there is nothing to release. */
  destroy?(): Promise<void>;
}

export interface RunningSink extends Running {
  readonly sink: LocalSink;
  /** Called after each applied change set, once health has it. */
  inPlace?(): Promise<void>;
  setPodNetworks?(networks: readonly string[]): void;
}

/** A source or sink with parsed and validated flags, ready to start. */
export interface Bound<Scope, Options extends object, Started, Context = RunContext> {
  /** Whether it has or takes the state of the whole cluster, or of one node. */
  readonly scope: Scope;
  readonly word: string;
  readonly options: Options;
  start(context: Context): Promise<Started>;
}

/** A source of the state of one node, or of the whole cluster. Idle until it feeds a sink or a store. */
export type BoundSource =
  Bound<'local', object, RunningSource> | Bound<'global', object, GlobalSource>;

/** The options of a sink that concern the whole program. */
export interface SinkOptions {
  /** The node whose local view it needs; absent: that of the cluster. */
  readonly nodeName?: string;
  /** Whether it is a dry run: then no server runs. Absent: no. */
  readonly dryRun?: boolean;
  /** Of the data path; absent: it has none, and the metrics and health servers do not run by default. */
  readonly limits?: EngineLimits;
  /** Over which it takes over from a running process; absent or empty: it does not. */
  readonly handoverSocket?: string;
}

export type StoreContext = RunContext & { readonly store: GlobalStore };

/** A sink for the state of one node, a backend, or for that of the whole cluster from a store. */
export type BoundSink =
  Bound<'local', SinkOptions, RunningSink> | Bound<'global', SinkOptions, Running, StoreContext>;

/**
 * The texts of a command: `--help`, docs/reference/command-line.md, the man page and completion are generated from
 * them.
 */
export interface CommandText {
  readonly word: string;
  /** One line, without a final dot. */
  readonly summary: string;
  readonly description: readonly string[];
  /** Command lines without the program's name, and the effect of each. */
  readonly examples: Readonly<Record<string, string>>;
  readonly flags: FlagTable;
}

/** Texts that are separated by empty lines. */
export function paragraphs([text = '']: TemplateStringsArray): string[] {
  return text.split('\n\n').map((each) => prose`${each}`);
}

/** A line for each: `status # shows the proxy of this host`. */
export function examples([text = '']: TemplateStringsArray): CommandText['examples'] {
  const lines = text.trim().split('\n');
  return Object.fromEntries(lines.map((line) => line.trim().split(' # ')));
}

/** To add a source or a sink, define it and list it in registry.ts. `values`: of its flags, and of others. */
type Command<Bound extends BoundSource | BoundSink> = CommandText &
  Pick<Bound, 'scope'> & { bind(values: FlagValues<FlagTable>): Bound };

export type SourceCommand = Command<BoundSource>;
export type SinkCommand = Command<BoundSink>;

export interface BoundCommand {
  readonly source: BoundSource;
  readonly sink: BoundSink;
  readonly globals: GlobalOptions;
  readonly command: readonly string[];
  readonly settings: readonly EffectiveSetting[];
  readonly warnings: readonly ConfigProblem[];
  readonly misspelt: ReturnType<typeof misspeltVariables>;
  /** Flags without effect, by the reason. */
  readonly ignored: readonly { readonly flags: readonly string[]; readonly why: string }[];
}

/** A command that is not a source, such as `status`. */
export interface OtherCommand extends CommandText {
  /** Whether it queries a proxy that runs. */
  readonly forRunningProxy?: true;
  /** Arguments after the word, for help and completion; one entry for each form. Absent: flags. */
  readonly forms?: readonly string[];
  /** Whether the environment and the configuration file may set its flags. */
  readonly readsSettings?: boolean;
  /** Throws usage errors before any effect. Returns the action, which resolves with the exit code. */
  bind(line: OtherLine): (streams: Streams) => number | Promise<number>;
}

export interface Streams {
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: Writable;
}

/** The command line of such a command. */
export interface OtherLine {
  readonly operands: readonly string[];
  /** The operands that follow `--`. */
  readonly rest: readonly string[];
  readonly flags: readonly GivenFlag[];
  /** The flags that a configuration file may set. */
  readonly fields: () => Fields;
  /** The configuration file; empty: none. */
  readonly configPath: string;
  /** Reads flags of the command, and checks all. */
  readonly read: <Table extends FlagTable>(flags: Table) => FlagValues<Table>;
  /** Parses a source and a sink with these flags; no words: those of the configuration file. */
  readonly bindRun: (words: readonly string[], flags: readonly GivenFlag[]) => BoundCommand;
  /** Parses a whole command line, without the environment. */
  readonly parseRun: (argv: readonly string[], config?: ConfigFile) => BoundCommand;
}

/** Defines commands with flags of any types; `read` throws an error for values that contradict each other. */
function definer<Scope, Base extends object, Started, Context = RunContext>(scope: Scope) {
  return <Table extends FlagTable, Options extends Base = Base & FlagValues<Table>>(
    command: CommandText & {
      readonly flags: Table;
      /** Absent: the options are the values. */
      read?(values: FlagValues<Table>): Options;
      start(options: Options, context: Context): Promise<Started>;
    },
  ) => ({
    ...command,
    scope,
    bind(values: FlagValues<Table>): Bound<Scope, Base, Started, Context> {
      const options = command.read?.(values) ?? (values as unknown as Options);
      return { ...command, scope, options, start: (context) => command.start(options, context) };
    },
  });
}

export const defineSource = definer<'local', object, RunningSource>('local');
export const defineGlobalSource = definer<'global', object, GlobalSource>('global');
export const defineSink = definer<'local', SinkOptions, RunningSink>('local');
export const defineGlobalSink = definer<'global', object, Running, StoreContext>('global');
