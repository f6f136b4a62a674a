import { pino, type DestinationStream, type Logger } from 'pino';
import { describeError } from './describe-error.ts';

/** Keys of a log line. An Error under `err` is written as its message, code and cause. */
export type LogKeys = Readonly<Record<string, unknown>>;

/** Writes log lines. Verbosity is kube-proxy's `-v`: a line of level n appears from `-v=n` on. */
export interface Log {
  readonly verbosity: number;
  error(message: string, keys?: LogKeys): void;
  warn(message: string, keys?: LogKeys): void;
  /** A line that always appears. */
  info(message: string, keys?: LogKeys): void;
  /** A line that appears when the verbosity is at least `level`. */
  v(level: number, message: string, keys?: LogKeys): void;
}

export type LogFormat = 'text' | 'json';

export interface LogOptions {
  readonly format: LogFormat;
  readonly verbosity: number;
  /** Colours in text; for terminals. */
  readonly colour?: boolean;
  /**
   * Takes finished lines, line feed included. Default: standard error, written synchronously, so
   * that no line is lost when the process ends and nothing piles up in memory.
   */
  readonly write?: (line: string) => void;
}

/** Makes a log. The code that makes text readable is loaded only for text. */
export async function createLog(options: LogOptions): Promise<Log> {
  const write = options.write ?? standardError();
  const destination: DestinationStream =
    options.format === 'json' ? { write } : await textDestination(write, options.colour ?? false);
  const logger = pino(
    {
      base: null,
      level: 'info',
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
  return wrap(logger, options.verbosity);
}

function standardError(): (line: string) => void {
  const destination = pino.destination({ dest: 2, sync: true });
  // Nobody is left to tell when the reader of the log has gone; the proxy goes on without it.
  destination.on('error', () => {});
  return (line) => destination.write(line);
}

async function textDestination(
  write: (line: string) => void,
  colour: boolean,
): Promise<DestinationStream> {
  const { textFormatter } = await import('./log-text.ts');
  const format = textFormatter(colour);
  return { write: (line) => write(format(line)) };
}

function wrap(logger: Logger, verbosity: number): Log {
  return {
    verbosity,
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
