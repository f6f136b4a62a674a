import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ChildProgram } from './child-program.ts';
import { get } from './http.ts';
import { freePorts } from './ports.ts';
import { NODE_NAME, writeState, type ServiceDescription } from './state-file.ts';
import { tempFolder } from './temp-folder.ts';
import { until } from './until.ts';

const CLI = join(import.meta.dirname, '../../bin/kpng-userspace.js');
/** Characters of the proxy's log that are kept. */
const MAX_LOG = 64 * 1024;

interface ProxyOptions {
  /** What is in the state file at first. */
  readonly services: readonly ServiceDescription[];
  /** More flags. */
  readonly args?: readonly string[];
  /** Milliseconds until it has to be ready. Default: a minute. */
  readonly within?: number;
}

/** `kpng-userspace file --input … to-local to-userspace`, with health and metrics on ports of loopback, and a folder of its own. */
export class ProxyProcess extends ChildProgram {
  readonly metricsUrl: string;
  readonly healthUrl: string;
  readonly stateFile: string;
  readonly #folder: ReturnType<typeof tempFolder>;
  #log = '';

  constructor({ services, args = [] }: ProxyOptions, metrics: number, health: number) {
    const folder = tempFolder('proxy');
    const stateFile = join(folder.path, 'state.yaml');
    writeState(stateFile, services);
    const line = `file to-local to-userspace --portal=address --node-name=${NODE_NAME}`;
    super([
      process.execPath,
      CLI,
      ...line.split(' '),
      `--input=${stateFile}`,
      `--metrics-bind-address=127.0.0.1:${metrics}`,
      `--healthz-bind-address=127.0.0.1:${health}`,
      ...args,
    ]);
    this.#folder = folder;
    this.stateFile = stateFile;
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

  override async stop(): Promise<string> {
    const how = await super.stop();
    this.#folder.remove();
    return how;
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
  const { within = 60_000 } = options;
  const found = await until('the proxy answers', isReady, { within }).catch(() => undefined);
  if (found === 'is ready') return proxy;
  const how = await proxy.stop();
  throw new Error(
    `the proxy is not ready (it ${how}); its log ends with:\n${proxy.log().slice(-4000)}`,
  );
}
