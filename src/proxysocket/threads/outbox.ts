import type { MessagePort } from 'node:worker_threads';
import type { Inspection } from '../inspect.ts';
import type { ListenSpec } from '../spec.ts';
import { CHANNELS, encodeError, encodeMessage, type CarriedEvent } from './event-codec.ts';
import { CONTROL, type Done, type Report, type ServicePortState } from './protocol.ts';

/** Events of one report at most, and reports on their way at most. Beyond that events are left out. */
const MAX_EVENTS = 4096;
const MAX_ON_THEIR_WAY = 64;

/**
 * Collects what a worker has to tell, and posts it once for each turn of the loop.
 *
 * Events are what it has subscribed to for the main thread, where somebody listens. When that thread
 * does not keep up, they are counted instead; everything else is always told.
 */
export class Outbox {
  readonly #port: MessagePort;
  readonly #control: Int32Array;
  readonly #onFilled: (() => void) | undefined;
  readonly #forwarders: readonly ((message: object) => void)[];
  #subscribed = 0;
  #posted = 0;
  #blocks: SharedArrayBuffer[] = [];
  #states = new Map<string, ServicePortState>();
  #gone = new Set<string>();
  #events: CarriedEvent[] = [];
  #dropped = 0;
  #faults: ReturnType<typeof encodeError>[] = [];
  #done: Done[] = [];
  #isEmpty = true;

  /** `onFilled` is called when there is something to tell, after there was nothing. */
  constructor(port: MessagePort, control: Int32Array, onFilled?: () => void) {
    this.#port = port;
    this.#onFilled = onFilled;
    this.#control = control;
    this.#forwarders = CHANNELS.map((_, channel) => (message: object) => {
      if (!isToldByAnother(message)) this.#event(channel, message);
    });
  }

  /** Subscribes to the channels that somebody listens to in the main thread. */
  subscribe(): void {
    const wanted = this.#control[CONTROL.subscriptions] ?? 0;
    if (wanted === this.#subscribed) return;
    for (const [index, channel] of CHANNELS.entries()) {
      const bit = 1 << index;
      const forward = this.#forwarders[index];
      if (forward === undefined || (wanted & bit) === (this.#subscribed & bit)) continue;
      if ((wanted & bit) === 0) channel.unsubscribe(forward);
      else channel.subscribe(forward);
    }
    this.#subscribed = wanted;
  }

  block(memory: SharedArrayBuffer): void {
    this.#blocks.push(memory);
    this.#filled();
  }

  state(state: ServicePortState): void {
    this.#gone.delete(state.name);
    this.#states.set(state.name, state);
    this.#filled();
  }

  gone(name: string): void {
    this.#states.delete(name);
    this.#gone.add(name);
    this.#filled();
  }

  fault(error: unknown): void {
    if (this.#faults.length < MAX_EVENTS) this.#faults.push(encodeError(error));
    this.#filled();
  }

  done(id: number, error?: unknown): void {
    this.#done.push(error === undefined ? { id } : { id, error: encodeError(error) });
    this.#filled();
  }

  found(id: number, found: Inspection): void {
    this.#done.push({ id, found });
    this.#filled();
  }

  /** Posts what there is. */
  flush(): void {
    if (this.#isEmpty) return;
    const report: Report = {
      ...(this.#blocks.length > 0 && { blocks: this.#blocks }),
      ...(this.#gone.size > 0 && { gone: [...this.#gone] }),
      ...(this.#states.size > 0 && { states: [...this.#states.values()] }),
      ...(this.#events.length > 0 && { events: this.#events }),
      ...(this.#dropped > 0 && { eventsDropped: this.#dropped }),
      ...(this.#faults.length > 0 && { faults: this.#faults }),
      ...(this.#done.length > 0 && { done: this.#done }),
    };
    this.#blocks = [];
    this.#states = new Map();
    this.#gone = new Set();
    this.#events = [];
    this.#dropped = 0;
    this.#faults = [];
    this.#done = [];
    this.#isEmpty = true;
    this.#post(report);
  }

  /** Posts a report of its own. */
  tell(report: Report): void {
    this.#post(report);
  }

  #event(channel: number, message: object): void {
    const onTheirWay = this.#posted - Atomics.load(this.#control, CONTROL.taken);
    if (this.#events.length >= MAX_EVENTS || onTheirWay >= MAX_ON_THEIR_WAY) {
      // Told with the next report that there is: this must not make one.
      this.#dropped += 1;
      return;
    }
    this.#events.push([channel, encodeMessage(message)]);
    this.#filled();
  }

  #filled(): void {
    if (!this.#isEmpty) return;
    this.#isEmpty = false;
    this.#onFilled?.();
  }

  #post(report: Report): void {
    this.#posted += 1;
    this.#port.postMessage(report, []);
  }
}

/** Of the sockets that share a place, only the first is told of, unless another one fails. */
function isToldByAnother(message: { readonly listen?: ListenSpec }): boolean {
  return message.listen?.group?.joins === true && !('error' in message);
}
