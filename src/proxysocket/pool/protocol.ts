import type { MessagePort } from 'node:worker_threads';
import type { NewProcess } from '../engine.ts';
import type { InspectQuery, Inspection } from '../inspect.ts';
import type { EngineLimits, LimitChange } from '../limits.ts';
import type { SharedChange } from '../core/shared-service-ports.ts';
import type { EngineChange } from '../spec.ts';
import type { InheritedSocket } from '../../util/inherited.ts';
import { KpngError, messageOf, type ErrorCode } from '../../errors.ts';
import type { TypedChannel } from '../../util/channel.ts';
import * as events from '../events.ts';

/** The messages between the main thread and a worker of a pool: plain data only. */

export interface WorkerStart {
  readonly control: SharedArrayBuffer;
  readonly ledger: SharedArrayBuffer;
  /** An eventfd to wait for: there is a command, or `control` has changed. */
  readonly wakeFd: number;
  readonly limits: EngineLimits;
  readonly descriptorLimit: number;
  /** Another worker has run, or is running, the probes. */
  readonly isProven: boolean;
}

export interface Batch {
  readonly changes: readonly (EngineChange | SharedChange)[];
  /** Listening sockets that the worker owns from then on. */
  readonly sockets: readonly InheritedSocket[];
}

/** Carried out in order, once the worker has passed its probes; each is answered with a `Done` of the same id. */
export type Command =
  | ({ readonly kind: 'apply' } & Batch)
  | { readonly kind: 'limits'; readonly limits: LimitChange }
  | { readonly kind: 'inspect'; readonly query: InspectQuery }
  /** Ends the thread: `close` when the last relay has ended. */
  | { readonly kind: 'close' | 'destroy'; readonly newProcess: NewProcess | undefined };

export type NumberedCommand = Command & { readonly id: number };

export interface Done {
  readonly id: number;
  readonly found?: Inspection;
  readonly error?: PlainError;
}

/** What happened in one turn of a worker's loop. */
export interface TurnReport {
  readonly events: (readonly [channel: number, message: object])[];
  eventsDropped: number;
  readonly done: Done[];
}

export type Report =
  | {
      readonly kind: 'counts';
      readonly name: string;
      readonly slot: number;
      readonly memory: SharedArrayBuffer;
    }
  | ({ readonly kind: 'turn' } & TurnReport);

export const CONTROL = {
  /** Written by the main thread: a bit for each channel that has a subscriber. */
  subscriptions: 0,
  /** Reports of turns processed by the main thread. */
  taken: 1,
  /** Nonzero: the worker has to end at once. */
  stop: 2,
  /** Descriptors of the worker's relays and sessions. */
  used: 3,
} as const;

export const CONTROL_BYTES = Object.keys(CONTROL).length * 4;

/** The main thread itself publishes these. */
const OF_POOL: ReadonlySet<object> = new Set([events.listenerOpened, events.listenerClosed]);

/** The channels of the data path, in an order known to both threads. */
export const CHANNELS: readonly TypedChannel<object>[] = Object.values(events)
  .filter((channel) => !OF_POOL.has(channel))
  .map((channel) => channel as unknown as TypedChannel<object>);

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

/** Maximum number of events in a report, and of reports in flight. Further events are dropped. */
const MAX_EVENTS = 4096;
const MAX_IN_FLIGHT = 64;

/**
 * Collects a worker's reports and posts them once per turn of the loop. If the main thread does not keep up, events are
 * only counted; everything else is always reported.
 */
export class Outbox {
  readonly #port: MessagePort;
  readonly #control: Int32Array;
  readonly #carriers = CHANNELS.map((channel, index) => ({
    channel,
    bit: 1 << index,
    carry: (message: object) => this.#event(index, message),
  }));
  #subscribed = 0;
  #posted = 0;
  #turn = newTurn();

  constructor(port: MessagePort, control: Int32Array) {
    this.#port = port;
    this.#control = control;
  }

  /** Subscribes to the channels that have a subscriber in the main thread. */
  subscribe(): void {
    const wanted = this.#control[CONTROL.subscriptions] ?? 0;
    for (const { channel, bit, carry } of this.#carriers) {
      if ((wanted & bit) === (this.#subscribed & bit)) continue;
      if ((wanted & bit) === 0) channel.unsubscribe(carry);
      else channel.subscribe(carry);
    }
    this.#subscribed = wanted;
  }

  done(done: Done): void {
    this.#turn.done.push(done);
  }

  /** `used`: see `CONTROL`. A report with nothing but dropped events waits for the next one. */
  flush(used: number): void {
    Atomics.store(this.#control, CONTROL.used, used);
    if (this.#turn.events.length + this.#turn.done.length === 0) return;
    this.#posted += 1;
    this.post({ kind: 'turn', ...this.#turn });
    this.#turn = newTurn();
  }

  post(report: Report): void {
    this.#port.postMessage(report, []);
  }

  #event(channel: number, message: object): void {
    const onTheirWay = this.#posted - Atomics.load(this.#control, CONTROL.taken);
    if (this.#turn.events.length < MAX_EVENTS && onTheirWay < MAX_IN_FLIGHT) {
      this.#turn.events.push([channel, encodeMessage(message)]);
    } else {
      this.#turn.eventsDropped += 1;
    }
  }
}

function newTurn(): TurnReport {
  return { events: [], eventsDropped: 0, done: [] };
}

/** In a worker, it is reported as every event. */
export function publishFault(what: events.DataPlaneFault['what'], reason: unknown): void {
  if (!events.dataPlaneFault.hasSubscribers) return;
  const error = reason instanceof Error ? reason : new Error(messageOf(reason));
  events.dataPlaneFault.publish({ what, error });
}
