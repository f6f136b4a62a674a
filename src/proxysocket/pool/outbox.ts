import type { MessagePort } from 'node:worker_threads';
import type { ListenSpec } from '../spec.ts';
import {
  CHANNELS,
  encodeError,
  encodeMessage,
  type CarriedEvent,
  CONTROL,
  type Done,
  type Batch,
  type Report,
  type ServicePortState,
} from './protocol.ts';
import type { OpenedSockets } from '../linux/loop.ts';
import type { TypedChannel } from '../../util/channel.ts';
import type { AcceptorEngine } from '../acceptor-engine.ts';
import { listenerClosed, listenerFailed, listenerOpened, type ListenerOpened } from '../events.ts';

/** Maximum number of events in a report, and of reports in flight. Further events are dropped. */
const MAX_EVENTS = 4096;
const MAX_IN_FLIGHT = 64;

/**
 * Collects a worker's reports and posts them once per turn of the loop.
 *
 * It subscribes to events for the main thread. If that thread does not keep up, events are only counted; everything
 * else is always reported. Of the listeners that workers share, only the first worker reports that they open and close.
 */
export class Outbox {
  readonly #port: MessagePort;
  readonly #control: Int32Array;
  readonly #forwarders: readonly ((message: object) => void)[];
  #subscribed = 0;
  #posted = 0;
  #states = new Map<string, ServicePortState>();
  #opened: OpenedSockets[] = [];
  #events: CarriedEvent[] = [];
  #dropped = 0;
  #faults: ReturnType<typeof encodeError>[] = [];
  #done: Done[] = [];
  #isEmpty = true;

  /** `isFirst`: whether it is that of the first worker. */
  constructor(port: MessagePort, control: Int32Array, isFirst: boolean) {
    this.#port = port;
    this.#control = control;
    this.#forwarders = CHANNELS.map((_, channel) => (message: object) => {
      if (isFirst || !isOfListener(message)) this.#event(channel, message);
    });
  }

  /** Subscribes to the channels that have a subscriber in the main thread. */
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

  state(state: ServicePortState): void {
    this.#states.set(state.name, state);
    this.#isEmpty = false;
  }

  opened(sockets: OpenedSockets): void {
    this.#opened.push(sockets);
    this.#isEmpty = false;
  }

  fault(error: unknown): void {
    if (this.#faults.length < MAX_EVENTS) this.#faults.push(encodeError(error));
    this.#isEmpty = false;
  }

  done(done: Done): void {
    this.#done.push(done);
    this.#isEmpty = false;
  }

  flush(): void {
    if (this.#isEmpty) return;
    this.post({
      ...(this.#opened.length > 0 && { opened: this.#opened }),
      ...(this.#states.size > 0 && { states: [...this.#states.values()] }),
      ...(this.#events.length > 0 && { events: this.#events }),
      ...(this.#faults.length > 0 && { faults: this.#faults }),
      ...(this.#done.length > 0 && { done: this.#done }),
      ...(this.#dropped > 0 && { eventsDropped: this.#dropped }),
    });
    this.#opened = [];
    this.#states.clear();
    this.#events = [];
    this.#dropped = 0;
    this.#faults = [];
    this.#done = [];
    this.#isEmpty = true;
  }

  /** Posts a separate report. */
  post(report: Report): void {
    this.#posted += 1;
    this.#port.postMessage(report, []);
  }

  #event(channel: number, message: object): void {
    const onTheirWay = this.#posted - Atomics.load(this.#control, CONTROL.taken);
    if (this.#events.length < MAX_EVENTS && onTheirWay < MAX_IN_FLIGHT) {
      this.#events.push([channel, encodeMessage(message)]);
      this.#isEmpty = false;
    } else {
      // Sent with the next report; must not trigger one.
      this.#dropped += 1;
    }
  }
}

/** Whether it reports that a listener has opened or closed. */
function isOfListener(message: { readonly listen?: ListenSpec }): boolean {
  return message.listen !== undefined && !('error' in message);
}

const LISTENERS: readonly TypedChannel<ListenerOpened>[] = [
  listenerOpened,
  listenerClosed,
  listenerFailed,
];

/**
 * Reports the states of changed service ports, and of those whose listeners opened, closed or failed. The first worker
 * has one, since it opens all listeners.
 */
export class StateReporter {
  readonly #engine: AcceptorEngine;
  readonly #outbox: Outbox;
  readonly #changed = new Set<string>();

  constructor(engine: AcceptorEngine, outbox: Outbox) {
    this.#engine = engine;
    this.#outbox = outbox;
    for (const channel of LISTENERS) {
      channel.subscribe(({ servicePort }) => void this.#changed.add(servicePort));
    }
  }

  /** To be called when the changes have been applied. */
  changed(changes: Batch['changes']): void {
    for (const change of changes) {
      if (change.kind === 'set') this.#changed.add(change.spec.name);
      else if (change.kind === 'endpoints' || change.kind === 'patch')
        this.#changed.add(change.name);
    }
  }

  /** Puts changes into the outbox. */
  report(): void {
    if (this.#changed.size === 0) return;
    for (const { name, listeners, endpoints, draining } of this.#engine.snapshot(this.#changed)) {
      if (draining !== true) this.#outbox.state({ name, listeners, endpoints });
    }
    this.#changed.clear();
  }
}
