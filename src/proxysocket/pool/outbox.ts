import type { MessagePort } from 'node:worker_threads';
import type { AcceptorEngine } from '../acceptor-engine.ts';
import { listenerClosed, listenerFailed, listenerOpened } from '../events.ts';
import type { OpenedSockets } from '../linux/loop.ts';
import type { ListenSpec } from '../spec.ts';
import {
  CHANNELS,
  encodeError,
  encodeMessage,
  CONTROL,
  type Done,
  type Batch,
  type Report,
  type TurnReport,
} from './protocol.ts';

/** Maximum number of events in a report, and of reports in flight. Further events are dropped. */
const MAX_EVENTS = 4096;
const MAX_IN_FLIGHT = 64;

/**
 * Collects a worker's reports and posts them once per turn of the loop. If the main thread does not keep up, events are
 * only counted; everything else is always reported. The first worker, which opens all listeners, also reports the
 * states of changed service ports.
 */
export class Outbox {
  readonly #port: MessagePort;
  readonly #control: Int32Array;
  readonly #isFirst: boolean;
  readonly #forwarders: readonly ((message: object) => void)[];
  #subscribed = 0;
  #posted = 0;
  #turn = newTurn();
  #isEmpty = true;
  readonly #changed = new Set<string>();
  /** Slots without a listener. */
  readonly #closed = new Set<string>();

  constructor(port: MessagePort, control: Int32Array, isFirst: boolean) {
    this.#port = port;
    this.#control = control;
    this.#isFirst = isFirst;
    this.#forwarders = CHANNELS.map((_, channel) => (message: object) => {
      if (isFirst || !isOfListener(message)) this.#event(channel, message);
    });
    if (!isFirst) return;
    listenerFailed.subscribe(({ servicePort }) => void this.#changed.add(servicePort));
    listenerClosed.subscribe(({ servicePort, listen }) => {
      this.#changed.add(servicePort);
      this.#closed.add(keyOf(listen));
    });
    listenerOpened.subscribe(({ servicePort, listen }) => {
      this.#changed.add(servicePort);
      // It has moved from another service port.
      this.#closed.delete(keyOf(listen));
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

  applied(changes: Batch['changes']): void {
    if (!this.#isFirst) return;
    for (const change of changes) {
      if (change.kind === 'set') this.#changed.add(change.spec.name);
    }
  }

  opened(sockets: OpenedSockets): void {
    this.#turn.opened.push(sockets);
    this.#isEmpty = false;
  }

  fault(error: unknown): void {
    if (this.#turn.faults.length < MAX_EVENTS) this.#turn.faults.push(encodeError(error));
    this.#isEmpty = false;
  }

  done(done: Done): void {
    this.#turn.done.push(done);
    this.#isEmpty = false;
  }

  flush(engine: Pick<AcceptorEngine, 'snapshot'>): void {
    if (this.#changed.size > 0) {
      for (const { name, listeners, draining } of engine.snapshot(this.#changed)) {
        if (draining !== true) this.#turn.states.push({ name, listeners });
      }
      this.#turn.closed.push(...this.#closed);
      this.#changed.clear();
      this.#closed.clear();
    } else if (this.#isEmpty) return;
    this.#posted += 1;
    this.post({ kind: 'turn', ...this.#turn });
    this.#turn = newTurn();
    this.#isEmpty = true;
  }

  post(report: Report): void {
    this.#port.postMessage(report, []);
  }

  #event(channel: number, message: object): void {
    const onTheirWay = this.#posted - Atomics.load(this.#control, CONTROL.taken);
    if (this.#turn.events.length < MAX_EVENTS && onTheirWay < MAX_IN_FLIGHT) {
      this.#turn.events.push([channel, encodeMessage(message)]);
      this.#isEmpty = false;
    } else {
      // Sent with the next report; must not trigger one.
      this.#turn.eventsDropped += 1;
    }
  }
}

function newTurn(): TurnReport {
  return { opened: [], closed: [], states: [], events: [], eventsDropped: 0, faults: [], done: [] };
}

function keyOf({ group }: ListenSpec): string {
  return group?.slot ?? '';
}

function isOfListener(message: { readonly listen?: ListenSpec }): boolean {
  return message.listen !== undefined && !('error' in message);
}
