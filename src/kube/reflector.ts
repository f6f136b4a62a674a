import { opInvalid } from '../store/events.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import { type Clock, pause } from '../util/clock.ts';
import type { KubeApi } from './api.ts';
import {
  kubeFailed,
  kubeListed,
  kubeReceived,
  type KubeReceived,
  kubeTriggered,
  kubeWatching,
} from './events.ts';
import { type Cause, KubeFailure } from './failure.ts';
import { type Json, isOlder, keyOf, versionOf } from './json.ts';
import type { Resource } from './resource.ts';
import { listAll, type ObjectEvent, tooLarge, triggerTimes, watchFrom } from './list-watch.ts';

/**
 * Spaces out attempts to reach a server while it is unreachable: all requests to it wait, and one at a time tries,
 * with growing delays. The first success releases the others, and so does the signal.
 */
export class Outage {
  readonly #clock: Clock;
  readonly #backoff: Backoff;
  /** What requests wait for: the end of a delay, or of an attempt. Undefined: the server can be reached. */
  #obstacle: PromiseWithResolvers<void> | undefined;
  #isDelay = false;
  #retryAt = 0;

  constructor(clock: Clock, backoff: Backoff, signal: AbortSignal) {
    this.#clock = clock;
    this.#backoff = backoff;
    signal.addEventListener('abort', () => this.answered());
  }

  /** Resolves when the caller may try. The caller has to report the result. */
  async turn(): Promise<void> {
    // The caller that has just failed goes behind those that wait.
    await Promise.resolve();
    while (this.#obstacle !== undefined) {
      const obstacle = this.#obstacle;
      await obstacle.promise;
      if (this.#obstacle !== obstacle) continue;
      this.#obstacle = Promise.withResolvers();
      this.#isDelay = false;
      return;
    }
  }

  answered(): void {
    this.#obstacle?.resolve();
    this.#obstacle = undefined;
    this.#isDelay = false;
    this.#backoff.reset();
  }

  /** The server could not be reached. Returns the delay until the next attempt in milliseconds. */
  failed(): number {
    const now = this.#clock.now();
    // Requests already in flight when it went down add no information.
    if (this.#isDelay) return Math.max(0, this.#retryAt - now);
    const [attempt, delay] = [this.#obstacle, Promise.withResolvers<void>()];
    const wait = this.#backoff.next();
    this.#retryAt = now + wait;
    this.#obstacle = delay;
    this.#isDelay = true;
    this.#clock.setTimer(wait, () => delay.resolve());
    attempt?.resolve();
    return wait;
  }
}

export interface Reflection<T> {
  readonly resource: Resource<T>;
  readonly api: KubeApi;
  readonly outage: Outage;
  readonly backoff: BackoffPolicy;
  readonly random: () => number;
  /** Takes changes that belong together; undefined: the object was deleted. `complete`: they complete the state. */
  readonly apply: (changes: ReadonlyMap<string, T | undefined>, complete: boolean) => void;
  /** Called when the resource is being watched, and with the failure when it is not. */
  readonly report?: (failure?: KubeFailure, retryInMs?: number) => void;
}

/** After these there is no version to continue from. */
const RELIST: ReadonlySet<Cause> = new Set(['gone', 'malformed', 'too-large']);

/**
 * Follows the objects of one resource: lists them, watches from there, and starts over after each interruption. One
 * request at a time; failures are retried with growing delays, which reset once a watch has lasted for a while.
 * Resolves when the signal aborts. Rejects only because of a bug.
 */
export async function reflect<T>(
  { resource, api, outage, backoff: policy, random, apply, report }: Reflection<T>,
  signal: AbortSignal,
): Promise<void> {
  const { limits, clock } = api;
  const backoff = new Backoff(policy, random);
  /** Milliseconds since the epoch, to compare with other programs' timestamps. */
  const startedAt = Date.now();
  /** Why to list; undefined: watch from the known state. */
  let why: 'start' | Cause | undefined = 'start';
  /** Since the last watch was opened. */
  let hasFailed = false;
  /** The version of each known object. */
  let versions = new Map<string, string>();
  /** The version of the known state. */
  let known = '';

  /** Undefined for an invalid object, which is reported and left out. */
  const validKey = (raw: Json): string | undefined => {
    const key = keyOf(resource.kind, raw);
    if (typeof key === 'string') return key;
    opInvalid.publish({ source: api.sourceName, error: key });
    return undefined;
  };

  const list = async (reason: 'start' | Cause): Promise<void> => {
    const begunAt = clock.now();
    const seen = new Map<string, string>();
    const changes = new Map<string, T | undefined>();
    const { version, ...listed } = await listAll(resource, api, signal, (raw, listVersion) => {
      const key = validKey(raw);
      if (key === undefined) return;
      const version = versionOf(raw) ?? '';
      seen.set(key, version);
      // A list mostly repeats the known state, which need not be decoded and compared. But after the server is
      // restored from a backup, equal versions no longer mean equal objects.
      const isKnown = version !== '' && versions.get(key) === version;
      if (!isKnown || isOlder(listVersion, known)) changes.set(key, resource.decode(raw));
    });
    for (const key of versions.keys()) if (!seen.has(key)) changes.set(key, undefined);
    versions = seen;
    apply(changes, true);
    known = version;
    why = undefined;
    const what = { server: api.server, resource: resource.name, why: reason };
    kubeListed.publish({ ...what, ...listed, durationMs: clock.now() - begunAt });
  };

  const onEvents = (events: readonly ObjectEvent[], version: string): void => {
    if (kubeReceived.hasSubscribers) {
      kubeReceived.publish({ resource: resource.name, ...countsIn(events) });
    }
    if (resource.name === 'endpointslices' && kubeTriggered.hasSubscribers) {
      // Only for changes since the start: earlier ones say nothing about this program's latency.
      const times = triggerTimes(events, startedAt);
      if (times.length > 0) kubeTriggered.publish({ times });
    }
    const changes = new Map<string, T | undefined>();
    for (const { type, raw } of events) {
      const key = type === 'BOOKMARK' ? undefined : validKey(raw);
      if (key === undefined) continue;
      changes.set(key, type === 'DELETED' ? undefined : resource.decode(raw));
      if (type === 'DELETED') versions.delete(key);
      else versions.set(key, versionOf(raw) ?? '');
    }
    if (versions.size > limits.maxObjects) {
      // They are not applied, so a list must not leave them out as known.
      for (const key of changes.keys()) versions.set(key, '');
      throw tooLarge(`watch ${resource.name}`, `${limits.maxObjects} objects`);
    }
    if (changes.size > 0) apply(changes, false);
    known = version;
  };

  const watch = async (): Promise<void> => {
    let openedAt = Number.POSITIVE_INFINITY;
    const isStable = (): boolean => clock.now() - openedAt >= limits.stableMs;
    const onOpen = (): void => {
      openedAt = clock.now();
      kubeWatching.publish({ server: api.server, resource: resource.name, recovered: hasFailed });
      hasFailed = false;
      report?.();
    };
    try {
      const version = known;
      await watchFrom(resource, api, { signal, random, version, onOpen, onEvents });
    } finally {
      if (isStable()) backoff.reset();
    }
    // Watches that always end at once would loop without delay.
    if (isStable()) return;
    throw new KubeFailure('short', `watch ${resource.name}: the server ended it early`);
  };

  for (;;) {
    await outage.turn();
    if (signal.aborted) return;
    try {
      if (why === undefined) await watch();
      else await list(why);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof KubeFailure)) throw error;
      const { kind, isOutage, isRoutine: routine, retryAfterMs = 0 } = error;
      const relist = RELIST.has(kind);
      if (relist) why = kind;
      hasFailed = true;
      // The outage controls the delay; it lets one resource try at a time. Otherwise, never sooner than the server requests.
      const retryInMs = isOutage ? outage.failed() : backoff.next() + retryAfterMs;
      const what = { server: api.server, resource: resource.name, kind, error };
      kubeFailed.publish({ ...what, routine, relist, retryInMs });
      report?.(error, retryInMs);
      if (!isOutage) await pause(retryInMs, clock, signal);
    }
  }
}

function countsIn(events: readonly ObjectEvent[]): Omit<KubeReceived, 'resource'> {
  const of = (type: ObjectEvent['type']) => events.filter((each) => each.type === type).length;
  const [added, modified, deleted] = [of('ADDED'), of('MODIFIED'), of('DELETED')];
  return { added, modified, deleted, bookmarks: of('BOOKMARK') };
}
