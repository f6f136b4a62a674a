/** A make-believe proxy with traffic, to look at: nothing listens, and time passes on request. */
import type { Test } from 'tap';
import { SAMPLE_MS, startSampler } from '../../src/admin/sampler.ts';
import { describeServices } from '../../src/admin/details.ts';
import { listServices, type ServicesQuery } from '../../src/admin/services.ts';
import { statusOf } from '../../src/admin/standard.ts';
import { startAdmin, type Admin } from '../../src/admin/start.ts';
import type { ProblemView, ProcessSubject, ProxySubject } from '../../src/admin/subject.ts';
import { Health } from '../../src/observe/health.ts';
import type { AdjustableLog, LogKeys } from '../../src/observe/log.ts';
import type { DesiredServicePort } from '../../src/proxier/wanted.ts';
import { Drains, type Drain } from '../../src/proxier/drains.ts';
import { newCounters, type ServicePortCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import {
  NOTHING,
  type EndpointSnapshot,
  type InspectQuery,
  type Inspection,
} from '../../src/proxysocket/inspect.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import type { ListenerStatus, Protocol } from '../../src/proxysocket/spec.ts';
import { endpoint } from './balancer.ts';
import { FakeClock } from './fake-clock.ts';
import { until } from './until.ts';

export interface SceneService {
  readonly name: string;
  readonly protocol?: Protocol;
  readonly address: string;
  readonly port?: number;
  readonly nodePort?: number;
  readonly endpoints: readonly string[];
  /** Endpoints that refuse connections. */
  readonly failing?: readonly string[];
  /** Whether its address could not be opened. */
  readonly broken?: boolean;
  /** What a second, counted from 0, brings. */
  readonly traffic?: (second: number) => Partial<SceneTraffic>;
}

export interface SceneTraffic {
  readonly connections: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly refused: number;
  readonly active: number;
  /** Clients that are held at the end of it. */
  readonly held: number;
}

/** Service ports in several states. */
export const SHOP: readonly SceneService[] = [
  {
    name: 'shop/cart:http',
    address: '10.96.0.2',
    nodePort: 30_080,
    endpoints: ['10.1.0.1:80', '10.1.0.2:80'],
    failing: ['10.1.0.2:80'],
    traffic: () => ({ connections: 5, bytesIn: 1000, bytesOut: 90_000, refused: 1, active: 3 }),
  },
  { name: 'shop/cart:https', address: '10.96.0.2', port: 443, endpoints: ['10.1.0.1:443'] },
  { name: 'shop/empty', address: '10.96.0.3', endpoints: [], traffic: () => ({ held: 2 }) },
  {
    name: 'data/db',
    address: '10.96.0.4',
    endpoints: ['10.1.0.9:5432'],
    broken: true,
    traffic: () => ({ connections: 1, bytesIn: 5000, bytesOut: 20, active: 9 }),
  },
];

export class AdminScene {
  readonly clock = new FakeClock();
  readonly engine: ReturnType<typeof sceneEngine>;
  readonly proxier: ReturnType<typeof sceneProxier>;
  readonly health = new Health();
  readonly log = sceneLog();
  readonly subject: ProcessSubject;
  isProxying = true;
  readonly #services: readonly SceneService[];
  #second = 0;

  constructor(services: readonly SceneService[], problems: readonly ProblemView[] = []) {
    this.#services = services;
    const desired = services.map(desiredOf);
    this.engine = sceneEngine(services);
    this.proxier = sceneProxier(desired);
    const proxy: ProxySubject = {
      engine: this.engine,
      proxier: this.proxier,
      portal: 'nftables',
      limits: DEFAULT_LIMITS,
      desired: () => desired,
      problems: () => problems,
    };
    this.subject = {
      version: '0.1.0',
      command: 'kube to-userspace',
      nodeName: 'node-1',
      health: this.health,
      log: this.log,
      clock: this.clock,
      stop: () => undefined,
      proxy: () => (this.isProxying ? proxy : undefined),
    };
    this.health.synced();
  }

  /** Starts the admin API; it is looked at from now on. */
  start({ socketPath = '', page = false, drainDelayMs = 0 }): Promise<Admin> {
    const pageAddress = page ? { host: '', port: 0 } : undefined;
    const subject = { ...this.subject, drainDelayMs: () => drainDelayMs };
    return startAdmin({ socketPath, pageAddress, subject });
  }

  /** Serves the admin API on a socket until the test ends. */
  async serve(t: Test, socketPath: string, drainDelayMs = 0): Promise<Admin> {
    const admin = await this.start({ socketPath, drainDelayMs });
    t.teardown(() => admin.close());
    await until(() => this.log.lines.length > 0);
    return admin;
  }

  /** Where the status page is, once it is served. */
  async pageUrl(): Promise<string> {
    const url = () =>
      this.log.lines.find(({ message }) => message === 'Serving the status page')?.keys['url'];
    await until(() => url() !== undefined);
    return String(url());
  }

  /** Lets seconds pass, with their traffic. An even number: counters are looked at every other second. */
  pass(seconds: number): void {
    for (let left = seconds; left > 0; left -= 1) {
      for (const { name, traffic } of this.#services) {
        const counters = this.engine.counters.get(name);
        if (counters && traffic) carry(counters, traffic(this.#second));
      }
      this.#second += 1;
      if (this.#second % 2 === 0) this.clock.advance(SAMPLE_MS);
    }
  }
}

function carry(counters: ServicePortCounters, traffic: Partial<SceneTraffic>): void {
  const { connections = 0, bytesIn = 0, bytesOut = 0, refused = 0, active = 0, held = 0 } = traffic;
  counters.connections += Math.round(connections);
  counters.bytesIn += Math.round(bytesIn);
  counters.bytesOut += Math.round(bytesOut);
  counters.connectErrors.refused += Math.round(refused);
  counters.retries += Math.round(refused);
  counters.active = Math.round(active);
  counters.held = held;
  counters.heldTotal = Math.max(counters.heldTotal, held);
  const counts = counters.connectSeconds.counts;
  for (const [index, share] of [0.55, 0.3, 0.1, 0.04, 0.01].entries()) {
    counts[index] = (counts[index] ?? 0) + Math.round(connections * share);
  }
}

/** Records what is drained, for an engine that no one connects to. */
function sceneProxier(desired: readonly DesiredServicePort[]) {
  const drains = new Drains();
  const ports = new Map(desired.map((port) => [port.spec.name, port]));
  return {
    drains,
    drain: async (drain: Drain) => drains.drain(drain, ports),
    undrain: async (drain?: Drain) => drains.undrain(drain, ports),
    endpointsOf: (name: string) => ports.get(name)?.spec.endpoints ?? [],
  };
}

/** An engine whose counters change only with the scene. */
function sceneEngine(services: readonly SceneService[]) {
  const byName = new Map(services.map((service) => [service.name, service]));
  const counters = new Map(services.map(({ name }) => [name, newCounters()]));
  const snapshotOf = (service: SceneService): ServicePortSnapshot => {
    const { name, protocol = 'TCP', endpoints, address, port = 80 } = service;
    const listen = { address, port, traffic: 'internal' } as const;
    const code = 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE';
    const listener: ListenerStatus =
      service.broken === true
        ? { state: 'failed', listen, code, cause: 'EADDRNOTAVAIL' }
        : { state: 'listening', listen, boundPort: port };
    const own = counters.get(name) ?? newCounters();
    return { name, protocol, endpoints: endpoints.length, counters: own, listeners: [listener] };
  };
  const endpointsOf = (servicePort: string) => {
    const { endpoints = [], failing = [] } = byName.get(servicePort) ?? {};
    const active = counters.get(servicePort)?.active ?? 0;
    const share = Math.round(active / Math.max(endpoints.length - failing.length, 1));
    return endpoints.map((endpoint): EndpointSnapshot => {
      const [failed, used] = failing.includes(endpoint) ? [true, 0] : [false, share];
      return {
        servicePort,
        endpoint,
        failing: failed,
        active: used,
        connections: used * 10,
        bytesIn: used * 1000,
        bytesOut: used * 20_000,
        errors: failed ? 3 : 0,
        connectMs: failed ? undefined : 0.8,
        failingMs: failed ? 90_000 : undefined,
        lastError: failed ? { cause: 'refused', agoMs: 5000 } : undefined,
      };
    });
  };
  return {
    kind: 'linux' as const,
    counters,
    names: () => [...byName.keys()],
    activity: () => undefined,
    snapshot: (names?: ReadonlySet<string>) =>
      services.filter(({ name }) => names?.has(name) ?? true).map(snapshotOf),
    inspect: async ({ servicePorts = [] }: InspectQuery): Promise<Inspection> => ({
      ...NOTHING,
      endpoints: servicePorts.flatMap(endpointsOf),
      failing: new Map(services.map(({ name, failing = [] }) => [name, new Set(failing)])),
    }),
  };
}

function desiredOf(service: SceneService): DesiredServicePort {
  const { name, protocol = 'TCP', address, port = 80, nodePort, endpoints } = service;
  const list = endpoints.map((text) => endpoint(text));
  const spec = { name, protocol, endpoints: list, affinity: { kind: 'none' } } as const;
  const portal = { protocol, traffic: 'internal', sourceRanges: [] } as const;
  const cluster = { ...portal, kind: 'clusterIP', address, port } as const;
  const node = { ...portal, kind: 'nodePort', address: undefined, port: nodePort ?? 0 } as const;
  const portals = nodePort === undefined ? [cluster] : [cluster, node];
  return { spec, splitTraffic: false, portals };
}

/** Keeps the lines that are written. */
function sceneLog() {
  const lines: { readonly message: string; readonly keys: LogKeys }[] = [];
  const write = (message: string, keys: LogKeys = {}): void => void lines.push({ message, keys });
  let verbosity = 0;
  return {
    lines,
    get verbosity() {
      return verbosity;
    },
    setVerbosity: (level) => (verbosity = level),
    onVerbosity: () => () => undefined,
    error: write,
    warn: write,
    info: write,
    v: (_, message, keys) => write(message, keys),
  } satisfies AdjustableLog & { readonly lines: unknown };
}

/** What the admin API answers about a scene after some seconds. */
export function sceneViews(scene: AdminScene, seconds: number) {
  const sampler = startSampler(scene.clock, () => scene.engine);
  scene.pass(seconds);
  const subject = scene.subject.proxy() as ProxySubject;
  const all = { search: '', state: 'all', sort: 'name', reverse: false, offset: 0 } as const;
  return {
    sampler,
    list: (query: Partial<ServicesQuery> = {}) =>
      listServices(subject, sampler, { ...all, limit: 100, ...query }),
    details: (...names: string[]) => describeServices(subject, sampler, names),
    status: (parts: Partial<ProcessSubject> = {}) =>
      statusOf({ ...scene.subject, ...parts }, sampler),
  };
}
