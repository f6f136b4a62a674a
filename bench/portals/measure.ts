import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { summarize } from '../report/stats.ts';
import { startScript, type Dialogue } from '../support/dialogue.ts';
import { cpuSecondsWithPrograms, memory } from '../support/process-usage.ts';
import type { ClientRequest } from './client.ts';
import { BenchNetwork, ENDPOINT_ADDRESSES } from './network.ts';
import { times, type ChangeResult, type PortalResult } from './result.ts';
import { SERVICE_PORT, serviceAddress } from './services.ts';
import {
  CHANGE_KINDS,
  type ChangeKind,
  type ColdStart,
  type Moment,
  type Subject,
} from './subject.ts';

interface MeasureOptions {
  /** The service addresses are the host's own. */
  readonly local: boolean;
  readonly servicePorts: number;
  /** Cold starts, each in a namespace of its own. */
  readonly rounds: number;
  /** Services that are added, changed and removed after the last one. */
  readonly changes: number;
  /** How long to watch the proxy while nothing changes. Seconds. */
  readonly idleSeconds: number;
  readonly open: (network: BenchNetwork) => Subject;
}

interface Sample {
  readonly kind: ChangeKind;
  readonly done?: number | undefined;
  readonly seen?: number | undefined;
  readonly processes?: number;
}

/** After so many milliseconds the changes end, if there were enough for a median. */
const ENOUGH_MS = 5000;
const ENOUGH_CHANGES = 3;

/** How long a client waits until it sees a change. Milliseconds. */
const SEEN_WITHIN = 300_000;

/** What a client sees of each change. */
const SEEN: Readonly<Record<ChangeKind, string>> = {
  added: 'any',
  endpoint: ENDPOINT_ADDRESSES[1],
  removed: 'refused',
};

/** Measures one proxy with one number of service ports. */
export async function measure(options: MeasureOptions): Promise<PortalResult> {
  const colds: (ColdStart & { cpu: number })[] = [];
  for (let round = 1; round < options.rounds; round += 1) {
    await inNamespace(options, async (subject) => {
      colds.push(await coldStart(subject, options.servicePorts));
    });
  }
  return inNamespace(options, async (subject, network) => {
    const cold = await coldStart(subject, options.servicePorts);
    colds.push(cold);
    const script = join(import.meta.dirname, 'client.ts');
    const canSee = cold.served === options.servicePorts;
    const client = canSee ? startScript(script, {}, network.command()) : undefined;
    try {
      await startOver(subject);
      const { resident, anonymous } = memory(subject.pid) ?? NO_MEMORY;
      const changes = await measureChanges(subject, client, options);
      const idleCpu = await idle(subject, options.idleSeconds);
      return {
        subject: subject.name,
        servicePorts: options.servicePorts,
        served: cold.served,
        cold: summarize(colds.map(({ ms }) => ms)) ?? none,
        coldCpu: summarize(colds.map(({ cpu }) => cpu))?.median ?? 0,
        coldProcesses: cold.processes,
        changes,
        idleCpu,
        resident,
        anonymous,
        residentLater: (memory(subject.pid) ?? NO_MEMORY).resident,
      };
    } finally {
      await client?.kill();
    }
  });
}

const NO_MEMORY = { resident: 0, anonymous: 0 };
const none = { median: 0, min: 0, max: 0, samples: 0 };

async function inNamespace<Result>(
  { local, open }: MeasureOptions,
  action: (subject: Subject, network: BenchNetwork) => Promise<Result>,
): Promise<Result> {
  const network = new BenchNetwork({ local });
  try {
    const subject = open(network);
    try {
      return await action(subject, network);
    } finally {
      await subject.close();
    }
  } finally {
    network.remove();
  }
}

async function coldStart(subject: Subject, services: number): Promise<ColdStart & { cpu: number }> {
  // Answers once it has loaded its code, which is no part of what is measured.
  await subject.processes();
  const before = cpuOf(subject);
  const cold = await subject.start(services);
  return { ...cold, cpu: cpuOf(subject) - before };
}

/**
 * Changes of a proxy at rest, which it reports as done, then as many that a client waits for: it tries so often that it
 * would slow down the others.
 */
async function measureChanges(
  subject: Subject,
  client: Dialogue | undefined,
  { servicePorts, changes }: MeasureOptions,
): Promise<Record<ChangeKind, ChangeResult>> {
  const samples: Sample[] = [];
  let rounds = changes;
  // Kind by kind, so that none is measured in the wake of another: a change of rules runs a program.
  for (const kind of CHANGE_KINDS) {
    rounds = await upTo(rounds, async (round) => {
      samples.push({ kind, ...(await done(subject, kind, servicePorts + round)) });
    });
  }
  let seenRounds = client === undefined ? 0 : changes;
  for (const kind of CHANGE_KINDS) {
    seenRounds = await upTo(seenRounds, async (round) => {
      const n = servicePorts + changes + round;
      samples.push({ kind, seen: client && (await seen(subject, client, kind, n)) });
    });
  }
  return {
    added: result('added', samples),
    endpoint: result('endpoint', samples),
    removed: result('removed', samples),
  };
}

/** How long a proxy runs no program before its start counts as over, and how long that is waited for. */
const START_OVER_MS = 300;
const START_OVER_WITHIN_MS = 10_000;

/**
 * Waits until the proxy has done what it does after its first state, such as looking for what others
 * have left: the programs that it runs for that are not those of a change.
 */
async function startOver(subject: Subject): Promise<void> {
  const end = performance.now() + START_OVER_WITHIN_MS;
  let before = await subject.processes();
  while (performance.now() < end) {
    await wait(START_OVER_MS);
    const now = await subject.processes();
    if (now === before) return;
    before = now;
  }
}

/** Does something several times, or until it has taken long enough. Resolves with how often. */
async function upTo(times: number, action: (round: number) => Promise<void>): Promise<number> {
  const end = performance.now() + ENOUGH_MS;
  for (let round = 0; round < times; round += 1) {
    if (round >= ENOUGH_CHANGES && performance.now() > end) return round;
    await action(round);
  }
  return times;
}

/** Makes a change and waits until the proxy has nothing to do for it any more. */
async function done(
  subject: Subject,
  kind: ChangeKind,
  n: number,
): Promise<Pick<Sample, 'done' | 'processes'>> {
  const before = await subject.processes();
  const at = await subject.change(kind, n);
  const doneAt = await subject.settled();
  const processes = (await subject.processes()) - before;
  return { done: doneAt && doneAt - at, processes };
}

/** Makes a change and waits until it is done. Resolves with when the client saw it, in milliseconds from the change. */
async function seen(
  subject: Subject,
  client: Dialogue,
  kind: ChangeKind,
  n: number,
): Promise<number> {
  const request: ClientRequest = {
    address: serviceAddress(n),
    port: SERVICE_PORT,
    until: SEEN[kind],
    within: SEEN_WITHIN,
  };
  const answer = client.ask<Moment>(request);
  const at = await subject.change(kind, n);
  const seenAt = await answer;
  await subject.settled();
  return Math.max(0, seenAt - at);
}

function result(kind: ChangeKind, samples: readonly Sample[]): ChangeResult {
  const known = (pick: (sample: Sample) => number | undefined) =>
    times(samples.flatMap((sample) => (sample.kind === kind ? (pick(sample) ?? []) : [])));
  return {
    done: known((sample) => sample.done),
    seen: known((sample) => sample.seen),
    processes: known(({ processes }) => processes)?.median ?? 0,
  };
}

/** Per cent of one core. */
async function idle(subject: Subject, seconds: number): Promise<number> {
  const [begin, used] = [performance.now(), cpuOf(subject)];
  await wait(seconds * 1000);
  return (100 * (cpuOf(subject) - used)) / ((performance.now() - begin) / 1000);
}

/** Seconds, programs included. */
function cpuOf(subject: Subject): number {
  return subject.pid === 0 ? 0 : (cpuSecondsWithPrograms(subject.pid) ?? 0);
}
