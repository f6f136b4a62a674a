import type { MessagePort } from 'node:worker_threads';
import type { NewProcess } from '../engine.ts';
import type { InspectQuery, Inspection } from '../inspect.ts';
import type { EngineLimits, LimitChange } from '../limits.ts';
import type { OpenedSockets } from '../linux/loop.ts';
import type { SharedChange } from '../core/shared-service-ports.ts';
import type { EngineChange, ListenerStatus } from '../spec.ts';
import type { InheritedSocket } from '../core/inherited.ts';
import { KpngError, type ErrorCode } from '../../errors.ts';
import type { TypedChannel } from '../../util/channel.ts';
import * as events from '../events.ts';

/** The messages between the main thread and a worker of a pool: plain data only. */

/** The start data of a worker. */
export interface WorkerStart {
  readonly port: MessagePort;
  readonly control: SharedArrayBuffer;
  /** Of a `DescriptorLedger`. */
  readonly ledger: SharedArrayBuffer;
  readonly limits: EngineLimits;
  readonly descriptorLimit: number;
  /** Its index, which is also that of its row of counters. Worker 0 opens listening sockets for all. */
  readonly index: number;
  /** Total number of counter rows. */
  readonly rows: number;
  /** Another worker has run, or is running, the connection probes: run only the basic ones. */
  readonly isProven: boolean;
}

/** The data of a batch besides its changes. */
export interface Batch {
  readonly changes: readonly (EngineChange | SharedChange)[];
  /** Listening sockets that the worker owns from then on. */
  readonly sockets: readonly InheritedSocket[];
  /** Ports for listeners that let the kernel choose, by the key of their slot. */
  readonly ports: ReadonlyMap<string, number>;
  /** All memory of counters. */
  readonly counters: readonly SharedArrayBuffer[];
  /** Slots in it that others may have after the batch. */
  readonly freed: readonly number[];
}

/** Commands to a worker. Each is answered with a `Done` of the same id. */
export type Command =
  | ({ readonly kind: 'apply'; readonly id: number } & Batch)
  | { readonly kind: 'limits'; readonly id: number; readonly limits: LimitChange }
  | { readonly kind: 'inspect'; readonly id: number; readonly query: InspectQuery }
  /** Duplicates each of its listening sockets, for the main thread. */
  | { readonly kind: 'duplicate'; readonly id: number; readonly fds: readonly number[] }
  | { readonly kind: 'close'; readonly id: number; readonly newProcess: NewProcess | undefined }
  | { readonly kind: 'destroy'; readonly id: number };

/** The first worker's state of a service port. */
export interface ServicePortState {
  readonly name: string;
  readonly listeners: readonly ListenerStatus[];
  readonly endpoints: number;
}

export interface Done {
  readonly id: number;
  /** The result of `inspect`. */
  readonly found?: Inspection;
  /** Result of `duplicate`; -1: no descriptor left. */
  readonly fds?: readonly number[];
  readonly error?: PlainError;
}

/** From a worker: reports of one turn of its loop, to be applied in this order. */
export interface Report {
  /** Sent once, first: the worker has passed its probes. `steers`: see `canSteer`. */
  readonly ready?: { readonly steers: boolean };
  /** It cannot work here: the probe that failed. */
  readonly unfit?: { readonly probe: string; readonly reason: string };
  readonly opened?: readonly OpenedSockets[];
  /** Service ports that changed, or whose listeners did. From the first worker only. */
  readonly states?: readonly ServicePortState[];
  readonly events?: readonly CarriedEvent[];
  /** Number of events dropped because the main thread does not keep up. */
  readonly eventsDropped?: number;
  /** Bugs that ended one connection each. */
  readonly faults?: readonly PlainError[];
  readonly done?: readonly Done[];
}

/** Indexes of the shared control block. */
export const CONTROL = {
  /** Written by the main thread: a bit for each channel that has a subscriber. */
  subscriptions: 0,
  /** Reports processed by the main thread. */
  taken: 1,
  /** Nonzero: the worker has to end at once. */
  stop: 2,
  /**
   * The worker's eventfd, once it has one; 0 before. The main thread closes it when the thread has ended: it could
   * otherwise write to a reused descriptor.
   */
  wakeFd: 3,
} as const;

export const CONTROL_BYTES = Object.keys(CONTROL).length * 4;

/** The channels of the data path, in an order known to both threads. */
export const CHANNELS: readonly TypedChannel<object>[] = Object.values(events).map(
  (channel) => channel as unknown as TypedChannel<object>,
);

/** An event: the number of its channel, and its message. */
export type CarriedEvent = readonly [channel: number, message: object];

/** An error as plain data: cloning would lose its class and its code. */
interface PlainError {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  readonly code: string | undefined;
  readonly servicePort: string | undefined;
  readonly cause: PlainError | undefined;
}

export function encodeError(error: unknown): PlainError {
  if (!(error instanceof Error)) return { ...encodeError(new Error(String(error))) };
  return {
    name: error.name,
    message: error.message,
    stack: error.stack,
    code: 'code' in error ? String(error.code) : undefined,
    servicePort: error instanceof KpngError ? error.servicePort : undefined,
    cause: error.cause === undefined ? undefined : encodeError(error.cause),
  };
}

export function decodeError(plain: PlainError): Error {
  const { name, message, stack, code, servicePort } = plain;
  const cause = plain.cause === undefined ? undefined : decodeError(plain.cause);
  let error: Error;
  if (name === 'KpngError') {
    const options = { cause, ...(servicePort !== undefined && { servicePort }) };
    error = new KpngError(code as ErrorCode, message, options);
  } else {
    error = new Error(message, cause === undefined ? undefined : { cause });
    if (code !== undefined) Object.assign(error, { code });
    if (name !== 'Error') Object.assign(error, { name });
  }
  if (stack !== undefined) error.stack = stack;
  return error;
}

/** A message in a form that survives `postMessage`. */
export function encodeMessage(message: object): object {
  return 'error' in message ? { ...message, error: encodeError(message.error) } : message;
}

export function decodeMessage(message: object): object {
  return 'error' in message
    ? { ...message, error: decodeError(message.error as PlainError) }
    : message;
}
