import { KpngError } from '../errors.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import { pause } from '../util/clock.ts';
import type { KubeApi } from './api.ts';
import { type Cause, KubeFailure } from './failure.ts';
import { type Json, type ObjectName, isOlder, keyOf, nameOf, versionOf } from './json.ts';
import { type Listed, listAll, tooLarge } from './list.ts';
import type { Outage } from './outage.ts';
import type { Resource } from './resource.ts';
import { type Batch, watchFrom } from './watch.ts';

/** The destination of the objects and events. */
export interface ReflectorTarget<T> {
  /** Changes that belong together; undefined: the object was deleted. `complete`: they complete the state. */
  apply(changes: ReadonlyMap<string, T | undefined>, complete: boolean): void;
  /** A list is complete, and `apply` has been called with its differences. */
  listed(listed: Listed & { durationMs: number; why: 'start' | Cause }): void;
  watching(): void;
  received(batch: Batch): void;
  /** Retried after `retryInMs`; with `relist`, from the beginning. */
  failed(failure: KubeFailure, relist: boolean, retryInMs: number): void;
  /** An object is invalid and is left out; its last known state stays. */
  invalid(error: KpngError): void;
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
    target.listed({ ...listed, durationMs: api.clock.now() - startedAt, why: this.#why });
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
          target.watching();
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
    target.received(batch);
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

  #nameOf(raw: Json): ObjectName | undefined {
    try {
      return nameOf(this.#options.resource.kind, raw);
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      this.#options.target.invalid(error);
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
    if (failure.isOutage) {
      // The outage controls the delay; it lets one reflector try at a time.
      target.failed(failure, relist, outage.failed());
      return;
    }
    // Never sooner than the server requests.
    const wait = this.#backoff.next() + (failure.retryAfterMs ?? 0);
    target.failed(failure, relist, wait);
    await pause(wait, api.clock, signal);
  }
}
