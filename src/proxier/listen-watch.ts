import {
  listenerClosed,
  listenerFailed,
  listenerOpened,
  type ListenerFailed,
  type ListenerOpened,
} from '../proxysocket/events.ts';
import type { ListenSpec } from '../proxysocket/spec.ts';
import { causeOf, knownCode, type ListenFailure } from './report.ts';

/** All failing listeners with the same cause, by address. Never empty. */
export type FailureGroup = ReadonlyMap<string, ListenFailure>;

/**
 * Tracks failing listeners by the data path's events, grouped by cause. Each event has constant cost.
 *
 * Events do not identify the engine, so a process has one engine for each set of service port names.
 */
export class ListenWatch {
  /** By cause, then by address. */
  readonly #groups = new Map<string, Map<string, ListenFailure>>();
  /** By service port: the cause of each address. */
  readonly #byServicePort = new Map<string, Map<string, string>>();
  readonly #isOurs: (servicePort: string) => boolean;
  readonly #onChange: (cause: string) => void;
  readonly #failed = (event: ListenerFailed): void => this.#add(event);
  readonly #over = (event: ListenerOpened): void => {
    this.#delete(event.servicePort, addressOf(event));
  };

  /** `onChange` is called with each cause whose group changed. */
  constructor(isOurs: (servicePort: string) => boolean, onChange: (cause: string) => void) {
    this.#isOurs = isOurs;
    this.#onChange = onChange;
    listenerFailed.subscribe(this.#failed);
    listenerOpened.subscribe(this.#over);
    listenerClosed.subscribe(this.#over);
  }

  /** The listeners that fail for a cause; undefined: none. */
  group(cause: string): FailureGroup | undefined {
    return this.#groups.get(cause);
  }

  /** Drops failures of listeners that a service port no longer needs. */
  keepOnly(servicePort: string, listen: readonly ListenSpec[]): void {
    const addresses = this.#byServicePort.get(servicePort);
    if (addresses === undefined) return;
    const wanted = new Set(listen.map((spec) => textOf(spec)));
    for (const address of addresses.keys()) {
      if (!wanted.has(address.slice(address.indexOf(' ') + 1))) this.#delete(servicePort, address);
    }
  }

  /** Stops following events. Idempotent. */
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
    const address = addressOf(event);
    const addresses = this.#byServicePort.get(servicePort) ?? new Map<string, string>();
    const before = addresses.get(address);
    if (before === cause) return;
    if (before !== undefined) this.#delete(servicePort, address);
    this.#byServicePort.set(servicePort, addresses.set(address, cause));
    const group = this.#groups.get(cause) ?? new Map<string, ListenFailure>();
    this.#groups.set(cause, group.set(`${servicePort} ${address}`, failure));
    this.#onChange(cause);
  }

  #delete(servicePort: string, address: string): void {
    const addresses = this.#byServicePort.get(servicePort);
    const cause = addresses?.get(address);
    if (addresses === undefined || cause === undefined) return;
    addresses.delete(address);
    if (addresses.size === 0) this.#byServicePort.delete(servicePort);
    const group = this.#groups.get(cause);
    group?.delete(`${servicePort} ${address}`);
    if (group?.size === 0) this.#groups.delete(cause);
    this.#onChange(cause);
  }
}

function textOf({ address, port }: ListenSpec): string {
  return `${address} ${port}`;
}

function addressOf({ protocol, listen }: ListenerOpened): string {
  return `${protocol} ${textOf(listen)}`;
}

/** The system's error code of an error or its cause. */
function systemWord(error: Error): string {
  for (const each of [error.cause, error]) {
    if (each instanceof Error && 'code' in each && typeof each.code === 'string') return each.code;
  }
  return error.message;
}
