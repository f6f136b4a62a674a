import type { Endpoint, Service } from '../api/generated/localv1/api.ts';

/** A service with its endpoints, as one node needs them. */
export interface ServiceEntry {
  /** `namespace/name`. */
  readonly key: string;
  readonly service: Service;
  /** By endpoint key: the pod's name, or a hash. In order of the key. */
  readonly endpoints: ReadonlyMap<string, Endpoint>;
}

/** The complete node-local state after a Sync. */
export interface LocalView {
  readonly size: number;
  get(key: string): ServiceEntry | undefined;
  /** In path order: `/` sorts before every other character, so a service comes right before its endpoints. */
  entries(): Iterable<ServiceEntry>;
}

/** The input of a sink at each Sync: the whole view, and which part of it is new. */
export interface LocalChange {
  readonly view: LocalView;
  /**
   * Keys of services that were added, changed or removed, or whose endpoints were; at first all. After a reconnect,
   * only real differences. Empty when a Sync changed nothing.
   */
  readonly changed: ReadonlySet<string>;
}

/**
 * Where node-local state goes: the proxier, the JSON writer, a callout.
 *
 * A source calls `sync` once for each complete change set and does not ask for the next before the promise settles,
 * so bursts are coalesced. A rejection is reported and counted; the next change set's `changed` then includes the
 * rejected keys.
 */
export interface LocalSink {
  sync(change: LocalChange): Promise<void>;
}
