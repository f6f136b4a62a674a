import { listenerOpened, type ListenerOpened } from '../proxysocket/events.ts';

/**
 * Notices when a listener opens that could not be opened when its rules were written, and has the
 * rules of its service port written again. Several that open at once are one call.
 */
export class LateListeners {
  readonly #isMissing: (servicePort: string) => boolean;
  readonly #commit: () => Promise<void>;
  readonly #opened = new Set<string>();
  readonly #onOpened = ({ servicePort }: ListenerOpened): void => {
    if (this.#isMissing(servicePort)) this.#note(servicePort);
  };

  /**
   * `commit` must not reject. It may wait for its turn before it takes the names: what opens until then
   * is part of the same call.
   */
  constructor(
    isMissing: (servicePort: string) => boolean,
    commit: (takeNames: () => readonly string[]) => Promise<void>,
  ) {
    this.#isMissing = isMissing;
    this.#commit = () => commit(() => this.#take());
    listenerOpened.subscribe(this.#onOpened);
  }

  /** Notices nothing more. Idempotent. */
  close(): void {
    listenerOpened.unsubscribe(this.#onOpened);
  }

  #note(servicePort: string): void {
    this.#opened.add(servicePort);
    if (this.#opened.size === 1) void this.#commit();
  }

  #take(): readonly string[] {
    const names = [...this.#opened];
    this.#opened.clear();
    return names;
  }
}
