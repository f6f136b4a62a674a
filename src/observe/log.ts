import { pino, type Logger, type LoggerOptions } from 'pino';
import { KpngError } from '../errors.ts';
import { standardError } from './line-writer.ts';
import { escapeControls, escapeLines } from '../util/terminal-text.ts';

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

/**
 * For text, turns lines of the JSON log into readable lines: `[12:34:56.789] INFO: Mapped service to endpoint
 * service="default/web:http" endpoint="10.1.2.3:80"`.
 */
async function formatter({ format, colour }: LogOptions): Promise<Format> {
  // In JSON, control characters can only occur within strings.
  if (format === 'json') return escapeLines;
  const { default: pretty } = await import('pino-pretty');
  return pretty.prettyFactory({
    colorize: colour ?? false,
    translateTime: 'SYS:HH:MM:ss.l',
    hideObject: true,
    // These would otherwise appear twice.
    ignore: 'name,pid,hostname,caller,type,stack',
    messageFormat: (log, messageKey) => textOf(log, messageKey),
  });
}

/** Keys that are shown differently, or only matter to programs. */
const HIDDEN = new Set(['level', 'time', 'msg', 'v', 'stack']);

function textOf(log: Readonly<Record<string, unknown>>, messageKey: string): string {
  const message = escapeControls(typeof log[messageKey] === 'string' ? log[messageKey] : '');
  const keys = Object.entries(log)
    .filter(([key]) => !HIDDEN.has(key))
    .map(([key, value]) => ` ${escapeControls(key)}=${escapeControls(JSON.stringify(value))}`);
  const stack = typeof log['stack'] === 'string' ? log['stack'].split('\n').slice(1) : [];
  return message + keys.join('') + stack.map((frame) => `\n${escapeControls(frame)}`).join('');
}

function standardErrorOf(format: Format): (line: string) => void {
  return standardError((lost) => {
    const msg = 'Log lines lost: standard error was not read in time';
    const notice = { level: 'warn', time: new Date().toISOString(), lost, msg };
    return format(`${JSON.stringify(notice)}\n`);
  });
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

/** Maximum length of a chain of causes, which may be circular. */
const MAX_CAUSES = 5;

/**
 * An error as log keys: `err` its message, `code` its stable code or the system's, `cause` the messages of its
 * causes, and `servicePortName` if it concerns one.
 */
function describeError(error: unknown): Record<string, string> {
  if (!(error instanceof Error)) return { err: text(error) };
  const { message, name, code } = error as NodeJS.ErrnoException;
  const causes = causesOf(error);
  const servicePortName = error instanceof KpngError ? error.servicePort : undefined;
  return {
    err: message === '' ? name : message,
    ...(typeof code === 'string' && { code }),
    ...(causes.length > 0 && { cause: causes.join(': ') }),
    ...(servicePortName !== undefined && { servicePortName }),
  };
}

/** The messages of the causes of an error, without repetitions. */
function causesOf(error: Error): string[] {
  const causes: string[] = [];
  let previous = error.message;
  let { cause } = error;
  for (let depth = 0; cause !== undefined && depth < MAX_CAUSES; depth += 1) {
    const message = cause instanceof Error ? cause.message : text(cause);
    if (!previous.includes(message) && !message.includes(previous)) causes.push(message);
    previous = message;
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  return causes;
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value));
}
