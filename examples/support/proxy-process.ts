import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ChildProgram } from './child-program.ts';
import { get } from './http.ts';
import { freePorts } from './ports.ts';
import { NODE_NAME } from './state-file.ts';
import { until } from './until.ts';

const CLI = join(import.meta.dirname, '../../src/cli/main.ts');
/** Characters of the proxy's log that are kept. */
const MAX_LOG = 64 * 1024;

interface ProxyOptions {
  /** The state file. */
  readonly input: string;
  /** More flags. */
  readonly args?: readonly string[];
  /** Milliseconds until it has to be ready. Default: 20 s. */
  readonly within?: number;
}

/** `kpng-userspace file --input … to-local to-userspace`, with health and metrics on ports of loopback. */
export class ProxyProcess extends ChildProgram {
  readonly metricsUrl: string;
  readonly healthUrl: string;
  #log = '';

  constructor({ input, args = [] }: ProxyOptions, metrics: number, health: number) {
    const line = `file to-local to-userspace --portal=address --node-name=${NODE_NAME}`;
    super([
      process.execPath,
      CLI,
      ...line.split(' '),
      `--input=${input}`,
      `--metrics-bind-address=127.0.0.1:${metrics}`,
      `--healthz-bind-address=127.0.0.1:${health}`,
      ...args,
    ]);
    this.metricsUrl = `http://127.0.0.1:${metrics}/metrics`;
    this.healthUrl = `http://127.0.0.1:${health}/healthz`;
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#log = (this.#log + text).slice(-MAX_LOG);
    });
  }

  /** The last part of its log. */
  log(): string {
    return this.#log;
  }

  /** Calls back with what it logs from now on, in whole lines, until the signal is aborted. */
  follow(onLine: (line: string) => void, signal: AbortSignal): void {
    if (this.child.stderr === null) return;
    createInterface({ input: this.child.stderr, signal }).on('line', onLine);
  }
}

/** Starts it on free ports, and resolves once it says that it is ready. Rejects with its log if it does not. */
export async function startProxy(options: ProxyOptions): Promise<ProxyProcess> {
  const [metrics = 0, health = 0] = await freePorts(2);
  const proxy = new ProxyProcess(options, metrics, health);
  const url = `http://127.0.0.1:${health}/readyz`;
  const isReady = async () =>
    proxy.end ?? ((await get(url)).status === 200 ? 'is ready' : undefined);
  const { within = 20_000 } = options;
  const found = await until('the proxy answers', isReady, { within }).catch(() => undefined);
  if (found === 'is ready') return proxy;
  const how = await proxy.stop();
  throw new Error(
    `the proxy is not ready (it ${how}); its log ends with:\n${proxy.log().slice(-4000)}`,
  );
}
