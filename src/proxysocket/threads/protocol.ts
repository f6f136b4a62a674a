/** What the main thread and a worker of an engine tell each other: plain data only. */
import type { MessagePort } from 'node:worker_threads';
import type { HostAddress } from '../../util/host-addresses.ts';
import type { Heir } from '../engine.ts';
import type { InspectQuery, Inspection } from '../inspect.ts';
import type { EngineLimits, LimitChange } from '../limits.ts';
import type { EngineChange, ListenerStatus, Protocol } from '../spec.ts';
import type { CounterPlace } from './counter-slots.ts';
import type { CarriedEvent, encodeError } from './event-codec.ts';

type PlainError = ReturnType<typeof encodeError>;

/** What a worker is started with. */
export interface WorkerStart {
  readonly port: MessagePort;
  readonly control: SharedArrayBuffer;
  /** Of a `DescriptorLedger`. */
  readonly ledger: SharedArrayBuffer;
  readonly limits: EngineLimits;
  readonly descriptorLimit: number;
  /** Ports of listeners that asked for any, of a worker that was here before, by the key of their place. */
  readonly formerPorts: ReadonlyMap<string, number>;
  /** Where such a worker listened (`placeKey`): its place is among others there, and it may join them. */
  readonly formerPlaces: ReadonlySet<string>;
  /** The ledger of such a worker: what it has left open is to be closed with a reset for the peers. */
  readonly orphans: SharedArrayBuffer | undefined;
}

/** To a worker. Each is answered with a `Done` of the same id. */
export type Command =
  | { readonly kind: 'apply'; readonly id: number; readonly changes: readonly EngineChange[] }
  | { readonly kind: 'limits'; readonly id: number; readonly limits: LimitChange }
  | { readonly kind: 'inspect'; readonly id: number; readonly query: InspectQuery }
  | { readonly kind: 'close'; readonly id: number; readonly heir: Heir | undefined }
  | { readonly kind: 'destroy'; readonly id: number };

/** To a worker that turns Node's event loop; nothing is answered. */
export type Notice =
  /** There is something new in the control block. */
  | { readonly kind: 'look' }
  /** What the host has, when the thread is not to look by itself. */
  | { readonly kind: 'host'; readonly addresses: readonly HostAddress[] };

/** What is known of a service port, but for its counters. */
export interface ServicePortState {
  readonly name: string;
  readonly protocol: Protocol;
  readonly listeners: readonly ListenerStatus[];
  readonly endpoints: number;
  readonly draining: boolean;
  readonly counters: CounterPlace;
}

export interface Done {
  readonly id: number;
  /** What was found, by `inspect`. */
  readonly found?: Inspection;
  readonly error?: PlainError;
}

/** From a worker: what has come up in a turn of its loop, to be taken in this order. */
export interface Report {
  /** Said once, first: the worker has passed its probes. `steers`: see `canSteer`. */
  readonly ready?: { readonly steers: boolean };
  /** It cannot work here: the probe that failed. */
  readonly unfit?: { readonly probe: string; readonly reason: string };
  /** New blocks of counters. */
  readonly blocks?: readonly SharedArrayBuffer[];
  /** Service ports that are new or have changed. */
  readonly states?: readonly ServicePortState[];
  /** Service ports that are gone for good. */
  readonly gone?: readonly string[];
  readonly events?: readonly CarriedEvent[];
  /** Events that were left out because the main thread does not keep up. */
  readonly eventsDropped?: number;
  /** Mistakes of the program that cost one connection. */
  readonly faults?: readonly PlainError[];
  readonly done?: readonly Done[];
}

/** Words of the shared control block. */
export const CONTROL = {
  /** Written by the main thread: a bit for each channel that has a subscriber. */
  subscriptions: 0,
  /** Reports that the main thread has taken. */
  taken: 1,
  /** Not 0: the worker has to end at once. */
  stop: 2,
  /** Counted up by whoever waits until the worker has caught up. */
  syncAsked: 3,
  /** The last `syncAsked` up to which everything has been done and reported. */
  syncDone: 4,
  /**
   * The worker's eventfd, once it has one; 0 for a thread that a message wakes. The main thread closes it, when the thread is over: it
   * could otherwise write to a descriptor that is somebody else's by then.
   */
  wakeFd: 5,
} as const;

export const CONTROL_BYTES = Object.keys(CONTROL).length * 4;
