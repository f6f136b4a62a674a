import { setTimeout as wait } from 'node:timers/promises';
import type { Print } from '../support/command.ts';
import { startScript, type Dialogue } from '../support/dialogue.ts';
import { cpuSeconds, memory } from '../support/process-usage.ts';
import type { SubjectUsage } from './subject.ts';
import type { Burst } from './churn.ts';
import { startWatcher, type Watcher } from './watcher.ts';

export interface SoakPlan {
  readonly events: number;
  readonly services: number;
}

/** How things stand after some of the events. */
interface Mark {
  readonly events: number;
  /** Bytes. */
  readonly heap: number;
  readonly resident: number;
}

interface SoakResult {
  /** Events that have come over watches; what happens around a list comes with the list. */
  readonly watched: number;
  readonly lists: number;
  /** Change sets that the clients got, all together. */
  readonly changeSets: number;
  readonly seconds: number;
  /** CPU of `kube to-api` for one event. Milliseconds. */
  readonly cpuMs: number;
  readonly marks: readonly Mark[];
  /** From the mark from which on everything has been seen to the last one. Bytes. */
  readonly growth: number;
}

/** Nodes whose view has a watcher. */
const NODES = ['node-a', 'node-1', ''];
/** Events between two looks at what has arrived. */
const BURST = 1000;
/** Marks, and the one from which on the heap has to be flat. */
const MARKS = 10;
const FIRST_FLAT = 2;
/** What the heap may grow by from there. Bytes. */
export const MAX_GROWTH = 1_500_000;

const script = (name: string): string => new URL(name, import.meta.url).pathname;

/**
 * Sends events through an API server, `kube to-api` and its clients, each a process of its own. Fails
 * when something does not arrive. Needs /proc.
 */
export async function measureSoak(
  { events, services }: SoakPlan,
  progress: Print,
): Promise<SoakResult> {
  const api = startScript(script('api.ts'), { services });
  const watchers: Watcher[] = [];
  let subject: Dialogue | undefined;
  try {
    const url = await api.ask<string>({ do: 'url' });
    subject = startScript(script('subject.ts'), { url });
    const port = await subject.ask<number>({ do: 'port' });
    watchers.push(...NODES.map((name) => startWatcher(port, name)));
    const rounds = Math.ceil(events / BURST);
    let expected = 0;
    const marks: Mark[] = [];
    const begin = performance.now();
    const beginCpu = cpuSeconds(subject.pid) ?? 0;
    for (let round = 1; round <= rounds; round += 1) {
      const { address, watched } = await api.ask<Burst>({ do: 'burst', round, events: BURST });
      expected += watched;
      await inTime(Promise.all(watchers.map((watcher) => watcher.has(address))), round);
      if (round % Math.ceil(rounds / MARKS) !== 0) continue;
      marks.push(await markOf(subject, round * BURST));
      progress(`${round * BURST} events`);
    }
    const seconds = (performance.now() - begin) / 1000;
    const cpu = (cpuSeconds(subject.pid) ?? 0) - beginCpu;
    const growth = await growthSince(marks[FIRST_FLAT - 1] ?? marks[0], subject);
    check(watchers, services);
    const usage = await inTime(usageWith(subject, expected), rounds);
    return {
      watched: usage.events,
      lists: usage.lists,
      changeSets: watchers.reduce((sum, { changes }) => sum + changes, 0),
      seconds,
      cpuMs: (1000 * cpu) / (rounds * BURST),
      marks,
      growth,
    };
  } finally {
    await Promise.all(watchers.map((watcher) => watcher.end()));
    await subject?.kill();
    await api.kill();
  }
}

async function inTime<T>(arrival: Promise<T>, round: number): Promise<T> {
  const timeout = new AbortController();
  const late = wait(60_000, undefined, { signal: timeout.signal }).then(() => {
    throw new Error(`burst ${round} did not arrive within a minute`);
  });
  try {
    return await Promise.race([arrival, late]);
  } finally {
    timeout.abort();
    late.catch(() => undefined);
  }
}

/**
 * The usage after so many events: the last service arrives before the last endpoints and nodes, which have watches of
 * their own.
 */
async function usageWith(subject: Dialogue, events: number): Promise<SubjectUsage> {
  for (;;) {
    const usage = await subject.ask<SubjectUsage>({ do: 'usage' });
    if (usage.events >= events) return usage;
    await wait(50);
  }
}

async function markOf(subject: Dialogue, events: number): Promise<Mark> {
  const { heap } = await subject.ask<SubjectUsage>({ do: 'usage' });
  return { events, heap, resident: memory(subject.pid)?.resident ?? 0 };
}

/** What is only on its way out, such as buffers of sockets, is gone after a while; what is kept is not. */
async function growthSince(first: Mark | undefined, subject: Dialogue): Promise<number> {
  let growth = Infinity;
  for (let attempt = 0; attempt < 10 && growth > MAX_GROWTH; attempt += 1) {
    if (attempt > 0) await wait(500);
    const { heap } = await subject.ask<SubjectUsage>({ do: 'usage' });
    growth = heap - (first?.heap ?? heap);
  }
  return growth;
}

function check(watchers: readonly Watcher[], services: number): void {
  for (const watcher of watchers) {
    if (watcher.services === services + 1) continue;
    throw new Error(`a client has ${watcher.services} services of ${services + 1}`);
  }
}
