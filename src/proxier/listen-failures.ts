import { listenerClosed, listenerFailed, listenerOpened } from '../proxysocket/events.ts';
import type { ListenSpec } from '../proxysocket/spec.ts';
import { Subscriptions } from '../util/channel.ts';
import { causeOf, knownCode, type ListenFailure } from './report.ts';

/**
 * The listeners that cannot be opened, by the data path's events.
 *
 * Events do not identify the engine, so a process has one engine for each set of service port names.
 */
export class ListenFailures {
  /** By service port, protocol and address. */
  readonly #failures = new Map<string, ListenFailure>();
  readonly #events = new Subscriptions();
  readonly #onChange: () => void;

  constructor(isOurs: (servicePort: string) => boolean, onChange: () => void) {
    this.#onChange = onChange;
    this.#events.on(listenerFailed, ({ servicePort, protocol, listen, code, error }) => {
      const cause = systemWord(error);
      const failure = { servicePort, protocol, listen, code: knownCode(code), cause };
      if (isOurs(servicePort)) this.#add(failure);
    });
    this.#events.on(listenerOpened, (event) => this.#delete(event));
    this.#events.on(listenerClosed, (event) => this.#delete(event));
  }

  /** All failures, by cause. */
  byCause(): Map<string, ListenFailure[]> {
    return Map.groupBy(this.#failures.values(), causeOf);
  }

  /** Drops failures of listeners that these service ports no longer need. `listen`: the needed ones. */
  keepOnly(
    servicePorts: ReadonlySet<string>,
    listen: (servicePort: string) => readonly ListenSpec[],
  ): void {
    const groups = Map.groupBy(this.#failures.values(), ({ servicePort }) => servicePort);
    for (const [servicePort, failures] of groups) {
      if (!servicePorts.has(servicePort)) continue;
      const needed = new Set(listen(servicePort).map(textOf));
      for (const each of failures) if (!needed.has(textOf(each.listen))) this.#delete(each);
    }
  }

  /** Stops following events. Idempotent. */
  close(): void {
    this.#events.end();
  }

  #add(failure: ListenFailure): void {
    const key = keyOf(failure);
    const before = this.#failures.get(key);
    if (before !== undefined && causeOf(before) === causeOf(failure)) return;
    // The first failure of a cause is the one that messages name.
    this.#failures.delete(key);
    this.#failures.set(key, failure);
    this.#onChange();
  }

  #delete(listener: Listener): void {
    if (this.#failures.delete(keyOf(listener))) this.#onChange();
  }
}

type Listener = Pick<ListenFailure, 'servicePort' | 'protocol' | 'listen'>;

function keyOf({ servicePort, protocol, listen }: Listener): string {
  return `${servicePort} ${protocol} ${textOf(listen)}`;
}

function textOf({ address, port }: ListenSpec): string {
  return `${address} ${port}`;
}

/** The system's error code of an error or its cause. */
function systemWord(error: Error): string {
  for (const each of [error.cause, error]) {
    if (each instanceof Error && 'code' in each && typeof each.code === 'string') return each.code;
  }
  return error.message;
}
