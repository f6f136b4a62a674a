import type { TypedChannel } from '../../util/channel.ts';
import type { AcceptorEngine } from '../core/acceptor-engine.ts';
import { listenerClosed, listenerFailed, listenerOpened, type ListenerOpened } from '../events.ts';
import type { EngineChange } from '../spec.ts';
import type { Outbox } from './outbox.ts';

const LISTENERS: readonly TypedChannel<ListenerOpened>[] = [
  listenerOpened,
  listenerClosed,
  listenerFailed,
];

/**
 * Reports what has become of service ports: those that were changed, and those whose listeners have opened, closed or
 * failed meanwhile. The first worker has one, since it opens the listeners of all.
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

  /** To be called when the changes have been carried out. */
  changed(changes: readonly EngineChange[]): void {
    for (const change of changes) {
      this.#changed.add(change.kind === 'set' ? change.spec.name : change.name);
    }
  }

  /** Puts what has changed into the outbox. */
  report(): void {
    if (this.#changed.size === 0) return;
    for (const { name, listeners, endpoints, draining } of this.#engine.snapshot(this.#changed)) {
      if (draining !== true) this.#outbox.state({ name, listeners, endpoints });
    }
    this.#changed.clear();
  }
}
