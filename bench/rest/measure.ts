/** What a proxy costs while nobody uses it. */
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { processDescriptorLimit } from '../../src/proxysocket/descriptors.ts';
import { Dialogue } from '../support/dialogue.ts';
import { start } from '../support/worker.ts';
import type { RestBackendAnswer } from './backend.ts';
import type { HoldRequest } from './holder.ts';
import {
  BACKEND_HOST,
  openScene,
  SERVICE,
  type RestMemory,
  type Scene,
  type SceneOptions,
} from './scene.ts';

export type Engine = 'node' | 'linux';

export interface RestPlan {
  readonly engines: readonly Engine[];
  readonly connections: number;
  readonly sessions: number;
  readonly servicePorts: number;
  readonly endpoints: number;
  /** How long CPU is watched. Seconds. */
  readonly idleSeconds: number;
}

/** Memory for one of each; CPU in per cent of one core while nothing happens. */
export interface RestResult {
  readonly engine: Engine;
  readonly connection: RestMemory;
  readonly session: RestMemory;
  readonly servicePort: RestMemory;
  readonly endpoint: RestMemory;
  /** With one service, and nothing open. */
  readonly base: RestMemory;
  readonly idleCpu: number;
  readonly idleCpuWithConnections: number;
  /** All service ports and as many connections as the descriptors allow, at once. */
  readonly together: {
    readonly connections: number;
    readonly memory: RestMemory;
    readonly idleCpu: number;
  };
}

/** Descriptors of a proxy that are for neither connections nor service ports; it reserves 256 by itself. */
const RESERVE = 400;
/** Connections and sessions before those that count. */
const WARM_UP = 300;

/**
 * How many connections a process can carry beside so many listeners: each takes two descriptors, and an
 * eighth of what is left is kept for UDP (docs/limits.md).
 */
export function connectionsBeside(
  servicePorts: number,
  wanted: number,
  limit = processDescriptorLimit(),
): number {
  return Math.max(0, Math.min(wanted, Math.floor(((limit - RESERVE - servicePorts) * 7) / 8 / 2)));
}

export async function measureRest(
  plan: RestPlan,
  onProgress: (text: string) => void,
): Promise<RestResult[]> {
  const script = join(import.meta.dirname, 'backend.ts');
  const backend = await start<RestBackendAnswer>(script, { host: BACKEND_HOST });
  try {
    const results: RestResult[] = [];
    for (const engine of plan.engines) {
      results.push(await measureEngine(plan, engine, backend.answer, onProgress));
    }
    return results;
  } finally {
    await backend.kill();
  }
}

async function measureEngine(
  plan: RestPlan,
  engine: Engine,
  backend: RestBackendAnswer,
  onProgress: (text: string) => void,
): Promise<RestResult> {
  const say = (what: string): void => onProgress(`${engine}: ${what}`);
  const few = { engine, backend, servicePorts: 0 };
  say('connections');
  const connections = connectionsBeside(0, plan.connections);
  const open = await inScene(few, async (scene) => {
    const base = await scene.memory();
    const idleCpu = await idle(scene, plan.idleSeconds);
    const bytes = await perHeld(scene, 'TCP', connections, () => idle(scene, plan.idleSeconds));
    return { base, idleCpu, bytes };
  });
  say('UDP sessions');
  const sessions = await inScene(few, (scene) => perHeld(scene, 'UDP', plan.sessions));
  say('service ports');
  const many = { ...few, servicePorts: plan.servicePorts };
  const beside = connectionsBeside(plan.servicePorts, plan.connections);
  const ports = await inScene(many, async (scene) => {
    const alone = await scene.memory();
    const held = await perHeld(scene, 'TCP', beside, () => idle(scene, plan.idleSeconds));
    return { alone, ...held };
  });
  say('endpoints');
  const withEndpoints = await inScene({ ...few, endpoints: plan.endpoints }, (scene) =>
    scene.memory(),
  );
  return {
    engine,
    connection: open.bytes.each,
    session: sessions.each,
    servicePort: growth(open.base, ports.alone, plan.servicePorts),
    endpoint: growth(open.base, withEndpoints, plan.endpoints),
    base: open.base,
    idleCpu: open.idleCpu,
    idleCpuWithConnections: open.bytes.meanwhile ?? 0,
    together: {
      connections: beside,
      memory: ports.memory,
      idleCpu: ports.meanwhile ?? 0,
    },
  };
}

async function inScene<Result>(
  options: SceneOptions,
  work: (scene: Scene) => Promise<Result>,
): Promise<Result> {
  const scene = await openScene(options);
  try {
    return await work(scene);
  } finally {
    await scene.close();
  }
}

/** What each of so many connections or sessions takes, and what `look` finds while they are there. */
async function perHeld(
  scene: Scene,
  protocol: HoldRequest['protocol'],
  count: number,
  look?: () => Promise<number>,
): Promise<{ each: RestMemory; memory: RestMemory; meanwhile: number | undefined }> {
  const holder = new Dialogue([process.execPath, join(import.meta.dirname, 'holder.ts')]);
  const port = protocol === 'TCP' ? SERVICE.tcp : SERVICE.udp;
  const hold = (more: number): Promise<number> =>
    holder.ask({ protocol, host: SERVICE.host, port, count: more } satisfies HoldRequest);
  try {
    // So that code is loaded and pools are filled.
    const warm = await hold(Math.min(WARM_UP, Math.floor(count / 2)));
    const before = await scene.memory();
    const opened = await hold(count - warm);
    const memory = await scene.memory();
    const meanwhile = await look?.();
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

/** Per cent of one core. */
async function idle(scene: Scene, seconds: number): Promise<number> {
  const [begin, used] = [performance.now(), scene.cpu()];
  await wait(seconds * 1000);
  return (100 * (scene.cpu() - used)) / ((performance.now() - begin) / 1000);
}
