import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { Cli, type CliLogLine } from '../../support/cli.ts';
import { parseMetrics, type MetricsPage } from '../../support/metrics-page.ts';
import { shortDir } from '../../support/short-dir.ts';
import { eventually } from '../../support/until.ts';
import type { Teardown } from '../../support/sockets.ts';
import type { MachineName, Network } from './network.ts';
import type { StateService } from './services.ts';

export interface ProgramOptions {
  /** Default: `to-userspace`. */
  readonly backend?: string;
  /** Its flags. */
  readonly flags?: string;
  /** Where it runs. Default: the node. */
  readonly machine?: MachineName;
  /** What runs the program, such as `prlimit` with its arguments. */
  readonly before?: readonly string[];
  /** The first state. Default: without services. */
  readonly state?: readonly StateService[];
}

/** Runs the program with preload.ts. */
export const PRELOADED = [
  'env',
  `NODE_OPTIONS=--import=${import.meta.resolve('./preload.ts')}`,
] as const;

/** The lines that report that a state file was read, and that a change set is in place. */
const LOADED = 'Loaded the state file';
const SYNCED = 'userspace syncProxyRules complete';
/** The line about a client who came while there was no endpoint, and the one about more of these. */
const NO_ENDPOINT = new Set(["Couldn't find an endpoint for service", 'Log lines suppressed']);
const SOME_PORTS = '--metrics-bind-address=127.0.0.1:0 --healthz-bind-address=127.0.0.1:0'.split(
  ' ',
);

/** A command of the program on the node of a test network. It ends with the test. */
export function onNode(
  t: Teardown,
  network: Network,
  args: readonly string[],
  before: readonly string[] = [],
): Cli {
  return new Cli(t, args, undefined, network.command('node', ...before));
}

/** The program as a proxy on the node of a test network, as users run it: command line, state file, log, pages. */
export class Program extends Cli {
  readonly #network: Network;
  readonly #path: string;

  /** Starts it with a state. It ends with the test. */
  constructor(t: Teardown, network: Network, options: ProgramOptions) {
    const {
      backend = 'to-userspace',
      flags = '',
      before = [],
      machine = 'node',
      state = [],
    } = options;
    const folder = shortDir(t);
    const path = join(folder, 'state.yaml');
    writeState(path, state);
    const words = ['file', '--input', path, 'to-local', backend, '-v=2'];
    const ports = flags.includes('--dry-run') ? [] : SOME_PORTS;
    // An instance of its own: starts of the same one at the same time would count as crashes of its engine.
    const isProxy = backend === 'to-userspace' && !flags.includes('--admin-socket');
    const admin = isProxy ? [`--admin-socket=${join(folder, 'run', 'admin')}`] : [];
    super(
      t,
      [...words, '--node-name', 'n1', ...ports, ...admin, ...flags.split(' ').filter(Boolean)],
      undefined,
      network.command(machine, ...before),
    );
    this.#network = network;
    this.#path = path;
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** What it has logged as warnings and errors, but for clients that found no endpoint. */
  get complaints(): string[] {
    return this.log
      .filter(({ level, msg }) => (level === 'warn' || level === 'error') && !NO_ENDPOINT.has(msg))
      .map((line) => `${line.msg} ${JSON.stringify(line['err'] ?? '')}`);
  }

  /** The first error with a code, when it has been logged. */
  error(code: string): Promise<CliLogLine> {
    return this.when(`an error ${code}`, () =>
      this.log.find((line) => line['code'] === code && line.level === 'error'),
    );
  }

  /** Resolves when the first state is in place. */
  async ready(): Promise<this> {
    await this.line('The first complete state is in place');
    return this;
  }

  /** Writes another state, and resolves when it is in place. It has to mean something else for the node. */
  async serve(...services: readonly StateService[]): Promise<void> {
    const loaded = await this.serveSame(...services);
    // A sync before that line was one of what had been there.
    await this.until(
      () => this.log.slice(loaded).some(({ msg }) => msg === SYNCED),
      `the line ${JSON.stringify(SYNCED)}`,
    );
  }

  /** Writes a state that means the same for the node as the one before. Resolves with the line at which it was read. */
  async serveSame(...services: readonly StateService[]): Promise<number> {
    await this.ready();
    const before = this.log.length;
    writeState(this.#path, services);
    return this.when(`the line ${JSON.stringify(LOADED)}`, () => {
      const at = this.log.findIndex(({ msg }, index) => index >= before && msg === LOADED);
      return at === -1 ? undefined : at;
    });
  }

  /** Ends it with a signal; resolves with its exit code. */
  async end(signal: NodeJS.Signals): Promise<number | null> {
    this.kill(signal);
    return (await this.exited).code;
  }

  /** What a page answers that one sees on the node, with the status in front: `200 ok`. */
  async page(what: 'metrics' | 'health', path = ''): Promise<string> {
    const url = String((await this.line(`Serving ${what}`))['url']);
    const format = ['-w', String.raw`\n%{http_code}`];
    const text = await this.#network.inside('node', 'curl', ['-sS', ...format, `${url}${path}`]);
    const end = text.lastIndexOf('\n');
    return `${text.slice(end + 1)} ${text.slice(0, end)}`;
  }

  async metrics(): Promise<MetricsPage> {
    return parseMetrics((await this.page('metrics', '/metrics')).replace(/^200 /, ''));
  }

  /** The value of a metric; 0 if there is none. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    return (await this.metrics()).value(`kpng_userspace_${name}`, labels) ?? 0;
  }

  /** How often it has written rules or addresses. */
  async #writes(): Promise<number> {
    const { samples } = await this.metrics();
    return samples
      .filter(({ name }) => name === 'kpng_userspace_portal_writes_total')
      .reduce((sum, { value }) => sum + value, 0);
  }

  /** Does some damage, and resolves when something was written for it. */
  async repairAfter(damage: () => Promise<unknown>): Promise<void> {
    const before = await this.#writes();
    await damage();
    if (await eventually(async () => (await this.#writes()) > before)) return;
    throw new Error(`not repaired: ${JSON.stringify(this.log.slice(-5))}`);
  }
}

/** A state with these services, and two nodes. */
function writeState(path: string, services: readonly StateService[]): void {
  const nodes = ['n1', 'elsewhere'].map((name) => ({ name, topology: { node: name } }));
  writeFileSync(`${path}.next`, stringify({ nodes, services }));
  renameSync(`${path}.next`, path);
}
