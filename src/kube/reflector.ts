import { KpngError } from '../errors.ts';
import { opInvalid } from '../store/events.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import { pause } from '../util/clock.ts';
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
import { type Json, type ObjectName, isOlder, keyOf, nameOf, versionOf } from './json.ts';
import { listAll, tooLarge } from './list.ts';
import type { Outage } from './outage.ts';
import type { Resource, ResourceName } from './resource.ts';
import { type Batch, type ObjectEvent, triggerTimes, watchFrom } from './watch.ts';

/** The destination of the objects. Events report the rest. */
export interface ReflectorTarget<T> {
  /** Changes that belong together; undefined: the object was deleted. `complete`: they complete the state. */
  apply(changes: ReadonlyMap<string, T | undefined>, complete: boolean): void;
  watching?(): void;
  /** Retried after `retryInMs`. */
  failed?(failure: KubeFailure, retryInMs: number): void;
}

export interface ReflectorOptions<T> {
  readonly resource: Resource<T>;
  readonly api: KubeApi;
  readonly target: ReflectorTarget<T>;
  readonly outage: Outage;
  readonly backoff: BackoffPolicy;
  readonly random: () => number;
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
  /** Undefined: list. */
  #version: string | undefined;
  #why: 'start' | Cause = 'start';
  /** Since the last watch was opened. */
  #hasFailed = false;
  /** Milliseconds since the epoch, to compare with other programs' timestamps. */
  readonly #startedAt = Date.now();
  /** The version of each known object. */
  #versions = new Map<string, string>();
  /** The version of the known state. */
  #newest = '';

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
    this.#backoff = new Backoff(options.backoff, options.random);
  }

  /** Resolves when the signal aborts. Rejects only because of a bug. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      let failure: KubeFailure | undefined;
      try {
        await this.#options.outage.turn(signal);
        if (signal.aborted) return;
        if (this.#version === undefined) await this.#list(signal);
        else failure = await this.#watch(this.#version, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof KubeFailure)) throw error;
        failure = error;
      }
      if (failure !== undefined) await this.#recover(failure, signal);
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { resource, target, api } = this.#options;
    const startedAt = api.clock.now();
    const seen = new Map<string, string>();
    const changes = new Map<string, T | undefined>();
    const listed = await listAll(resource, api, signal, (raw, listVersion) => {
      const name = this.#nameOf(raw);
      if (name === undefined) return;
      const key = keyOf(name);
      const version = versionOf(raw) ?? '';
      seen.set(key, version);
      // A list mostly repeats the known state, which need not be decoded and compared. But after the server is
      // restored from a backup, equal versions no longer mean equal objects.
      const isKnown = version !== '' && this.#versions.get(key) === version;
      if (isKnown && !isOlder(listVersion, this.#newest)) return;
      changes.set(key, resource.decode(name, raw));
    });
    for (const key of this.#versions.keys()) if (!seen.has(key)) changes.set(key, undefined);
    this.#versions = seen;
    target.apply(changes, true);
    this.#reached(listed.version);
    const { objects, pages } = listed;
    const durationMs = api.clock.now() - startedAt;
    kubeListed.publish({ ...this.#names(), objects, pages, durationMs, why: this.#why });
  }

  /** Resolves with the failure to back off from if the watch ended too soon. */
  async #watch(version: string, signal: AbortSignal): Promise<KubeFailure | undefined> {
    const { resource, target, random, api } = this.#options;
    let openedAt = Number.POSITIVE_INFINITY;
    const isStable = (): boolean => api.clock.now() - openedAt >= api.limits.stableMs;
    try {
      await watchFrom(resource, api, {
        signal,
        random,
        version,
        onOpen: () => {
          openedAt = api.clock.now();
          kubeWatching.publish({ ...this.#names(), recovered: this.#hasFailed });
          this.#hasFailed = false;
          target.watching?.();
        },
        onBatch: (batch) => this.#apply(batch),
      });
    } finally {
      if (isStable()) this.#backoff.reset();
    }
    // Watches that always end at once would loop without delay.
    if (isStable()) return undefined;
    return new KubeFailure('short', `watch ${resource.name}: the server ended it early`);
  }

  #apply(batch: Batch): void {
    const { target, resource } = this.#options;
    const { maxObjects } = this.#options.api.limits;
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
      const name = this.#nameOf(raw);
      if (name === undefined) continue;
      const key = keyOf(name);
      changes.set(key, type === 'DELETED' ? undefined : resource.decode(name, raw));
      if (type === 'DELETED') this.#versions.delete(key);
      else this.#versions.set(key, versionOf(raw) ?? '');
    }
    if (this.#versions.size > maxObjects) {
      throw tooLarge(`watch ${resource.name}`, `${maxObjects} objects`);
    }
    if (changes.size > 0) target.apply(changes, false);
    this.#reached(batch.version);
  }

  #reached(version: string): void {
    this.#version = version;
    this.#newest = version;
  }

  /** Undefined for an invalid object, which is reported and left out. */
  #nameOf(raw: Json): ObjectName | undefined {
    try {
      return nameOf(this.#options.resource.kind, raw);
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      opInvalid.publish({ source: this.#options.api.access.sourceName, error });
      return undefined;
    }
  }

  async #recover(failure: KubeFailure, signal: AbortSignal): Promise<void> {
    const { outage, target, api } = this.#options;
    const relist = RELIST.has(failure.kind);
    if (relist) {
      this.#version = undefined;
      this.#why = failure.kind;
    }
    // The outage controls the delay; it lets one reflector try at a time. Otherwise, never sooner than the server requests.
    const retryInMs = failure.isOutage
      ? outage.failed()
      : this.#backoff.next() + (failure.retryAfterMs ?? 0);
    const { kind, isRoutine: routine } = failure;
    this.#hasFailed = true;
    kubeFailed.publish({ ...this.#names(), kind, error: failure, routine, relist, retryInMs });
    target.failed?.(failure, retryInMs);
    if (!failure.isOutage) await pause(retryInMs, api.clock, signal);
  }

  #names(): { readonly server: string; readonly resource: ResourceName } {
    const { api, resource } = this.#options;
    return { server: api.access.server, resource: resource.name };
  }
}

function countsIn({ events, bookmarks }: Batch): Omit<KubeReceived, 'resource'> {
  const of = (type: ObjectEvent['type']) => events.filter((each) => each.type === type).length;
  return { added: of('ADDED'), modified: of('MODIFIED'), deleted: of('DELETED'), bookmarks };
}
