import type { MessagePort } from 'node:worker_threads';
import {
  CHANNELS,
  encodeError,
  encodeMessage,
  CONTROL,
  type Done,
  type Report,
  type TurnReport,
} from './protocol.ts';

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
  readonly #forwarders = CHANNELS.map(
    (_, channel) => (message: object) => this.#event(channel, message),
  );
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

  fault(error: unknown): void {
    if (this.#turn.faults.length < MAX_EVENTS) this.#turn.faults.push(encodeError(error));
  }

  done(done: Done): void {
    this.#turn.done.push(done);
  }

  /** `used`: see `CONTROL`. A report with nothing but dropped events waits for the next one. */
  flush(used: number): void {
    Atomics.store(this.#control, CONTROL.used, used);
    const { events, faults, done } = this.#turn;
    if (events.length + faults.length + done.length === 0) return;
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
  return { events: [], eventsDropped: 0, faults: [], done: [] };
}
