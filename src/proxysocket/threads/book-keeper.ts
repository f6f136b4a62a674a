import type { TypedChannel } from '../../util/channel.ts';
import type { AcceptorEngine } from '../core/acceptor-engine.ts';
import { listenerClosed, listenerFailed, listenerOpened, type ListenerOpened } from '../events.ts';
import type { EngineChange } from '../spec.ts';
import type { CounterSlots } from './counter-slots.ts';
import type { Outbox } from './outbox.ts';

const LISTENERS: readonly TypedChannel<ListenerOpened>[] = [
  listenerOpened,
  listenerClosed,
  listenerFailed,
];

/**
 * Tells the main thread what has become of service ports: those that were changed, and those whose
 * listeners have opened, closed or failed meanwhile.
 */
export class BookKeeper {
  readonly #engine: AcceptorEngine;
  readonly #slots: CounterSlots;
  readonly #outbox: Outbox;
  readonly #changed = new Set<string>();

  /** `onChange` is called when there is something to report. */
  constructor(
    engine: AcceptorEngine,
    slots: CounterSlots,
    outbox: Outbox,
    onChange: () => void = () => undefined,
  ) {
    this.#engine = engine;
    this.#slots = slots;
    this.#outbox = outbox;
    for (const channel of LISTENERS) {
      channel.subscribe(({ servicePort }) => {
        this.#changed.add(servicePort);
        onChange();
      });
    }
  }

  changed(changes: readonly EngineChange[]): void {
    for (const change of changes) {
      this.#changed.add(change.kind === 'set' ? change.spec.name : change.name);
    }
  }

  /** Puts what has changed into the outbox. */
  report(): void {
    if (this.#changed.size === 0) return;
    const left = new Set(this.#changed);
    for (const snapshot of this.#engine.snapshot(this.#changed)) {
      const { name, protocol, listeners, endpoints, draining = false } = snapshot;
      const counters = this.#slots.placeOf(snapshot.counters);
      if (counters === undefined) continue;
      left.delete(name);
      this.#outbox.state({ name, protocol, listeners, endpoints, draining, counters });
    }
    for (const name of left) this.#outbox.gone(name);
    this.#changed.clear();
  }
}
