/** The command line of a program that is nothing but a handler. */
import { Command, CommanderError } from 'commander';
import { KpngError } from '../errors.ts';
import { parseDuration } from '../util/duration.ts';
import type { RunOptions } from './run.ts';
import { DEFAULT_API } from './target.ts';

/** Exit code for wrong flags and files. */
const BAD_USAGE = 2;

/**
 * Reads the flags and runs `main` with them. The first SIGINT or SIGTERM aborts its signal, the second
 * ends the process.
 */
export async function runProgram(main: (options: RunOptions) => Promise<void>): Promise<void> {
  const options = parseOrExit(process.argv.slice(2));
  const stop = new AbortController();
  const onSignal = (): void => {
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    await main({ ...options, signal: stop.signal });
  } catch (error) {
    exitOnBadUsage(error);
    throw error;
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}

function parseOrExit(args: readonly string[]): RunOptions {
  try {
    return parseFlags(args);
  } catch (error) {
    // Commander has printed its message already, be it help or a complaint.
    if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : BAD_USAGE);
    exitOnBadUsage(error);
    throw error;
  }
}

function exitOnBadUsage(error: unknown): void {
  if (!(error instanceof KpngError)) return;
  if (error.code !== 'KPNG_USAGE' && error.code !== 'KPNG_TLS_FILE') return;
  process.stderr.write(`error: ${error.message}\n`);
  process.exit(BAD_USAGE);
}

interface Flags {
  readonly api: string;
  readonly nodeName?: string;
  readonly tlsKey?: string;
  readonly tlsCrt?: string;
  readonly tlsCa?: string;
  readonly maxMsgSize: string;
  readonly errorDelay: string;
  readonly once: boolean;
}

/**
 * Reads the flags of kpng's client programs. Fails with KPNG_USAGE, or with a CommanderError after
 * commander has printed its message.
 */
export function parseFlags(args: readonly string[]): RunOptions {
  const command = new Command()
    .exitOverride()
    .showSuggestionAfterError()
    .option(
      '--api <target>',
      'the kpng server: host:port, dns:///host:port or unix:path',
      DEFAULT_API,
    )
    .option('--node-name <name>', "the node whose view to ask for (default: the host's name)")
    .option('--tls-key <file>', 'PEM file with the key of --tls-crt')
    .option('--tls-crt <file>', 'PEM file with the client certificate')
    .option('--tls-ca <file>', "PEM file with the authorities to trust (default: the system's)")
    .option('--max-msg-size <bytes>', 'largest message taken from the server', '4194304')
    .option('--error-delay <duration>', 'first wait before connecting again', '1s')
    .option('--once', 'end after the first change set', false);
  const flags: Flags = command.parse(args, { from: 'user' }).opts();
  return {
    api: flags.api,
    nodeName: flags.nodeName,
    tls: { key: flags.tlsKey, crt: flags.tlsCrt, ca: flags.tlsCa },
    maxMsgSize: size(flags.maxMsgSize),
    errorDelayMs: delay(flags.errorDelay),
    once: flags.once,
  };
}

function size(text: string): number {
  const bytes = Number(text);
  if (/^\d+$/.test(text) && bytes >= 1 && bytes < 2 ** 31) return bytes;
  throw new KpngError('KPNG_USAGE', `--max-msg-size "${text}": expected a number of bytes`);
}

function delay(text: string): number {
  const ms = parseDuration(text);
  if (ms !== undefined && ms > 0) return ms;
  throw new KpngError('KPNG_USAGE', `--error-delay "${text}": expected a duration such as 1s`);
}
