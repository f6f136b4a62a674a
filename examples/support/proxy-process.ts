import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { get } from './http.ts';
import { freePorts } from './ports.ts';
import { NODE_NAME } from './state-file.ts';
import { until } from './until.ts';

const CLI = join(import.meta.dirname, '../../src/cli/main.ts');
/** Characters of the proxy's log that are kept. */
const MAX_LOG = 64 * 1024;

/** The command line program, running as a child. */
export interface ProxyProcess {
  readonly pid: number;
  /** Such as `http://127.0.0.1:40000/metrics`. */
  readonly metricsUrl: string;
  /** Such as `http://127.0.0.1:40001/healthz`. */
  readonly healthUrl: string;
  /** Resolves with how it ended, for any reason. */
  readonly ended: Promise<string>;
  /** The last part of its log. */
  log(): string;
  /** Calls back with what it logs from now on, in whole lines, until the signal is aborted. */
  follow(onLine: (line: string) => void, signal: AbortSignal): void;
  /** Ends it with TERM, or after 8 s with KILL. Idempotent. */
  stop(): Promise<string>;
}

interface ProxyOptions {
  /** The state file. */
  readonly input: string;
  /** More flags. */
  readonly args?: readonly string[];
  /** Milliseconds until it has to be ready. Default: 20 s. */
  readonly within?: number;
}

/**
 * Starts `kpng-userspace file --input … to-local to-userspace` with health and metrics on free ports
 * of loopback, and resolves once it says that it is ready. Rejects with its log if it does not.
 */
export async function startProxy(options: ProxyOptions): Promise<ProxyProcess> {
  const [metrics = 0, health = 0] = await freePorts(2);
  const child = spawn(process.execPath, cliArgs(options, metrics, health), {
    stdio: ['ignore', 'ignore', 'pipe'],
    // A group of its own: INT from the terminal is for the program that started it.
    detached: process.platform !== 'win32',
  });
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log = (log + text).slice(-MAX_LOG);
  });
  const ended = endOf(child);
  // Whatever ends this process, the child does not outlive it.
  const kill = (): boolean => child.kill('SIGKILL');
  process.once('exit', kill);
  void ended.then(() => process.off('exit', kill));
  const proxy: ProxyProcess = {
    pid: child.pid ?? 0,
    metricsUrl: `http://127.0.0.1:${metrics}/metrics`,
    healthUrl: `http://127.0.0.1:${health}/healthz`,
    ended,
    log: () => log,
    follow(onLine, signal) {
      createInterface({ input: child.stderr, signal }).on('line', onLine);
    },
    async stop() {
      child.kill('SIGTERM');
      const timer = setTimeout(kill, 8000);
      const how = await ended;
      clearTimeout(timer);
      return how;
    },
  };
  await waitUntilReady(child, `http://127.0.0.1:${health}/readyz`, options.within).catch(
    async (cause: unknown) => {
      const how = await proxy.stop();
      const message = `the proxy is not ready (it ${how}); its log ends with:\n${proxy.log().slice(-4000)}`;
      throw new Error(message, { cause });
    },
  );
  return proxy;
}

function cliArgs(options: ProxyOptions, metrics: number, health: number): string[] {
  return [
    CLI,
    'file',
    `--input=${options.input}`,
    'to-local',
    'to-userspace',
    '--portal=address',
    `--node-name=${NODE_NAME}`,
    `--metrics-bind-address=127.0.0.1:${metrics}`,
    `--healthz-bind-address=127.0.0.1:${health}`,
    ...(options.args ?? []),
  ];
}

async function waitUntilReady(child: ChildProcess, url: string, within = 20_000): Promise<void> {
  const state = await until(
    'the proxy answers that it is ready',
    async () => {
      if (child.exitCode !== null || child.signalCode !== null) return 'ended';
      return (await get(url)).status === 200 ? 'ready' : undefined;
    },
    { within },
  );
  if (state === 'ended') throw new Error('the proxy ended');
}

async function endOf(child: ChildProcess): Promise<string> {
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
    return signal === null ? `ended with code ${code}` : `was ended by ${signal}`;
  } catch (error) {
    return `could not be started: ${String(error)}`;
  }
}
