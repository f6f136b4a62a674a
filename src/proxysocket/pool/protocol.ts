import type { NewProcess, ServicePortSnapshot } from '../engine.ts';
import type { InspectQuery, Inspection } from '../inspect.ts';
import type { EngineLimits, LimitChange } from '../limits.ts';
import type { OpenedSockets } from '../linux/loop.ts';
import type { SharedChange } from '../core/shared-service-ports.ts';
import type { EngineChange } from '../spec.ts';
import type { InheritedSocket } from '../core/inherited.ts';
import { KpngError, type ErrorCode } from '../../errors.ts';
import type { TypedChannel } from '../../util/channel.ts';
import * as events from '../events.ts';

/** The messages between the main thread and a worker of a pool: plain data only. */

export interface WorkerStart {
  readonly control: SharedArrayBuffer;
  readonly ledger: SharedArrayBuffer;
  readonly limits: EngineLimits;
  readonly descriptorLimit: number;
  /** Worker 0 opens listening sockets for all. */
  readonly index: number;
  /** Another worker has run, or is running, the connection probes: run only the basic ones. */
  readonly isProven: boolean;
}

export interface Batch {
  readonly changes: readonly (EngineChange | SharedChange)[];
  /** Listening sockets that the worker owns from then on. */
  readonly sockets: readonly InheritedSocket[];
  /** Ports for listeners that let the kernel choose, by the key of their slot. */
  readonly ports: ReadonlyMap<string, number>;
}

/** Carried out in order; each is answered with a `Done` of the same id. */
export type Command =
  /** Carried out once the worker has passed its probes. */
  | { readonly kind: 'start' }
  | ({ readonly kind: 'apply' } & Batch)
  | { readonly kind: 'limits'; readonly limits: LimitChange }
  | { readonly kind: 'inspect'; readonly query: InspectQuery }
  | { readonly kind: 'duplicate'; readonly fd: number }
  /** Ends the thread: `close` when the last relay has ended. */
  | { readonly kind: 'close' | 'destroy'; readonly newProcess: NewProcess | undefined };

export interface NumberedCommand {
  readonly id: number;
  readonly command: Command;
}

export type ServicePortState = Pick<ServicePortSnapshot, 'name' | 'listeners'>;

export interface Done {
  readonly id: number;
  /** Result of `start`: see `canSteer`. */
  readonly steers?: boolean;
  readonly found?: Inspection;
  /** Result of `duplicate`; negative: no descriptor left. */
  readonly fd?: number;
  readonly error?: PlainError;
}

/** What happened in one turn of a worker's loop, in the order in which it has to be applied. */
export interface TurnReport {
  /** From the first worker only, as `closed` and `states`. */
  readonly opened: OpenedSockets[];
  /** Keys of slots that it no longer listens at. */
  readonly closed: string[];
  /** Service ports that changed, or whose listeners did. */
  readonly states: ServicePortState[];
  readonly events: CarriedEvent[];
  eventsDropped: number;
  readonly faults: PlainError[];
  readonly done: Done[];
}

export type Report =
  | { readonly kind: 'counts'; readonly slot: number; readonly memory: SharedArrayBuffer }
  | ({ readonly kind: 'turn' } & TurnReport);

export const CONTROL = {
  /** Written by the main thread: a bit for each channel that has a subscriber. */
  subscriptions: 0,
  /** Reports of turns processed by the main thread. */
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

type CarriedEvent = readonly [channel: number, message: object];

/** An error as plain data: cloning would lose its class and its code. */
interface PlainError {
  readonly name: string;
  readonly message: string;
  readonly more: Readonly<Record<string, unknown>>;
  readonly cause: PlainError | undefined;
}

export function encodeError(error: unknown): PlainError {
  if (!(error instanceof Error)) return encodeError(new Error(String(error)));
  const { name, message, stack, cause, code, servicePort } = error as Error & Partial<KpngError>;
  const all = Object.entries({ stack, code, servicePort });
  return {
    name,
    message,
    more: Object.fromEntries(all.filter(([, value]) => value !== undefined)),
    cause: cause === undefined ? undefined : encodeError(cause),
  };
}

export function decodeError({ name, message, more, cause }: PlainError): Error {
  const options = cause && { cause: decodeError(cause) };
  if (name === 'KpngError') {
    return Object.assign(new KpngError(more['code'] as ErrorCode, message, options), more);
  }
  const error = new Error(message, options);
  if (name !== 'Error') error.name = name;
  return Object.assign(error, more);
}

export function encodeMessage(message: object): object {
  return 'error' in message ? { ...message, error: encodeError(message.error) } : message;
}

export function decodeMessage(message: object): object {
  return 'error' in message
    ? { ...message, error: decodeError(message.error as PlainError) }
    : message;
}
