import type { Activity } from '../proxysocket/core/activity.ts';
import { KpngError } from '../errors.ts';
import type { InspectQuery, Inspection } from '../proxysocket/inspect.ts';
import type { Engine, Heir } from '../proxysocket/engine.ts';
import type { LimitChange } from '../proxysocket/limits.ts';
import type { EndpointSpec, EngineChange, Protocol } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';
import { nameHint } from './name-hint.ts';

/** What takes no new connections, because somebody said so. */
export type Drain =
  | { readonly kind: 'process' }
  /** `namespace/name:port`, or `namespace/name` for every port of a service. */
  | { readonly kind: 'service'; readonly service: string }
  /** `service` is absent for every service that the endpoint belongs to. */
  | { readonly kind: 'endpoint'; readonly endpoint: string; readonly service?: string };

/** What is drained at once, at most: each is looked at whenever a service port changes. */
export const MAX_DRAINS = 1000;

/** What a drain is about, in words. */
export function drainText(drain: Drain): string {
  if (drain.kind === 'process') return 'everything';
  if (drain.kind === 'service') return drain.service;
  return drain.service === undefined ? drain.endpoint : `${drain.endpoint} of ${drain.service}`;
}

/** A service port as it was asked for, without what is drained. */
interface Wanted {
  readonly protocol: Protocol;
  readonly endpoints: readonly EndpointSpec[];
}

/**
 * An engine in front of another one, which keeps new connections away from what is drained.
 *
 * To drain an endpoint is to say that it may be used for no traffic: what uses it lives on, and it is
 * never picked. A service port whose endpoints are all drained so resets its clients, and says why. Nothing
 * of this is in the way of a connection, and while nothing is drained every batch passes as it is.
 *
 * A drain holds until it is taken back or the process ends, whatever becomes of the service port.
 */
export class DrainingEngine implements Engine {
  readonly #engine: Engine;
  readonly #wanted = new Map<string, Wanted>();
  readonly #drains = new Map<string, Drain>();

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  get kind(): Engine['kind'] {
    return this.#engine.kind;
  }

  async apply(changes: readonly EngineChange[]): Promise<void> {
    this.#note(changes);
    if (this.#drains.size === 0) return this.#engine.apply(changes);
    return this.#engine.apply(changes.map((change) => this.#withDrains(change)));
  }

  async setLimits(limits: LimitChange): Promise<void> {
    await this.#engine.setLimits?.(limits);
  }

  snapshot(names?: ReadonlySet<string>): ReturnType<Engine['snapshot']> {
    return this.#engine.snapshot(names);
  }

  names(): string[] | undefined {
    return this.#engine.names?.();
  }

  activity(): Activity | undefined {
    return this.#engine.activity?.();
  }

  async inspect(query: InspectQuery): Promise<Inspection> {
    const empty = { connections: [], matched: 0, complete: false, endpoints: [] };
    return (await this.#engine.inspect?.(query)) ?? empty;
  }

  close(heir?: Heir): Promise<void> {
    return this.#engine.close(heir);
  }

  destroy(): Promise<void> {
    return this.#engine.destroy();
  }

  /** Everything that is drained, in the order in which it was. */
  drains(): readonly Drain[] {
    return [...this.#drains.values()];
  }

  /** The endpoints that a service port is to have, drained or not. */
  endpointsOf(name: string): readonly EndpointSpec[] {
    return this.#wanted.get(name)?.endpoints ?? [];
  }

  /** Whether the whole process takes nobody new. */
  get isAllDrained(): boolean {
    return this.#drains.has(keyOf({ kind: 'process' }));
  }

  /** Whether there may be endpoints that are drained by themselves. */
  get drainsEndpoints(): boolean {
    return this.#drains.size > 0;
  }

  /** Whether a service port, or the whole process, takes nobody new. */
  isDrained(name: string): boolean {
    if (this.#drains.size === 0) return false;
    return (
      this.isAllDrained ||
      this.#drains.has(keyOf({ kind: 'service', service: name })) ||
      this.#drains.has(keyOf({ kind: 'service', service: serviceOf(name) }))
    );
  }

  /** Whether an endpoint is drained by itself: not because of its service port. */
  isEndpointDrained(name: string, endpoint: string): boolean {
    if (this.#drains.size === 0) return false;
    const kind = 'endpoint';
    return (
      this.#drains.has(keyOf({ kind, endpoint })) ||
      this.#drains.has(keyOf({ kind, endpoint, service: name })) ||
      this.#drains.has(keyOf({ kind, endpoint, service: serviceOf(name) }))
    );
  }

  /**
   * Takes no new connections from now on. Resolves with the names of the service ports that this
   * concerns; rejects with KPNG_ADMIN_REFUSED when there is none, or when too much is drained.
   */
  async drain(drain: Drain): Promise<readonly string[]> {
    const names = this.#concerned(drain);
    if (names.length === 0 && drain.kind !== 'process') {
      const { service } = drain;
      const hint = service === undefined ? '' : nameHint(service, this.#wanted.keys());
      throw new KpngError('KPNG_ADMIN_REFUSED', `there is no ${wordsOf(drain)}${hint}`);
    }
    const key = keyOf(drain);
    if (!this.#drains.has(key) && this.#drains.size >= MAX_DRAINS) {
      throw new KpngError(
        'KPNG_ADMIN_REFUSED',
        `${MAX_DRAINS} services and endpoints are drained already; take some back first`,
      );
    }
    this.#drains.set(key, drain);
    await this.#renew(names);
    return names;
  }

  /** Takes a drain back; without one, all of them. Resolves with the service ports that this concerns. */
  async undrain(drain?: Drain): Promise<readonly string[]> {
    if (drain === undefined) {
      const names = new Set(this.drains().flatMap((each) => this.#concerned(each)));
      this.#drains.clear();
      await this.#renew([...names]);
      return [...names];
    }
    if (!this.#drains.delete(keyOf(drain))) {
      throw new KpngError('KPNG_ADMIN_REFUSED', `${drainText(drain)} is not drained`);
    }
    const names = this.#concerned(drain);
    await this.#renew(names);
    return names;
  }

  #note(changes: readonly EngineChange[]): void {
    for (const change of changes) if (change.kind === 'remove') this.#wanted.delete(change.name);
    for (const change of changes) {
      if (change.kind === 'set') {
        const { name, protocol, endpoints } = change.spec;
        this.#wanted.set(name, { protocol, endpoints });
      } else if (change.kind === 'endpoints') {
        const wanted = this.#wanted.get(change.name);
        if (wanted === undefined) continue;
        this.#wanted.set(change.name, { ...wanted, endpoints: change.endpoints });
      }
    }
  }

  #withDrains(change: EngineChange): EngineChange {
    if (change.kind === 'remove') return change;
    if (change.kind === 'endpoints') {
      return { ...change, endpoints: this.#drained(change.name, change.endpoints) };
    }
    const { spec } = change;
    return { kind: 'set', spec: { ...spec, endpoints: this.#drained(spec.name, spec.endpoints) } };
  }

  #drained(name: string, endpoints: readonly EndpointSpec[]): readonly EndpointSpec[] {
    const all = this.isDrained(name);
    return endpoints.map((endpoint) => {
      if (!all && !this.isEndpointDrained(name, textOf(endpoint))) return endpoint;
      const drained = (['internal', 'external'] as const).filter((traffic) => endpoint[traffic]);
      return { ...endpoint, internal: false, external: false, drained };
    });
  }

  /** Gives the engine the endpoints of some service ports as they are to be now. */
  async #renew(names: readonly string[]): Promise<void> {
    const changes = names.flatMap((name): EngineChange[] => {
      const wanted = this.#wanted.get(name);
      if (wanted === undefined) return [];
      return [{ kind: 'endpoints', name, endpoints: this.#drained(name, wanted.endpoints) }];
    });
    if (changes.length > 0) await this.#engine.apply(changes);
  }

  #concerned(drain: Drain): string[] {
    if (drain.kind === 'process') return [...this.#wanted.keys()];
    const { service } = drain;
    const names = service === undefined ? [...this.#wanted.keys()] : this.#portsOf(service);
    if (drain.kind === 'service') return names;
    return names.filter((name) =>
      this.endpointsOf(name).some((endpoint) => textOf(endpoint) === drain.endpoint),
    );
  }

  #portsOf(service: string): string[] {
    if (service.includes(':')) return this.#wanted.has(service) ? [service] : [];
    return [...this.#wanted.keys()].filter((name) => serviceOf(name) === service);
  }
}

function textOf({ address, port }: EndpointSpec): string {
  return formatHostPort({ host: address, port });
}

/** `namespace/name` of a service port. */
export function serviceOf(name: string): string {
  const colon = name.indexOf(':');
  return colon === -1 ? name : name.slice(0, colon);
}

function keyOf(drain: Drain): string {
  if (drain.kind === 'process') return 'process';
  if (drain.kind === 'service') return `service ${drain.service}`;
  return `endpoint ${drain.endpoint} ${drain.service ?? ''}`;
}

function wordsOf(drain: Drain): string {
  if (drain.kind === 'process') return 'service port';
  if (drain.kind === 'service') return `service ${JSON.stringify(drain.service)}`;
  const where = drain.service === undefined ? '' : ` of ${JSON.stringify(drain.service)}`;
  return `endpoint ${JSON.stringify(drain.endpoint)}${where}`;
}
