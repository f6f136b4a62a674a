import { KpngError } from '../errors.ts';
import type { EndpointSpec, ServicePortSpec } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';
import { nameHint } from '../util/suggest.ts';

/** The targets of a drain by an operator. */
export type Drain =
  | { readonly kind: 'process' }
  /** `namespace/name:port`, or `namespace/name` for every port of a service. */
  | { readonly kind: 'service'; readonly service: string }
  /** `service` is absent for every service that the endpoint belongs to. */
  | { readonly kind: 'endpoint'; readonly endpoint: string; readonly service?: string };

/** Maximum number of drains: each is checked whenever a service port changes. */
export const MAX_DRAINS = 1000;

type Spec = Pick<ServicePortSpec, 'name' | 'endpoints'>;

/** The desired service ports, by name, before drains apply. */
export type Drainable = ReadonlyMap<string, { readonly spec: Spec }>;

/**
 * The drains of operators: a step between the desired state of the source and that of the engine.
 *
 * A drained endpoint keeps its connections and gets no new ones. A service port with only drained endpoints resets
 * its clients with that reason. A drain holds until it is taken back or the process ends.
 */
export class Drains {
  readonly #drains = new Map<string, Drain>();

  list(): readonly Drain[] {
    return [...this.#drains.values()];
  }

  get isEmpty(): boolean {
    return this.#drains.size === 0;
  }

  /** Whether the whole process drains. */
  get isAllDrained(): boolean {
    return this.#drains.has(keyOf({ kind: 'process' }));
  }

  /** Whether a service port is drained, or the whole process. */
  isDrained(name: string): boolean {
    if (this.#drains.size === 0) return false;
    const has = (service: string) => this.#drains.has(keyOf({ kind: 'service', service }));
    return this.isAllDrained || has(name) || has(serviceOf(name));
  }

  /** Whether an endpoint (`ip:port`) is drained itself, not only its service port. */
  isEndpointDrained(name: string, endpoint: string): boolean {
    if (this.#drains.size === 0) return false;
    const kind = 'endpoint';
    const owners = [{}, { service: name }, { service: serviceOf(name) }];
    return owners.some((owner) => this.#drains.has(keyOf({ kind, endpoint, ...owner })));
  }

  /** The service port for the engine; the same object while nothing is drained. */
  specOf<S extends Spec>(spec: S): S {
    if (this.#drains.size === 0) return spec;
    const all = this.isDrained(spec.name);
    const endpoints = spec.endpoints.map((endpoint) => {
      if (!all && !this.isEndpointDrained(spec.name, textOf(endpoint))) return endpoint;
      const kinds = ['internal', 'external', 'cluster'] as const;
      const drained = kinds.filter((traffic) => endpoint[traffic] === true);
      const { cluster: _, ...rest } = endpoint;
      return { ...rest, internal: false, external: false, drained };
    });
    return { ...spec, endpoints };
  }

  /** Replaces all drains. */
  restore(drains: readonly Drain[]): void {
    this.#drains.clear();
    for (const drain of drains) this.#drains.set(keyOf(drain), drain);
  }

  /**
   * Records a drain. Returns the affected service ports. Throws KPNG_ADMIN_REFUSED if it matches nothing, or there are
   * too many drains.
   */
  drain(drain: Drain, ports: Drainable): readonly string[] {
    const names = concerned(drain, ports);
    if (names.length === 0 && drain.kind !== 'process') {
      const { kind, service } = drain;
      const hint = service === undefined ? '' : nameHint(service, ports.keys());
      const of = service === undefined ? '' : JSON.stringify(service);
      const what =
        kind === 'service' ? of : `${JSON.stringify(drain.endpoint)}${of && ` of ${of}`}`;
      throw new KpngError('KPNG_ADMIN_REFUSED', `there is no ${kind} ${what}${hint}`);
    }
    const key = keyOf(drain);
    if (!this.#drains.has(key) && this.#drains.size >= MAX_DRAINS) {
      throw new KpngError(
        'KPNG_ADMIN_REFUSED',
        `${MAX_DRAINS} services and endpoints are drained already; undrain some first`,
      );
    }
    this.#drains.set(key, drain);
    return names;
  }

  /** Removes a drain; without one, all of them. Returns and throws as `drain` does. */
  undrain(drain: Drain | undefined, ports: Drainable): readonly string[] {
    const removed = drain === undefined ? this.list() : [drain];
    const names = new Set(removed.flatMap((each) => concerned(each, ports)));
    for (const each of removed) {
      if (this.#drains.delete(keyOf(each))) continue;
      throw new KpngError('KPNG_ADMIN_REFUSED', `${drainText(each)} is not drained`);
    }
    return [...names];
  }
}

export function drainText(drain: Drain): string {
  if (drain.kind === 'process') return 'everything';
  if (drain.kind === 'service') return drain.service;
  return drain.service === undefined ? drain.endpoint : `${drain.endpoint} of ${drain.service}`;
}

/** `namespace/name` of a service port. */
export function serviceOf(name: string): string {
  const colon = name.indexOf(':');
  return colon === -1 ? name : name.slice(0, colon);
}

function concerned(drain: Drain, ports: Drainable): string[] {
  const service = drain.kind === 'process' ? undefined : drain.service;
  return [...ports.values()].flatMap(({ spec: { name, endpoints } }) => {
    const isOther = service !== undefined && service !== name && service !== serviceOf(name);
    if (isOther) return [];
    if (drain.kind !== 'endpoint') return name;
    return endpoints.some((each) => textOf(each) === drain.endpoint) ? name : [];
  });
}

function textOf({ address, port }: EndpointSpec): string {
  return formatHostPort({ host: address, port });
}

function keyOf(drain: Drain): string {
  return `${drain.kind} ${drainText(drain)}`;
}
