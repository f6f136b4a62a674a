import { KpngError } from '../errors.ts';
import { opInvalid } from '../store/events.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import { type Clock, pause, type Timer } from '../util/clock.ts';
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
import {
  type Batch,
  listAll,
  type ObjectEvent,
  tooLarge,
  triggerTimes,
  watchFrom,
} from './list-watch.ts';

/**
 * Spaces out attempts to reach a server while it is unreachable: all requests to it wait, and one at a time tries,
 * with growing delays. The first success releases the others.
 */
export class Outage {
  readonly #clock: Clock;
  readonly #backoff: Backoff;
  readonly #waiting: (() => void)[] = [];
  /** Up: no one waits. Waiting: until the timer. Probing: one is trying. */
  #state: 'up' | 'waiting' | 'probing' = 'up';
  #timer: Timer | undefined;
  #retryAt = 0;

  constructor(clock: Clock, policy: BackoffPolicy, random: () => number) {
    this.#clock = clock;
    this.#backoff = new Backoff(policy, random);
  }

  /** Resolves when the caller may try. The caller has to report the result. */
  async turn(signal: AbortSignal): Promise<void> {
    if (this.#state === 'up' || signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const go = (): void => resolve();
    this.#waiting.push(go);
    signal.addEventListener('abort', go);
    this.#allowOneAttempt();
    await promise;
    signal.removeEventListener('abort', go);
  }

  answered(): void {
    if (this.#state === 'up') return;
    this.#state = 'up';
    this.#timer?.cancel();
    this.#backoff.reset();
    for (const go of this.#waiting.splice(0)) go();
  }

  /** The server could not be reached. Returns the delay until the next attempt in milliseconds. */
  failed(): number {
    const now = this.#clock.now();
    // Requests already in flight when it went down add no information.
    if (this.#state === 'waiting') return Math.max(0, this.#retryAt - now);
    const wait = this.#backoff.next();
    this.#state = 'waiting';
    this.#retryAt = now + wait;
    this.#timer = this.#clock.setTimer(wait, () => {
      this.#timer = undefined;
      this.#allowOneAttempt();
    });
    return wait;
  }

  #allowOneAttempt(): void {
    if (this.#state !== 'waiting' || this.#timer !== undefined) return;
    const go = this.#waiting.shift();
    if (go === undefined) return;
    this.#state = 'probing';
    go();
  }
}

export interface ReflectorOptions<T> {
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
 */
export class Reflector<T> {
  readonly #options: ReflectorOptions<T>;
  readonly #backoff: Backoff;
  /** Why to list; undefined: watch from the known state. */
  #why: 'start' | Cause | undefined = 'start';
  /** Since the last watch was opened. */
  #hasFailed = false;
  /** Milliseconds since the epoch, to compare with other programs' timestamps. */
  readonly #startedAt = Date.now();
  /** The version of each known object. */
  #versions = new Map<string, string>();
  /** The version of the known state. */
  #version = '';

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
    this.#backoff = new Backoff(options.backoff, options.random);
  }

  /** Resolves when the signal aborts. Rejects only because of a bug. */
  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#options.outage.turn(signal);
      if (signal.aborted) return;
      try {
        if (this.#why === undefined) await this.#watch(signal);
        else await this.#list(this.#why, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof KubeFailure)) throw error;
        await this.#recover(error, signal);
      }
    }
  }

  async #list(why: 'start' | Cause, signal: AbortSignal): Promise<void> {
    const { resource, apply, api } = this.#options;
    const startedAt = api.clock.now();
    const seen = new Map<string, string>();
    const changes = new Map<string, T | undefined>();
    const { version, ...listed } = await listAll(resource, api, signal, (raw, listVersion) => {
      const key = this.#keyOf(raw);
      if (key === undefined) return;
      const version = versionOf(raw) ?? '';
      seen.set(key, version);
      // A list mostly repeats the known state, which need not be decoded and compared. But after the server is
      // restored from a backup, equal versions no longer mean equal objects.
      const isKnown = version !== '' && this.#versions.get(key) === version;
      if (!isKnown || isOlder(listVersion, this.#version)) changes.set(key, resource.decode(raw));
    });
    for (const key of this.#versions.keys()) if (!seen.has(key)) changes.set(key, undefined);
    this.#versions = seen;
    apply(changes, true);
    this.#version = version;
    this.#why = undefined;
    const durationMs = api.clock.now() - startedAt;
    kubeListed.publish({ server: api.server, resource: resource.name, ...listed, durationMs, why });
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const { resource, random, api, report } = this.#options;
    let openedAt = Number.POSITIVE_INFINITY;
    const isStable = (): boolean => api.clock.now() - openedAt >= api.limits.stableMs;
    const onOpen = (): void => {
      openedAt = api.clock.now();
      const recovered = this.#hasFailed;
      this.#hasFailed = false;
      kubeWatching.publish({ server: api.server, resource: resource.name, recovered });
      report?.();
    };
    const onBatch = (batch: Batch): void => this.#apply(batch);
    try {
      const version = this.#version;
      await watchFrom(resource, api, { signal, random, version, onOpen, onBatch });
    } finally {
      if (isStable()) this.#backoff.reset();
    }
    // Watches that always end at once would loop without delay.
    if (isStable()) return;
    throw new KubeFailure('short', `watch ${resource.name}: the server ended it early`);
  }

  #apply(batch: Batch): void {
    const { apply, resource, api } = this.#options;
    if (kubeReceived.hasSubscribers) {
      kubeReceived.publish({ resource: resource.name, ...countsIn(batch) });
    }
    if (resource.name === 'endpointslices' && kubeTriggered.hasSubscribers) {
      // Only for changes since the start: earlier ones say nothing about this program's latency.
      const times = triggerTimes(batch.events, this.#startedAt);
      if (times.length > 0) kubeTriggered.publish({ times });
    }
    const changes = new Map<string, T | undefined>();
    for (const { type, raw } of batch.events) {
      const key = this.#keyOf(raw);
      if (key === undefined) continue;
      changes.set(key, type === 'DELETED' ? undefined : resource.decode(raw));
      if (type === 'DELETED') this.#versions.delete(key);
      else this.#versions.set(key, versionOf(raw) ?? '');
    }
    const { maxObjects } = api.limits;
    if (this.#versions.size > maxObjects) {
      // They are not applied, so a list must not leave them out as known.
      for (const key of changes.keys()) this.#versions.set(key, '');
      throw tooLarge(`watch ${resource.name}`, `${maxObjects} objects`);
    }
    if (changes.size > 0) apply(changes, false);
    this.#version = batch.version;
  }

  /** Undefined for an invalid object, which is reported and left out. */
  #keyOf(raw: Json): string | undefined {
    const { resource, api } = this.#options;
    try {
      return keyOf(resource.kind, raw);
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      opInvalid.publish({ source: api.sourceName, error });
      return undefined;
    }
  }

  async #recover(failure: KubeFailure, signal: AbortSignal): Promise<void> {
    const { outage, api, resource, report } = this.#options;
    const { kind, isOutage, isRoutine: routine, retryAfterMs = 0 } = failure;
    const relist = RELIST.has(kind);
    if (relist) this.#why = kind;
    this.#hasFailed = true;
    // The outage controls the delay; it lets one reflector try at a time. Otherwise, never sooner than the server requests.
    const retryInMs = isOutage ? outage.failed() : this.#backoff.next() + retryAfterMs;
    const what = { server: api.server, resource: resource.name, kind, error: failure };
    kubeFailed.publish({ ...what, routine, relist, retryInMs });
    report?.(failure, retryInMs);
    if (!isOutage) await pause(retryInMs, api.clock, signal);
  }
}

function countsIn({ events, bookmarks }: Batch): Omit<KubeReceived, 'resource'> {
  const of = (type: ObjectEvent['type']) => events.filter((each) => each.type === type).length;
  return { added: of('ADDED'), modified: of('MODIFIED'), deleted: of('DELETED'), bookmarks };
}
