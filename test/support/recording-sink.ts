import type { LocalChange, LocalSink, LocalView } from '../../src/store/local-view.ts';
import { Mailbox } from './until.ts';

/** One call of a sink, not settled yet unless the sink is `automatic`. */
interface SinkCall {
  readonly view: LocalView;
  /** Sorted. */
  readonly changed: string[];
  /** The view when the call came: `demo/web(web-0 web-1)`, in order. */
  readonly shape: string[];
  /** Takes the change set, or refuses it. */
  settle(error?: Error): void;
}

/** A sink that a test reads from, call by call. */
export class RecordingSink implements LocalSink {
  readonly #calls = new Mailbox<SinkCall>('a change set');
  readonly #automatic: boolean;

  /** `automatic`: takes every change set at once. */
  constructor({ automatic = true } = {}) {
    this.#automatic = automatic;
  }

  sync({ view, changed }: LocalChange): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#calls.put({
      view,
      changed: [...changed].sort(),
      shape: shapeOf(view),
      settle: (error) => (error ? reject(error) : resolve()),
    });
    if (this.#automatic) resolve();
    return promise;
  }

  /** The next call. */
  next(): Promise<SinkCall> {
    return this.#calls.take();
  }

  /** How many calls came that the test has not read. */
  get unread(): number {
    return this.#calls.size;
  }
}

/** A view in short. */
export function shapeOf(view: LocalView): string[] {
  return [...view.entries()].map(
    ({ key, endpoints }) => `${key}(${[...endpoints.keys()].join(' ')})`,
  );
}
