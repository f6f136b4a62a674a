import type { Activity, ServicePortCounters } from './counters.ts';
import type { EngineChange, ListenerStatus, Protocol } from './spec.ts';
import type { InspectQuery, Inspection } from './inspect.ts';
import type { LimitChange } from './limits.ts';

export interface ServicePortSnapshot {
  readonly name: string;
  readonly protocol: Protocol;
  readonly listeners: readonly ListenerStatus[];
  readonly endpoints: number;
  readonly counters: ServicePortCounters;
  /** Removed, but relays still run. If it is set again before the last of them ends, its counters continue. */
  readonly draining?: true;
}

/** A new process that serves the same clients, over the same listening sockets. */
export interface NewProcess {
  /**
   * Inode numbers of the sockets that it serves. The others have to close: a socket that is bound and not read swallows
   * datagrams, and keeps the port from the new process.
   */
  readonly served: ReadonlySet<number>;
}

/**
 * Accepts, dials and relays. It owns every socket of the data path; no socket leaves it.
 *
 * `node` runs on `net` and `dgram`, everywhere; `linux` on system calls in a pool of worker threads. Every input
 * and output is plain data (see spec.ts), or an event (see events.ts).
 */
export interface Engine {
  readonly kind: 'node' | 'linux';

  /**
   * Applies a batch. Removals are applied before additions, so that an address can move between service ports in
   * one batch; a listener whose address and port stay is never closed, even if it changes its service port.
   *
   * Resolves when every listener of the batch has been tried once. A listener that fails does not stop the others:
   * it is reported as an event, kept as `failed`, and retried with back-off. Batches are applied one after another.
   *
   * A removed TCP service port stops accepting; its relays continue until a peer ends them. UDP sessions end with
   * their service port, and with their endpoint.
   */
  apply(changes: readonly EngineChange[]): Promise<void>;

  /** Changes limits, for new connections (see `LIVE_LIMITS`). Absent: none of them can change. */
  setLimits?(limits: LimitChange): Promise<void>;

  /** The present state and the counters of every service port, or only of those named. */
  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[];

  /** The names that a snapshot has, to take it in parts. */
  names?(): string[];

  /** Shows whether anything has changed, at a fraction of a snapshot's cost. Absent or undefined: not known. */
  activity?(): Activity | undefined;

  /**
   * Single connections, and endpoints as balancers see them; absent: not supported. Costs something only when
   * called, and then no more than `inspect.ts` allows. Not available once the engine is closed.
   */
  inspect?(query: InspectQuery): Promise<Inspection>;

  /**
   * Stops accepting and resolves when the last relay has ended. Idempotent.
   *
   * UDP sessions end with it, unless there is a new process: then they continue until they are idle, and their
   * answers leave through the listening sockets that the new process serves, which stay open but are not read from
   * any more. Other listening sockets close at once.
   */
  close(newProcess?: NewProcess): Promise<void>;

  /** Aborts everything at once: TCP peers get a reset. Resolves when every socket is closed. Idempotent. */
  destroy(): Promise<void>;
}
