/** What an idle proxy costs. */
import { setTimeout as wait } from 'node:timers/promises';
import { processDescriptorLimit } from '../../src/proxysocket/core/descriptors.ts';
import { BACKEND, type BackendPorts } from '../support/backend.ts';
import type { EngineName, Print } from '../support/command.ts';
import { startScript } from '../support/dialogue.ts';
import { HOLDER, type HoldRequest } from '../support/holder.ts';
import { callsPerSecond, type Calls } from './calls.ts';
import {
  BACKEND_HOST,
  openScene,
  RESERVED,
  SERVICE,
  type RestMemory,
  type Scene,
  type SceneOptions,
} from './scene.ts';

export interface RestPlan {
  readonly engines: readonly EngineName[];
  readonly connections: number;
  readonly sessions: number;
  readonly servicePorts: number;
  readonly endpoints: number;
  /** How long CPU is watched. Seconds. */
  readonly idleSeconds: number;
}

/** What a proxy does while nothing happens. */
export interface RestIdle {
  /** Per cent of one core. */
  readonly cpu: number;
  /** System calls of all threads in a second, by name; undefined where nothing counts them. */
  readonly calls: Calls | undefined;
}

/** Memory for one of each. */
export interface RestResult {
  readonly engine: EngineName;
  readonly connection: RestMemory;
  readonly session: RestMemory;
  readonly servicePort: RestMemory;
  readonly endpoint: RestMemory;
  /** With one service, and nothing open. */
  readonly base: RestMemory;
  readonly idle: RestIdle;
  readonly idleWithConnections: RestIdle;
  /** The same with one service and two workers; undefined: the engine has no workers. */
  readonly twoWorkers: { readonly memory: RestMemory; readonly idle: RestIdle } | undefined;
  /** All service ports and as many connections as the descriptors allow, at once. */
  readonly together: {
    readonly connections: number;
    readonly memory: RestMemory;
    readonly idle: RestIdle;
  };
}

/** The program collects the garbage of its start 5 s after the first state. Milliseconds. */
const SETTLED_MS = 7000;

/** Connections and sessions before those that count. */
const WARM_UP = 300;

/** Descriptors for connections or sessions, beside the listener that they come in at and so many others. */
function left(servicePorts: number, limit: number): number {
  return Math.max(0, limit - RESERVED - 1 - servicePorts);
}

/** How many connections a process can carry beside so many listeners: each takes two descriptors. */
export function connectionsBeside(
  servicePorts: number,
  wanted: number,
  limit = processDescriptorLimit(),
): number {
  return Math.min(wanted, Math.floor(left(servicePorts, limit) / 2));
}

/** How many UDP sessions a process has at once: half of the descriptors (docs/reference/limits.md). */
export function sessionsWithin(wanted: number, limit = processDescriptorLimit()): number {
  return Math.min(wanted, Math.floor(left(0, limit) / 2));
}

export async function measureRest(plan: RestPlan, onProgress: Print): Promise<RestResult[]> {
  const backend = startScript(BACKEND, { host: BACKEND_HOST, ports: { tcpEcho: 0, echo: 0 } });
  try {
    const ports = await backend.ask<BackendPorts>({});
    const results: RestResult[] = [];
    for (const engine of plan.engines) {
      results.push(await measureEngine(plan, engine, ports, onProgress));
    }
    return results;
  } finally {
    await backend.kill();
  }
}

async function measureEngine(
  plan: RestPlan,
  engine: EngineName,
  backend: BackendPorts,
  onProgress: Print,
): Promise<RestResult> {
  const say = (what: string): void => onProgress(`${engine}: ${what}`);
  const few = { engine, backend, servicePorts: 0, protocol: 'TCP' } as const;
  const { idleSeconds } = plan;
  say(`${plan.connections} connections`);
  const open = await inScene(few, async (scene) => {
    const base = await scene.memory();
    const idle = await atRest(scene, idleSeconds);
    const held = await perHeld(scene, 'TCP', plan.connections, () => atRest(scene, idleSeconds));
    return { base, idle, held };
  });
  say('two workers');
  const twoWorkers =
    engine === 'linux'
      ? await inScene({ ...few, workers: 2 }, async (scene) => {
          const memory = await scene.memory();
          return { memory, idle: await atRest(scene, idleSeconds) };
        })
      : undefined;
  say(`${plan.sessions} UDP sessions`);
  const sessions = await inScene({ ...few, protocol: 'UDP' }, (scene) =>
    perHeld(scene, 'UDP', plan.sessions, async () => undefined),
  );
  say(`${plan.servicePorts} service ports`);
  const many = { ...few, servicePorts: plan.servicePorts };
  const beside = connectionsBeside(plan.servicePorts, plan.connections);
  const ports = await inScene(many, async (scene) => {
    const alone = await scene.memory();
    const held = await perHeld(scene, 'TCP', beside, () => atRest(scene, idleSeconds));
    return { alone, ...held };
  });
  say(`${plan.endpoints} endpoints`);
  const withEndpoints = await inScene({ ...few, endpoints: plan.endpoints }, (scene) =>
    scene.memory(),
  );
  return {
    engine,
    connection: open.held.each,
    session: sessions.each,
    servicePort: growth(open.base, ports.alone, plan.servicePorts),
    endpoint: growth(open.base, withEndpoints, plan.endpoints),
    base: open.base,
    idle: open.idle,
    idleWithConnections: open.held.meanwhile,
    twoWorkers,
    together: { connections: beside, memory: ports.memory, idle: ports.meanwhile },
  };
}

async function inScene<Result>(
  options: SceneOptions,
  work: (scene: Scene) => Promise<Result>,
): Promise<Result> {
  const scene = await openScene(options);
  try {
    await wait(SETTLED_MS);
    return await work(scene);
  } finally {
    await scene.close();
  }
}

/** What each of so many connections or sessions takes, and what `look` finds while they are there. */
async function perHeld<Found>(
  scene: Scene,
  protocol: HoldRequest['protocol'],
  count: number,
  look: () => Promise<Found>,
): Promise<{ each: RestMemory; memory: RestMemory; meanwhile: Found }> {
  const holder = startScript(HOLDER);
  const hold = (more: number): Promise<number> =>
    holder.ask({ ...SERVICE, protocol, count: more } satisfies HoldRequest);
  try {
    // So that code is loaded and pools are filled.
    const warm = await hold(Math.min(WARM_UP, Math.floor(count / 2)));
    const before = await scene.memory();
    const opened = await hold(count - warm);
    const memory = await scene.memory();
    const meanwhile = await look();
    return { each: growth(before, memory, opened), memory, meanwhile };
  } finally {
    await holder.kill();
  }
}

function growth(before: RestMemory, after: RestMemory, count: number): RestMemory {
  return {
    anonymous: (after.anonymous - before.anonymous) / count,
    heap: (after.heap - before.heap) / count,
  };
}

/** The calls are counted afterwards, since that takes CPU itself. */
async function atRest(scene: Scene, seconds: number): Promise<RestIdle> {
  const [begin, used] = [performance.now(), scene.cpu()];
  await wait(seconds * 1000);
  const cpu = (100 * (scene.cpu() - used)) / ((performance.now() - begin) / 1000);
  return { cpu, calls: await callsPerSecond(scene.proxy.pid, seconds) };
}
