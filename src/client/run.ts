import { parseArgs } from 'node:util';
import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import { KpngError, messageOf } from '../errors.ts';
import type { LocalChange, LocalSink, LocalView } from '../store/local-view.ts';
import { DEFAULT_BACKOFF } from '../util/backoff.ts';
import { parseDuration } from '../util/duration.ts';
import { KpngClient } from './client.ts';
import { DEFAULT_API, parseTarget } from './target.ts';
import { readTls, type TlsFiles } from '../util/tls-files.ts';

/** A service with its endpoints: as in kpng's full-state callbacks, and with the keys. */
export interface ServiceItem {
  /** `namespace/name`. */
  readonly key: string;
  readonly service: Service;
  /** In order of their keys. Empty for a service without endpoints. */
  readonly endpoints: readonly Endpoint[];
  /** Key of the endpoint at the same index in `endpoints`: the pod's name, or a hash. */
  readonly endpointKeys: readonly string[];
}

/**
 * Called with the whole state at each Sync: every service that this node needs, in path order. Items are created
 * during each iteration and may be kept; the iterable itself is valid until the handler is done.
 *
 * `changed` holds the keys of the services that differ from the last call, or on which an earlier call failed. The
 * next change set is requested when the handler (its promise) is done. If it throws or rejects, it is called again,
 * after a delay or with the next change set.
 */
export type Handler = (
  items: Iterable<ServiceItem>,
  changed: ReadonlySet<string>,
) => void | Promise<void>;

/** A sink that calls a handler. */
export function handlerSink(handler: Handler): LocalSink {
  return {
    async sync({ view, changed }: LocalChange): Promise<void> {
      await handler({ [Symbol.iterator]: () => items(view) }, changed);
    },
  };
}

function* items(view: LocalView): Generator<ServiceItem, void, undefined> {
  for (const { key, service, endpoints } of view.entries()) {
    yield { key, service, endpoints: [...endpoints.values()], endpointKeys: [...endpoints.keys()] };
  }
}

/** Options of `run`. All have the defaults of kpng's client programs. */
export interface RunOptions {
  /** Target of the kpng server, see `parseTarget`. Default: `127.0.0.1:12090`. */
  readonly api?: string | undefined;
  /** The node whose view to request. Default: the host's name, unchanged. */
  readonly nodeName?: string | undefined;
  /** Paths of PEM files. Default: no TLS. */
  readonly tls?: TlsFiles | undefined;
  /** Maximum size of a message from the server. Bytes. Default: 4194304. */
  readonly maxMsgSize?: number | undefined;
  /** The first delay before reconnecting; later ones grow to 30 s. Milliseconds. Default: 1000. */
  readonly errorDelayMs?: number | undefined;
  /** End after the first change set; rejects if the handler fails on it. Default: false. */
  readonly once?: boolean | undefined;
  /** Ends the run. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called for each failure: a lost connection, an invalid operation, a handler that failed. The run continues.
   * Default: a line on standard error.
   */
  readonly onError?: ((error: KpngError) => void) | undefined;
}

/**
 * Calls `handler` with the whole state of this node at each Sync of a kpng server.
 *
 * Without options it is a complete program, as Go's `client.Run` is: it reads the flags `--api`, `--node-name`,
 * `--tls-key`, `--tls-crt`, `--tls-ca`, `--max-msg-size`, `--error-delay` and `--once` from the command line, and
 * SIGINT, SIGTERM or SIGQUIT end it gracefully (a second one at once, with exit code 1). Wrong flags and TLS files
 * end the process with exit code 2.
 *
 * With options it touches neither command line nor signals. Wrong ones reject, with KPNG_USAGE or KPNG_TLS_FILE.
 * Otherwise it resolves when `signal` aborts, or with `once` after the first Sync.
 */
export async function run(handler: Handler, options?: RunOptions): Promise<void> {
  if (options === undefined) {
    return runProgram(handler);
  }
  const { api, nodeName, tls, maxMsgSize, errorDelayMs, once, signal, onError } = options;
  const client = new KpngClient({
    target: parseTarget(api ?? DEFAULT_API),
    tls: await readTls(tls ?? {}, { key: '--tls-key', crt: '--tls-crt', ca: '--tls-ca' }),
    nodeName,
    maxMessageSize: maxMsgSize,
    backoff: { ...DEFAULT_BACKOFF, initialMs: errorDelayMs ?? DEFAULT_BACKOFF.initialMs },
    once,
    onError: onError ?? reportError,
  });
  await client.run(handlerSink(handler), signal);
}

function reportError(error: KpngError): void {
  process.stderr.write(`${error.code}: ${error.message}\n`);
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGQUIT'] as const;

/** See `run`. */
async function runProgram(handler: Handler): Promise<void> {
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
    await run(handler, { ...parseFlags(args), signal: stop.signal });
  } catch (error) {
    const isUsage = error instanceof KpngError && /^KPNG_(?:USAGE|TLS_FILE)$/.test(error.code);
    if (!isUsage) throw error;
    process.stderr.write(`error: ${error.message}\n`);
    process.exit(2);
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
