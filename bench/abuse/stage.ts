/**
 * What every scenario has: the program with its pages on free ports, a control service whose endpoint is
 * a process of its own, control traffic through it, and any services that the scenario adds.
 */
import { join } from 'node:path';
import { connect } from 'node:net';
import { freePorts } from '../../examples/support/ports.ts';
import {
  NODE_NAME,
  writeState,
  type ServiceDescription,
} from '../../examples/support/state-file.ts';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { until } from '../../examples/support/until.ts';
import { BACKEND, type BackendPorts, type BackendSettings } from '../support/backend.ts';
import type { EngineName } from '../support/command.ts';
import { startScript, type Dialogue } from '../support/dialogue.ts';
import type { ControlRequest, ControlTarget } from './control.ts';
import { Proxy } from './proxy.ts';
import type { Traffic } from './scenario.ts';

export interface StageOptions {
  /** Words and flags of the source. Default: the state file. */
  readonly source?: readonly string[];
  /** Default: `to-local to-userspace` with the address portal. */
  readonly sink?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** What the program is run by, such as prlimit. */
  readonly inside?: readonly string[];
  /** Where the log goes; `unread`: into a pipe without a reader. Default: a file. */
  readonly log?: string;
  /** Whether it carries control traffic. Default: true. */
  readonly carries?: boolean;
}

/** A network namespace, as far as the stage has to know it. */
export interface Place {
  /** What runs a program in it; empty for this host. */
  readonly inside: readonly string[];
  readonly controlIp: string;
  readonly endpointIp: string;
}

const HOST: Place = { inside: [], controlIp: '127.78.5.1', endpointIp: '127.78.6.1' };
/** How long it may take until the program serves. Milliseconds. */
const READY_MS = 60_000;

export class Stage {
  readonly engine: EngineName;
  readonly folder: string;
  readonly input: string;
  /** URLs of pages, and the path of the admin socket. */
  readonly pages: {
    readonly metrics: string;
    readonly health: string;
    readonly status: string;
    readonly admin: string;
  };
  readonly target: ControlTarget;
  readonly place: Place;
  #services: ServiceDescription[] = [];
  #options: StageOptions = {};
  #control: Dialogue | undefined;
  #proxy: Proxy | undefined;
  #teardowns: (() => unknown)[];

  private constructor(
    engine: EngineName,
    folder: string,
    ports: readonly number[],
    place: Place,
    target: Pick<ControlTarget, 'tcp' | 'udp'>,
    teardowns: (() => unknown)[],
  ) {
    const [metrics, health, status] = ports.map((port) => `http://127.0.0.1:${port}`);
    this.engine = engine;
    this.folder = folder;
    this.input = join(folder, 'state.yaml');
    this.pages = {
      metrics: `${metrics}/metrics`,
      health: `${health}/healthz`,
      status: `${status}/`,
      admin: join(folder, 'admin'),
    };
    this.place = place;
    this.target = { host: place.controlIp, ...target, healthUrl: this.pages.health };
    this.#teardowns = teardowns;
  }

  /** Starts the endpoint of the control service. */
  static async open(engine: EngineName, place: Place = HOST): Promise<Stage> {
    const folder = tempFolder('abuse');
    const settings: BackendSettings = { host: place.endpointIp, ports: { tcpEcho: 0, echo: 0 } };
    const backend = startScript(BACKEND, settings, place.inside);
    const teardowns = [() => folder.remove(), () => backend.kill()];
    const { tcpEcho: tcp, echo: udp } = await backend.ask<BackendPorts>({});
    const ports = await freePorts(3);
    return new Stage(engine, folder.path, ports, place, { tcp, udp }, teardowns);
  }

  get proxy(): Proxy {
    if (this.#proxy === undefined) throw new Error('the program was not started');
    return this.#proxy;
  }

  /** Called in reverse order when the stage is closed. */
  teardown(after: () => unknown): void {
    this.#teardowns.push(after);
  }

  /** Starts the program and, if it carries traffic, the control traffic. Resolves when all is served. */
  async begin(options: StageOptions): Promise<void> {
    this.#options = options;
    this.writeState();
    this.#control = startScript(join(import.meta.dirname, 'control.ts'), {}, this.place.inside);
    await this.start();
    if (options.carries === false) return;
    await this.#ask({ kind: 'serves', ...this.target });
    await this.#ask({ kind: 'open', ...this.target });
  }

  /** Starts the program, again after it has ended, and resolves when it is ready. */
  async start(): Promise<Proxy> {
    const proxy = this.launch();
    this.#proxy = proxy;
    const url = this.pages.health.replace('healthz', 'readyz');
    const ready = this.#ask({ kind: 'ready', url, within: READY_MS });
    ready.catch(() => undefined);
    const how = await Promise.race([ready, proxy.ended]);
    if (how === true) return proxy;
    throw new Error(`the program ${String(how)}: ${proxy.log()}`);
  }

  /** Starts one more process of the program with the same command line. It is ended with the stage. */
  launch(): Proxy {
    const { source = ['file', `--input=${this.input}`], args = [], inside = [] } = this.#options;
    const { sink = this.#toProxy(), env = {}, log = join(this.folder, 'log') } = this.#options;
    const { metrics, health, status, admin } = this.pages;
    const proxy = new Proxy({
      inside: [...this.place.inside, ...inside],
      env,
      log,
      args: [
        ...source,
        ...sink,
        `--metrics-bind-address=${new URL(metrics).host}`,
        `--healthz-bind-address=${new URL(health).host}`,
        `--status-bind-address=${new URL(status).host}`,
        `--admin-socket=${admin}`,
        ...args,
      ],
    });
    this.teardown(() => {
      // One that has handed over waits for its UDP sessions to become idle.
      if (proxy !== this.#proxy) proxy.signal('SIGKILL');
      return proxy.stop();
    });
    return proxy;
  }

  /** The default sink. */
  #toProxy(): string[] {
    return [
      'to-local',
      'to-userspace',
      `--engine=${this.engine}`,
      `--node-name=${NODE_NAME}`,
      ...(this.place === HOST ? ['--portal=address'] : []),
    ];
  }

  /** From now on this process is the one that is watched, as after a hand-over. */
  follow(proxy: Proxy): void {
    this.#proxy = proxy;
  }

  /** The control service as it stands in a state. */
  controlService(): ServiceDescription {
    const { tcp, udp, host } = this.target;
    return {
      namespace: 'abuse',
      name: 'control',
      clusterIP: host,
      ports: [
        { name: 'tcp', protocol: 'TCP', port: tcp, targetPort: tcp },
        { name: 'udp', protocol: 'UDP', port: udp, targetPort: udp },
      ],
      endpoints: [{ name: 'control', address: this.place.endpointIp }],
    };
  }

  /** Writes the state file: the control service, those that were added, and these. */
  writeState(...more: readonly ServiceDescription[]): void {
    writeState(this.input, [this.controlService(), ...this.#services, ...more]);
  }

  /** Gives the service that was added last other endpoints. */
  setEndpoints(addresses: readonly string[]): void {
    const last = this.#services.pop();
    if (last === undefined) throw new Error('no service was added');
    const endpoints = addresses.map((address) => ({ name: address, address }));
    this.#services.push({ ...last, endpoints });
    this.writeState();
  }

  /** A service more in the state file, with endpoints at one port. Resolves when TCP clients get there. */
  async expose(
    targetPort: number,
    addresses: readonly string[] = ['127.0.0.1'],
    protocol: 'TCP' | 'UDP' = 'TCP',
  ): Promise<{ host: string; port: number }> {
    const number = this.#services.length + 2;
    const host = `127.78.5.${number}`;
    this.#services.push({
      namespace: 'abuse',
      name: `target-${number}`,
      clusterIP: host,
      ports: [{ name: 'p', protocol, port: targetPort, targetPort }],
      endpoints: addresses.map((address) => ({ name: address, address })),
    });
    this.writeState();
    if (protocol === 'TCP') await this.opens(host, targetPort);
    return { host, port: targetPort };
  }

  /** Resolves when the program listens there; rejects after `within` ms. Default: a minute. */
  async opens(host: string, port: number, within = 60_000): Promise<void> {
    await until(`${host}:${port} is open`, () => this.#isOpen(host, port), { within });
  }

  /** What control traffic saw since the last look. */
  look(): Promise<Traffic> {
    return this.#ask({ kind: 'look' }) as Promise<Traffic>;
  }

  /** Resolves when fresh control traffic is served; rejects after some seconds. */
  async serves(): Promise<void> {
    await this.#ask({ kind: 'serves', ...this.target });
  }

  /** Ends everything. */
  async close(): Promise<void> {
    await this.#control?.kill();
    for (const after of this.#teardowns.splice(0).toReversed()) await after();
  }

  #ask(request: ControlRequest): Promise<unknown> {
    if (this.#control === undefined) throw new Error('no control traffic');
    return this.#control.ask(request);
  }

  #isOpen(host: string, port: number): Promise<true | undefined> {
    return new Promise((resolve) => {
      const socket = connect({ host, port }, () => resolve(true));
      socket.on('connect', () => socket.destroy()).on('error', () => resolve(undefined));
    });
  }
}
