import { isDeepStrictEqual } from 'node:util';
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import type { GlobalService, GlobalState } from '../store/global-state.ts';

/** A step from one state to another: plain data, small enough to be handed from thread to thread. */
export type StateChange =
  | { readonly kind: 'setNode'; readonly node: Node }
  | { readonly kind: 'removeNode'; readonly name: string }
  | { readonly kind: 'removeService'; readonly key: string }
  | {
      /** Begins a service, and ends the one that was begun before. */
      readonly kind: 'service';
      readonly key: string;
      /** Undefined: as before. */
      readonly service: Service | undefined;
      /** How many of its former endpoints it begins with, and how many it ends with. */
      readonly head: number;
      readonly tail: number;
    }
  /** Endpoints of the service that was begun, behind those that it has by now. */
  | { readonly kind: 'endpoints'; readonly endpoints: readonly EndpointInfo[] };

const NOTHING: GlobalState = { services: new Map(), nodes: new Map() };

/** So many endpoints at most are one step. */
const MAX_ENDPOINTS = 500;

/**
 * What leads from one state to another. Of a service that has changed only the endpoints between the
 * first and the last one that differ.
 */
export function* stateChanges(
  former: GlobalState | undefined,
  latter: GlobalState,
): Generator<StateChange, void, undefined> {
  const { services, nodes } = former ?? NOTHING;
  for (const name of nodes.keys()) {
    if (!latter.nodes.has(name)) yield { kind: 'removeNode', name };
  }
  for (const [name, node] of latter.nodes) {
    if (!isDeepStrictEqual(nodes.get(name), node)) yield { kind: 'setNode', node };
  }
  for (const key of services.keys()) {
    if (!latter.services.has(key)) yield { kind: 'removeService', key };
  }
  for (const [key, service] of latter.services) {
    const before = services.get(key);
    if (before !== service) yield* serviceChanges(before, service);
  }
}

function* serviceChanges(
  before: GlobalService | undefined,
  { key, service, endpoints }: GlobalService,
): Generator<StateChange, void, undefined> {
  const old = before?.endpoints ?? [];
  const most = Math.min(old.length, endpoints.length);
  let head = 0;
  while (head < most && same(old[head], endpoints[head])) head += 1;
  let tail = 0;
  while (tail < most - head && same(old.at(-1 - tail), endpoints.at(-1 - tail))) tail += 1;
  const sameService = isDeepStrictEqual(before?.service, service);
  if (sameService && head === old.length && head === endpoints.length) return;
  yield { kind: 'service', key, service: sameService ? undefined : service, head, tail };
  const end = endpoints.length - tail;
  for (let at = head; at < end; at += MAX_ENDPOINTS) {
    yield { kind: 'endpoints', endpoints: endpoints.slice(at, Math.min(end, at + MAX_ENDPOINTS)) };
  }
}

function same(a: EndpointInfo | undefined, b: EndpointInfo | undefined): boolean {
  return a === b || isDeepStrictEqual(a, b);
}

interface Open {
  readonly key: string;
  readonly service: Service;
  readonly endpoints: EndpointInfo[];
  readonly tail: readonly EndpointInfo[];
  /** What to take equal objects from. */
  readonly known: GlobalService | undefined;
}

/** Carries out the steps that lead from one state to another. What stays, stays the same object. */
export class StateBuilder {
  readonly #former: GlobalState;
  readonly #anew: boolean;
  readonly #services: Map<string, GlobalService>;
  readonly #nodes: Map<string, Node>;
  #open: Open | undefined;

  /** `anew`: the steps lead to the whole state from nothing, not from the former one. */
  constructor(former: GlobalState = NOTHING, anew = false) {
    this.#former = former;
    this.#anew = anew;
    this.#services = new Map(anew ? [] : former.services);
    this.#nodes = new Map(anew ? [] : former.nodes);
  }

  add(change: StateChange): void {
    switch (change.kind) {
      case 'setNode':
        this.#nodes.set(change.node.name, change.node);
        break;
      case 'removeNode':
        this.#nodes.delete(change.name);
        break;
      case 'removeService':
        this.#services.delete(change.key);
        break;
      case 'service':
        this.#begin(change);
        break;
      case 'endpoints':
        this.#addEndpoints(change.endpoints);
        break;
    }
  }

  /** The state that the steps lead to. */
  finish(): GlobalState {
    this.#close();
    return { services: this.#services, nodes: this.#nodes };
  }

  #begin({ key, service, head, tail }: StateChange & { kind: 'service' }): void {
    this.#close();
    const former = this.#former.services.get(key);
    const before = this.#anew ? undefined : former;
    const old = before?.endpoints ?? [];
    const present = service ?? before?.service;
    if (present === undefined) throw new Error(`${key}: there is no such service to be changed`);
    this.#open = {
      key,
      service: isDeepStrictEqual(former?.service, present) ? (former?.service ?? present) : present,
      endpoints: old.slice(0, head),
      tail: old.slice(old.length - tail),
      known: this.#anew ? former : undefined,
    };
  }

  #addEndpoints(added: readonly EndpointInfo[]): void {
    const open = this.#open;
    if (open === undefined) throw new Error('there is no service for these endpoints');
    for (const info of added) {
      const known = open.known?.endpoints[open.endpoints.length];
      open.endpoints.push(known !== undefined && same(known, info) ? known : info);
    }
  }

  #close(): void {
    if (this.#open === undefined) return;
    const { key, service, endpoints, tail, known } = this.#open;
    this.#open = undefined;
    const all = tail.length === 0 ? endpoints : endpoints.concat(tail);
    const unchanged =
      known !== undefined &&
      known.service === service &&
      known.endpoints.length === all.length &&
      all.every((info, index) => info === known.endpoints[index]);
    this.#services.set(key, unchanged ? known : { key, service, endpoints: all });
  }
}
