/** The command line of a program that only consists of a handler. */
import { parseArgs } from 'node:util';
import { KpngError, messageOf } from '../errors.ts';
import { parseDuration } from '../util/duration.ts';
import { DEFAULT_API } from './target.ts';

/** Exit code for wrong flags and files. */
const BAD_USAGE = 2;

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGQUIT'] as const;

/**
 * Reads the flags and runs `main` with them. The first SIGINT, SIGTERM or SIGQUIT aborts its signal, the
 * second ends the process.
 */
export async function runProgram(
  main: (
    options: ReturnType<typeof parseFlags> & { readonly signal: AbortSignal },
  ) => Promise<void>,
): Promise<void> {
  const args = process.argv.slice(2);
  if (args.includes('--help') || args.includes('-h')) {
    process.stdout.write(HELP);
    process.exit(0);
  }
  const stop = new AbortController();
  const onSignal = (): void => {
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  try {
    await main({ ...parseFlags(args), signal: stop.signal });
  } catch (error) {
    const isUsage = error instanceof KpngError && /^KPNG_(?:USAGE|TLS_FILE)$/.test(error.code);
    if (!isUsage) throw error;
    process.stderr.write(`error: ${error.message}\n`);
    process.exit(BAD_USAGE);
  } finally {
    for (const signal of SIGNALS) process.off(signal, onSignal);
  }
}

const OPTIONS = {
  api: { type: 'string' },
  'node-name': { type: 'string' },
  'tls-key': { type: 'string' },
  'tls-crt': { type: 'string' },
  'tls-ca': { type: 'string' },
  'max-msg-size': { type: 'string', default: '4194304' },
  'error-delay': { type: 'string', default: '1s' },
  once: { type: 'boolean', default: false },
} as const;

const HELP = `Options:
  --api <target>            the kpng server: host:port, dns:///host:port or unix:path (default: ${DEFAULT_API})
  --node-name <name>        the node whose view to ask for (default: the host's name)
  --tls-key <file>          PEM file with the key of --tls-crt
  --tls-crt <file>          PEM file with the client certificate
  --tls-ca <file>           PEM file with the authorities to trust (default: the system's)
  --max-msg-size <bytes>    largest message taken from the server (default: ${OPTIONS['max-msg-size'].default})
  --error-delay <duration>  first wait before connecting again (default: ${OPTIONS['error-delay'].default})
  --once                    end after the first change set
  -h, --help                show this
`;

/** Reads the flags of kpng's client programs. Throws KPNG_USAGE. */
export function parseFlags(args: readonly string[]) {
  const flags = valuesOf(args);
  return {
    api: flags.api ?? DEFAULT_API,
    nodeName: flags['node-name'],
    tls: { key: flags['tls-key'], crt: flags['tls-crt'], ca: flags['tls-ca'] },
    maxMsgSize: size(flags['max-msg-size']),
    errorDelayMs: delay(flags['error-delay']),
    once: flags.once,
  };
}

function valuesOf(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS }).values;
  } catch (error) {
    throw new KpngError('KPNG_USAGE', messageOf(error), { cause: error });
  }
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
