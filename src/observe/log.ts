import { pino, type Logger, type LoggerOptions } from 'pino';
import { describeError } from './describe-error.ts';
import { standardError } from './line-writer.ts';
import { escapeLines } from '../util/terminal-text.ts';

/** Keys of a log line. An Error under `err` is written as its message, code and cause. */
export type LogKeys = Readonly<Record<string, unknown>>;

/** Writes log lines. Verbosity is kube-proxy's `-v`: a line of level n appears from `-v=n` on. */
export interface Log {
  /** The current level; it may change at any time. */
  readonly verbosity: number;
  error(message: string, keys?: LogKeys): void;
  warn(message: string, keys?: LogKeys): void;
  /** Logs a line regardless of verbosity. */
  info(message: string, keys?: LogKeys): void;
  /** Logs a line if the verbosity is at least `level`. */
  v(level: number, message: string, keys?: LogKeys): void;
}

/** A log whose verbosity can be changed while it is written. */
export interface AdjustableLog extends Log {
  /** Changes the verbosity. */
  setVerbosity(level: number): void;
  /** Calls the listener when the verbosity changes. Returns a function that unsubscribes it. */
  onVerbosity(listener: (level: number) => void): () => void;
}

export type LogFormat = 'text' | 'json';

export interface LogOptions {
  readonly format: LogFormat;
  readonly verbosity: number;
  /** Colours in text; for terminals. */
  readonly colour?: boolean;
  /** Gets finished lines, including line feeds. Default: standard error, written synchronously (see LineWriter). */
  readonly write?: (line: string) => void;
}

/** Creates a log. The text formatter is loaded only for text. */
export async function createLog(options: LogOptions): Promise<AdjustableLog> {
  const format = await formatter(options);
  const write = options.write ?? standardErrorOf(format);
  const logger = pino(SETTINGS, { write: (line) => write(format(line)) });
  return wrap(logger, options.verbosity);
}

const SETTINGS: LoggerOptions = {
  base: null,
  level: 'info',
  timestamp: pino.stdTimeFunctions.isoTime,
  formatters: { level: (label) => ({ level: label }) },
};

type Format = (line: string) => string;

async function formatter({ format, colour }: LogOptions): Promise<Format> {
  // In JSON, control characters can only occur within strings.
  if (format === 'json') return escapeLines;
  const { textFormatter } = await import('./log-text.ts');
  return textFormatter(colour ?? false);
}

function standardErrorOf(format: Format): (line: string) => void {
  const writer = standardError((lost) => {
    let notice = '';
    const log = wrap(pino(SETTINGS, { write: (line) => (notice = format(line)) }), 0);
    log.warn('Log lines lost: standard error was not read in time', { lost });
    return notice;
  });
  return (line) => writer.write(line);
}

function wrap(logger: Logger, initial: number): AdjustableLog {
  let verbosity = initial;
  const listeners = new Set<(level: number) => void>();
  return {
    get verbosity() {
      return verbosity;
    },
    setVerbosity(level) {
      if (level === verbosity) return;
      verbosity = level;
      for (const listener of listeners) listener(level);
    },
    onVerbosity(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    error: (message, keys) => logger.error(plainKeys(keys), message),
    warn: (message, keys) => logger.warn(plainKeys(keys), message),
    info: (message, keys) => logger.info(plainKeys(keys), message),
    v(level, message, keys) {
      if (level <= verbosity) logger.info({ v: level, ...plainKeys(keys) }, message);
    },
  };
}

function plainKeys(keys: LogKeys = {}): LogKeys {
  const { err, ...rest } = keys;
  return err === undefined ? keys : { ...rest, ...describeError(err) };
}
