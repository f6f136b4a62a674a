import { setTimeout as wait } from 'node:timers/promises';
import type { Print } from '../support/command.ts';
import { startScript, type Dialogue } from '../support/dialogue.ts';
import { cpuSeconds, memory } from '../support/process-usage.ts';
import type { ClusterSize } from './cluster.ts';
import type { FirstSync } from './watchers.ts';

/** Of which the median counts. */
const FIRST_SYNCS = 3;
const script = (name: string): string => new URL(name, import.meta.url).pathname;

/** How many watchers there are while it is measured. */
interface WatcherResult {
  readonly watchers: number;
  /** CPU of the server for one change of an endpoint, until every watcher has it. Milliseconds. */
  readonly cpuMs: number;
  /** Time of such a change. Milliseconds; median. */
  readonly changeMs: number;
  /** CPU of the server to give one more watcher the whole state. Milliseconds. */
  readonly connectCpuMs: number;
  /** Of the server. Bytes. */
  readonly resident: number;
}

export interface ControlResult {
  /** Median. */
  readonly firstSync: FirstSync;
  /** Of the server with the state, before the first client. Bytes. */
  readonly residentBefore: number;
  readonly results: readonly WatcherResult[];
}

export interface ControlPlan extends ClusterSize {
  /** Ascending. */
  readonly watchers: readonly number[];
  readonly changes: number;
}

/** Of the last change. */
let generation = 0;

/** Runs server and clients as processes of their own. Needs /proc. */
export async function measureControl(plan: ControlPlan, progress: Print): Promise<ControlResult> {
  const { services, nodes } = plan;
  const server = startScript(script('server.ts'), { services, nodes } satisfies ClusterSize);
  try {
    const port = await server.ask<number>({ do: 'port' });
    const residentBefore = memory(server.pid)?.resident ?? 0;
    progress('first Sync');
    const firstSyncs: FirstSync[] = [];
    for (let i = 0; i < FIRST_SYNCS; i++) {
      // In a new process each time, whose code has to be compiled.
      const client = startScript(script('watchers.ts'), { port });
      firstSyncs.push(await client.ask<FirstSync>({ do: 'sync' }));
      await client.kill();
    }
    const clients = startScript(script('watchers.ts'), { port });
    try {
      const results: WatcherResult[] = [];
      for (const watchers of plan.watchers) {
        progress(`${watchers} watchers`);
        const former = results.at(-1)?.watchers ?? 0;
        results.push(await measureWatchers(plan, server, clients, former, watchers));
      }
      const firstSync = middle(firstSyncs, ({ ms }) => ms);
      return { firstSync, residentBefore, results };
    } finally {
      await clients.kill();
    }
  } finally {
    await server.kill();
  }
}

async function measureWatchers(
  plan: ControlPlan,
  server: Dialogue,
  clients: Dialogue,
  former: number,
  watchers: number,
): Promise<WatcherResult> {
  const cpu = (): number => cpuSeconds(server.pid) ?? 0;
  const beforeConnect = cpu();
  await clients.ask({ do: 'connect', count: watchers });
  const connectCpuMs = (1000 * (cpu() - beforeConnect)) / (watchers - former);
  const change = async (): Promise<number> => {
    const begin = performance.now();
    generation++;
    await server.ask({ do: 'change', service: (generation * 37) % plan.services, generation });
    await clients.ask({ do: 'wait' });
    return performance.now() - begin;
  };
  // The first ones run code that has not been optimised yet.
  const warmUp = Math.ceil(plan.changes / 5);
  for (let n = 0; n < warmUp; n++) await change();
  await wait(200);
  const begin = cpu();
  const times: number[] = [];
  for (let n = 0; n < plan.changes; n++) times.push(await change());
  const cpuMs = (1000 * (cpu() - begin)) / plan.changes;
  return {
    watchers,
    cpuMs,
    changeMs: middle(times, (ms) => ms),
    connectCpuMs,
    resident: memory(server.pid)?.resident ?? 0,
  };
}

function middle<T>(list: readonly T[], by: (item: T) => number): T {
  const sorted = list.toSorted((a, b) => by(a) - by(b));
  const item = sorted[Math.floor(sorted.length / 2)];
  if (item === undefined) throw new Error('nothing was measured');
  return item;
}
