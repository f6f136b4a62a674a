import type { LocalView } from '../store/local-view.ts';
import type { KpngError } from '../errors.ts';
import { desiredServicePorts, type DesiredServicePort, type Known } from './desired.ts';

const NOT_THERE = { ports: [], problems: [], known: undefined };

interface WantedService {
  readonly names: readonly string[];
  readonly problems: readonly KpngError[];
  readonly known: Known | undefined;
}

/** What a change set made of a service. */
export interface ServiceChange {
  /** Service ports that it had before or has now. */
  readonly names: ReadonlySet<string>;
  readonly problemsBefore: readonly KpngError[];
  readonly problems: readonly KpngError[];
}

/** The service ports that there should be, kept up to date service by service. */
export class Wanted {
  readonly #services = new Map<string, WantedService>();
  readonly #ports = new Map<string, DesiredServicePort>();
  #endpoints = 0;

  /** Services with at least one service port or problem. */
  get services(): number {
    return this.#services.size;
  }

  /** Endpoints, counted once for each service port. */
  get endpoints(): number {
    return this.#endpoints;
  }

  get ports(): ReadonlyMap<string, DesiredServicePort> {
    return this.#ports;
  }

  /** Reads a service anew from the view; it may be gone. */
  refresh(key: string, view: LocalView): ServiceChange {
    const before = this.#services.get(key);
    const entry = view.get(key);
    const { ports, problems, known } =
      entry === undefined ? NOT_THERE : desiredServicePorts(entry, before?.known);
    const names = new Set(before?.names);
    for (const name of names) this.#drop(name);
    for (const port of ports) {
      names.add(port.spec.name);
      this.#ports.set(port.spec.name, port);
      this.#endpoints += port.spec.endpoints.length;
    }
    if (ports.length === 0 && problems.length === 0) this.#services.delete(key);
    else this.#services.set(key, { names: ports.map(({ spec }) => spec.name), problems, known });
    return { names, problemsBefore: before?.problems ?? [], problems };
  }

  #drop(name: string): void {
    this.#endpoints -= this.#ports.get(name)?.spec.endpoints.length ?? 0;
    this.#ports.delete(name);
  }
}
