import {
  listenerClosed,
  listenerFailed,
  listenerOpened,
  type ListenerFailed,
  type ListenerOpened,
} from '../proxysocket/events.ts';
import type { ListenSpec } from '../proxysocket/spec.ts';
import { causeOf, knownCode, type ListenFailure } from './report.ts';

/** All listeners that fail of one cause, by place. Never empty. */
export type FailureGroup = ReadonlyMap<string, ListenFailure>;

/**
 * Follows the data path's events to know which listeners fail, grouped by cause. Each event has constant cost.
 *
 * Events carry no engine, so a process has one engine for each set of service port names.
 */
export class ListenWatch {
  /** By cause, then by place. */
  readonly #groups = new Map<string, Map<string, ListenFailure>>();
  /** By service port: the cause of each place. */
  readonly #byServicePort = new Map<string, Map<string, string>>();
  readonly #isOurs: (servicePort: string) => boolean;
  readonly #onChange: (cause: string) => void;
  readonly #failed = (event: ListenerFailed): void => this.#add(event);
  readonly #over = (event: ListenerOpened): void => {
    this.#delete(event.servicePort, placeOf(event));
  };

  /** `onChange` is called with each cause whose group has changed. */
  constructor(isOurs: (servicePort: string) => boolean, onChange: (cause: string) => void) {
    this.#isOurs = isOurs;
    this.#onChange = onChange;
    listenerFailed.subscribe(this.#failed);
    listenerOpened.subscribe(this.#over);
    listenerClosed.subscribe(this.#over);
  }

  /** The listeners that fail for a cause; undefined when there are none. */
  group(cause: string): FailureGroup | undefined {
    return this.#groups.get(cause);
  }

  /** Drops failures of listeners that a service port does not need any more. */
  keepOnly(servicePort: string, listen: readonly ListenSpec[]): void {
    const places = this.#byServicePort.get(servicePort);
    if (places === undefined) return;
    const wanted = new Set(listen.map((spec) => textOf(spec)));
    for (const place of places.keys()) {
      if (!wanted.has(place.slice(place.indexOf(' ') + 1))) this.#delete(servicePort, place);
    }
  }

  /** Follows no more events. Idempotent. */
  close(): void {
    listenerFailed.unsubscribe(this.#failed);
    listenerOpened.unsubscribe(this.#over);
    listenerClosed.unsubscribe(this.#over);
  }

  #add(event: ListenerFailed): void {
    const { servicePort, protocol, listen, error } = event;
    if (!this.#isOurs(servicePort)) return;
    const code = knownCode(event.code);
    const failure: ListenFailure = {
      servicePort,
      protocol,
      listen,
      code,
      cause: systemWord(error),
    };
    const cause = causeOf(failure);
    const place = placeOf(event);
    const places = this.#byServicePort.get(servicePort) ?? new Map<string, string>();
    const before = places.get(place);
    if (before === cause) return;
    if (before !== undefined) this.#delete(servicePort, place);
    this.#byServicePort.set(servicePort, places.set(place, cause));
    const group = this.#groups.get(cause) ?? new Map<string, ListenFailure>();
    this.#groups.set(cause, group.set(`${servicePort} ${place}`, failure));
    this.#onChange(cause);
  }

  #delete(servicePort: string, place: string): void {
    const places = this.#byServicePort.get(servicePort);
    const cause = places?.get(place);
    if (places === undefined || cause === undefined) return;
    places.delete(place);
    if (places.size === 0) this.#byServicePort.delete(servicePort);
    const group = this.#groups.get(cause);
    group?.delete(`${servicePort} ${place}`);
    if (group?.size === 0) this.#groups.delete(cause);
    this.#onChange(cause);
  }
}

function textOf({ address, port }: ListenSpec): string {
  return `${address} ${port}`;
}

function placeOf({ protocol, listen }: ListenerOpened): string {
  return `${protocol} ${textOf(listen)}`;
}

/** The operating system's code of an error, or of its cause. */
function systemWord(error: Error): string {
  for (const each of [error.cause, error]) {
    if (each instanceof Error && 'code' in each && typeof each.code === 'string') return each.code;
  }
  return error.message;
}
